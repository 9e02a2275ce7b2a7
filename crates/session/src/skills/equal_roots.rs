//! Roots of several executors with equal skills. A model sees such skills once, with the environments
//! that have them. Each environment keeps its own handles.

use super::skill::SharedSkill;
use caproot_core::wire::handle::HANDLE_SCHEME;
use std::collections::{BTreeMap, HashMap, HashSet};

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

/// Main file of a skill. Equal roots have the same files.
#[derive(PartialEq, Eq, Hash)]
struct ComparedFile<'a> {
    path: &'a str,
    digest: &'a str,
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
        let mut by_files: HashMap<Vec<ComparedFile<'_>>, Vec<EqualSeries<'_>>> = HashMap::new();
        for root in roots.iter().filter(|root| root.is_comparable()) {
            let files = root.skills.iter().map(ComparedFile::of_skill).collect();
            let candidates = by_files.entry(files).or_default();
            match candidates.iter_mut().find(|series| series.can_add(root)) {
                Some(series) => series.add(*root),
                None => candidates.push(EqualSeries::new(*root)),
            }
        }

        let mut places = HashMap::new();
        for series in by_files.into_values().flatten() {
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
        self.places
            .get(&authority.id)
            .filter(|_| authority.kind == "executor")
    }
}

impl EqualGroup {
    /// Returns the package of the shown skill in each environment.
    fn packages(&self, package: &str) -> BTreeMap<&str, String> {
        let path = path_of_handle(package);
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

    fn root_handle(&self) -> &'a str {
        self.skills.first().map_or("", |skill| {
            let path_bytes = path_of_handle(&skill.package).len();
            &skill.package[..skill.package.len() - path_bytes]
        })
    }

    /// Returns the bytes that the root takes in the list entry of its skill with the longest path.
    fn entry_bytes(&self) -> usize {
        let paths = self
            .skills
            .iter()
            .map(|skill| path_of_handle(&skill.package).len());
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

    /// Returns whether a root with equal files is equal and in another environment than the roots of the
    /// series.
    fn can_add(&self, root: &ExecutorRoot<'_>) -> bool {
        !self.environment_ids.contains(root.environment_id)
            && self.roots[0]
                .skills
                .iter()
                .zip(root.skills)
                .all(|(a, b)| is_equal_skill(a, b))
    }

    fn add(&mut self, root: ExecutorRoot<'a>) {
        self.environment_ids.insert(root.environment_id);
        self.roots.push(root);
    }

    /// Divides the roots into groups that fit into a list entry, and adds the place of each root.
    fn place_roots(&self, places: &mut HashMap<String, RootPlace>) {
        let mut rest = &self.roots[..];
        while let [first, ..] = rest {
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|root| {
                bytes += root.entry_bytes();
                bytes <= MAX_ENVIRONMENTS_BYTES
            });
            // A root that does not fit has a group of its own.
            let (grouped, further) = rest.split_at(fitting.count().max(1));

            let roots = grouped
                .iter()
                .map(|root| EqualRoot {
                    environment_id: root.environment_id.to_owned(),
                    id: root.id.to_owned(),
                    root_handle: root.root_handle().to_owned(),
                })
                .collect();
            let place = if rest.len() == self.roots.len() {
                let more = further.len();
                RootPlace::First(EqualGroup { roots, more })
            } else {
                RootPlace::Further(EqualGroup { roots, more: 0 })
            };

            places.insert(first.id.to_owned(), place);
            places.extend(
                grouped[1..]
                    .iter()
                    .map(|root| (root.id.to_owned(), RootPlace::Merged)),
            );
            rest = further;
        }
    }
}

impl<'a> ComparedFile<'a> {
    fn of_skill(skill: &'a SharedSkill) -> Self {
        Self {
            path: path_of_handle(&skill.package),
            digest: &skill.digest,
        }
    }
}

/// Returns the path in a handle: empty, or with a slash at the start.
fn path_of_handle(handle: &str) -> &str {
    let rest = handle.strip_prefix(HANDLE_SCHEME).unwrap_or_default();
    rest.find('/').map_or("", |at| &rest[at..])
}

/// Returns whether a model sees two skills with equal files alike: all but their handles and authority.
fn is_equal_skill(a: &SharedSkill, b: &SharedSkill) -> bool {
    path_of_handle(&a.main_resource) == path_of_handle(&b.main_resource)
        && a.name == b.name
        && a.description == b.description
        && a.short_description == b.short_description
        && a.is_offered() == b.is_offered()
        && a.user_invocable == b.user_invocable
        && a.products == b.products
        && a.stale == b.stale
        && a.readiness == b.readiness
}

#[cfg(test)]
mod tests;
