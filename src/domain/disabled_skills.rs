//! Skills that the operator switched off, by place or by name: which skills that is, and which files
//! lie in them. Leaves finding out where roots are to `disk`.

use super::{RelPath, ResolvedPath, RootId};
use globset::{Candidate, Error, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::{BTreeMap, HashSet};

/// How many globs are matched as one. A thousand whose stars all go on matching take a thousand
/// times as long together as one, and memory without end; a few share what they have in common.
const GLOBS_PER_SET: usize = 16;

/// The operator's rules.
#[derive(Debug, Clone, Default)]
pub struct DisableRules {
    globs_by_root: Vec<(RootId, PackageGlobs)>,
    names: HashSet<Box<str>>,
}

/// A pattern for packages below a root: `*` stays within a segment, `**` does not. The root itself
/// is `.`.
pub fn parse_glob(text: &str) -> Result<Glob, Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}

impl DisableRules {
    /// From globs below published roots, and qualified names.
    pub fn new(
        globs: impl IntoIterator<Item = (RootId, Glob)>,
        names: impl IntoIterator<Item = Box<str>>,
    ) -> Result<Self, Error> {
        let mut by_root: BTreeMap<RootId, Vec<Glob>> = BTreeMap::new();
        for (root, glob) in globs {
            by_root.entry(root).or_default().push(glob);
        }
        let by_place =
            by_root.into_iter().map(|(root, globs)| Ok((root, PackageGlobs::new(&globs)?)));
        Ok(Self {
            globs_by_root: by_place.collect::<Result<_, Error>>()?,
            names: names.into_iter().collect(),
        })
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len() + self.globs_by_root.iter().map(|(_, globs)| globs.len()).sum::<usize>()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the skills of this qualified name are off, wherever they are.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The globs, below those of their roots that are anywhere now.
    #[must_use]
    pub fn resolve_globs(
        &self,
        find: impl Fn(&RootId) -> Option<ResolvedPath>,
    ) -> ResolvedGlobs<'_> {
        let found =
            self.globs_by_root.iter().filter_map(|(root, globs)| Some((find(root)?, globs)));
        ResolvedGlobs(found.collect())
    }
}

/// The globs of one root.
#[derive(Debug, Clone)]
struct PackageGlobs(Box<[GlobSet]>);

impl PackageGlobs {
    fn new(globs: &[Glob]) -> Result<Self, Error> {
        let set = |globs: &[Glob]| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob.clone());
            }
            set.build()
        };
        Ok(Self(globs.chunks(GLOBS_PER_SET).map(set).collect::<Result<_, _>>()?))
    }

    fn len(&self) -> usize {
        self.0.iter().map(GlobSet::len).sum()
    }

    fn matches_path(&self, package: &RelPath) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = if package.is_root() { b".".as_slice() } else { package.as_bytes() };
        let path = Candidate::new(std::ffi::OsStr::from_bytes(path));
        self.0.iter().any(|set| set.is_match_candidate(&path))
    }
}

/// Globs whose roots were found on one ground.
#[derive(Debug)]
pub struct ResolvedGlobs<'a>(Vec<(ResolvedPath, &'a PackageGlobs)>);

impl ResolvedGlobs<'_> {
    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the package at this place is off.
    #[must_use]
    pub fn matches_package(&self, package: &ResolvedPath) -> bool {
        self.0.iter().any(|(root, globs)| {
            package.strip_prefix(root).is_some_and(|below| globs.matches_path(&below))
        })
    }

    /// Whether a file lies in a package that is off. What is above `reader`, the package that the
    /// file is read from, does not count: that one is on.
    #[must_use]
    pub fn covers_file(&self, file: &ResolvedPath, reader: &ResolvedPath) -> bool {
        let same = file.dir_index == reader.dir_index;
        let reader = same.then_some(&reader.rel_path);
        let at = |rel| ResolvedPath { dir_index: file.dir_index, rel_path: rel };
        enclosing_packages(&file.rel_path, reader).any(|rel| self.matches_package(&at(rel)))
    }
}

/// The directories that a file may belong to as a package, nearest first, up to and without the one
/// that it is read from or any above it.
fn enclosing_packages<'a>(
    file: &'a RelPath,
    reader: Option<&'a RelPath>,
) -> impl Iterator<Item = RelPath> + 'a {
    let up = std::iter::successors(file.parent(), RelPath::parent);
    up.take_while(move |dir| reader.is_none_or(|reader| reader.strip_prefix(dir).is_none()))
}

/// The packages of one root that are off: they would be listed otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisabledPackages {
    paths: Box<[RelPath]>,
    resolved_paths: Box<[RelPath]>,
}

impl DisabledPackages {
    /// From packages as walked, each with where it really is, if that is below the root.
    #[must_use]
    pub fn new(packages: Vec<(RelPath, Option<RelPath>)>) -> Self {
        let (mut walked, real): (Vec<_>, Vec<_>) = packages.into_iter().unzip();
        let mut real: Vec<_> = real.into_iter().flatten().collect();
        walked.sort();
        real.sort();
        Self { paths: walked.into(), resolved_paths: real.into() }
    }

    /// The packages as walked, in order.
    #[must_use]
    pub fn paths(&self) -> &[RelPath] {
        &self.paths
    }

    /// Whether a file of a listed package, both as walked below the root, lies in a package that is
    /// off.
    #[must_use]
    pub fn covers_path(&self, file: &RelPath, reader: &RelPath) -> bool {
        is_in_package(&self.paths, file, Some(reader))
    }

    /// The same of where they really are below the root; no reader where that lies elsewhere.
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
    use crate::domain::{RelPath, ResolvedPath, RootId};
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect("a path")
    }

    fn off(globs: &[&str]) -> DisableRules {
        let id = RootId::new("r").expect("an id");
        let globs = globs.iter().map(|g| (id.clone(), parse_glob(g).expect("a glob")));
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
            let off = off(&[pattern]);
            let places =
                off.resolve_globs(|_| Some(ResolvedPath { dir_index: 1, rel_path: path("top") }));
            let package = path("top").join_path(&path(package));
            let at = |base| ResolvedPath { dir_index: base, rel_path: package.clone() };
            assert_eq!(places.matches_package(&at(1)), expected, "{pattern} {package:?}");
            assert!(!places.matches_package(&at(0)), "another ground");
        }
        assert!(off(&["a"]).resolve_globs(|_| None).0.is_empty());
        assert!(off(&[]).matches_name("p:n") && !off(&[]).matches_name("n"));
    }

    #[test]
    fn files_belong_to_the_packages_between_them_and_their_reader() {
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
            assert_eq!(packages.covers_path(&path(file), &path(reader)), expected, "{file}");
        }
        assert!(packages.covers_resolved_path(&path("real/off/x"), None));
        assert!(packages.covers_resolved_path(&path("real/off/x"), Some(&path("a"))));
        assert!(!packages.covers_resolved_path(&path("real/off/x"), Some(&path("real/off"))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn no_glob_is_a_panic(text in "[*?a/\\[\\]{},!\\\\é-]{0,30}", any: String, package in "[a/é*]{0,9}") {
            for text in [text, any] {
                let Ok(glob) = parse_glob(&text) else { continue };
                let id = RootId::new("r").expect("an id");
                // Together they are what each is alone, in however many sets.
                let globs = |many| std::iter::repeat_n((id.clone(), glob.clone()), many);
                let hold = |many| {
                    let off = DisableRules::new(globs(many), []).expect("a set");
                    let rel_path = RelPath::new(package.as_bytes()).unwrap_or_default();
                    off.resolve_globs(|_| Some(ResolvedPath { dir_index: 0, rel_path: RelPath::root() })).matches_package(&ResolvedPath { dir_index: 0, rel_path })
                };
                prop_assert_eq!(hold(1), hold(40));
            }
        }
    }
}
