//! Skills that the operator switched off, by place or by name: which skills that is, and which files
//! lie in them. Leaves finding out where roots are to `disk`.

use super::{RelPath, RootId, Spot};
use globset::{Candidate, Error, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::{BTreeMap, HashSet};

/// How many globs are matched as one. A thousand whose stars all go on matching take a thousand
/// times as long together as one, and memory without end; a few share what they have in common.
const TOGETHER: usize = 16;

/// The operator's rules.
#[derive(Debug, Clone, Default)]
pub struct SwitchedOff {
    by_place: Vec<(RootId, Globs)>,
    names: HashSet<Box<str>>,
}

/// A pattern for packages below a root: `*` stays within a segment, `**` does not. The root itself
/// is `.`.
pub fn glob(text: &str) -> Result<Glob, Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}

impl SwitchedOff {
    /// From globs below published roots, and qualified names.
    pub fn new(
        globs: impl IntoIterator<Item = (RootId, Glob)>,
        names: impl IntoIterator<Item = Box<str>>,
    ) -> Result<Self, Error> {
        let mut by_root: BTreeMap<RootId, Vec<Glob>> = BTreeMap::new();
        for (root, glob) in globs {
            by_root.entry(root).or_default().push(glob);
        }
        let by_place = by_root.into_iter().map(|(root, globs)| Ok((root, Globs::new(&globs)?)));
        Ok(Self {
            by_place: by_place.collect::<Result<_, Error>>()?,
            names: names.into_iter().collect(),
        })
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len() + self.by_place.iter().map(|(_, globs)| globs.len()).sum::<usize>()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the skills of this qualified name are off, wherever they are.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The globs, below those of their roots that are anywhere now.
    #[must_use]
    pub fn places(&self, find: impl Fn(&RootId) -> Option<Spot>) -> Places<'_> {
        let found = self.by_place.iter().filter_map(|(root, globs)| Some((find(root)?, globs)));
        Places(found.collect())
    }
}

/// The globs of one root.
#[derive(Debug, Clone)]
struct Globs(Box<[GlobSet]>);

impl Globs {
    fn new(globs: &[Glob]) -> Result<Self, Error> {
        let set = |globs: &[Glob]| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob.clone());
            }
            set.build()
        };
        Ok(Self(globs.chunks(TOGETHER).map(set).collect::<Result<_, _>>()?))
    }

    fn len(&self) -> usize {
        self.0.iter().map(GlobSet::len).sum()
    }

    fn match_package(&self, package: &RelPath) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = if package.is_root() { b".".as_slice() } else { package.as_bytes() };
        let path = Candidate::new(std::ffi::OsStr::from_bytes(path));
        self.0.iter().any(|set| set.is_match_candidate(&path))
    }
}

/// Globs whose roots were found on one ground.
#[derive(Debug)]
pub struct Places<'a>(Vec<(Spot, &'a Globs)>);

impl Places<'_> {
    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the package at this place is off.
    #[must_use]
    pub fn hold(&self, package: &Spot) -> bool {
        self.0.iter().any(|(root, globs)| {
            package.below(root).is_some_and(|below| globs.match_package(&below))
        })
    }

    /// Whether a file lies in a package that is off. What is above `reader`, the package that the
    /// file is read from, does not count: that one is on.
    #[must_use]
    pub fn cover(&self, file: &Spot, reader: &Spot) -> bool {
        let same = file.base == reader.base;
        let reader = same.then_some(&reader.rel);
        let at = |rel| Spot { base: file.base, rel };
        packages(&file.rel, reader).any(|rel| self.hold(&at(rel)))
    }
}

/// The directories that a file may belong to as a package, nearest first, up to and without the one
/// that it is read from or any above it.
fn packages<'a>(
    file: &'a RelPath,
    reader: Option<&'a RelPath>,
) -> impl Iterator<Item = RelPath> + 'a {
    let up = std::iter::successors(file.parent(), RelPath::parent);
    up.take_while(move |dir| reader.is_none_or(|reader| reader.below(dir).is_none()))
}

/// The packages of one root that are off: they would be listed otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffPackages {
    walked: Box<[RelPath]>,
    real: Box<[RelPath]>,
}

impl OffPackages {
    /// From packages as walked, each with where it really is, if that is below the root.
    #[must_use]
    pub fn new(packages: Vec<(RelPath, Option<RelPath>)>) -> Self {
        let (mut walked, real): (Vec<_>, Vec<_>) = packages.into_iter().unzip();
        let mut real: Vec<_> = real.into_iter().flatten().collect();
        walked.sort();
        real.sort();
        Self { walked: walked.into(), real: real.into() }
    }

    /// The packages as walked, in order.
    #[must_use]
    pub fn walked(&self) -> &[RelPath] {
        &self.walked
    }

    /// Whether a file of a listed package, both as walked below the root, lies in a package that is
    /// off.
    #[must_use]
    pub fn cover_walked(&self, file: &RelPath, reader: &RelPath) -> bool {
        covered(&self.walked, file, Some(reader))
    }

    /// The same of where they really are below the root; no reader where that lies elsewhere.
    #[must_use]
    pub fn cover_real(&self, file: &RelPath, reader: Option<&RelPath>) -> bool {
        covered(&self.real, file, reader)
    }
}

fn covered(sorted: &[RelPath], file: &RelPath, reader: Option<&RelPath>) -> bool {
    !sorted.is_empty() && packages(file, reader).any(|dir| sorted.binary_search(&dir).is_ok())
}

#[cfg(test)]
mod tests {
    use super::{OffPackages, SwitchedOff, glob};
    use crate::domain::{RelPath, RootId, Spot};
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect("a path")
    }

    fn off(globs: &[&str]) -> SwitchedOff {
        let id = RootId::new("r").expect("an id");
        let globs = globs.iter().map(|g| (id.clone(), glob(g).expect("a glob")));
        SwitchedOff::new(globs, ["p:n".into()]).expect("rules")
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
            let places = off.places(|_| Some(Spot { base: 1, rel: path("top") }));
            let package = path("top").join_all(&path(package));
            let at = |base| Spot { base, rel: package.clone() };
            assert_eq!(places.hold(&at(1)), expected, "{pattern} {package:?}");
            assert!(!places.hold(&at(0)), "another ground");
        }
        assert!(off(&["a"]).places(|_| None).0.is_empty());
        assert!(off(&[]).has_name("p:n") && !off(&[]).has_name("n"));
    }

    #[test]
    fn files_belong_to_the_packages_between_them_and_their_reader() {
        let packages = vec![(path("a/off"), Some(path("real/off"))), (path("out"), None)];
        let packages = OffPackages::new(packages);
        for (file, reader, expected) in [
            ("a/x", "a", false),
            ("a/off/x", "a", true),
            ("a/off/y/x", "", true),
            ("a/off/y/x", "a/off/y", false),
            ("a/offer/x", "a", false),
            ("out/in/SKILL.md", "out/in", false),
            ("out/x", "a", true),
        ] {
            assert_eq!(packages.cover_walked(&path(file), &path(reader)), expected, "{file}");
        }
        assert!(packages.cover_real(&path("real/off/x"), None));
        assert!(packages.cover_real(&path("real/off/x"), Some(&path("a"))));
        assert!(!packages.cover_real(&path("real/off/x"), Some(&path("real/off"))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn no_glob_is_a_panic(text in "[*?a/\\[\\]{},!\\\\é-]{0,30}", any: String, package in "[a/é*]{0,9}") {
            for text in [text, any] {
                let Ok(glob) = glob(&text) else { continue };
                let id = RootId::new("r").expect("an id");
                // Together they are what each is alone, in however many sets.
                let globs = |many| std::iter::repeat_n((id.clone(), glob.clone()), many);
                let hold = |many| {
                    let off = SwitchedOff::new(globs(many), []).expect("a set");
                    let rel = RelPath::new(package.as_bytes()).unwrap_or_default();
                    off.places(|_| Some(Spot { base: 0, rel: RelPath::root() })).hold(&Spot { base: 0, rel })
                };
                prop_assert_eq!(hold(1), hold(40));
            }
        }
    }
}
