//! Tests that mount, or cut a network off: such a test runs itself again, alone, in namespaces of its
//! own in which it is root, so that nothing of the machine changes and all of it goes with the process.

use std::env;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::HANG_TIMEOUT;

/// Says to the second run of a test that it is that.
const INSIDE: &str = "CAPROOT_PRIVATE";

/// Whether this is the run inside. Outside, has the test of this name, such as `hang::a_test`, run
/// inside; where that cannot be had, says that it is skipped.
pub(crate) fn runs_in_namespaces(test: &str, namespaces: &[&str]) -> bool {
    if env::var(INSIDE).is_ok_and(|name| name == test) {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(namespaces);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: {test}: no user namespaces here, so it cannot mount or cut off");
        return false;
    }
    let mut said = tempfile::tempfile().expect("a temporary file");
    let to = || Stdio::from(said.try_clone().expect("a descriptor"));
    let mut command = unshare();
    command.arg(env::current_exe().expect("a path")).args([test, "--exact", "--nocapture"]);
    command.env(INSIDE, test).stdin(Stdio::null()).stdout(to()).stderr(to());
    let mut child = command.spawn().expect("unshare runs");
    let pid = Pid::from_child(&child);
    let (send, receive) = channel();
    thread::spawn(move || send.send(child.wait().expect("wait")));
    let ended = receive.recv_timeout(3 * HANG_TIMEOUT);
    if ended.is_err() {
        kill_process(pid, Signal::KILL).expect("it is there");
    }
    said.rewind().expect("a file");
    let said = io::read_to_string(said).expect("text");
    let ended = ended.unwrap_or_else(|_| panic!("{test} does not end inside:\n{said}"));
    assert!(ended.success(), "{test} inside:\n{said}");
    assert!(said.contains("1 passed"), "no test is called {test}");
    print!("{said}");
    false
}

/// A mount that is taken away again when this is dropped.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a filesystem of this kind.
    pub(crate) fn new(kind: &str, dir: &Path, options: &str) -> rustix::io::Result<Self> {
        let options = std::ffi::CString::new(options).expect("no NUL");
        mount(kind, dir, kind, MountFlags::NOSUID | MountFlags::NODEV, &*options)?;
        Ok(Self(dir.to_owned()))
    }

    /// Shows one directory or file at another, too.
    pub(crate) fn bind(from: &Path, to: &Path) -> Self {
        mount_bind(from, to).expect("a mount that is bound");
        Self(to.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("it was mounted");
    }
}
