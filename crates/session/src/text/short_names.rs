//! Short names of a session: texts for a model give the name of a skill in place of its handle, which
//! takes a third of the bytes. A short name keeps its skill: a name that a model has seen never comes
//! to mean another skill.

use crate::skills::equal_roots::EqualRoots;
use crate::skills::skill::{AuthorityRef, SharedSkill, is_hidden};
use caproot_core::text::single_line;
use caproot_core::wire::handle::format_name_handle;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Bytes of all names and handles after which texts give handles, so that new skills cannot fill the
/// memory or the saved state of a long conversation.
const MAX_TOTAL_BYTES: usize = 256 << 10;
/// Limit of a name in bytes. A skill with a longer name has its handle in texts.
const MAX_NAME_BYTES: usize = 128;

/// Short name with its skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShortName {
    /// Name of the skill, or the id of its authority, `/` and the name.
    pub name: String,
    /// Kind of the authority.
    pub kind: String,
    /// Id of the authority.
    pub root: String,
    pub package: String,
}

/// Short names that texts of a session gave, in the order of their first use.
#[derive(Debug, Clone, Default)]
pub struct ShortNames(Vec<ShortName>);

/// Identity of a skill: the kind and the id of its authority, its package and its name.
type SkillIdentity<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Chooser of the names of skills in a text.
#[derive(Debug)]
pub struct NameChooser<'a> {
    known: HashMap<SkillIdentity<'a>, &'a str>,
    /// Names that mean a skill already.
    taken: HashSet<&'a str>,
    /// How many skills of texts have a name. Equal skills of several environments count once.
    name_counts: HashMap<&'a str, usize>,
    /// How many skills of an authority have a name.
    qualified_counts: HashMap<(&'a str, &'a str), usize>,
    /// Whether new skills have their handles in texts.
    is_full: bool,
}

impl ShortName {
    /// Returns whether the name means this skill.
    pub fn is_of(&self, skill: &SharedSkill) -> bool {
        skill_identity(skill) == self.identity()
    }

    fn identity(&self) -> SkillIdentity<'_> {
        let named = split_qualified(&self.name).map_or(&*self.name, |(_, name)| name);
        let version = version_digits(&self.package).and_then(|digits| named.strip_suffix(digits));
        let skill_name = version.and_then(|named| named.strip_suffix('@'));
        let skill_name = skill_name.unwrap_or(named);
        (&self.kind, &self.root, &self.package, skill_name)
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.kind.len() + self.root.len() + self.package.len()
    }
}

impl ShortNames {
    /// Returns the names of a saved state, whose size bounds them.
    pub fn restore(saved: Vec<ShortName>) -> Self {
        Self(saved)
    }

    /// Returns the names in the order of their first use.
    pub fn entries(&self) -> &[ShortName] {
        &self.0
    }

    /// Returns the entry of a name.
    pub fn find(&self, name: &str) -> Option<&ShortName> {
        self.0.iter().find(|known| known.name == name)
    }

    /// Returns the short name of a skill, if a text gave one.
    pub fn name_of(&self, skill: &SharedSkill) -> Option<&str> {
        let known = self.0.iter().find(|known| known.is_of(skill));
        known.map(|known| known.name.as_str())
    }

    /// Records that a name means a skill from now on. A name and a skill that are known stay as they
    /// are.
    pub fn bind_name(&mut self, name: &str, skill: &SharedSkill) {
        let is_known = self.find(name).is_some() || self.name_of(skill).is_some();
        if is_known || self.is_full() {
            return;
        }

        let (kind, root, package, _) = skill_identity(skill);
        self.0.push(ShortName {
            name: name.to_owned(),
            kind: kind.to_owned(),
            root: root.to_owned(),
            package: package.to_owned(),
        });
    }

    /// Returns a chooser for the skills of a view.
    pub fn chooser<'a>(
        &'a self,
        skills: &'a [SharedSkill],
        equal_roots: &EqualRoots,
    ) -> NameChooser<'a> {
        let known = self.0.iter();
        let mut chooser = NameChooser {
            taken: known.clone().map(|known| known.name.as_str()).collect(),
            known: known
                .map(|known| (known.identity(), known.name.as_str()))
                .collect(),
            name_counts: HashMap::with_capacity(skills.len()),
            qualified_counts: HashMap::new(),
            is_full: self.is_full(),
        };

        let shown = skills
            .iter()
            .filter(|skill| !is_hidden(skill) && equal_roots.is_in_texts(skill));
        for skill in shown.clone() {
            *chooser.name_counts.entry(&skill.name).or_default() += 1;
        }
        // Few names are not unique, so that the second table is small.
        for skill in shown {
            if chooser.is_unique(&skill.name) && !chooser.taken.contains(skill.name.as_str()) {
                continue;
            }
            *chooser
                .qualified_counts
                .entry((AuthorityRef::of_skill(skill).id, skill.name.as_str()))
                .or_default() += 1;
        }
        chooser
    }

    fn is_full(&self) -> bool {
        self.0.iter().map(ShortName::bytes).sum::<usize>() >= MAX_TOTAL_BYTES
    }
}

impl NameChooser<'_> {
    /// Returns the short name of a skill: the name that the session gave before, the plain name if no
    /// other skill has or had it, or the shortest `ROOT/NAME`. With a lock, one of several versions in a
    /// root is `ROOT/NAME@DIGITS`. `None` if only the handle is unique.
    pub fn choose(&self, skill: &SharedSkill) -> Option<String> {
        if let Some(known) = self.known.get(&skill_identity(skill)) {
            return Some((*known).to_owned());
        }

        let name = skill.name.as_str();
        if self.is_full || !is_repeatable(name) {
            return None;
        }
        if self.is_unique(name) && !self.taken.contains(name) {
            return Some(name.to_owned());
        }

        let id = AuthorityRef::of_skill(skill).id;
        // The handle of one of several approved versions is unique in its root.
        let version = version_digits(&skill.package)
            .map(|digits| format!("{name}@{digits}"))
            .filter(|version| format_name_handle(id, version) == skill.package);
        let is_unique = version.is_some() || self.qualified_counts.get(&(id, name)) == Some(&1);
        let qualified = format!("{id}/{}", version.as_deref().unwrap_or(name));
        let is_free = is_unique && !self.taken.contains(qualified.as_str());
        (is_free && single_line(id) == id).then_some(qualified)
    }

    fn is_unique(&self, name: &str) -> bool {
        self.name_counts.get(name) == Some(&1)
    }
}

/// Returns the digits of a digest at the end of a handle, such as that of one of several approved versions.
fn version_digits(package: &str) -> Option<&str> {
    let (_, digits) = package.rsplit_once("%40")?;
    let is_digest = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(digits)
}

/// Returns the parts of a short name that begins with an id. An id may have slashes, a name has none.
pub fn split_qualified(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('/')
}

/// Returns whether a model can repeat a name, and a call reads the name as it is.
pub fn is_repeatable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.trim() == name
        && !name.starts_with('$')
        && !name.contains('/')
        && single_line(name) == name
}

fn skill_identity(skill: &SharedSkill) -> SkillIdentity<'_> {
    let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
    (kind, id, &skill.package, &skill.name)
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOTAL_BYTES, SharedSkill, ShortName, ShortNames, is_repeatable};
    use crate::skills::equal_roots::EqualRoots;
    use crate::view::list::tests::skill;
    use caproot_core::proto::caproot::v1::Skill;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    fn choose(names: &ShortNames, skills: &[SharedSkill]) -> Vec<Option<String>> {
        let equal = EqualRoots::default();
        let chooser = names.chooser(skills, &equal);
        skills.iter().map(|skill| chooser.choose(skill)).collect()
    }

    /// Returns a skill in a directory of this name.
    fn skill_at(root: &str, directory: &str, name: &str) -> SharedSkill {
        Arc::new(Skill {
            package: format!("skill://{root}/{directory}"),
            ..Skill::clone(&skill(root, name, "", false))
        })
    }

    #[test]
    fn the_shortest_name_that_is_unique_is_chosen() {
        let skills = [
            skill_at("r", "a", "pdf"),
            skill_at("r", "b", "docx"),
            skill_at("q/x", "a", "docx"),
            skill_at("q/x", "b", "twice"),
            skill_at("q/x", "c", "twice"),
            skill_at("r", "d", "two words"),
            skill_at("r", "e", "hid\u{202e}den"),
            skill_at("r", "f", "r/docx"),
            skill_at("r", "g", "$x"),
            skill_at("r", "h", "kit:deploy"),
        ];
        let chosen = choose(&ShortNames::default(), &skills);
        let chosen: Vec<_> = chosen
            .iter()
            .map(|name| name.as_deref().unwrap_or("-"))
            .collect();
        assert_eq!(
            chosen,
            [
                "pdf",
                "r/docx",
                "q/x/docx",
                "-",
                "-",
                "two words",
                "-",
                "-",
                "-",
                "kit:deploy"
            ]
        );
    }

    #[test]
    fn versions_of_a_name_have_digits() {
        let versions = ["pdf%401a2b3c4d", "pdf%405e6f7a8b"];
        let skills = versions.map(|directory| skill_at("r", directory, "pdf"));
        let mut names = ShortNames::default();
        let chosen = choose(&names, &skills);
        let expected = ["r/pdf@1a2b3c4d", "r/pdf@5e6f7a8b"].map(|name| Some(name.to_owned()));
        assert_eq!(chosen, expected);
        names.bind_name("r/pdf@1a2b3c4d", &skills[0]);
        assert_eq!(names.name_of(&skills[0]), Some("r/pdf@1a2b3c4d"));
        assert_eq!(names.name_of(&skills[1]), None);
    }

    #[test]
    fn a_name_keeps_its_skill() {
        let first = skill_at("r", "pdf", "pdf");
        let second = skill_at("q", "pdf", "pdf");
        let mut names = ShortNames::default();
        names.bind_name("pdf", &first);

        let chosen = choose(&names, &[second.clone(), first.clone()]);
        assert_eq!(chosen, [Some("q/pdf".into()), Some("pdf".into())]);
        // The first skill is gone, and its name is still its own.
        assert_eq!(
            choose(&names, std::slice::from_ref(&second)),
            [Some("q/pdf".into())]
        );

        names.bind_name("pdf", &second);
        names.bind_name("other", &first);
        assert_eq!(names.entries().len(), 1);
        let restored = ShortNames::restore(names.entries().to_vec());
        assert_eq!(restored.name_of(&first), Some("pdf"));
        assert_eq!(restored.name_of(&second), None);
    }

    #[test]
    fn a_full_table_gives_handles_to_new_skills() {
        let mut names = ShortNames::default();
        let long = "d".repeat(1_000);
        for number in 0..1_000 {
            let name = format!("s{number}");
            names.bind_name(&name, &skill_at("r", &format!("{long}{number}"), &name));
        }
        let bytes: usize = names.entries().iter().map(ShortName::bytes).sum();
        assert!(bytes < MAX_TOTAL_BYTES + 2_000, "{bytes}");
        let known = skill_at("r", &format!("{long}7"), "s7");
        let chosen = choose(&names, &[known, skill_at("r", "new", "new")]);
        assert_eq!(chosen, [Some("s7".into()), None]);
    }

    proptest! {
        /// However skills come and go, two skills never get one name, and a name never changes.
        #[test]
        fn names_never_change_their_skill(
            views in prop::collection::vec(prop::collection::btree_set((0_usize..3, 0_usize..3, 0_usize..3), 0..12), 1..8),
        ) {
            let mut names = ShortNames::default();
            let mut seen: HashMap<String, String> = HashMap::new();
            for view in views {
                let skills: Vec<_> = view
                    .iter()
                    .map(|(root, directory, name)| {
                        skill_at(["r", "q", "q/r"][*root], &directory.to_string(), ["a", "b", "r/a"][*name])
                    })
                    .collect();
                let chosen = choose(&names, &skills);
                for (name, skill) in chosen.iter().zip(&skills) {
                    let Some(name) = name else { continue };
                    prop_assert!(is_repeatable(name.rsplit('/').next().unwrap_or_default()));
                    let package = format!("{} {}", skill.package, skill.name);
                    let before = seen.entry(name.clone()).or_insert_with(|| package.clone());
                    prop_assert_eq!(&*before, &package, "{}", name);
                    names.bind_name(name, skill);
                }
            }
        }
    }
}
