//! Immutable catalog of all skills of one revision: their URIs, their order in lists, and the
//! lookup of URIs.

use super::address::{SkillAddress, assign_addresses};
use super::frontmatter::{hash_fields, text_field};
use super::limits::MAX_URI_BYTES;
use caproot_client::approve_skill;
use caproot_client::session::SkillNameList;
use caproot_core::lock::{ApprovedFiles, Lock};
use caproot_core::proto::caproot::v1::{
    NotOffered, RootReason, RootState, RootStatus, SelectedCapabilityRoot, Skill,
};
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::handle::{HANDLE_SCHEME, parent_handles};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Catalog of one revision.
#[derive(Debug)]
pub struct McpCatalog {
    roots: Arc<[SelectedCapabilityRoot]>,
    /// Lock that approved the skills; `None` if no skill needs approval.
    lock: Option<Arc<Lock>>,
    /// By root, qualified name and package.
    skills: Vec<ServedSkill>,
    /// Index in `skills` by URI.
    by_uri: HashMap<String, usize>,
    /// Index in `skills` by the name of the prompt.
    by_prompt: HashMap<String, usize>,
    /// Roots without skills, with the reason.
    not_ready: Vec<Value>,
    /// Whether a limit of the daemon omitted skills.
    is_truncated: bool,
    /// Names in the texts for a model.
    names: SkillNameList,
    hashes: ListHashes,
}

/// Content of a catalog.
#[derive(Debug, Default)]
pub struct CatalogContent {
    /// Roots in the order of the selection.
    pub roots: Arc<[SelectedCapabilityRoot]>,
    /// Lock that approved the skills; `None` if no skill needs approval.
    pub lock: Option<Arc<Lock>>,
    /// Skills of these roots.
    pub skills: Vec<Arc<Skill>>,
    /// States of these roots.
    pub statuses: Vec<RootStatus>,
    /// Names in the texts for a model.
    pub names: SkillNameList,
}

/// Hashes of the lists of a catalog, without sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListHashes {
    pub tools: u64,
    pub resources: u64,
    pub prompts: u64,
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
    pub root: &'a SelectedCapabilityRoot,
    /// Approved files of the skill; `None` if the skill needs no approval.
    pub approved: Option<&'a ApprovedFiles>,
    /// Handle of the file or directory.
    pub handle: String,
}

impl Default for McpCatalog {
    fn default() -> Self {
        Self::new(CatalogContent::default())
    }
}

/// Returns the skills in the order of lists, with their addresses and the names of their prompts.
fn served_skills(content: &CatalogContent) -> Vec<ServedSkill> {
    let root_indexes: HashMap<&str, usize> = content
        .roots
        .iter()
        .enumerate()
        .map(|(index, root)| (root.id.as_str(), index))
        .collect();
    let named = content.skills.iter().map(|skill| {
        let author = author_texts(skill, content.lock.is_some());
        (skill.package.as_str(), author.map(|author| author.name))
    });
    let mut addresses = assign_addresses(named);

    let mut bearers: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for skill in content.skills.iter().filter(|skill| is_prompt(skill)) {
        *bearers.entry(escape_hidden_chars(&skill.name)).or_default() += 1;
    }

    let mut skills = Vec::with_capacity(content.skills.len());
    for skill in &content.skills {
        let authority = skill.authority.as_ref();
        let root = authority.and_then(|authority| root_indexes.get(&*authority.id));
        let Some(&root_index) = root else {
            continue;
        };
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
        skills.push(ServedSkill {
            skill: skill.clone(),
            root_index,
            address,
            prompt_name,
        });
    }
    skills.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    skills
}

/// Whether a skill is a prompt: only a person may choose the skill.
fn is_prompt(skill: &Skill) -> bool {
    skill.user_invocable && skill.not_offered() == NotOffered::PeopleOnly
}

/// Returns the texts that the standard requires: of the frontmatter, or of the lock.
fn author_texts(skill: &Skill, has_lock: bool) -> Option<AuthorTexts<'_>> {
    if has_lock {
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

/// Returns the roots without skills. A root without a state belongs to an executor that has not answered.
fn unready_roots(content: &CatalogContent) -> Vec<Value> {
    let statuses: HashMap<&str, &RootStatus> = content
        .statuses
        .iter()
        .map(|status| (status.id.as_str(), status))
        .collect();
    let roots = content.roots.iter();
    let unready = roots.filter_map(|root| match statuses.get(root.id.as_str()) {
        Some(status) if status.state() == RootState::Ready => None,
        Some(status) => Some(unready_root_json(status)),
        None => Some(json!({ "id": root.id, "state": "UNAVAILABLE", "reason": null })),
    });
    unready.collect()
}

fn unready_root_json(root: &RootStatus) -> Value {
    let state = root.state().as_str_name().trim_start_matches("ROOT_STATE_");
    let reason = (root.reason() != RootReason::Unspecified).then(|| {
        let name = root.reason().as_str_name();
        name.trim_start_matches("ROOT_REASON_")
    });
    json!({ "id": root.id, "state": state, "reason": reason })
}

impl ListHashes {
    fn new(skills: &[ServedSkill], names: &SkillNameList) -> Self {
        let mut tools = DefaultHasher::new();
        names.hash(&mut tools);

        let mut resources = DefaultHasher::new();
        let mut prompts = DefaultHasher::new();
        for served in skills {
            let list = match &served.prompt_name {
                Some(_) => &mut prompts,
                None if served.is_offered() => &mut resources,
                None => continue,
            };
            let skill = &served.skill;
            (served.uri(), &served.prompt_name).hash(list);
            (&skill.name, &skill.description).hash(list);
            hash_fields(skill, list);
        }
        Self {
            tools: tools.finish(),
            resources: resources.finish(),
            prompts: prompts.finish(),
        }
    }
}

impl McpCatalog {
    /// Creates the catalog of a content.
    pub fn new(content: CatalogContent) -> Self {
        let skills = served_skills(&content);
        let mut by_uri = HashMap::new();
        let mut by_prompt = HashMap::new();
        for (index, skill) in skills.iter().enumerate() {
            by_uri.insert(skill.uri().to_owned(), index);
            if let Some(name) = &skill.prompt_name {
                by_prompt.insert(name.clone(), index);
            }
        }

        let mut statuses = content.statuses.iter();
        Self {
            is_truncated: statuses.any(|root| root.truncated),
            not_ready: unready_roots(&content),
            hashes: ListHashes::new(&skills, &content.names),
            skills,
            by_uri,
            by_prompt,
            roots: content.roots,
            lock: content.lock,
            names: content.names,
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

    /// Returns the package of a skill. Returns `None` if the lock does not approve the skill.
    pub fn resolve_skill<'a>(&'a self, skill: &'a ServedSkill) -> Option<ResolvedUri<'a>> {
        let approved = match &self.lock {
            None => None,
            Some(lock) => Some(&approve_skill(lock, &skill.skill)?.version.files),
        };
        Some(ResolvedUri {
            skill,
            // The skills were created with the indexes of this selection.
            root: &self.roots[skill.root_index],
            approved,
            handle: skill.skill.package.clone(),
        })
    }

    /// Finds the innermost skill of a URI, and the handle that the URI means.
    pub fn resolve_uri(&self, uri: &str) -> Option<ResolvedUri<'_>> {
        if uri.len() > MAX_URI_BYTES || !uri.starts_with(HANDLE_SCHEME) {
            return None;
        }
        let mut bases = std::iter::once(uri).chain(parent_handles(uri));
        let (base, skill) = bases.find_map(|base| Some((base, self.by_uri.get(base)?)))?;
        let mut found = self.resolve_skill(&self.skills[*skill])?;
        found.handle.push_str(&uri[base.len()..]);
        Some(found)
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

    /// Returns the texts that the standard requires of a skill. `None` if its frontmatter lacks one.
    pub fn author_texts<'a>(&self, skill: &'a ServedSkill) -> Option<AuthorTexts<'a>> {
        author_texts(&skill.skill, self.lock.is_some())
    }

    /// Returns the description of a skill: the frontmatter's if the frontmatter is complete.
    pub fn description<'a>(&self, skill: &'a ServedSkill) -> &'a str {
        let author = self.author_texts(skill);
        author.map_or(&skill.skill.description, |author| author.description)
    }

    /// Returns the name of a skill in lists: the name in the frontmatter if the standard allows it.
    pub fn listed_name<'a>(&self, skill: &'a ServedSkill) -> &'a str {
        match (&skill.address, self.author_texts(skill)) {
            (SkillAddress::Uri(_), Some(author)) => author.name,
            _ => &skill.skill.name,
        }
    }

    /// Returns the names in the texts for a model.
    pub fn names(&self) -> &SkillNameList {
        &self.names
    }

    /// Returns the hashes of the lists.
    pub fn hashes(&self) -> ListHashes {
        self.hashes
    }
}

impl ServedSkill {
    /// Returns its sort key in lists: root, qualified name, package.
    pub fn sort_key(&self) -> (usize, &str, &str) {
        (self.root_index, &self.skill.name, &self.skill.package)
    }

    /// Whether the skill is offered to models.
    pub fn is_offered(&self) -> bool {
        self.skill.not_offered() == NotOffered::Unspecified
    }

    /// Returns the digest and the size of the SKILL.md.
    pub fn file_version(&self) -> (&str, u64) {
        (&self.skill.digest, self.skill.size_bytes)
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
pub(in crate::mcp) mod tests {
    use super::{CatalogContent, McpCatalog, SkillAddress};
    use caproot_client::root_id;
    use caproot_core::proto::caproot::v1::{
        Authority, NotOffered, RootState, RootStatus, SelectedCapabilityRoot, Skill,
    };
    use prost_types::value::Kind;
    use prost_types::{Struct, Value};
    use std::sync::Arc;

    /// Returns a skill with this handle and this name in its frontmatter.
    pub(in crate::mcp) fn skill(package: &str, name: &str) -> Skill {
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

    /// Returns the catalog of the skills of a ready root `r`.
    pub(in crate::mcp) fn catalog_of(skills: impl IntoIterator<Item = Skill>) -> McpCatalog {
        let mut status = RootStatus {
            id: "r".into(),
            ..RootStatus::default()
        };
        status.set_state(RootState::Ready);
        McpCatalog::new(CatalogContent {
            roots: vec![root()].into(),
            skills: skills.into_iter().map(Arc::new).collect(),
            statuses: vec![status],
            ..CatalogContent::default()
        })
    }

    fn root() -> SelectedCapabilityRoot {
        SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        }
    }

    fn catalog(skills: &[(&str, &str)]) -> McpCatalog {
        catalog_of(skills.iter().map(|(package, name)| skill(package, name)))
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
        assert_eq!(inner.skill.skill.package, "skill://r/a/b");
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
            .map(|skill| all.listed_name(skill))
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
        let catalog = catalog_of(names.map(closed));
        for skill in catalog.skills_after(None) {
            let name = skill.prompt_name.as_deref().expect("a prompt");
            let found = catalog.skill_by_prompt(name).expect("by its name");
            assert_eq!(found.skill.package, skill.skill.package, "{name}");
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
            truncated: true,
            ..RootStatus::default()
        };
        status.set_state(RootState::Pending);
        for (statuses, state) in [(vec![status], "PENDING"), (Vec::new(), "UNAVAILABLE")] {
            let is_truncated = !statuses.is_empty();
            let catalog = McpCatalog::new(CatalogContent {
                roots: vec![root()].into(),
                statuses,
                ..CatalogContent::default()
            });
            let omissions = catalog.omissions().expect("something");
            assert_eq!(omissions["rootsNotReady"][0]["state"], state);
            assert_eq!(omissions["truncated"], is_truncated);
        }
    }

    #[test]
    fn each_list_has_a_hash_of_its_fields() {
        let skill = skill("skill://r/a", "a");
        let before = catalog_of([skill.clone()]).hashes();
        let body = Skill {
            digest: "sha256:2".into(),
            size_bytes: 7,
            ..skill.clone()
        };
        assert_eq!(catalog_of([body]).hashes(), before, "only the body changed");

        let described = Skill {
            description: "Other.".into(),
            ..skill.clone()
        };
        let after = catalog_of([described]).hashes();
        assert_ne!(after.resources, before.resources);
        assert_eq!(after.prompts, before.prompts);
        let closed = Skill {
            not_offered: NotOffered::PeopleOnly.into(),
            ..skill
        };
        let after = catalog_of([closed]).hashes();
        assert_eq!(after.resources, catalog_of([]).hashes().resources);
        assert_ne!(after.prompts, before.prompts);
        assert_eq!(McpCatalog::default().hashes(), catalog_of([]).hashes());
    }
}
