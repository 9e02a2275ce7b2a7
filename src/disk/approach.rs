//! How the root of a survey is found, and what is watched on the way to it and above it.

use super::allowed::{Ground, identity};
use super::assembly::Assembly;
use super::found::{Found, Nodes};
use super::kinds::Kinds;
use super::list::{MANIFEST_DIRECTORIES, manifest_file};
use super::namespaces::Manifests;
use super::plugins::Plugins;
use super::resource::{self, blocked};
use super::survey::{Survey, Token};
use super::walk::steps;
use super::watching::{WatchDirs, watch_shared};
use crate::domain::{Reason, Spot};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fstat, openat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Survey {
    /// Finds the root on this ground, and says why where it cannot be used.
    pub(super) fn resolve(&self, ground: Arc<Ground>) -> Result<Found, Reason> {
        let root = ground.resolve(&self.target.path)?;
        let fd = ground.open(&root, OFlags::RDONLY | OFlags::DIRECTORY);
        let fd = fd.map_err(|error| refused(&ground, &root, error))?;
        let root_identity = identity(&fstat(&fd).map_err(blocked)?);
        let mut rules = self.target.rules.clone();
        let mut scope = None;
        let places = ground.places_of(&self.target.published);
        for (published, place) in self.target.published.iter().zip(&places.each) {
            if place.as_ref() == Some(&root) {
                scope = scope.or(Some(published.scope));
                rules.follow_links &= published.follow_links;
            }
        }
        rules.fences = places.all.clone();
        Ok(Found {
            ground,
            root,
            root_identity,
            rules,
            scope,
            nodes: Nodes::new(),
            manifests: Manifests::new(),
            plugins: Plugins::new(),
            assembly: Assembly::default(),
            kinds: Kinds::default(),
            catalog: None,
            has_new_shared: false,
        })
    }

    pub(super) fn token(&mut self, token: Token) -> u64 {
        let number = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.tokens.insert(number, token);
        number
    }

    /// Watches each directory on the way to the root, for the entry that leads on.
    pub(super) fn watch_way(&mut self, watching: &dyn WatchDirs) {
        let token = self.token(Token::Way);
        for (dir, name) in steps(&self.target.path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = Path::new(OsStr::from_bytes(dir));
            let Ok(fd) = openat(CWD, path, flags, Mode::empty()) else { continue };
            self.way.extend(watching.watch(fd.as_fd(), token, Some(&name)));
        }
    }

    /// Watches the places for manifests above the root.
    pub(super) fn watch_above(&mut self, found: &Found, watching: &dyn WatchDirs) {
        // They give the names of skills, which are the same for every caller.
        let ground = found.ground.unbounded();
        let mut above = found.root.parent();
        while let Some(dir) = above {
            let token = self.token(Token::Above(dir.clone()));
            for name in MANIFEST_DIRECTORIES.map(str::as_bytes) {
                let own = dir.join(name);
                for (spot, only) in [(Some(&dir), Some(name)), (own.as_ref(), None)] {
                    let flags = OFlags::PATH | OFlags::DIRECTORY;
                    let opened = spot.map(|spot| ground.open(spot, flags));
                    let Some(Ok(fd)) = opened else { continue };
                    self.above.extend(watching.watch(fd.as_fd(), token, only));
                }
                let manifest = own.map(|own| resource::open(&ground, &own, &manifest_file()));
                if let Some(Ok(opened)) = manifest {
                    watch_shared(watching, &opened, token, &mut self.above);
                }
            }
            above = dir.parent();
        }
    }

    /// Watches the places above the root anew where one of them is dirty: a directory for a manifest
    /// may have come. Says whether one was.
    pub(super) fn rewatch_above(&mut self, dirty: &HashSet<u64>, watching: &dyn WatchDirs) -> bool {
        let is_above = |token: &u64| matches!(self.tokens.get(token), Some(Token::Above(_)));
        if !dirty.iter().any(is_above) {
            return false;
        }
        let Some(mut found) = self.found.take() else { return false };
        let old = std::mem::take(&mut self.above);
        // All of them are read again: a note with an old token means nothing from here on.
        self.tokens.retain(|_, token| match token {
            Token::Above(dir) => {
                found.manifests.remove(dir);
                false
            }
            Token::Listed(_) | Token::Declares(_) | Token::Way => true,
        });
        self.watch_above(&found, watching);
        drop(old);
        self.found = Some(found);
        true
    }
}

/// Why a root cannot be opened. access(2) knows permissions only, so where it says yes it was the
/// sandbox that said no.
fn refused(ground: &Ground, root: &Spot, error: Errno) -> Reason {
    let is_permitted = || {
        let dir = ground.open(root, OFlags::PATH | OFlags::DIRECTORY)?;
        accessat(&dir, c".", Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)
    };
    match Reason::from(blocked(error)) {
        Reason::PermissionDenied if is_permitted().is_ok() => Reason::WalledOff,
        reason => reason,
    }
}
