//! Directory of a user with verified copies of packages, named by the digest of their files. A copy
//! never changes: if a script wrote to a copy, the next use makes another copy.

use super::PullError;
use super::dir_scan::{ScanDepth, open_dir_at, scan_dir};
use super::pull_error::SystemResult as _;
use super::staging_dir::StagingDir;
use super::target_dir::TargetDir;
use super::{ChecksumFile, total_bytes};
use caproot_core::wire::ContentDigest;
use rustix::fs::{
    CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, lstat, open, openat,
    renameat_with,
};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Maximum number of copies. The least recently used copies are removed first.
const MAX_COPIES: usize = 32;
/// Maximum size of the listed files of all copies in bytes.
const MAX_STORE_BYTES: u64 = 2 << 30;
/// How long a reserved copy stays.
const RESERVED_TIME: Duration = Duration::from_hours(1);
/// Write permission of other users.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bit that lets only the owner of an entry rename the entry.
const STICKY: u32 = 0o1000;
/// User id that the kernel reports for users outside the user namespace: `user_namespaces(7)`.
const OVERFLOW_UID: u32 = 65_534;

/// Directory with copies of packages that only its user can write.
#[derive(Debug)]
pub struct PackageStore {
    path: PathBuf,
    dir: OwnedFd,
}

/// Verified copy of a package. The lock keeps the copy from being removed.
#[derive(Debug)]
pub struct PackageCopy {
    dir: PathBuf,
    lock: File,
}

/// Parts of the name of a copy: `DIGEST.BYTES.RANDOM`.
struct CopyName {
    name: String,
    bytes: u64,
}

impl PackageStore {
    /// Opens a directory, and creates the directory if it does not exist. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Another user can write the directory or replace it by another one.
    pub fn open(dir: &Path) -> Result<Self, PullError> {
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(dir);
        let path = created.and_then(|()| dir.canonicalize());
        let path = path.at(dir)?;

        // The canonical path has no link, so these directories are all that lead to the store.
        for ancestor in path.ancestors() {
            let stat = lstat(ancestor).at(ancestor)?;
            reject_other_writers(&stat, ancestor, ancestor == path)?;
        }

        let dir = open_dir_at(CWD, &path).at(&path)?;
        Ok(Self { path, dir })
    }

    /// Returns the target of a new copy. The name begins with the digest of the files.
    pub(super) fn new_target(&self, files: &ChecksumFile) -> Result<TargetDir, PullError> {
        let random = RandomState::new().hash_one(&self.path);
        let bytes = total_bytes(&files.files);
        let name = format!("{}{bytes}.{random:016x}", name_prefix(files)?);
        TargetDir::open_parent(&self.path.join(name))
    }

    /// Gives a complete staging directory the name of its target.
    pub(super) fn add_copy(
        &self,
        staging: &StagingDir,
        target: &Arc<TargetDir>,
    ) -> Result<(), PullError> {
        let name = target.path.file_name().unwrap_or_default();
        renameat_with(
            &self.dir,
            &staging.name,
            &self.dir,
            name,
            RenameFlags::NOREPLACE,
        )
        .at(&target.path)?;
        staging.set_disposable(false);
        Ok(())
    }

    /// Waits until no other process writes a copy of these files, and keeps other processes away until
    /// the file is dropped. Packages share 16 locks, so that the locks need not be removed.
    pub(super) fn lock_writes(&self, files: &ChecksumFile) -> Result<File, PullError> {
        let prefix = name_prefix(files)?;
        let name = format!("lock.{}", &prefix[..1]);
        let file = self.open_file(&name)?;
        flock(&file, FlockOperation::LockExclusive).at(&self.path.join(name))?;
        Ok(file)
    }

    /// Opens a file next to the copies, and creates the file if it does not exist.
    fn open_file(&self, name: &str) -> Result<File, PullError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR);
        file.map(File::from).at(&self.path.join(name))
    }

    /// Finds a copy that has exactly these files, and marks the copy as used. Each file is compared with
    /// its digest. Copies that differ are removed, unless a script runs in them.
    pub(super) fn find_copy(&self, files: &ChecksumFile) -> Result<Option<PackageCopy>, PullError> {
        let prefix = name_prefix(files)?;
        for copy in self.copies()? {
            if !copy.name.starts_with(&prefix) {
                continue;
            }
            let Some(lock) = self.lock_copy(&copy, FlockOperation::NonBlockingLockShared) else {
                continue;
            };

            let dir = self.path.join(&copy.name);
            let scan = scan_dir(lock.as_fd(), &dir, Some(files), ScanDepth::Contents);
            if scan.is_ok_and(|scan| scan.differences.is_empty()) {
                // The time only decides which copy is removed first.
                let _ = lock.set_modified(SystemTime::now());
                return Ok(Some(PackageCopy { dir, lock }));
            }

            // A removal needs the exclusive lock, which this lock would deny: flock(2).
            drop(lock);
            if !self.is_reserved(&copy) {
                self.remove_copy(&copy);
            }
        }
        Ok(None)
    }

    /// Keeps a copy for at least an hour, for programs that know only its path. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The reserved copies are at the limits of the store.
    pub fn reserve_copy(&self, copy: &PackageCopy) -> Result<(), PullError> {
        let mut bytes = 0_u64;
        let mut count = 0;
        for other in self.copies()? {
            if self.is_reserved(&other) && self.path.join(&other.name) != copy.dir {
                bytes = bytes.saturating_add(other.bytes);
                count += 1;
            }
        }
        if count >= MAX_COPIES || bytes > MAX_STORE_BYTES {
            let reason =
                "the directory has too many copies whose paths were printed within an hour";
            return Err(PullError::unusable(&self.path, reason));
        }
        let name = copy.dir.file_name().unwrap_or_default().to_string_lossy();
        let name = reservation_name(&name);
        let mark = self.open_file(&name)?;
        mark.set_modified(SystemTime::now())
            .at(&self.path.join(name))
    }

    /// Removes the least recently used copies until the others are within the limits. A copy in which a
    /// script runs stays, and so does a reserved copy.
    pub(super) fn remove_old_copies(&self) -> Result<(), PullError> {
        let mut copies = self.copies()?;
        copies.sort_by_key(|copy| std::cmp::Reverse(self.last_use(copy)));

        let mut bytes = 0_u64;
        for (number, copy) in copies.iter().enumerate() {
            bytes = bytes.saturating_add(copy.bytes);
            let exceeds_limit = number >= MAX_COPIES || number > 0 && bytes > MAX_STORE_BYTES;
            if exceeds_limit && !self.is_reserved(copy) {
                self.remove_copy(copy);
            }
        }
        Ok(())
    }

    /// Lists the copies. Ignores other names.
    fn copies(&self) -> Result<Vec<CopyName>, PullError> {
        let entries = Dir::read_from(&self.dir).at(&self.path)?;
        let mut copies = Vec::new();
        for entry in entries {
            let entry = entry.at(&self.path)?;
            let name = entry.file_name().to_str().unwrap_or_default();
            copies.extend(CopyName::parse(name));
        }
        Ok(copies)
    }

    /// Opens and locks a copy. Returns `None` if the copy is gone or has another lock.
    fn lock_copy(&self, copy: &CopyName, operation: FlockOperation) -> Option<File> {
        let dir = open_dir_at(&self.dir, &copy.name).ok()?;
        flock(&dir, operation).ok().map(|()| dir.into())
    }

    /// Removes a copy, unless a script runs in it. A copy that cannot be removed is never run, because
    /// it differs from its digest.
    fn remove_copy(&self, copy: &CopyName) {
        if let Some(_lock) = self.lock_copy(copy, FlockOperation::NonBlockingLockExclusive) {
            let path = self.path.join(&copy.name);
            // `make_read_only` may have closed the directories, and unlink(2) needs to write them.
            let _ = set_writable(&path, true);
            let _ = fs::remove_dir_all(path);
            let _ = fs::remove_file(self.path.join(reservation_name(&copy.name)));
        }
    }

    /// Whether the copy must stay, by the time of a file next to the copy: a program that writes to the
    /// copy changes the time of the copy. A time in the future is not from this program.
    fn is_reserved(&self, copy: &CopyName) -> bool {
        let mark = self.path.join(reservation_name(&copy.name));
        let begin = fs::symlink_metadata(mark).and_then(|meta| meta.modified());
        let age = begin.ok().and_then(|begin| begin.elapsed().ok());
        age.is_some_and(|age| age < RESERVED_TIME)
    }

    /// Returns the time of the last use in seconds and nanoseconds.
    fn last_use(&self, copy: &CopyName) -> (i64, i64) {
        let meta = fs::symlink_metadata(self.path.join(&copy.name));
        meta.map_or((0, 0), |meta| (meta.mtime(), meta.mtime_nsec()))
    }
}

impl PackageCopy {
    /// Returns the absolute path of the copy.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Checks that the path still leads to the copy, and that only root and this user can change a part
    /// of the path. Then no other user can put another file in the place of a script that starts by its
    /// path.
    pub fn check_place(&self) -> Result<(), PullError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut path = PathBuf::from("/");
        let mut dir = open(&path, flags, Mode::empty()).at(&path)?;
        for name in self.dir.iter().skip(1) {
            reject_other_writers(&fstat(&dir).at(&path)?, &path, false)?;
            path.push(name);
            dir = openat(&dir, name, flags, Mode::empty()).at(&path)?;
        }

        let found = fstat(&dir).at(&path)?;
        let copy = fstat(&self.lock).at(&path)?;
        if (found.st_dev, found.st_ino) != (copy.st_dev, copy.st_ino) {
            return Err(PullError::KeepsChanging);
        }
        reject_other_writers(&found, &path, true)
    }

    /// Takes the write permission of all files and directories away, so that a program in the copy changes
    /// nothing by mistake. Blocks on the disk.
    pub fn make_read_only(&self) -> Result<(), PullError> {
        set_writable(&self.dir, false).at(&self.dir)
    }

    /// Keeps the lock in a program that replaces this process, until the program and its children end.
    pub fn keep_locked_in_next_program(&self) -> Result<(), PullError> {
        fcntl_setfd(&self.lock, FdFlags::empty()).at(&self.dir)
    }
}

impl CopyName {
    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<_> = name.split('.').collect();
        let [digest, bytes, random] = parts[..] else {
            return None;
        };
        let bytes = bytes.parse().ok()?;
        (digest.len() == 64 && random.len() == 16).then(|| Self {
            name: name.to_owned(),
            bytes,
        })
    }
}

/// Takes the permission to write a directory and everything below it away, or gives it back to the owner of the
/// directories, as a removal needs. Follows no link, which a script may have made in its copy.
fn set_writable(path: &Path, is_writable: bool) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() || (is_writable && !meta.is_dir()) {
        return Ok(());
    }
    let mode = meta.permissions().mode();
    let mode = if is_writable {
        mode | 0o200
    } else {
        mode & !0o222
    };
    fs::set_permissions(path, Permissions::from_mode(mode))?;

    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            set_writable(&entry?.path(), is_writable)?;
        }
    }
    Ok(())
}

/// Returns the start of the names of the copies with these files.
fn name_prefix(files: &ChecksumFile) -> Result<String, PullError> {
    let digest = ContentDigest::of(files.to_text()?).to_string();
    let hex = digest.strip_prefix("sha256:").unwrap_or(&digest);
    Ok(format!("{hex}."))
}

/// Returns the name of the file that reserves a copy.
fn reservation_name(copy: &str) -> String {
    format!("{copy}.reserved")
}

/// Rejects a directory in which other users can rename or write entries. `is_store` means the directory
/// of the copies, which must belong to this user.
fn reject_other_writers(stat: &Stat, dir: &Path, is_store: bool) -> Result<(), PullError> {
    let own = rustix::process::geteuid().as_raw();
    let is_system_owned =
        stat.st_uid == 0 || stat.st_uid == OVERFLOW_UID && !is_mapped(OVERFLOW_UID);
    let is_owner_known = stat.st_uid == own || !is_store && is_system_owned;
    let is_shared = stat.st_mode & WRITABLE_BY_OTHERS != 0;
    let is_protected = !is_store && stat.st_mode & STICKY != 0;

    if !is_owner_known {
        let reason = "the directory belongs to another user, who could change the copies";
        return Err(PullError::unusable(dir, reason));
    }
    if is_shared && !is_protected {
        let reason = "other users can write the directory, and could change the copies";
        return Err(PullError::unusable(dir, reason));
    }
    Ok(())
}

/// Whether the user namespace has a user with this id. Otherwise the id stands for all users outside the
/// namespace, such as root of the machine.
fn is_mapped(uid: u32) -> bool {
    // A map that cannot be read may have the user.
    fs::read_to_string("/proc/self/uid_map").map_or(true, |map| is_in_uid_map(&map, uid))
}

/// Whether a line of the map, `FIRST OUTSIDE COUNT`, has a user: `user_namespaces(7)`.
fn is_in_uid_map(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), Some(Ok(count))) = (numbers.next(), numbers.nth(1)) else {
            return true;
        };
        uid >= first && uid - first < count
    })
}

#[cfg(test)]
mod tests {
    use super::{CopyName, PackageStore, is_in_uid_map, set_writable};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn other_names_are_no_copies() {
        let (digest, random) = ("a".repeat(64), "b".repeat(16));
        let copy = CopyName::parse(&format!("{digest}.12.{random}")).expect("a copy");
        assert_eq!(copy.bytes, 12);
        for name in [
            "..caproot-pull-1",
            "x",
            &digest,
            &format!("{digest}.12.{random}.x"),
        ] {
            assert!(CopyName::parse(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_permissions_of_a_copy_end_at_its_links() {
        let top = tempfile::tempdir().expect("a directory");
        let [copy, other] = ["copy", "other"].map(|name| top.path().join(name));
        for dir in [&copy, &other] {
            fs::create_dir_all(dir.join("below")).expect("a directory");
            fs::write(dir.join("below/file"), "x").expect("a file");
        }
        symlink(&other, copy.join("below/link")).expect("a link");
        let is_writable = |path: &str| {
            let meta = fs::metadata(top.path().join(path)).expect(path);
            meta.permissions().mode() & 0o200 != 0
        };

        set_writable(&copy, false).expect("permissions");
        assert!(
            ["copy", "copy/below", "copy/below/file"]
                .iter()
                .all(|path| !is_writable(path))
        );
        assert!(
            ["other", "other/below", "other/below/file"]
                .iter()
                .all(|path| is_writable(path))
        );
        set_writable(&copy, true).expect("permissions");
        assert!(is_writable("copy/below") && !is_writable("copy/below/file"));
    }

    #[test]
    fn an_overflow_user_is_foreign_only_if_the_map_does_not_have_it() {
        for (map, is_mapped) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("0 1000 1\n1 100000 65536\n", true),
            ("0 100000 65534\n", false),
            ("not a map", true),
        ] {
            assert_eq!(is_in_uid_map(map, 65_534), is_mapped, "{map}");
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_rejected() {
        let top = tempfile::tempdir().expect("a directory");
        let shared = top.path().join("shared");
        PackageStore::open(&shared.join("store")).expect("usable");
        for (mode, is_usable) in [
            (0o777, false),
            (0o775, false),
            (0o1777, true),
            (0o755, true),
        ] {
            fs::set_permissions(&shared, Permissions::from_mode(mode)).expect("a mode");
            let opened = PackageStore::open(&shared.join("store"));
            assert_eq!(opened.is_ok(), is_usable, "{mode:o}");
        }
        assert!(PackageStore::open(&shared.join("store/inner")).is_ok());
        fs::set_permissions(shared.join("store"), Permissions::from_mode(0o1777)).expect("a mode");
        let error = PackageStore::open(&shared.join("store")).expect_err("writable by others");
        assert!(
            error.to_string().contains("other users can write"),
            "{error}"
        );
    }
}
