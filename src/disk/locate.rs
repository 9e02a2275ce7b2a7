//! Where a package or one of its files is on this machine, for whoever runs there. Blocking.

use super::allowed_dirs::ResolvedRootDir;
use super::disabled_skills::DisabledSkills;
use super::file_page::FileReadError;
use super::open_file;
use super::package::{ReadRules, ResolvedPackage};
use crate::domain::{DisableRules, DisabledPackages, ManifestFiles, RelPath};
use rustix::fs::FileType;
use std::path::PathBuf;

/// The native path of a package, or of a regular file in it that this process may read: absolute,
/// no link in it. Leaves it to the daemon what is listed.
pub fn locate_resource(
    root: &ResolvedRootDir,
    package: &RelPath,
    resource: Option<&RelPath>,
) -> Result<PathBuf, FileReadError> {
    let ResolvedRootDir { snapshot: ground, path: root_spot } = root;
    if let Some(resource) = resource {
        // What is switched off is not listed, which the daemon has said already.
        let (packages, rules) = (DisabledPackages::default(), DisableRules::default());
        let off = DisabledSkills { packages: &packages, rules: &rules, published: &[] };
        let declaring = ManifestFiles::default();
        let rule = ReadRules {
            skipped_dirs: &[],
            follow_links: true,
            disabled_skills: off,
            manifest_files: &declaring,
            plugin: None,
        };
        let opened = ResolvedPackage::resolve(root, package, rule)?.open(resource)?;
        return Ok(ground.absolute_path(&opened.real_path));
    }
    let target = open_file::find_target(ground, root_spot, package)?;
    match FileType::from_raw_mode(target.stat.st_mode) {
        FileType::Directory => Ok(ground.absolute_path(&target.real_path)),
        _ => Err(FileReadError::NotFound),
    }
}
