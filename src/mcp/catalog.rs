//! All skills of one revision, immutable: where each is served, in which order they are listed, and
//! what a URI means. Leaves how they come here to `feed`, and files to `files`.

use super::address::{Place, above, places};
use super::entry::Entry;
use super::limits::MAX_URI_BYTES;
use crate::hidden::escape_hidden;
use crate::proto::caproot::v1::{RootReason, RootState, RootStatus, SelectedCapabilityRoot};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// One revision.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    roots: Arc<[SelectedCapabilityRoot]>,
    /// By root, qualified name and package.
    listed: Vec<Listed>,
    /// By the URI that they are served at.
    by_uri: HashMap<String, usize>,
    /// By the name of the prompt.
    by_prompt: HashMap<String, usize>,
    /// Roots that give no skills, and why.
    not_ready: Vec<Value>,
    /// Whether there were more skills than are held.
    over: bool,
    /// Equal where lists of resources are equal, but for sizes.
    shown: u64,
    /// Equal where lists of prompts are equal.
    shown_prompts: u64,
}

/// A skill and where it is served.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) entry: Arc<Entry>,
    pub(super) place: Place,
    /// The name of the prompt by which a person starts the skill; `None` if a model may use the skill by
    /// itself, so that it is in the lists.
    pub(super) prompt: Option<String>,
}

/// What a URI means.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) skill: &'a Listed,
    pub(super) root: &'a SelectedCapabilityRoot,
    /// The handle of the file or directory.
    pub(super) handle: String,
}

impl Catalog {
    /// The catalog of these skills.
    pub(super) fn new<'a>(
        roots: Arc<[SelectedCapabilityRoot]>,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
        statuses: impl Iterator<Item = &'a RootStatus>,
        over: bool,
    ) -> Self {
        let mut entries: Vec<Arc<Entry>> = entries.cloned().collect();
        entries.sort_by(|a, b| key(a).cmp(&key(b)));
        let named = entries.iter().map(|entry| {
            let name = entry.author.as_ref().map(|author| author.name.as_str());
            (entry.package.as_str(), name)
        });
        let mut places: HashMap<String, Place> =
            places(named).into_iter().map(|(package, place)| (package.to_owned(), place)).collect();
        let mut bearers: HashMap<Cow<'_, str>, usize> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.forbids_implicit) {
            *bearers.entry(escape_hidden(&entry.name)).or_default() += 1;
        }
        // A name that is not unique, or looks like a URI, gives way to the URI.
        let own = |entry: &Arc<Entry>| {
            let name = Some(escape_hidden(&entry.name)).filter(|_| entry.forbids_implicit)?;
            let is_own = bearers.get(&name) == Some(&1) && !name.starts_with("skill://");
            is_own.then(|| name.into_owned())
        };
        let own: Vec<Option<String>> = entries.iter().map(own).collect();
        let (mut shown, mut shown_prompts) = (DefaultHasher::new(), DefaultHasher::new());
        let listed = entries.into_iter().zip(own).map(|(entry, own)| {
            let place = places.remove(&entry.package).unwrap_or(Place::Taken);
            let uri = served(&entry, &place);
            let prompt = entry.forbids_implicit.then(|| own.unwrap_or_else(|| uri.to_owned()));
            let lists = if prompt.is_some() { &mut shown_prompts } else { &mut shown };
            (entry.shown, uri, &prompt).hash(lists);
            Listed { entry, place, prompt }
        });
        let listed: Vec<Listed> = listed.collect();
        let by_prompt = listed.iter().enumerate();
        let by_prompt = by_prompt.filter_map(|(n, skill)| Some((skill.prompt.clone()?, n)));
        let by_prompt = by_prompt.collect();
        let by_uri = listed.iter().enumerate().map(|(n, skill)| (skill.uri().to_owned(), n));
        let by_uri = by_uri.collect();
        let not_ready = statuses.filter(|root| root.state() != RootState::Ready).map(|root| {
            let reason = root.reason().as_str_name().trim_start_matches("ROOT_REASON_");
            let reason = (root.reason() != RootReason::Unspecified).then_some(reason);
            let state = root.state().as_str_name().trim_start_matches("ROOT_STATE_");
            json!({"id": root.id, "state": state, "reason": reason})
        });
        let not_ready = not_ready.collect();
        let (shown, shown_prompts) = (shown.finish(), shown_prompts.finish());
        Self { roots, listed, by_uri, by_prompt, not_ready, over, shown, shown_prompts }
    }

    /// The skills behind a place in the order, which is that of `key`.
    pub(super) fn after(&self, last: Option<(usize, &str, &str)>) -> &[Listed] {
        let start = last.map_or(0, |last| self.listed.partition_point(|s| key(&s.entry) <= last));
        &self.listed[start..]
    }

    /// The root of a skill.
    pub(super) fn root_of(&self, entry: &Entry) -> &SelectedCapabilityRoot {
        // Entries are made of roots of this very selection.
        &self.roots[entry.root]
    }

    /// The skill that a URI is, or is below, and the handle that it stands for.
    pub(super) fn find(&self, uri: &str) -> Option<Found<'_>> {
        if uri.len() > MAX_URI_BYTES || !uri.starts_with("skill://") {
            return None;
        }
        let mut bases = std::iter::once(uri).chain(above(uri));
        let (base, skill) = bases.find_map(|base| Some((base, self.by_uri.get(base)?)))?;
        let skill = &self.listed[*skill];
        let handle = format!("{}{}", skill.entry.package, &uri[base.len()..]);
        Some(Found { skill, root: self.root_of(&skill.entry), handle })
    }

    /// The skill whose SKILL.md that is.
    pub(super) fn main(&self, uri: &str) -> Option<&Listed> {
        let skill = self.by_uri.get(uri.strip_suffix("/SKILL.md")?)?;
        self.listed.get(*skill)
    }

    /// The skill that a person starts by the prompt with this name.
    pub(super) fn prompt(&self, name: &str) -> Option<&Listed> {
        self.listed.get(*self.by_prompt.get(name)?)
    }

    /// What is not to be seen in the lists: roots that are not ready, and whether skills are over
    /// what is held. `None` where that is nothing.
    pub(super) fn unseen(&self) -> Option<Value> {
        let is_whole = self.not_ready.is_empty() && !self.over;
        (!is_whole).then(|| json!({"rootsNotReady": self.not_ready, "truncated": self.over}))
    }

    /// Whether lists of resources show the same in both, but for sizes.
    pub(super) fn shows_as(&self, other: &Self) -> bool {
        self.shown == other.shown
    }

    /// Whether lists of prompts show the same in both.
    pub(super) fn prompts_as(&self, other: &Self) -> bool {
        self.shown_prompts == other.shown_prompts
    }
}

impl Listed {
    /// The URI of its directory.
    pub(super) fn uri(&self) -> &str {
        served(&self.entry, &self.place)
    }

    /// The URI of its SKILL.md.
    pub(super) fn main_uri(&self) -> String {
        format!("{}/SKILL.md", self.uri())
    }

    /// The URI of one of its files, by the handle.
    pub(super) fn uri_of(&self, handle: &str) -> Option<String> {
        let rest = handle.strip_prefix(&self.entry.package)?;
        rest.starts_with('/').then(|| format!("{}{rest}", self.uri()))
    }

    /// Its name in lists: the author's where the standard allows it.
    pub(super) fn name(&self) -> &str {
        match (&self.place, &self.entry.author) {
            (Place::Skill(_), Some(author)) => &author.name,
            _ => &self.entry.name,
        }
    }
}

fn served<'a>(entry: &'a Entry, place: &'a Place) -> &'a str {
    match place {
        Place::Skill(uri) => uri,
        Place::BadName | Place::Taken => &entry.package,
    }
}

/// What the order of lists goes by.
pub(super) fn key(entry: &Entry) -> (usize, &str, &str) {
    (entry.root, &entry.name, &entry.package)
}

#[cfg(test)]
mod tests {
    use super::{Catalog, Entry, Place, key};
    use crate::mcp::entry::tests::skill;
    use crate::proto::caproot::v1::{
        RootState, RootStatus, SelectedCapabilityRoot, Skill, SkillPolicy,
    };
    use std::sync::Arc;

    fn catalog(skills: &[(&str, &str)]) -> Catalog {
        let entry = |(package, name): &(&str, &str)| Entry::of(0, skill(package, name));
        let entries: Vec<_> = skills.iter().map(|skill| Arc::new(entry(skill))).collect();
        let roots = vec![SelectedCapabilityRoot { id: "r".into(), location: None }];
        Catalog::new(roots.into(), entries.iter(), [].iter(), false)
    }

    #[test]
    fn a_uri_leads_to_the_innermost_skill() {
        let catalog =
            catalog(&[("skill://r/a", "a"), ("skill://r/a/b", "b"), ("skill://r/dir", "named")]);
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
            let found = catalog.find(uri);
            assert_eq!(found.as_ref().map(|found| found.handle.as_str()), handle, "{uri}");
        }
        let inner = catalog.find("skill://r/a/b/x").expect("found");
        assert_eq!(inner.skill.entry.package, "skill://r/a/b");
        assert_eq!(inner.skill.uri_of("skill://r/a/b/x").as_deref(), Some("skill://r/a/b/x"));
        let moved = catalog.main("skill://r/named/SKILL.md").expect("listed");
        assert_eq!(moved.uri_of("skill://r/dir/x").as_deref(), Some("skill://r/named/x"));
        assert!(catalog.main("skill://r/dir/SKILL.md").is_none());
        assert!(catalog.find(&format!("skill://r/a/{}", "x".repeat(5000))).is_none());
    }

    #[test]
    fn pages_go_on_behind_a_key() {
        let all = catalog(&[("skill://r/b", "b"), ("skill://r/a", "a"), ("skill://r/c", "Bad")]);
        let names: Vec<_> = all.after(None).iter().map(super::Listed::name).collect();
        assert_eq!(names, ["Bad", "a", "b"]);
        assert_eq!(all.after(None)[0].place, Place::BadName);
        let rest = all.after(Some(key(&all.after(None)[1].entry)));
        assert_eq!(rest.len(), 1);
        assert_eq!(all.after(Some((0, "az", ""))).len(), 1, "a name that is no longer there");
    }

    #[test]
    fn each_prompt_has_a_name_of_its_own() {
        let closed = |(package, name): (&str, &str)| {
            let policy =
                SkillPolicy { allow_implicit_invocation: Some(false), ..SkillPolicy::default() };
            let skill = Skill { policy: Some(policy), ..skill(package, name) };
            Arc::new(Entry::of(0, skill))
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
        let roots = vec![SelectedCapabilityRoot { id: "r".into(), location: None }];
        let catalog = Catalog::new(roots.into(), entries.iter(), [].iter(), false);
        for skill in catalog.after(None) {
            let name = skill.prompt.as_deref().expect("a prompt");
            let found = catalog.prompt(name).expect("by its name");
            assert_eq!(found.entry.package, skill.entry.package, "{name}");
        }
        assert!(catalog.prompt("a").is_some() && catalog.prompt("same").is_none());
    }

    #[test]
    fn what_is_unseen_is_said() {
        assert_eq!(catalog(&[]).unseen(), None);
        let mut status = RootStatus { id: "r".into(), ..RootStatus::default() };
        status.set_state(RootState::Pending);
        let pending = Catalog::new([].into(), [].iter(), [status].iter(), true);
        let unseen = pending.unseen().expect("something").to_string();
        assert!(unseen.contains("PENDING") && unseen.contains("\"truncated\":true"), "{unseen}");
    }
}
