//! Sandbox of the daemon process: Landlock rules and `no_new_privs`. The process can read below
//! some directories, remove its sockets and make them again. It cannot open other files, execute programs, bind TCP
//! ports, or connect to other TCP ports. Source: landlock(7).
//!
//! Landlock applies to the calling thread and to threads that it starts later, so call
//! [`restrict_process`] while the process has one thread, and bind listeners before. Landlock
//! checks open(2), not lookups: stat(2), readlink(2), `O_PATH` and inotify(7) work on all paths.

mod paths;
mod ruleset;

use crate::daemon::model::{LandlockMode, LandlockState, SandboxStatus};
use ruleset::REQUIRED_ABI;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::{no_new_privs, set_no_new_privs};
use std::collections::BTreeSet;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Files of procfs that the daemon reads: the limit of inotify watches, the mount table, and the
/// states of its threads.
const PROCFS_FILES: [&str; 3] = [
    "/proc/sys/fs/inotify/max_user_watches",
    "/proc/self/mountinfo",
    "/proc/self/task",
];

/// Access that the daemon needs after the start.
#[derive(Debug, Clone, Default)]
pub struct SandboxPolicy {
    /// Configured Landlock mode.
    pub landlock: LandlockMode,
    /// Directories below which the daemon reads, as configured: absolute paths.
    pub allowed_dirs: Vec<PathBuf>,
    /// Roots, as configured: absolute paths. Each root may be removed and created again.
    pub roots: Vec<PathBuf>,
    /// Single files that the daemon reads. Each file may be replaced.
    pub files: Vec<PathBuf>,
    /// Sockets that the daemon removes at its end, and makes again if their file was removed.
    pub sockets: Vec<PathBuf>,
    /// TCP ports that the daemon connects to, at any address.
    pub connect_ports: Vec<u16>,
    /// Whether the process binds TCP ports. The daemon binds its ports before.
    pub may_bind_tcp: bool,
    /// Home directory of the user. A file directly in it does not open the whole directory.
    pub home: Option<PathBuf>,
}

/// Sandbox that applies to the process. Keep the value until the process ends.
#[derive(Debug)]
pub struct ProcessSandbox {
    /// Applied restrictions.
    pub status: SandboxStatus,
    /// Messages to the operator.
    pub warnings: Vec<String>,
    /// Directories below which the process can read; `None` if Landlock is not applied.
    readable_dirs: Option<BTreeSet<PathBuf>>,
    /// Keeps the inodes alive: procfs creates a new inode, without a rule, for a file that no
    /// process has open.
    _procfs: Vec<OwnedFd>,
}

/// The sandbox is required, but not available.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sandbox is required, but {0}: use Linux 6.7 or later with Landlock enabled and allowed, or set \
     sandbox.landlock to best-effort"
)]
pub struct SandboxError(String);

/// Restricts the calling thread and all threads that it starts later.
pub fn restrict_process(policy: &SandboxPolicy) -> Result<ProcessSandbox, SandboxError> {
    // Fails only under a filter of system calls. The status then reports `false`.
    let no_new_privs = set_no_new_privs(true)
        .and_then(|()| no_new_privs())
        .unwrap_or_default();
    if policy.landlock == LandlockMode::Off {
        return Ok(ProcessSandbox::without_landlock(no_new_privs));
    }

    let mut paths = paths::collect_paths(policy);
    let procfs: Vec<_> = PROCFS_FILES
        .into_iter()
        .filter_map(|path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok())
        .collect();
    let restricted = ruleset::restrict_thread(policy, &paths, &procfs);

    let mut warnings = take(&mut paths.warnings);
    if restricted.is_err() {
        // The process can read everything, so warnings about paths do not apply.
        warnings.clear();
    }

    let readable_dirs = restricted.is_ok().then_some(paths.read_dirs);
    let dir_count = readable_dirs.as_ref().map_or(0, BTreeSet::len);
    let mut status = SandboxStatus {
        landlock: LandlockState::Unavailable,
        landlock_abi: restricted.as_ref().copied().unwrap_or_default(),
        no_new_privs,
        readable_dirs: u32::try_from(dir_count).unwrap_or(u32::MAX),
    };
    let problem = match restricted {
        Ok(REQUIRED_ABI..) => {
            status.landlock = LandlockState::Enforced;
            None
        }
        Ok(abi) => {
            status.landlock = LandlockState::Partial;
            Some(format!(
                "this kernel has Landlock ABI {abi}, but ABI {REQUIRED_ABI} is required"
            ))
        }
        Err(problem) => Some(problem),
    };
    if let Some(problem) = problem {
        if policy.landlock == LandlockMode::Required {
            return Err(SandboxError(problem));
        }
        warnings.push(format!("the sandbox is incomplete: {problem}"));
    }

    Ok(ProcessSandbox {
        status,
        warnings,
        readable_dirs,
        _procfs: procfs,
    })
}

impl ProcessSandbox {
    fn without_landlock(no_new_privs: bool) -> Self {
        let status = SandboxStatus {
            no_new_privs,
            ..SandboxStatus::default()
        };
        Self {
            status,
            warnings: Vec::new(),
            readable_dirs: None,
            _procfs: Vec::new(),
        }
    }

    /// Whether the sandbox restricts reading.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.readable_dirs.is_some()
    }

    /// Whether the process can read below a directory, or will be able to if the directory is
    /// created later. Follows links as they are now. Blocks on the disk.
    #[must_use]
    pub fn may_read(&self, dir: &Path) -> bool {
        let Some(readable_dirs) = &self.readable_dirs else {
            return true;
        };
        let real = paths::deepest_existing_dir(dir);
        real.iter()
            .flat_map(|real| real.ancestors())
            .any(|dir| readable_dirs.contains(dir))
    }
}
