//! Recognizes that a file changed after it was read. A write through another name of the file makes no
//! event in the directory that was listed. Source: inotify(7).

use super::allowed::Ground;
use super::found::{Found, Node};
use super::list::sidecar_path;
use super::namespaces;
use super::progress::Progress;
use super::resource;
use super::survey::{Survey, Token};
use crate::domain::{RelPath, Spot, Version, main_file};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;

/// A hash of a file's version, which takes a seventh of the version's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(NonZero<u64>);

/// The fingerprints of the SKILL.md and the sidecar of one directory, as they were read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FilesRead {
    pub(super) main: Option<Fingerprint>,
    pub(super) sidecar: Option<Fingerprint>,
    /// Whether a file in the directory has other names.
    pub(super) has_shared: bool,
}

impl Fingerprint {
    pub(super) fn of(version: &Version) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(version);
        Self(NonZero::new(hash).unwrap_or(NonZero::<u64>::MIN))
    }

    /// Whether `walked` below `dir` leads to another version now.
    pub(super) fn is_outdated(self, ground: &Ground, dir: &Spot, walked: &RelPath) -> bool {
        let now =
            resource::find(ground, dir, walked).map(|t| Self::of(&resource::version(&t.stat)));
        now.ok() != Some(self)
    }
}

impl FilesRead {
    fn is_outdated(&self, ground: &Ground, dir: &Spot) -> bool {
        let is_other = |read: Option<Fingerprint>, place: &RelPath| {
            read.is_some_and(|read| read.is_outdated(ground, dir, place))
        };
        is_other(self.main, &main_file()) || is_other(self.sidecar, &sidecar_path())
    }
}

impl Survey {
    /// Returns the tokens of directories in which a file changed since it was read.
    pub(super) fn outdated(&self, progress: &Progress) -> HashSet<u64> {
        let Some(found) = &self.found else { return HashSet::new() };
        let ground = &found.ground;
        let is_listing_outdated = |(dir, node): &(&Spot, &Node)| {
            progress.tick();
            node.files.is_outdated(ground, dir)
        };
        let nodes = found.nodes.iter().filter(is_listing_outdated).map(|(_, node)| node.token);
        let manifests = found.manifests.iter();
        let manifests = manifests.filter(|(dir, read)| read.is_outdated(ground, dir));
        let manifests = manifests.filter_map(|(dir, read)| self.manifest_token(found, dir, read));
        let plugins = found.plugins.iter().filter(|(dir, held)| held.is_outdated(ground, dir));
        nodes.chain(manifests).chain(plugins.map(|(_, held)| held.token())).collect()
    }

    /// Returns the same if a file with other names was listed since the last call. One of the other names
    /// may be in a directory that was listed before, and no event told that directory.
    pub(super) fn outdated_by_links(&mut self, progress: &Progress) -> HashSet<u64> {
        let Some(found) = &mut self.found else { return HashSet::new() };
        if std::mem::take(&mut found.has_new_shared) {
            self.outdated(progress)
        } else {
            HashSet::new()
        }
    }

    /// Returns the token for which the manifest of a directory is read again.
    fn manifest_token(&self, found: &Found, dir: &Spot, read: &namespaces::Read) -> Option<u64> {
        let place = Spot { base: dir.base, rel: dir.rel.join_all(read.file.as_ref()?) };
        let listed = found.nodes.get(&place.parent()?).map(|node| node.token);
        let is_above = |token: &Token| matches!(token, Token::Above(above) if above == dir);
        let above =
            || self.tokens.iter().find(|(_, token)| is_above(token)).map(|(token, _)| *token);
        listed.or_else(above)
    }
}
