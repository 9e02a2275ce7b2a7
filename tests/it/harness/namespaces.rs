//! Runs tests that mount or cut a network off in private namespaces. Such a test starts itself
//! again, alone and as root of new namespaces. The changes affect no other process and end with the
//! process.

use std::env;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::HANG_TIMEOUT;

/// Environment variable that marks the second run of a test.
const INNER_TEST: &str = "CAPROOT_PRIVATE";

/// Continues the test function in the inner run of the test. In the outer run, runs the test in new
/// namespaces and returns from the function.
macro_rules! run_in_namespaces {
    ($($namespace:literal),+) => {
        // The type of a closure has the path of its function.
        let place = std::any::type_name_of_val(&|| ());
        if !crate::harness::namespaces::is_inner_run(place, &[$($namespace),+]) {
            return;
        }
    };
}
pub(crate) use run_in_namespaces;

/// Returns true in the inner run of the test that has a closure at this place. In the outer run,
/// runs the test in new namespaces and returns false. Prints that the test is skipped if namespaces
/// are not available.
pub(crate) fn is_inner_run(place: &str, namespaces: &[&str]) -> bool {
    let test = place
        .split("::{{closure}}")
        .next()
        .and_then(|path| path.split_once("::"));
    let (_, test) = test.expect("a path in this crate");
    if env::var(INNER_TEST).is_ok_and(|name| name == test) {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(namespaces);
        command
    };
    if !unshare()
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("SKIPPED: {test}: user namespaces are not available");
        return false;
    }
    let mut output = tempfile::tempfile().expect("a temporary file");
    let to = || Stdio::from(output.try_clone().expect("a descriptor"));
    let mut command = unshare();
    command
        .arg(env::current_exe().expect("a path"))
        .args([test, "--exact", "--nocapture"]);
    command
        .env(INNER_TEST, test)
        .stdin(Stdio::null())
        .stdout(to())
        .stderr(to());
    let mut child = command.spawn().expect("unshare runs");
    let pid = Pid::from_child(&child);
    let (send, receive) = channel();
    thread::spawn(move || send.send(child.wait().expect("wait")));
    let status = receive.recv_timeout(3 * HANG_TIMEOUT);
    if status.is_err() {
        kill_process(pid, Signal::KILL).expect("the process exists");
    }
    output.rewind().expect("a file");
    let output = io::read_to_string(output).expect("text");
    let status =
        status.unwrap_or_else(|_| panic!("{test} does not end in the namespaces:\n{output}"));
    assert!(status.success(), "{test} in the namespaces:\n{output}");
    assert!(output.contains("1 passed"), "no test is called {test}");
    print!("{output}");
    false
}

/// Mount that drop removes.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a filesystem of a kind.
    pub(crate) fn new(kind: &str, dir: &Path, options: &str) -> rustix::io::Result<Self> {
        let options = std::ffi::CString::new(options).expect("no NUL");
        mount(
            kind,
            dir,
            kind,
            MountFlags::NOSUID | MountFlags::NODEV,
            &*options,
        )?;
        Ok(Self(dir.to_owned()))
    }

    /// Bind-mounts a directory or file over another path.
    pub(crate) fn bind(from: &Path, to: &Path) -> Self {
        mount_bind(from, to).expect("a bind mount");
        Self(to.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("unmount");
    }
}
