//! Files that the daemon does not serve, by path: files in skipped directories, `.env…` files, and
//! the manifest files of plugins in which something is redacted.

use super::plugin::{ComponentKind, MANIFEST_PATHS, MARKETPLACE_PATHS};
use caproot_core::sync::Mutex;
use caproot_core::wire::RelPath;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

/// Names of files in which programs keep keys and passwords.
const SECRET_FILE_NAMES: [&[u8]; 6] = [
    b"id_rsa",
    b"id_dsa",
    b"id_ecdsa",
    b"id_ed25519",
    b".npmrc",
    b".netrc",
];
/// Start and end of the first line of a private key in PEM (RFC 7468).
const PEM_START: &[u8] = b"-----BEGIN ";
const PRIVATE_KEY_LABEL: &[u8] = b"PRIVATE KEY";
/// How many bytes of a file show whether it is a private key. The longest label in use has 21 bytes.
pub const PEM_HEAD_BYTES: usize = 64;

/// Whether a file may be listed and read: the path has no segment in `skipped_dirs` and no segment
/// that names a file with secrets.
#[must_use]
pub fn may_serve_path(path: &RelPath, skipped_dirs: &[Box<[u8]>]) -> bool {
    path.segments().all(|segment| {
        !is_secret_name(segment) && !skipped_dirs.iter().any(|name| **name == *segment)
    })
}

/// Whether a file with this name is kept from callers because it may hold secrets: its name begins with
/// `.env`, or is one of keys and passwords.
#[must_use]
pub fn is_secret_name(name: &[u8]) -> bool {
    name.starts_with(b".env") || SECRET_FILE_NAMES.contains(&name)
}

/// Whether a file begins with a private key, given its first [`PEM_HEAD_BYTES`].
#[must_use]
pub fn begins_with_private_key(head: &[u8]) -> bool {
    let Some(label) = head.trim_ascii_start().strip_prefix(PEM_START) else {
        return false;
    };
    let line = label
        .split(|b| matches!(b, b'\r' | b'\n' | b'-'))
        .next()
        .unwrap_or_default();
    line.ends_with(PRIVATE_KEY_LABEL)
}

/// Files below a root in which plugins declare servers, hooks and apps for a host to start. Such
/// files may hold secrets. The daemon serves the content of a version in which nothing is redacted, and
/// of no other version.
#[derive(Debug, Clone, Default)]
pub struct ManifestFiles {
    paths: Vec<RelPath>,
    versions: HarmlessVersions,
}

/// Fingerprints of the versions of manifest files in which nothing is redacted. The catalogs of a root
/// share them, because a file may have a new version without a change of the catalog.
#[derive(Debug, Clone, Default)]
pub struct HarmlessVersions(Arc<Mutex<HashMap<RelPath, NonZero<u64>>>>);

impl HarmlessVersions {
    /// Replaces all versions by those of a new scan.
    pub fn replace(&self, versions: HashMap<RelPath, NonZero<u64>>) {
        *self.0.lock() = versions;
    }
}

impl PartialEq for ManifestFiles {
    /// Whether both have the same paths.
    fn eq(&self, other: &Self) -> bool {
        self.paths == other.paths
    }
}

impl ManifestFiles {
    /// Creates an empty list with these versions.
    #[must_use]
    pub fn new(versions: HarmlessVersions) -> Self {
        Self {
            paths: Vec::new(),
            versions,
        }
    }

    /// Adds the default paths of manifest files in a directory that may be a plugin. `resolved` is
    /// the directory's resolved path, if that is below the root.
    pub fn add_standard_files(&mut self, dir: &RelPath, resolved: Option<&RelPath>) {
        let json = ComponentKind::ALL.into_iter().filter(|kind| kind.is_json());
        let json = json.flat_map(|kind| kind.default_paths().iter().copied());
        let standard = MANIFEST_PATHS.into_iter().chain(MARKETPLACE_PATHS);
        for path in standard
            .chain(json)
            .map(str::as_bytes)
            .filter_map(RelPath::new)
        {
            let resolved = resolved.map(|dir| dir.join_path(&path));
            self.add_file(dir.join_path(&path), resolved);
        }
    }

    /// Adds one file by its path and, if that is below the root, its resolved path.
    pub fn add_file(&mut self, path: RelPath, resolved: Option<RelPath>) {
        self.paths
            .extend(resolved.filter(|resolved| *resolved != path));
        self.paths.push(path);
    }

    /// Sorts the files. Must be called between the last addition and [`contains`](Self::contains).
    pub fn sort_and_dedup(&mut self) {
        self.paths.sort();
        self.paths.dedup();
        self.paths.shrink_to_fit();
    }

    /// Whether the path below the root is a manifest file.
    #[must_use]
    pub fn contains(&self, path: &RelPath) -> bool {
        self.paths.binary_search(path).is_ok()
    }

    /// Whether the version with this fingerprint may be served: the path is no manifest file, or nothing
    /// in this version is redacted. `None` is an unknown version.
    #[must_use]
    pub fn may_serve(&self, path: &RelPath, version: Option<NonZero<u64>>) -> bool {
        !self.contains(path)
            || (version.is_some() && self.versions.0.lock().get(path).copied() == version)
    }
}

#[cfg(test)]
mod tests {
    use super::{begins_with_private_key, is_secret_name};

    #[test]
    fn secret_files_are_known_by_name_or_start() {
        for (name, is_secret) in [
            (".env", true),
            (".env.local", true),
            ("id_ed25519", true),
            ("id_ed25519.pub", false),
            (".npmrc", true),
            ("npmrc", false),
        ] {
            assert_eq!(is_secret_name(name.as_bytes()), is_secret, "{name}");
        }
        for (head, is_key) in [
            ("-----BEGIN PRIVATE KEY-----\nMC4C", true),
            ("\n-----BEGIN OPENSSH PRIVATE KEY-----\r\n", true),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----", true),
            ("-----BEGIN EC PRIVATE KEY", true),
            ("-----BEGIN PUBLIC KEY-----\n", false),
            ("-----BEGIN CERTIFICATE-----\nPRIVATE KEY", false),
            ("A key begins with -----BEGIN PRIVATE KEY-----", false),
            ("", false),
        ] {
            assert_eq!(begins_with_private_key(head.as_bytes()), is_key, "{head}");
        }
    }
}
