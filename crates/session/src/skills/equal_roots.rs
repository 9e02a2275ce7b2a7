//! Roots of several executors with equal skills. A model sees such skills once, with the environments
//! that have them. Each environment keeps its own handles.

use super::skill::SharedSkill;
use caproot_core::wire::handle::HANDLE_SCHEME;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};

/// Limit of the environments of one skill in a list, in bytes of JSON.
const MAX_ENVIRONMENTS_BYTES: usize = 1_024;
/// Bytes of JSON around an environment and its handle.
const ENTRY_BYTES: usize = r#""":"","#.len();

/// Selected root of an executor, with its skills in a view.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorRoot<'a> {
    pub environment_id: &'a str,
    pub id: &'a str,
    pub skills: &'a [SharedSkill],
}

/// Equal roots of a view.
#[derive(Debug, Default)]
pub struct EqualRoots {
    /// Places of the roots with an equal root in another environment, by root id.
    places: HashMap<String, RootPlace>,
}

/// Place of the skills of a root that is equal to another root.
#[derive(Debug)]
enum RootPlace {
    /// Shown, for all roots of the group.
    First(EqualGroup),
    /// Shown in lists only, for the roots that did not fit into the groups before.
    Further(EqualGroup),
    /// Not shown: an earlier root has the skills.
    Merged,
}

/// Roots whose skills are shown once.
#[derive(Debug, Clone)]
pub struct EqualGroup {
    /// In the order of the session. The first is the root whose skills are shown.
    pub roots: Vec<EqualRoot>,
    /// Number of equal roots that are not in this group. Zero unless the group is the first.
    pub more: usize,
}

/// Root of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualRoot {
    pub environment_id: String,
    pub id: String,
    /// First part of the handles of the root, without a slash at the end.
    pub root_handle: String,
}

/// Handle in two parts.
struct SplitHandle<'a> {
    /// Scheme and id of the root.
    root_handle: &'a str,
    /// Empty, or a slash and the path.
    path: &'a str,
}

/// Equal roots of different environments, in the order of the session.
struct EqualSeries<'a> {
    roots: Vec<ExecutorRoot<'a>>,
    environment_ids: HashSet<&'a str>,
}

impl EqualRoots {
    /// Finds the roots of different environments whose skills are equal apart from the ids of the
    /// roots.
    pub fn find(roots: &[ExecutorRoot<'_>]) -> Self {
        let hasher = RandomState::new();
        let mut by_hash: HashMap<u64, Vec<EqualSeries<'_>>> = HashMap::new();
        for root in roots.iter().filter(|root| root.is_comparable()) {
            let candidates = by_hash.entry(root.content_hash(&hasher)).or_default();
            match candidates.iter_mut().find(|series| series.can_add(root)) {
                Some(series) => series.add(*root),
                None => candidates.push(EqualSeries::new(*root)),
            }
        }

        let mut places = HashMap::new();
        for series in by_hash.into_values().flatten() {
            if series.roots.len() > 1 {
                series.place_roots(&mut places);
            }
        }
        Self { places }
    }

    /// Returns whether lists show a skill. Otherwise a list has an equal skill, with the environment
    /// of this one.
    pub fn is_in_lists(&self, skill: &SharedSkill) -> bool {
        !matches!(self.place(skill), Some(RootPlace::Merged))
    }

    /// Returns whether texts show a skill. Otherwise the text has or counts the environment of this
    /// skill.
    pub fn is_in_texts(&self, skill: &SharedSkill) -> bool {
        matches!(self.place(skill), None | Some(RootPlace::First(_)))
    }

    /// Returns the group of a skill that is shown for several environments.
    pub fn group(&self, skill: &SharedSkill) -> Option<&EqualGroup> {
        match self.place(skill)? {
            RootPlace::First(group) | RootPlace::Further(group) => Some(group),
            RootPlace::Merged => None,
        }
    }

    /// Returns the package of a shown skill in each environment, if several environments have the
    /// skill.
    pub fn packages(&self, skill: &SharedSkill) -> BTreeMap<&str, String> {
        let group = self.group(skill).filter(|group| group.roots.len() > 1);
        group
            .map(|group| group.packages(&skill.package))
            .unwrap_or_default()
    }

    fn place(&self, skill: &SharedSkill) -> Option<&RootPlace> {
        if self.places.is_empty() {
            return None;
        }
        // Only roots of executors are here, and a root of another kind may have the same id.
        let authority = skill.authority.as_ref()?;
        let place = self.places.get(&authority.id);
        place.filter(|_| authority.kind == "executor")
    }
}

impl EqualGroup {
    /// Returns the package of the shown skill in each environment.
    fn packages(&self, package: &str) -> BTreeMap<&str, String> {
        let path = SplitHandle::new(package).path;
        let packages = self.roots.iter().map(|root| {
            let package = format!("{}{path}", root.root_handle);
            (root.environment_id.as_str(), package)
        });
        packages.collect()
    }
}

impl<'a> ExecutorRoot<'a> {
    /// Returns whether the root has skills, and a digest of each. Without a digest, two files cannot be
    /// compared.
    fn is_comparable(&self) -> bool {
        !self.skills.is_empty() && self.skills.iter().all(|skill| !skill.digest.is_empty())
    }

    fn content_hash(&self, hasher: &RandomState) -> u64 {
        let mut hash = hasher.build_hasher();
        for skill in self.skills {
            SplitHandle::new(&skill.package).path.hash(&mut hash);
            skill.digest.hash(&mut hash);
        }
        hash.finish()
    }

    fn has_skills_of(&self, other: &Self) -> bool {
        let same_count = self.skills.len() == other.skills.len();
        let mut pairs = self.skills.iter().zip(other.skills);
        same_count && pairs.all(|(a, b)| is_equal_skill(a, b))
    }

    fn root_handle(&self) -> &'a str {
        let first = self.skills.first();
        first.map_or("", |skill| SplitHandle::new(&skill.package).root_handle)
    }

    /// Returns the bytes that the root takes in the list entry of its skill with the longest path.
    fn entry_bytes(&self) -> usize {
        let paths = self.skills.iter();
        let paths = paths.map(|skill| SplitHandle::new(&skill.package).path.len());
        // An escaped environment id may be twice as long. A handle has no character to escape.
        2 * self.environment_id.len()
            + self.root_handle().len()
            + paths.max().unwrap_or(0)
            + ENTRY_BYTES
    }
}

impl<'a> EqualSeries<'a> {
    fn new(root: ExecutorRoot<'a>) -> Self {
        Self {
            environment_ids: HashSet::from([root.environment_id]),
            roots: vec![root],
        }
    }

    /// Returns whether a root is equal and in another environment than the roots of the series.
    fn can_add(&self, root: &ExecutorRoot<'_>) -> bool {
        let is_other_environment = !self.environment_ids.contains(root.environment_id);
        is_other_environment && self.roots[0].has_skills_of(root)
    }

    fn add(&mut self, root: ExecutorRoot<'a>) {
        self.environment_ids.insert(root.environment_id);
        self.roots.push(root);
    }

    /// Divides the roots into groups that fit into a list entry, and adds the place of each root.
    fn place_roots(&self, places: &mut HashMap<String, RootPlace>) {
        let mut start = 0;
        while start < self.roots.len() {
            let count = self.fitting_count(start);
            let group = EqualGroup {
                roots: self.roots[start..start + count]
                    .iter()
                    .map(EqualRoot::from_root)
                    .collect(),
                more: if start == 0 {
                    self.roots.len() - count
                } else {
                    0
                },
            };

            let merged = self.roots[start + 1..start + count].iter();
            places.extend(merged.map(|root| (root.id.to_owned(), RootPlace::Merged)));
            let place = if start == 0 {
                RootPlace::First(group)
            } else {
                RootPlace::Further(group)
            };
            places.insert(self.roots[start].id.to_owned(), place);
            start += count;
        }
    }

    /// Returns how many roots from `start` on fit into a list entry; at least one.
    fn fitting_count(&self, start: usize) -> usize {
        let mut bytes = 0;
        let fitting = self.roots[start..].iter().take_while(|root| {
            bytes += root.entry_bytes();
            bytes <= MAX_ENVIRONMENTS_BYTES
        });
        fitting.count().max(1)
    }
}

impl EqualRoot {
    fn from_root(root: &ExecutorRoot<'_>) -> Self {
        Self {
            environment_id: root.environment_id.to_owned(),
            id: root.id.to_owned(),
            root_handle: root.root_handle().to_owned(),
        }
    }
}

impl<'a> SplitHandle<'a> {
    fn new(handle: &'a str) -> Self {
        let rest = handle.strip_prefix(HANDLE_SCHEME).unwrap_or_default();
        let path_bytes = rest.find('/').map_or(0, |at| rest.len() - at);
        let (root_handle, path) = handle.split_at(handle.len() - path_bytes);
        Self { root_handle, path }
    }
}

/// Returns whether a model sees two skills alike: all but their handles and authority.
fn is_equal_skill(a: &SharedSkill, b: &SharedSkill) -> bool {
    has_equal_path(&a.package, &b.package)
        && has_equal_path(&a.main_resource, &b.main_resource)
        && a.name == b.name
        && a.digest == b.digest
        && a.description == b.description
        && a.short_description == b.short_description
        && a.is_offered() == b.is_offered()
        && a.user_invocable == b.user_invocable
        && a.products == b.products
        && a.stale == b.stale
        && a.readiness == b.readiness
}

fn has_equal_path(a: &str, b: &str) -> bool {
    SplitHandle::new(a).path == SplitHandle::new(b).path
}

#[cfg(test)]
mod tests;
