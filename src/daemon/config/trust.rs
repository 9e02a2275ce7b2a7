//! Reads `trust` of a config file, and the lock that it names.

use super::keys::KeyDefault::{Effect, Required};
use super::keys::KeyValue::{Choice, List, Text};
use super::keys::{ConfigKey, key_table};
use super::roots::KnownRoots;
use super::{OfferedDirs, address, record_reading, top_keys};
use crate::daemon::fs::path_resolution::{NameLookup, PathResolution, path_or_slash, resolve_path};
use crate::daemon::model::{LoadedLock, TrustMode, TrustPolicy};
use caproot_core::bounded_file;
use caproot_core::document::{ConfigError, DocumentReader, DocumentSection};
use caproot_core::file_watch::{FileStamps, stamp_files};
use caproot_core::lock::{LockFile, signature_path};
use caproot_core::text::SentenceResult as _;
use caproot_core::wire::RootId;
use nix::unistd::Uid;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bits of a mode that let the group and other users write.
const OTHERS_WRITE: u32 = 0o022;
/// Bit of a directory's mode: only the owner of a file may replace the file.
const STICKY: u32 = 0o1000;

// Keys of `trust`.
key_table!(
    KEYS,
    LOCK = ConfigKey::new(
        "trust.lock",
        Text("file"),
        Required {
            example: "caproot.lock"
        },
        "Lock of the approved skills and plugins, which `caproot lock` writes. The file must lie outside the allowed \
         directories, and only root and the user of the daemon may be able to write it. The daemon reads \
         the file again when it changes. An invalid lock is rejected, and the last lock stays in force.",
    ),
    MODE = ConfigKey::new(
        "trust.mode",
        Choice(&TrustMode::NAMES),
        Required { example: "hide" },
        "Effect on skills and plugins that are not approved. With `warn`, they are listed with their state. \
         With `hide`, only approved skills and plugins are listed, and only approved bytes are sent.",
    ),
    ROOTS = ConfigKey::new(
        "trust.roots",
        List("ids of published roots"),
        Effect {
            effect: "the lock applies to every root, also to selected directories below `allow`",
            example: "[team]",
        },
        "Roots to which the lock applies. The lock applies to a selected directory, too, if it lies below \
         or above one of these roots.",
    ),
    SIGNERS = ConfigKey::new(
        "trust.signers",
        Text("file with the format of `allowed_signers` in ssh-keygen(1)"),
        Effect {
            effect: "the lock needs no signature",
            example: "allowed_signers",
        },
        "Keys that may sign the lock. If set, the lock needs a signature by one of these keys in the file \
         with the name of the lock and `.sig`.",
    ),
);

/// Section `trust` of a file, whose lock is not read yet.
#[derive(Debug)]
pub struct TrustDraft {
    mode: TrustMode,
    roots: Option<Box<[RootId]>>,
    files: LockPaths,
}

/// Absolute paths of a lock and of the keys that may sign it.
#[derive(Debug, Clone)]
pub struct LockPaths {
    /// Lock.
    pub lock: PathBuf,
    /// File of the keys.
    pub signers: Option<PathBuf>,
}

/// Approval of skills, and the stamps of the files of the lock from before they were read.
#[derive(Debug, Clone)]
pub struct LoadedTrust {
    /// Rules and lock.
    pub policy: TrustPolicy,
    /// Stamps of [`LockPaths::all`].
    pub stamps: FileStamps,
}

/// Reads the section.
pub fn read(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    known_roots: &KnownRoots<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<TrustDraft> {
    let section = top_keys::TRUST.section(top, reader)?;
    let path = |text: &str| address::absolute_path(text.as_ref(), base);
    let empty = "empty list, so the lock would apply to no root; remove the key for every root";

    // All keys are read before a missing one returns, so that all errors are reported.
    let lock = LOCK.required(&section, reader, path);
    let mode = MODE.required(&section, reader, TrustMode::parse);
    let roots = ROOTS.list(&section, reader, Some(empty), |text| {
        known_roots.parse_id(text)
    });
    let signers = SIGNERS.parsed(&section, reader, path);
    Some(TrustDraft {
        mode: mode?,
        roots: roots.map(Into::into),
        files: LockPaths {
            lock: lock?,
            signers,
        },
    })
}

/// Reads the lock of a section.
pub fn load(draft: TrustDraft, offered: &OfferedDirs) -> Result<LoadedTrust, ConfigError> {
    let loaded = draft.files.read(&offered.allowed_dirs)?;
    Ok(LoadedTrust {
        policy: TrustPolicy {
            mode: draft.mode,
            roots: draft.roots,
            lock: Arc::new(loaded.lock),
        },
        stamps: loaded.stamps,
    })
}

/// Lock that was read, and the stamps of its files.
#[derive(Debug)]
pub struct ReadLock {
    /// The lock.
    pub lock: LoadedLock,
    /// Stamps of [`LockPaths::all`] from before the read.
    pub stamps: FileStamps,
}

impl LockPaths {
    /// Returns the files of a lock in force.
    #[must_use]
    pub fn of(lock: &LoadedLock) -> Self {
        Self {
            lock: lock.path.clone(),
            signers: lock.signers.clone(),
        }
    }

    /// Returns the paths of all files that the lock depends on.
    #[must_use]
    pub fn all(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.lock.clone()];
        if let Some(signers) = &self.signers {
            paths.extend([signature_path(&self.lock), signers.clone()]);
        }
        paths
    }

    /// Reads the lock. Rejects files in a place where an author could write them.
    pub fn read(&self, allowed_dirs: &[PathBuf]) -> Result<ReadLock, ConfigError> {
        let paths = self.all();
        record_reading(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        // The stamps come first, so that a change during the read is noticed.
        let stamps = stamp_files(&paths);
        let read_file = |path: &Path, max_bytes| read_protected_file(path, max_bytes, allowed_dirs);
        let file = LockFile::read_by(&self.lock, self.signers.as_deref(), read_file)?;
        let loaded_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let lock = LoadedLock {
            lock: file.lock,
            path: self.lock.clone(),
            signers: self.signers.clone(),
            digest: file.digest,
            signer: file.signer,
            loaded_at: loaded_at.unwrap_or_default(),
        };
        Ok(ReadLock { lock, stamps })
    }
}

/// Reads the lock or the file of its signers. The open file is checked, so that no other file is read.
fn read_protected_file(
    path: &Path,
    max_bytes: u64,
    allowed_dirs: &[PathBuf],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let file = bounded_file::open(path)?;
    check_place(path, file.metadata(), allowed_dirs)?;
    Ok(file.read(max_bytes)?)
}

/// Rejects an open file that an author of skills could write or replace.
fn check_place(path: &Path, file: &Metadata, allowed_dirs: &[PathBuf]) -> Result<(), String> {
    let PathResolution { real, lookups, .. } = resolve_path(path.as_os_str().as_bytes());
    let real = Path::new(OsStr::from_bytes(&real));

    for dir in allowed_dirs {
        let real_dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        // A link below the directory is as bad as the file, because an author can replace the link.
        if real.starts_with(&real_dir) || path.starts_with(dir) {
            return Err(format!(
                "lies below the allowed directory {}, so an author could approve an own skill; move the \
                 file",
                dir.display()
            ));
        }
    }

    if is_writable_by_others(file) {
        return Err(
            "others than root and the user of the daemon can write the file; run chmod go-w, or chown"
                .to_owned(),
        );
    }

    // Each link on the way leads elsewhere if someone can write its directory.
    for NameLookup { dir, .. } in &lookups {
        let dir = path_or_slash(dir);
        let found = fs::symlink_metadata(dir).context(dir.display())?;
        if is_writable_by_others(&found) && !is_protected(dir, &found) {
            return Err(format!(
                "others than root and the user of the daemon can replace the file, because they can \
                 write the directory {}; run chmod go-w, or chown",
                dir.display()
            ));
        }
    }

    let is_same = fs::symlink_metadata(real)
        .is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()));
    if is_same {
        Ok(())
    } else {
        Err("was replaced while it was read; try again".to_owned())
    }
}

fn is_writable_by_others(found: &Metadata) -> bool {
    !is_own(found) || found.mode() & OTHERS_WRITE != 0
}

/// Whether a file belongs to root or to the user of the daemon.
fn is_own(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == Uid::effective().as_raw()
}

/// Whether only root and the own user can replace a file in a directory that others can write: the sticky
/// bit is set, or the filesystem is read-only, as for a `ConfigMap` of Kubernetes.
fn is_protected(dir: &Path, found: &Metadata) -> bool {
    let is_read_only =
        statvfs(dir).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
    is_read_only || is_own(found) && found.mode() & STICKY != 0
}
