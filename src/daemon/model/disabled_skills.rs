//! Skills that the operator disabled, by path or by name.

use super::ResolvedPath;
use caproot_core::wire::{RelPath, RootId};
use globset::{Candidate, Error, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::{BTreeMap, HashSet};

/// How many globs one set matches at once. A set of a thousand globs with many stars takes a
/// thousand times as long as one glob, and unbounded memory. A small set shares the work of similar
/// globs.
const GLOBS_PER_SET: usize = 16;

/// Operator's rules that disable skills.
#[derive(Debug, Clone, Default)]
pub struct DisableRules {
    globs_by_root: Vec<(RootId, PackageGlobs)>,
    names: HashSet<Box<str>>,
}

/// Parses a pattern for packages below a root. `*` does not match `/`, and `**` does. The root
/// itself is `.`.
pub fn parse_glob(text: &str) -> Result<Glob, Error> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
}

impl DisableRules {
    /// Creates rules from globs below published roots and from qualified names of skills.
    pub fn new(
        globs: impl IntoIterator<Item = (RootId, Glob)>,
        names: impl IntoIterator<Item = Box<str>>,
    ) -> Result<Self, Error> {
        let mut by_root: BTreeMap<RootId, Vec<Glob>> = BTreeMap::new();
        for (root, glob) in globs {
            by_root.entry(root).or_default().push(glob);
        }
        let globs_by_root = by_root
            .into_iter()
            .map(|(root, globs)| Ok((root, PackageGlobs::new(&globs)?)));
        Ok(Self {
            globs_by_root: globs_by_root.collect::<Result<_, Error>>()?,
            names: names.into_iter().collect(),
        })
    }

    /// How many rules the operator set.
    #[must_use]
    pub fn len(&self) -> usize {
        let sets = self.globs_by_root.iter().flat_map(|(_, globs)| &globs.0);
        self.names.len() + sets.map(GlobSet::len).sum::<usize>()
    }

    /// Whether the operator set no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a rule disables the skills with this qualified name in all roots.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the globs with the resolved paths of their roots. Globs of roots that `find` does
    /// not resolve are omitted.
    #[must_use]
    pub fn resolve_globs(
        &self,
        find: impl Fn(&RootId) -> Option<ResolvedPath>,
    ) -> ResolvedGlobs<'_> {
        let found = self
            .globs_by_root
            .iter()
            .filter_map(|(root, globs)| Some((find(root)?, globs)));
        ResolvedGlobs(found.collect())
    }
}

/// Globs of one root.
#[derive(Debug, Clone)]
struct PackageGlobs(Box<[GlobSet]>);

impl PackageGlobs {
    fn new(globs: &[Glob]) -> Result<Self, Error> {
        let sets = globs.chunks(GLOBS_PER_SET).map(|globs| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob.clone());
            }
            set.build()
        });
        Ok(Self(sets.collect::<Result<_, _>>()?))
    }

    fn matches_path(&self, package: &RelPath) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = if package.is_root() {
            b".".as_slice()
        } else {
            package.as_bytes()
        };
        let path = Candidate::new(std::ffi::OsStr::from_bytes(path));
        self.0.iter().any(|set| set.is_match_candidate(&path))
    }
}

/// Globs with the resolved paths of their roots.
#[derive(Debug)]
pub struct ResolvedGlobs<'a>(Vec<(ResolvedPath, &'a PackageGlobs)>);

impl ResolvedGlobs<'_> {
    /// Whether no root of a glob was resolved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the package at this path is disabled.
    #[must_use]
    pub fn matches_package(&self, package: &ResolvedPath) -> bool {
        let mut globs = self.0.iter();
        globs.any(|(root, globs)| {
            let below = package.strip_prefix(root);
            below.is_some_and(|below| globs.matches_path(&below))
        })
    }

    /// Whether a file lies in a disabled package. Packages above `reader`, the package that the
    /// file is read from, are ignored: `reader` itself is enabled.
    #[must_use]
    pub fn covers_file(&self, file: &ResolvedPath, reader: &ResolvedPath) -> bool {
        let same = file.dir_index == reader.dir_index;
        let reader = same.then_some(&reader.rel_path);
        enclosing_packages(&file.rel_path, reader).any(|rel_path| {
            self.matches_package(&ResolvedPath {
                dir_index: file.dir_index,
                rel_path,
            })
        })
    }
}

/// Iterates over the directories that may be a package of the file, innermost first. Excludes
/// `reader`, the package that the file is read from, and all directories above `reader`.
fn enclosing_packages<'a>(
    file: &'a RelPath,
    reader: Option<&'a RelPath>,
) -> impl Iterator<Item = RelPath> + 'a {
    let up = std::iter::successors(file.parent(), RelPath::parent);
    up.take_while(move |dir| reader.is_none_or(|reader| reader.strip_prefix(dir).is_none()))
}

/// Packages of one root that are not listed because the operator disabled them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisabledPackages {
    /// Paths of the packages, sorted, with links unresolved.
    pub(super) paths: Box<[RelPath]>,
    resolved_paths: Box<[RelPath]>,
}

impl DisabledPackages {
    /// Creates a list of packages. Each has its resolved path, if that is below the root.
    #[must_use]
    pub fn new(packages: Vec<(RelPath, Option<RelPath>)>) -> Self {
        let (mut paths, resolved_paths): (Vec<_>, Vec<_>) = packages.into_iter().unzip();
        let mut resolved_paths: Box<[_]> = resolved_paths.into_iter().flatten().collect();
        paths.sort();
        resolved_paths.sort();
        Self {
            paths: paths.into(),
            resolved_paths,
        }
    }

    /// Whether a file of the package `reader` lies in a disabled package. Both paths have
    /// unresolved links.
    #[must_use]
    pub fn covers_path(&self, file: &RelPath, reader: &RelPath) -> bool {
        is_in_package(&self.paths, file, Some(reader))
    }

    /// Whether a file of the package `reader` lies in a disabled package. Both paths are resolved.
    /// `reader` is `None` if the package lies outside the root.
    #[must_use]
    pub fn covers_resolved_path(&self, file: &RelPath, reader: Option<&RelPath>) -> bool {
        is_in_package(&self.resolved_paths, file, reader)
    }
}

fn is_in_package(sorted: &[RelPath], file: &RelPath, reader: Option<&RelPath>) -> bool {
    !sorted.is_empty()
        && enclosing_packages(file, reader).any(|dir| sorted.binary_search(&dir).is_ok())
}

#[cfg(test)]
mod tests {
    use super::{DisableRules, DisabledPackages, parse_glob};
    use crate::daemon::model::ResolvedPath;
    use caproot_core::wire::{RelPath, RootId};
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect("a path")
    }

    fn rules(globs: &[&str]) -> DisableRules {
        let id = RootId::new("r").expect("an id");
        let globs = globs
            .iter()
            .map(|g| (id.clone(), parse_glob(g).expect("a glob")));
        DisableRules::new(globs, ["p:n".into()]).expect("rules")
    }

    #[test]
    fn globs_match_packages() {
        for (pattern, package, expected) in [
            ("a", "a", true),
            ("a", "a/b", false),
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("a/**", "a/b/c", true),
            ("**/b", "b", true),
            ("**/b", "x/y/b", true),
            ("{a,b}-*", "b-1", true),
            (".system/*", ".system/x", true),
            ("*", "", true),
            (".", "", true),
            (".", "a", false),
            ("**", "", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
        ] {
            let rules = rules(&[pattern]);
            let globs = rules.resolve_globs(|_| {
                Some(ResolvedPath {
                    dir_index: 1,
                    rel_path: path("top"),
                })
            });
            let package = path("top").join_path(&path(package));
            let at = |dir_index| ResolvedPath {
                dir_index,
                rel_path: package.clone(),
            };
            assert_eq!(
                globs.matches_package(&at(1)),
                expected,
                "{pattern} {package:?}"
            );
            assert!(!globs.matches_package(&at(0)), "another allowed directory");
        }
        assert!(rules(&["a"]).resolve_globs(|_| None).0.is_empty());
        assert!(rules(&[]).matches_name("p:n") && !rules(&[]).matches_name("n"));
    }

    #[test]
    fn only_packages_below_the_reader_cover_a_file() {
        let packages = vec![(path("a/off"), Some(path("real/off"))), (path("out"), None)];
        let packages = DisabledPackages::new(packages);
        for (file, reader, expected) in [
            ("a/x", "a", false),
            ("a/off/x", "a", true),
            ("a/off/y/x", "", true),
            ("a/off/y/x", "a/off/y", false),
            ("a/offer/x", "a", false),
            ("out/in/SKILL.md", "out/in", false),
            ("out/x", "a", true),
        ] {
            assert_eq!(
                packages.covers_path(&path(file), &path(reader)),
                expected,
                "{file}"
            );
        }
        assert!(packages.covers_resolved_path(&path("real/off/x"), None));
        assert!(packages.covers_resolved_path(&path("real/off/x"), Some(&path("a"))));
        assert!(!packages.covers_resolved_path(&path("real/off/x"), Some(&path("real/off"))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn globs_match_the_same_in_any_number_of_sets(text in "[*?a/\\[\\]{},!\\\\é-]{0,30}", any: String, package in "[a/é*]{0,9}") {
            for text in [text, any] {
                let Ok(glob) = parse_glob(&text) else { continue };
                let id = RootId::new("r").expect("an id");
                // 40 copies of a glob are split into three sets.
                let globs = |many| std::iter::repeat_n((id.clone(), glob.clone()), many);
                let matches = |many| {
                    let rules = DisableRules::new(globs(many), []).expect("a set");
                    let rel_path = RelPath::new(package.as_bytes()).unwrap_or_default();
                    let root = ResolvedPath { dir_index: 0, rel_path: RelPath::root() };
                    let globs = rules.resolve_globs(|_| Some(root.clone()));
                    globs.matches_package(&ResolvedPath { dir_index: 0, rel_path })
                };
                prop_assert_eq!(matches(1), matches(40));
            }
        }
    }
}
