//! Where a package or one of its files is on this machine, for whoever runs there. Blocking.

use super::allowed::Resolved;
use super::off::Off;
use super::package::{Package, Rule};
use super::read::Unread;
use super::resource;
use crate::domain::{Declaring, OffPackages, RelPath, SwitchedOff};
use rustix::fs::FileType;
use std::path::PathBuf;

/// The native path of a package, or of a regular file in it that this process may read: absolute,
/// no link in it. Leaves it to the daemon what is listed.
pub fn locate(
    root: &Resolved,
    package: &RelPath,
    resource: Option<&RelPath>,
) -> Result<PathBuf, Unread> {
    let Resolved { ground, spot: root_spot } = root;
    if let Some(resource) = resource {
        // What is switched off is not listed, which the daemon has said already.
        let (packages, rules) = (OffPackages::default(), SwitchedOff::default());
        let off = Off { packages: &packages, rules: &rules, published: &[] };
        let declaring = Declaring::default();
        let rule =
            Rule { passed_over: &[], follow_links: true, off, declaring: &declaring, plugin: None };
        let opened = Package::find(root, package, rule)?.open(resource)?;
        return Ok(ground.native(&opened.spot));
    }
    let target = resource::find(ground, root_spot, package)?;
    match FileType::from_raw_mode(target.stat.st_mode) {
        FileType::Directory => Ok(ground.native(&target.spot)),
        _ => Err(Unread::NotFound),
    }
}
