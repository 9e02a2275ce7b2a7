//! The one rule by which a package's files are read, whether they are asked for or listed.

use super::allowed::{Ground, Resolved};
use super::off::{Off, Seen};
use super::read::Unread;
use super::resource::{self, Regular};
use crate::domain::{Declaring, Plugin, RelPath, Spot, main_file, permit};

/// What reading a package's files needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Rule<'a> {
    /// Directories that are never read in.
    pub passed_over: &'a [Box<[u8]>],
    /// Whether links are followed.
    pub follow_links: bool,
    /// Skills that are switched off.
    pub off: Off<'a>,
    /// Files whose content is never handed out.
    pub declaring: &'a Declaring,
    /// The plugin that is the package; `None` where that is a skill.
    pub plugin: Option<&'a Plugin>,
}

/// A package that was found.
pub(super) struct Package<'a> {
    pub(super) ground: &'a Ground,
    root: &'a Spot,
    /// As walked below the root.
    walked: &'a RelPath,
    /// Where it really is.
    pub(super) spot: Spot,
    pub(super) rule: Rule<'a>,
    off: Seen<'a>,
}

impl<'a> Package<'a> {
    pub(super) fn find(
        root: &'a Resolved,
        walked: &'a RelPath,
        rule: Rule<'a>,
    ) -> Result<Self, Unread> {
        let spot = resource::find(&root.ground, &root.spot, walked)?.spot;
        Ok(Self::at(root, walked, spot, rule))
    }

    /// The package if it is where it was walked to, without a link on the way.
    pub(super) fn unlinked(root: &'a Resolved, walked: &'a RelPath, rule: Rule<'a>) -> Self {
        let spot = Spot { base: root.spot.base, rel: root.spot.rel.join_all(walked) };
        Self::at(root, walked, spot, rule)
    }

    fn at(root: &'a Resolved, walked: &'a RelPath, spot: Spot, rule: Rule<'a>) -> Self {
        let Resolved { ground, spot: root } = root;
        let off = rule.off.seen_from(ground, root, walked, &spot);
        Self { ground, root, walked, spot, rule, off }
    }

    /// Where a file is that is walked to without a link.
    pub(super) fn place(&self, resource: &RelPath) -> Spot {
        Spot { base: self.spot.base, rel: self.spot.rel.join_all(resource) }
    }

    /// Opens a file, as walked below the package, if it may be read.
    pub(super) fn open(&self, resource: &RelPath) -> Result<Regular, Unread> {
        self.permit_walked(resource)?;
        let opened = resource::open(self.ground, &self.spot, resource)?;
        self.permit_real(resource, &opened.spot)?;
        Ok(opened)
    }

    /// Whether a file may be read by how it is walked to.
    pub(super) fn permit_walked(&self, resource: &RelPath) -> Result<(), Unread> {
        let Rule { passed_over, declaring, plugin, .. } = self.rule;
        let is_hidden = !permit::may_read(resource, passed_over)
            || plugin.is_some_and(|plugin| !plugin.may_read(resource))
            || declaring.has(&self.walked.join_all(resource));
        if is_hidden { Err(Unread::NotFound) } else { Ok(()) }
    }

    /// Whether it may be read by where it really is.
    pub(super) fn permit_real(&self, resource: &RelPath, real: &Spot) -> Result<(), Unread> {
        let Rule { passed_over, follow_links, declaring, plugin, .. } = self.rule;
        if real.below(self.root).is_some_and(|real| declaring.has(&real)) {
            return Err(Unread::NotFound);
        }
        // Nothing outside a plugin is followed to.
        if plugin.is_some() && real.below(&self.spot).is_none() {
            return Err(Unread::Outside);
        }
        let walked = self.root.rel.join_all(self.walked).join_all(resource);
        let linked = *real != Spot { base: self.root.base, rel: walked };
        if linked && !follow_links {
            return Err(Unread::Outside);
        }
        let is_main = *resource == main_file();
        if !is_main && !permit::may_read(&self.place_to_judge(real), passed_over) {
            return Err(Unread::NotFound);
        }
        if self.off.covers(resource, real) {
            return Err(Unread::NotFound);
        }
        Ok(())
    }

    /// Whether a link may lead a list into a directory. One that holds the root may have something
    /// to list below it, whatever it is called itself.
    pub(super) fn may_enter(&self, dir: &Spot) -> bool {
        let holds_root = dir.base == self.root.base && self.root.rel.below(&dir.rel).is_some();
        holds_root || permit::may_read(&self.place_to_judge(dir), self.rule.passed_over)
    }

    /// The part of a resolved place that decides whether it may be read: what a link adds counts
    /// too.
    fn place_to_judge(&self, spot: &Spot) -> RelPath {
        let below =
            |dir: &Spot| (dir.base == spot.base).then(|| spot.rel.below(&dir.rel)).flatten();
        below(&self.spot).or_else(|| below(self.root)).unwrap_or_else(|| spot.rel.clone())
    }
}
