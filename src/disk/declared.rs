//! What is held of one directory that declares something, and what it comes to in a catalog. Leaves
//! reading a plugin to `plugin`, and which directories there are to `plugins`.

use super::allowed::{Blocked, Ground};
use super::content;
use super::fingerprint::Fingerprint;
use super::plugin::{Read, Reader};
use super::resource::{self, Unopened};
use super::watching::{Guard, watch_shared};
use crate::domain::catalog::Diagnostics;
use crate::domain::plugin::{Marketplace, Plugin, marketplace};
use crate::domain::{Code, Diagnostic, Manifest, Problem, RelPath, Spot};
use std::sync::Arc;

/// What is held of one directory: a plugin, or the root, which may be a marketplace.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) token: u64,
    /// Watch over it while it is held.
    #[allow(dead_code)] // held, and never looked at
    pub(super) guards: Vec<Guard>,
    /// The manifest as of which it was read, and its place.
    pub(super) manifest: Option<(Manifest, RelPath)>,
    pub(super) plugin: Read,
    pub(super) lists: Vec<ListRead>,
    /// What was assembled of it last, and how much of a root's room that took.
    pub(super) assembled: Option<(Arc<Plugin>, usize)>,
    /// Whether what was read since is the same.
    pub(super) is_same: bool,
}

/// What was read of a marketplace's list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListRead {
    pub(super) file: RelPath,
    fingerprint: Option<Fingerprint>,
    pub(super) list: Option<Marketplace>,
    pub(super) problems: Vec<Problem>,
}

impl Held {
    /// Whether something could not be read, and may be by now.
    pub(super) fn has_failed(&self) -> bool {
        self.plugin.has_failed()
    }

    /// Whether a file that declares something changed since it was read.
    pub(super) fn is_outdated(&self, ground: &Ground, dir: &Spot) -> bool {
        let is_other = |read: Fingerprint, file| read.is_outdated(ground, dir, file);
        self.plugin.files.iter().any(|read| is_other(read.fingerprint, &read.file))
            || self.lists.iter().any(|read| {
                read.fingerprint.is_some_and(|fingerprint| is_other(fingerprint, &read.file))
            })
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = self.plugin.keep_last_good(&last.plugin);
        for list in self.lists.iter_mut().filter(|list| list.list.is_none()) {
            let old = last.lists.iter().find(|old| old.file == list.file);
            list.list = old.and_then(|old| old.list.clone());
            kept |= list.list.is_some();
        }
        kept
    }

    /// Says what is wrong with the files.
    pub(super) fn report(&self, walked: &RelPath, diagnostics: &mut Diagnostics) {
        let files = self.plugin.files.iter().map(|file| (&file.file, &file.problems));
        let lists = self.lists.iter().map(|list| (&list.file, &list.problems));
        let of_files = files.chain(lists);
        let of_files =
            of_files.flat_map(|(file, all)| all.iter().map(move |problem| (file, problem)));
        let of_places = self.plugin.problems.iter().map(|(place, problem)| (place, problem));
        for (place, problem) in of_files.chain(of_places) {
            let resource = Some(walked.join_all(place));
            diagnostics.push(Diagnostic { resource, problem: problem.clone() });
        }
    }

    /// The plugin; the very same as before where it is as it was. The problem says what bounds left
    /// out.
    pub(super) fn assemble(
        &mut self,
        walked: &RelPath,
        others: &[RelPath],
        room: &mut usize,
    ) -> (Option<Arc<Plugin>>, Option<Problem>) {
        if let Some((same, taken)) = self.assembled.as_ref().filter(|_| self.is_same)
            && (&same.package, &*same.others) == (walked, others)
            && !same.truncated
            && let Some(left) = room.checked_sub(*taken)
        {
            *room = left;
            return (Some(same.clone()), None);
        }
        let Some((manifest, file)) = self.manifest.clone() else { return (None, None) };
        let mut components = manifest.declared.inline.clone().declared_by(&file);
        for file in &self.plugin.files {
            components.extend(file.components.clone().unwrap_or_default());
        }
        let plugin = Plugin {
            package: walked.clone(),
            manifest,
            file,
            others: others.into(),
            images: self.plugin.images.clone(),
            screenshots: self.plugin.screenshots.clone().into(),
            components,
            stale: self.plugin.files.iter().any(|file| file.stale),
            truncated: false,
        };
        let before = *room;
        let (plugin, problem) = plugin.bounded(room);
        let same = self.assembled.take().map(|(old, _)| old).filter(|old| **old == plugin);
        let plugin = same.unwrap_or_else(|| Arc::new(plugin));
        self.assembled = Some((plugin.clone(), before - *room));
        self.is_same = true;
        (Some(plugin), problem)
    }
}

/// Reads a marketplace's list, if there is one at this place.
pub(super) fn read_list(
    reader: &Reader<'_>,
    dir: &Spot,
    file: RelPath,
    token: u64,
    guards: &mut Vec<Guard>,
) -> Option<ListRead> {
    reader.watch(dir, &file, token, guards);
    let target = resource::find(reader.ground, dir, &file);
    if let Err(Unopened::Blocked(Blocked::Missing | Blocked::NotADirectory)) = target {
        return None;
    }
    let opened = reader.open(dir, &file);
    let fingerprint = opened.as_ref().ok().map(|opened| {
        watch_shared(reader.watching, opened, token, guards);
        Fingerprint::of(&opened.version)
    });
    let read = opened.map(|opened| content::small(&opened.file));
    let (list, problems) = match read {
        Ok(Ok(bytes)) => marketplace::read(&bytes, &file),
        Ok(Err(_)) => (None, vec![Problem::error(Code::PluginFileInvalid, super::list::FAILED)]),
        Err(problem) => (None, vec![problem]),
    };
    Some(ListRead { file, fingerprint, list, problems })
}
