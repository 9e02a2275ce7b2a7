//! Restricts the process while it has one thread: nothing that it executes gains privileges, and the
//! kernel's Landlock lets it read below some directories, take its sockets away, and nothing else:
//! no other file is opened, none is executed, no TCP port bound, and no other connected to. Source: landlock(7).
//!
//! Landlock covers the calling thread and those that it starts later. It sees opening, not looking:
//! stat(2), readlink(2), `O_PATH` and inotify(7) go on everywhere. Leaves to its callers to bind their
//! listeners before, and to say what came of it.

mod paths;
mod ruleset;
mod self_test;

pub use self_test::{AttemptResult, SelfTest};

use crate::domain::{LandlockMode, LandlockState, SandboxStatus};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::{no_new_privs, set_no_new_privs};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The kernel's limit of watches, which the daemon reports, and its table of mounts, which it watches.
const PROCFS_FILES: [&str; 2] = ["/proc/sys/fs/inotify/max_user_watches", "/proc/self/mountinfo"];

/// What a daemon does after it restricted itself.
#[derive(Debug, Clone, Default)]
pub struct SandboxPolicy {
    /// What is asked of Landlock.
    pub landlock: LandlockMode,
    /// Directories below which it reads, absolute, as they were given.
    pub allowed_dirs: Vec<PathBuf>,
    /// The same, and each may be removed and made anew.
    pub roots: Vec<PathBuf>,
    /// Single files that it reads, and that may be replaced.
    pub files: Vec<PathBuf>,
    /// The sockets that it takes away when it ends.
    pub sockets: Vec<PathBuf>,
    /// TCP ports that it connects to, of whatever address.
    pub connect_ports: Vec<u16>,
    /// The user's home, which holds more than such a file.
    pub home: Option<PathBuf>,
}

/// A process that restricted itself. To be held for as long as it lives.
#[derive(Debug)]
pub struct ProcessSandbox {
    /// What it denied itself.
    pub status: SandboxStatus,
    /// What an operator should know of it, a sentence each.
    pub warnings: Vec<String>,
    /// Directories below which alone may be read; `None` where nothing keeps the process from others.
    readable_dirs: Option<BTreeSet<PathBuf>>,
    /// Kept so that they stay those that may be read: procfs makes a file anew once it is forgotten.
    _procfs: Vec<OwnedFd>,
}

/// The sandbox is required and the kernel has too little of Landlock. Prints as one sentence.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sandbox is required, and this kernel {0}; use Linux 6.7 or later with Landlock enabled, or \
     ask for best-effort"
)]
pub struct SandboxError(String);

/// Restricts the calling thread and all that it starts later.
pub fn restrict_process(needs: &SandboxPolicy) -> Result<ProcessSandbox, SandboxError> {
    // Fails only where somebody filters system calls; then it is said that it does not hold.
    let no_new_privs = set_no_new_privs(true).and_then(|()| no_new_privs()).unwrap_or_default();
    if needs.landlock == LandlockMode::Off {
        let sandbox = SandboxStatus { no_new_privs, ..SandboxStatus::default() };
        return Ok(ProcessSandbox {
            status: sandbox,
            warnings: Vec::new(),
            readable_dirs: None,
            _procfs: Vec::new(),
        });
    }
    let (places, mut notes) = paths::collect_paths(needs);
    let open = |path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    let procfs: Vec<_> = PROCFS_FILES.into_iter().filter_map(open).collect();
    let (landlock, abi, lacks) =
        match ruleset::restrict_thread(&places, &procfs, &needs.connect_ports) {
            Ok(abi @ ruleset::REQUIRED_ABI..) => (LandlockState::Enforced, abi, None),
            Ok(0) => (LandlockState::Unavailable, 0, Some("has no Landlock".to_owned())),
            Ok(abi) => {
                let needed = ruleset::REQUIRED_ABI;
                let lacks =
                    format!("has only ABI {abi} of Landlock, of which ABI {needed} is needed");
                (LandlockState::Partial, abi, Some(lacks))
            }
            Err(error) => {
                (LandlockState::Unavailable, 0, Some(format!("refuses Landlock: {error}")))
            }
        };
    let mut prefixes = u32::try_from(places.read_dirs.len()).unwrap_or(u32::MAX);
    if landlock == LandlockState::Unavailable {
        // Nothing is closed, so nothing is to be known of what is open.
        (prefixes, notes) = (0, Vec::new());
    }
    if let Some(lacks) = lacks {
        if needs.landlock == LandlockMode::Required {
            return Err(SandboxError(lacks));
        }
        notes.push(format!("the sandbox has gaps: this kernel {lacks}"));
    }
    let sandbox =
        SandboxStatus { landlock, landlock_abi: abi, no_new_privs, readable_dirs: prefixes };
    let open = (landlock != LandlockState::Unavailable).then_some(places.read_dirs);
    Ok(ProcessSandbox { status: sandbox, warnings: notes, readable_dirs: open, _procfs: procfs })
}

impl ProcessSandbox {
    /// Whether there is anything that may not be read.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.readable_dirs.is_some()
    }

    /// Whether it may be read below a directory, or will be when that is made: as things are now, links
    /// followed. Blocks on the disk.
    #[must_use]
    pub fn may_read(&self, dir: &Path) -> bool {
        let Some(open) = &self.readable_dirs else { return true };
        let real = paths::deepest_existing_dir(dir);
        real.iter().flat_map(|real| real.ancestors()).any(|above| open.contains(above))
    }
}
