//! Skills of a session at one moment, as a host sees them: their URIs, their order in lists, and the lookup
//! of URIs.

use super::address::{SkillAddress, assign_addresses};
use super::frontmatter::text_field;
use super::limits::MAX_URI_BYTES;
use super::list_changes::HostList;
use caproot_client::Trust;
use caproot_core::proto::caproot::v1::{
    NotOffered, RootReason, RootState, RootStatus, SelectedCapabilityRoot, Skill,
};
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::handle::{HANDLE_SCHEME, parent_handles};
use caproot_session::{Session, SkillNameList, SkillNameListOptions};
use prost::Message;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Skills of a session at one moment.
#[derive(Debug)]
pub struct ServedView {
    /// By root, qualified name and package.
    skills: Vec<ServedSkill>,
    /// Index in `skills` by URI.
    by_uri: HashMap<String, usize>,
    /// Omissions of the lists: roots that are not ready, and whether skills exceed the limit. `None` if
    /// the lists are complete.
    pub omissions: Option<Value>,
    /// Names in the texts for a model.
    pub names: SkillNameList,
    /// Hash of each list, without sizes.
    hashes: [u64; 3],
}

/// Skill with its address.
#[derive(Debug)]
pub struct ServedSkill {
    pub skill: Arc<Skill>,
    /// Index of its root in the selection.
    root_index: usize,
    pub address: SkillAddress,
    /// Name of the prompt by which a person starts the skill. `None` if a model may choose the skill
    /// by itself, so that the skill is in the lists, and if a person may not choose the skill.
    pub prompt_name: Option<String>,
    /// Whether the texts are of a lock, which has no frontmatter.
    is_locked: bool,
}

/// Name and description that the standard requires of a skill.
#[derive(Debug, Clone, Copy)]
pub struct AuthorTexts<'a> {
    pub name: &'a str,
    pub description: &'a str,
}

/// File or directory that a URI means.
#[derive(Debug)]
pub struct ResolvedUri<'a> {
    pub skill: &'a ServedSkill,
    /// Handle of the file or directory.
    pub handle: String,
}

impl ServedView {
    /// Returns the skills that a session has now. The skills of an executor that is lost stay.
    pub fn of_session(session: &Session, names: SkillNameListOptions) -> Self {
        let skills: Vec<_> = session
            .sources()
            .iter()
            .flat_map(|source| source.snapshot().listing.skills.clone())
            .collect();
        let is_locked = matches!(session.trust(), Trust::Lock(_));
        let names = session.skill_names(names);
        Self {
            omissions: find_omissions(session.roots(), &session.root_statuses()),
            ..Self::new(session.roots(), &skills, is_locked, names)
        }
    }

    /// Returns the view of complete lists.
    pub(super) fn new(
        roots: &[SelectedCapabilityRoot],
        skills: &[Arc<Skill>],
        is_locked: bool,
        names: SkillNameList,
    ) -> Self {
        let skills = served_skills(roots, skills, is_locked);
        let uris = skills.iter().map(|skill| skill.uri().to_owned());
        Self {
            by_uri: uris.zip(0..).collect(),
            omissions: None,
            hashes: HostList::ALL.map(|list| hash_list(list, &skills, &names)),
            names,
            skills,
        }
    }

    /// Returns the skills after a position in the order of [`ServedSkill::sort_key`].
    pub fn skills_after(&self, last: Option<(usize, &str, &str)>) -> &[ServedSkill] {
        let start = last.map_or(0, |last| {
            self.skills
                .partition_point(|skill| skill.sort_key() <= last)
        });
        &self.skills[start..]
    }

    /// Finds the innermost skill of a URI, and the handle that the URI means.
    pub fn resolve_uri(&self, uri: &str) -> Option<ResolvedUri<'_>> {
        if uri.len() > MAX_URI_BYTES || !uri.starts_with(HANDLE_SCHEME) {
            return None;
        }
        let mut bases = std::iter::once(uri).chain(parent_handles(uri));
        let (base, index) = bases.find_map(|base| Some((base, self.by_uri.get(base)?)))?;
        let skill = &self.skills[*index];
        Some(ResolvedUri {
            skill,
            handle: format!("{}{}", skill.skill.package, &uri[base.len()..]),
        })
    }

    /// Finds the skill with this SKILL.md URI.
    pub fn skill_by_main_uri(&self, uri: &str) -> Option<&ServedSkill> {
        let skill = self.by_uri.get(uri.strip_suffix("/SKILL.md")?)?;
        self.skills.get(*skill)
    }

    /// Finds the skill that this prompt starts.
    pub fn skill_by_prompt(&self, name: &str) -> Option<&ServedSkill> {
        let mut skills = self.skills.iter();
        skills.find(|skill| skill.prompt_name.as_deref() == Some(name))
    }

    /// Returns the URIs of the skills of the plugin of a skill, by their encoded path below the plugin.
    pub fn uris_in_plugin(&self, skill: &ServedSkill) -> HashMap<&str, &str> {
        let Some(plugin) = skill.skill.plugin_package() else {
            return HashMap::new();
        };
        let in_plugin = self.skills.iter().filter_map(|other| {
            let below = other.skill.package.strip_prefix(plugin)?;
            let is_below = below.is_empty() || below.starts_with('/');
            is_below.then(|| (below.trim_start_matches('/'), other.uri()))
        });
        in_plugin.collect()
    }

    /// Returns the hash of a list. A host sees no difference between lists with one hash.
    pub fn list_hash(&self, list: HostList) -> u64 {
        self.hashes[list as usize]
    }
}

impl Default for ServedView {
    fn default() -> Self {
        Self::new(&[], &[], false, SkillNameList::default())
    }
}

fn hash_list(list: HostList, skills: &[ServedSkill], names: &SkillNameList) -> u64 {
    let mut hasher = DefaultHasher::new();
    if list == HostList::Tools {
        names.hash(&mut hasher);
    }

    for served in skills {
        let is_entry = match list {
            HostList::Tools => false,
            HostList::Resources => served.is_offered(),
            HostList::Prompts => served.prompt_name.is_some(),
        };
        if !is_entry {
            continue;
        }

        // The digest of the file is left out: a changed file is reported by its URI.
        let skill = &served.skill;
        (served.uri(), &served.prompt_name).hash(&mut hasher);
        (&skill.name, &skill.description).hash(&mut hasher);
        skill
            .frontmatter
            .as_ref()
            .map(Message::encode_to_vec)
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the skills in the order of lists, with their addresses and the names of their prompts.
fn served_skills(
    roots: &[SelectedCapabilityRoot],
    skills: &[Arc<Skill>],
    is_locked: bool,
) -> Vec<ServedSkill> {
    let root_indexes: HashMap<&str, usize> =
        roots.iter().map(|root| root.id.as_str()).zip(0..).collect();
    let named = skills.iter().map(|skill| {
        let author = author_texts(skill, is_locked);
        (skill.package.as_str(), author.map(|author| author.name))
    });
    let mut addresses = assign_addresses(named);

    let mut bearers: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for skill in skills.iter().filter(|skill| is_prompt(skill)) {
        *bearers.entry(escape_hidden_chars(&skill.name)).or_default() += 1;
    }

    let served = skills.iter().filter_map(|skill| {
        let root_index = *root_indexes.get(&*skill.authority.as_ref()?.id)?;
        let address = addresses
            .remove(skill.package.as_str())
            .unwrap_or(SkillAddress::UriTaken);

        let prompt_name = is_prompt(skill).then(|| {
            let name = escape_hidden_chars(&skill.name);
            // If a name is not unique, or looks like a URI, the prompt is named by the URI.
            let is_own = bearers.get(&name) == Some(&1) && !name.starts_with(HANDLE_SCHEME);
            if is_own {
                name.into_owned()
            } else {
                served_uri(skill, &address).to_owned()
            }
        });
        Some(ServedSkill {
            skill: skill.clone(),
            root_index,
            address,
            prompt_name,
            is_locked,
        })
    });
    let mut served: Vec<_> = served.collect();
    served.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    served
}

/// Whether a skill is a prompt: only a person may choose the skill.
fn is_prompt(skill: &Skill) -> bool {
    skill.user_invocable && skill.not_offered() == NotOffered::PeopleOnly
}

/// Returns the texts that the standard requires: of the frontmatter, or of the lock.
fn author_texts(skill: &Skill, is_locked: bool) -> Option<AuthorTexts<'_>> {
    if is_locked {
        return Some(AuthorTexts {
            name: skill.name.rsplit(':').next().unwrap_or_default(),
            description: &skill.description,
        });
    }
    Some(AuthorTexts {
        name: text_field(skill, "name")?,
        description: text_field(skill, "description")?,
    })
}

/// Returns the omissions of lists. A root without a state belongs to an executor that has not answered.
fn find_omissions(roots: &[SelectedCapabilityRoot], statuses: &[RootStatus]) -> Option<Value> {
    let mut unready = Vec::new();
    for root in roots {
        match statuses.iter().find(|status| status.id == root.id) {
            Some(status) if status.state() == RootState::Ready => {}
            Some(status) => unready.push(unready_root_json(status)),
            None => unready.push(json!({ "id": root.id, "state": "UNAVAILABLE", "reason": null })),
        }
    }
    let is_truncated = statuses.iter().any(|root| root.truncated);
    (!unready.is_empty() || is_truncated)
        .then(|| json!({"rootsNotReady": unready, "truncated": is_truncated}))
}

fn unready_root_json(root: &RootStatus) -> Value {
    let state = root.state().as_str_name().trim_start_matches("ROOT_STATE_");
    let reason = (root.reason() != RootReason::Unspecified).then(|| {
        root.reason()
            .as_str_name()
            .trim_start_matches("ROOT_REASON_")
    });
    json!({ "id": root.id, "state": state, "reason": reason })
}

impl ServedSkill {
    /// Returns its sort key in lists: root, qualified name, package.
    pub fn sort_key(&self) -> (usize, &str, &str) {
        (self.root_index, &self.skill.name, &self.skill.package)
    }

    /// Whether the skill is offered to models.
    pub fn is_offered(&self) -> bool {
        self.skill.is_offered()
    }

    /// Returns the digest and the size of the SKILL.md.
    pub fn file_version(&self) -> (&str, u64) {
        (&self.skill.digest, self.skill.size_bytes)
    }

    /// Returns the texts that the standard requires of a skill. `None` if its frontmatter lacks one.
    pub fn author_texts(&self) -> Option<AuthorTexts<'_>> {
        author_texts(&self.skill, self.is_locked)
    }

    /// Returns the description of a skill: the frontmatter's if the frontmatter is complete.
    pub fn description(&self) -> Cow<'_, str> {
        let author = self.author_texts();
        let description = author.map_or(&*self.skill.description, |author| author.description);
        escape_hidden_chars(description)
    }

    /// Returns the name of a skill in lists: the name in the frontmatter if the standard allows it.
    pub fn listed_name(&self) -> Cow<'_, str> {
        escape_hidden_chars(match (&self.address, self.author_texts()) {
            (SkillAddress::Uri(_), Some(author)) => author.name,
            _ => &self.skill.name,
        })
    }

    /// Returns the URI of the skill's directory.
    pub fn uri(&self) -> &str {
        served_uri(&self.skill, &self.address)
    }

    /// Returns the URI of its SKILL.md.
    pub fn main_uri(&self) -> String {
        format!("{}/SKILL.md", self.uri())
    }

    /// Returns the URI of one of its files, by the file's handle.
    pub fn uri_for_handle(&self, handle: &str) -> Option<String> {
        let rest = handle.strip_prefix(&self.skill.package)?;
        rest.starts_with('/')
            .then(|| format!("{}{rest}", self.uri()))
    }
}

fn served_uri<'a>(skill: &'a Skill, address: &'a SkillAddress) -> &'a str {
    match address {
        SkillAddress::Uri(uri) => uri,
        SkillAddress::InvalidName | SkillAddress::UriTaken => &skill.package,
    }
}

#[cfg(test)]
pub(in crate::agent::mcp) mod tests {
    use super::{HostList, ServedView, SkillAddress, SkillNameList, find_omissions};
    use caproot_client::root_id;
    use caproot_core::proto::caproot::v1::{
        Authority, NotOffered, RootState, RootStatus, SelectedCapabilityRoot, Skill,
    };
    use prost_types::value::Kind;
    use prost_types::{Struct, Value};
    use std::sync::Arc;

    /// Returns a skill with this handle and this name in its frontmatter.
    pub(in crate::agent::mcp) fn skill(package: &str, name: &str) -> Skill {
        let fields = [("name", name), ("description", "Does  it.")].map(|(key, text)| {
            let kind = Some(Kind::StringValue(text.to_owned()));
            (key.to_owned(), Value { kind })
        });
        let id = root_id(package).expect("a handle").as_str().to_owned();
        Skill {
            authority: Some(Authority {
                kind: "executor".into(),
                id,
            }),
            package: package.into(),
            main_resource: format!("{package}/SKILL.md"),
            name: name.into(),
            description: "Does it.".into(),
            digest: "sha256:1".into(),
            user_invocable: true,
            frontmatter: Some(Struct {
                fields: fields.into_iter().collect(),
            }),
            ..Skill::default()
        }
    }

    /// Returns the view of the skills of a root `r`.
    pub(in crate::agent::mcp) fn view_of(skills: impl IntoIterator<Item = Skill>) -> ServedView {
        let skills: Vec<_> = skills.into_iter().map(Arc::new).collect();
        ServedView::new(&[root()], &skills, false, SkillNameList::default())
    }

    fn root() -> SelectedCapabilityRoot {
        SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        }
    }

    fn view(skills: &[(&str, &str)]) -> ServedView {
        view_of(skills.iter().map(|(package, name)| skill(package, name)))
    }

    #[test]
    fn uri_resolves_to_the_innermost_skill() {
        let view = view(&[
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
            let found = view.resolve_uri(uri);
            assert_eq!(
                found.as_ref().map(|found| found.handle.as_str()),
                handle,
                "{uri}"
            );
        }

        let inner = view.resolve_uri("skill://r/a/b/x").expect("found");
        assert_eq!(inner.skill.skill.package, "skill://r/a/b");
        assert_eq!(
            inner.skill.uri_for_handle("skill://r/a/b/x").as_deref(),
            Some("skill://r/a/b/x")
        );

        let moved = view
            .skill_by_main_uri("skill://r/named/SKILL.md")
            .expect("listed");
        assert_eq!(
            moved.uri_for_handle("skill://r/dir/x").as_deref(),
            Some("skill://r/named/x")
        );
        assert!(view.skill_by_main_uri("skill://r/dir/SKILL.md").is_none());
        assert!(
            view.resolve_uri(&format!("skill://r/a/{}", "x".repeat(5000)))
                .is_none()
        );
    }

    #[test]
    fn pages_resume_after_a_key() {
        let all = view(&[
            ("skill://r/b", "b"),
            ("skill://r/a", "a"),
            ("skill://r/c", "Bad"),
        ]);
        let names: Vec<_> = all
            .skills_after(None)
            .iter()
            .map(|skill| skill.listed_name())
            .collect();
        assert_eq!(names, ["Bad", "a", "b"]);
        assert_eq!(all.skills_after(None)[0].address, SkillAddress::InvalidName);
        let rest = all.skills_after(Some(all.skills_after(None)[1].sort_key()));
        assert_eq!(rest.len(), 1);
        assert_eq!(
            all.skills_after(Some((0, "az", ""))).len(),
            1,
            "the name was removed"
        );
    }

    #[test]
    fn prompt_names_are_unique() {
        let closed = |(package, name): (&str, &str)| Skill {
            not_offered: NotOffered::PeopleOnly.into(),
            ..skill(package, name)
        };
        let names = [
            ("skill://r/a", "a"),
            ("skill://r/b", "same"),
            ("skill://r/c", "same"),
            ("skill://r/d", "skill://r/a"),
            ("skill://r/e", "x\u{200b}"),
            ("skill://r/f", r"x\u{200b}"),
        ];
        let view = view_of(names.map(closed));
        for skill in view.skills_after(None) {
            let name = skill.prompt_name.as_deref().expect("a prompt");
            let found = view.skill_by_prompt(name).expect("by its name");
            assert_eq!(found.skill.package, skill.skill.package, "{name}");
        }
        assert!(view.skill_by_prompt("a").is_some() && view.skill_by_prompt("same").is_none());
    }

    #[test]
    fn omissions_are_reported() {
        let mut status = RootStatus {
            id: "r".into(),
            ..RootStatus::default()
        };
        status.set_state(RootState::Ready);
        assert_eq!(find_omissions(&[root()], &[status.clone()]), None);
        status.truncated = true;
        status.set_state(RootState::Pending);
        for (statuses, state) in [(vec![status], "PENDING"), (Vec::new(), "UNAVAILABLE")] {
            let omissions = find_omissions(&[root()], &statuses).expect("something");
            assert_eq!(omissions["rootsNotReady"][0]["state"], state);
            assert_eq!(omissions["truncated"], !statuses.is_empty());
        }
    }

    #[test]
    fn each_list_has_a_hash_of_its_fields() {
        let skill = skill("skill://r/a", "a");
        let before = view_of([skill.clone()]);
        let same = |skill: Skill| {
            let after = view_of([skill]);
            [HostList::Resources, HostList::Prompts]
                .map(|list| before.list_hash(list) == after.list_hash(list))
        };
        let body = Skill {
            digest: "sha256:2".into(),
            size_bytes: 7,
            ..skill.clone()
        };
        assert_eq!(same(body), [true, true], "only the body changed");
        let described = Skill {
            description: "Other.".into(),
            ..skill.clone()
        };
        assert_eq!(same(described), [false, true]);
        let mut licensed = skill.clone();
        let fields = &mut licensed.frontmatter.as_mut().expect("frontmatter").fields;
        fields.insert("license".into(), Value::default());
        assert_eq!(same(licensed), [false, true]);
        let closed = Skill {
            not_offered: NotOffered::PeopleOnly.into(),
            ..skill
        };
        assert_eq!(same(closed), [false, false]);
    }
}
