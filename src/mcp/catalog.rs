//! Immutable catalog of all skills of one revision: their URIs, their order in lists, and the
//! lookup of URIs.

use super::address::{SkillAddress, assign_addresses};
use super::limits::MAX_URI_BYTES;
use super::skill_record::SkillRecord;
use caproot_core::proto::caproot::v1::{RootReason, RootState, RootStatus, SelectedCapabilityRoot};
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::handle::{HANDLE_SCHEME, parent_handles};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Catalog of one revision.
#[derive(Debug, Default)]
pub struct McpCatalog {
    roots: Arc<[SelectedCapabilityRoot]>,
    /// By root, qualified name and package.
    skills: Vec<ServedSkill>,
    /// Index in `skills` by URI.
    by_uri: HashMap<String, usize>,
    /// Index in `skills` by the name of the prompt.
    by_prompt: HashMap<String, usize>,
    /// Roots without skills, with the reason.
    not_ready: Vec<Value>,
    /// Whether the daemon has more skills than the limit allows.
    is_truncated: bool,
    /// Hash of the lists of resources, without sizes.
    resources_hash: u64,
    /// Hash of the lists of prompts.
    prompts_hash: u64,
}

/// Skill with its address.
#[derive(Debug)]
pub struct ServedSkill {
    pub record: Arc<SkillRecord>,
    pub address: SkillAddress,
    /// Name of the prompt by which a person starts the skill. `None` if a model may choose the skill
    /// by itself, so that the skill is in the lists, and if a person may not choose the skill.
    pub prompt_name: Option<String>,
}

/// File or directory that a URI means.
#[derive(Debug)]
pub struct ResolvedUri<'a> {
    pub skill: &'a ServedSkill,
    pub root: &'a SelectedCapabilityRoot,
    /// Handle of the file or directory.
    pub handle: String,
}

/// Returns the skills with their addresses and the names of their prompts.
fn served_skills(entries: &[Arc<SkillRecord>]) -> Vec<ServedSkill> {
    let named = entries.iter().map(|entry| {
        let author = entry.frontmatter.as_ref();
        let name = author.map(|author| author.name.as_str());
        (entry.package.as_str(), name)
    });
    let mut addresses = assign_addresses(named);

    let mut bearers: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.is_prompt()) {
        *bearers.entry(escape_hidden_chars(&entry.name)).or_default() += 1;
    }

    let mut skills = Vec::with_capacity(entries.len());
    for entry in entries {
        let address = addresses
            .remove(entry.package.as_str())
            .unwrap_or(SkillAddress::UriTaken);

        let prompt_name = entry.is_prompt().then(|| {
            let name = escape_hidden_chars(&entry.name);
            // If a name is not unique, or looks like a URI, the prompt is named by the URI.
            let is_own = bearers.get(&name) == Some(&1) && !name.starts_with(HANDLE_SCHEME);
            if is_own {
                name.into_owned()
            } else {
                served_uri(entry, &address).to_owned()
            }
        });
        skills.push(ServedSkill {
            record: entry.clone(),
            address,
            prompt_name,
        });
    }
    skills
}

fn unready_root_json(root: &RootStatus) -> Value {
    let state = root.state().as_str_name().trim_start_matches("ROOT_STATE_");
    let reason = (root.reason() != RootReason::Unspecified).then(|| {
        let name = root.reason().as_str_name();
        name.trim_start_matches("ROOT_REASON_")
    });
    json!({ "id": root.id, "state": state, "reason": reason })
}

impl McpCatalog {
    /// Creates the catalog of these skills.
    pub fn new<'a>(
        roots: Arc<[SelectedCapabilityRoot]>,
        entries: impl Iterator<Item = &'a Arc<SkillRecord>>,
        statuses: impl Iterator<Item = &'a RootStatus>,
        is_truncated: bool,
    ) -> Self {
        let mut entries: Vec<Arc<SkillRecord>> = entries.cloned().collect();
        entries.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));

        let skills = served_skills(&entries);
        let mut by_uri = HashMap::new();
        let mut by_prompt = HashMap::new();
        let mut resources = DefaultHasher::new();
        let mut prompts = DefaultHasher::new();
        for (index, skill) in skills.iter().enumerate() {
            by_uri.insert(skill.uri().to_owned(), index);
            let lists = match &skill.prompt_name {
                Some(name) => {
                    by_prompt.insert(name.clone(), index);
                    &mut prompts
                }
                None if skill.record.is_offered() => &mut resources,
                None => continue,
            };
            (skill.record.listing_hash, skill.uri(), &skill.prompt_name).hash(lists);
        }

        let not_ready = statuses
            .filter(|root| root.state() != RootState::Ready)
            .map(unready_root_json)
            .collect();
        Self {
            roots,
            skills,
            by_uri,
            by_prompt,
            not_ready,
            is_truncated,
            resources_hash: resources.finish(),
            prompts_hash: prompts.finish(),
        }
    }

    /// Returns the skills after a position in the order of [`sort_key`].
    pub fn skills_after(&self, last: Option<(usize, &str, &str)>) -> &[ServedSkill] {
        let start = last.map_or(0, |last| {
            self.skills.partition_point(|s| sort_key(&s.record) <= last)
        });
        &self.skills[start..]
    }

    /// Returns the root of a skill.
    pub fn root_of(&self, entry: &SkillRecord) -> &SelectedCapabilityRoot {
        // The records were created with the indexes of this selection.
        &self.roots[entry.root_index]
    }

    /// Finds the innermost skill of a URI, and the handle that the URI means.
    pub fn resolve_uri(&self, uri: &str) -> Option<ResolvedUri<'_>> {
        if uri.len() > MAX_URI_BYTES || !uri.starts_with(HANDLE_SCHEME) {
            return None;
        }
        let mut bases = std::iter::once(uri).chain(parent_handles(uri));
        let (base, skill) = bases.find_map(|base| Some((base, self.by_uri.get(base)?)))?;
        let skill = &self.skills[*skill];
        let handle = format!("{}{}", skill.record.package, &uri[base.len()..]);
        Some(ResolvedUri {
            skill,
            root: self.root_of(&skill.record),
            handle,
        })
    }

    /// Finds the skill with this SKILL.md URI.
    pub fn skill_by_main_uri(&self, uri: &str) -> Option<&ServedSkill> {
        let skill = self.by_uri.get(uri.strip_suffix("/SKILL.md")?)?;
        self.skills.get(*skill)
    }

    /// Finds the skill that this prompt starts.
    pub fn skill_by_prompt(&self, name: &str) -> Option<&ServedSkill> {
        self.skills.get(*self.by_prompt.get(name)?)
    }

    /// Returns the omissions of the lists: roots that are not ready, and whether skills exceed the
    /// limit. `None` if the lists are complete.
    pub fn omissions(&self) -> Option<Value> {
        let is_whole = self.not_ready.is_empty() && !self.is_truncated;
        (!is_whole)
            .then(|| json!({"rootsNotReady": self.not_ready, "truncated": self.is_truncated}))
    }

    /// Whether the lists of resources are equal in both catalogs, except for sizes.
    pub fn lists_same_resources(&self, other: &Self) -> bool {
        self.resources_hash == other.resources_hash
    }

    /// Whether the lists of prompts are equal in both catalogs.
    pub fn lists_same_prompts(&self, other: &Self) -> bool {
        self.prompts_hash == other.prompts_hash
    }
}

impl ServedSkill {
    /// Returns the digest and the size of the SKILL.md.
    pub fn file_version(&self) -> (&str, u64) {
        (&self.record.digest, self.record.size)
    }

    /// Returns the URI of the skill's directory.
    pub fn uri(&self) -> &str {
        served_uri(&self.record, &self.address)
    }

    /// Returns the URI of its SKILL.md.
    pub fn main_uri(&self) -> String {
        format!("{}/SKILL.md", self.uri())
    }

    /// Returns the URI of one of its files, by the file's handle.
    pub fn uri_for_handle(&self, handle: &str) -> Option<String> {
        let rest = handle.strip_prefix(&self.record.package)?;
        rest.starts_with('/')
            .then(|| format!("{}{rest}", self.uri()))
    }

    /// Returns its name in lists: the name in the frontmatter if the standard allows it.
    pub fn name(&self) -> &str {
        match (&self.address, &self.record.frontmatter) {
            (SkillAddress::Uri(_), Some(author)) => &author.name,
            _ => &self.record.name,
        }
    }
}

fn served_uri<'a>(entry: &'a SkillRecord, address: &'a SkillAddress) -> &'a str {
    match address {
        SkillAddress::Uri(uri) => uri,
        SkillAddress::InvalidName | SkillAddress::UriTaken => &entry.package,
    }
}

/// Sort key of lists: root, qualified name, package.
pub fn sort_key(entry: &SkillRecord) -> (usize, &str, &str) {
    (entry.root_index, &entry.name, &entry.package)
}

#[cfg(test)]
mod tests {
    use super::{McpCatalog, SkillAddress, SkillRecord, sort_key};
    use crate::mcp::skill_record::tests::skill;
    use caproot_core::proto::caproot::v1::{
        NotOffered, RootState, RootStatus, SelectedCapabilityRoot, Skill,
    };
    use std::sync::Arc;

    fn catalog(skills: &[(&str, &str)]) -> McpCatalog {
        let entry =
            |(package, name): &(&str, &str)| SkillRecord::from_skill(0, skill(package, name));
        let entries: Vec<_> = skills.iter().map(|skill| Arc::new(entry(skill))).collect();
        let roots = vec![SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        }];
        McpCatalog::new(roots.into(), entries.iter(), [].iter(), false)
    }

    #[test]
    fn uri_resolves_to_the_innermost_skill() {
        let catalog = catalog(&[
            ("skill://r/a", "a"),
            ("skill://r/a/b", "b"),
            ("skill://r/dir", "named"),
        ]);
        for (uri, handle) in [
            ("skill://r/a", Some("skill://r/a")),
            ("skill://r/a/x/y.md", Some("skill://r/a/x/y.md")),
            ("skill://r/a/b/SKILL.md", Some("skill://r/a/b/SKILL.md")),
            ("skill://r/named/x", Some("skill://r/dir/x")),
            ("skill://r/dir/x", None),
            ("skill://r/ab", None),
            ("skill://r", None),
            ("skill://", None),
            ("test://r/a", None),
            ("", None),
        ] {
            let found = catalog.resolve_uri(uri);
            assert_eq!(
                found.as_ref().map(|found| found.handle.as_str()),
                handle,
                "{uri}"
            );
        }
        let inner = catalog.resolve_uri("skill://r/a/b/x").expect("found");
        assert_eq!(inner.skill.record.package, "skill://r/a/b");
        assert_eq!(
            inner.skill.uri_for_handle("skill://r/a/b/x").as_deref(),
            Some("skill://r/a/b/x")
        );
        let moved = catalog
            .skill_by_main_uri("skill://r/named/SKILL.md")
            .expect("listed");
        assert_eq!(
            moved.uri_for_handle("skill://r/dir/x").as_deref(),
            Some("skill://r/named/x")
        );
        assert!(
            catalog
                .skill_by_main_uri("skill://r/dir/SKILL.md")
                .is_none()
        );
        assert!(
            catalog
                .resolve_uri(&format!("skill://r/a/{}", "x".repeat(5000)))
                .is_none()
        );
    }

    #[test]
    fn pages_resume_after_a_key() {
        let all = catalog(&[
            ("skill://r/b", "b"),
            ("skill://r/a", "a"),
            ("skill://r/c", "Bad"),
        ]);
        let names: Vec<_> = all
            .skills_after(None)
            .iter()
            .map(super::ServedSkill::name)
            .collect();
        assert_eq!(names, ["Bad", "a", "b"]);
        assert_eq!(all.skills_after(None)[0].address, SkillAddress::InvalidName);
        let rest = all.skills_after(Some(sort_key(&all.skills_after(None)[1].record)));
        assert_eq!(rest.len(), 1);
        assert_eq!(
            all.skills_after(Some((0, "az", ""))).len(),
            1,
            "the name was removed"
        );
    }

    #[test]
    fn prompt_names_are_unique() {
        let closed = |(package, name): (&str, &str)| {
            let skill = Skill {
                not_offered: NotOffered::PeopleOnly.into(),
                ..skill(package, name)
            };
            Arc::new(SkillRecord::from_skill(0, skill))
        };
        let names = [
            ("skill://r/a", "a"),
            ("skill://r/b", "same"),
            ("skill://r/c", "same"),
            ("skill://r/d", "skill://r/a"),
            ("skill://r/e", "x\u{200b}"),
            ("skill://r/f", r"x\u{200b}"),
        ];
        let entries = names.map(closed);
        let roots = vec![SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        }];
        let catalog = McpCatalog::new(roots.into(), entries.iter(), [].iter(), false);
        for skill in catalog.skills_after(None) {
            let name = skill.prompt_name.as_deref().expect("a prompt");
            let found = catalog.skill_by_prompt(name).expect("by its name");
            assert_eq!(found.record.package, skill.record.package, "{name}");
        }
        assert!(
            catalog.skill_by_prompt("a").is_some() && catalog.skill_by_prompt("same").is_none()
        );
    }

    #[test]
    fn omissions_are_reported() {
        assert_eq!(catalog(&[]).omissions(), None);
        let mut status = RootStatus {
            id: "r".into(),
            ..RootStatus::default()
        };
        status.set_state(RootState::Pending);
        let pending = McpCatalog::new([].into(), [].iter(), [status].iter(), true);
        let unseen = pending.omissions().expect("something").to_string();
        assert!(
            unseen.contains("PENDING") && unseen.contains("\"truncated\":true"),
            "{unseen}"
        );
    }
}
