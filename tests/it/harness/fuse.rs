//! In-memory filesystem behind /dev/fuse. Its changes cause no inotify event, and it can stop
//! answering. It implements the part of the protocol that a reader needs. Source: fuse(4),
//! linux/fuse.h.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::harness::namespaces::Mount;

const HEAD: usize = 40;
const ROOT: u64 = 1;

/// Mounted filesystem, empty at first. Drop unmounts it and stops its server.
pub(crate) struct Fuse {
    state: Arc<Mutex<State>>,
    // Unmounted before the server ends.
    mounted: Option<Mount>,
    server: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Node>,
    /// Last node number. Numbers are not reused.
    last: u64,
    /// Whether requests are left unread.
    hangs: bool,
    ended: bool,
}

enum Node {
    Dir(BTreeMap<String, u64>),
    /// Content, and the time of the last change.
    File(Vec<u8>, u64),
}

impl Fuse {
    /// Mounts the filesystem in a private namespace or as root. Returns `None` without FUSE.
    pub(crate) fn mount(dir: &Path) -> Option<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open("/dev/fuse");
        let Ok(device) = opened else {
            println!("SKIPPED: /dev/fuse is not available");
            return None;
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let Ok(mounted) = Mount::new("fuse", dir, &options) else {
            println!("SKIPPED: a FUSE filesystem cannot be mounted");
            return None;
        };
        let nodes = BTreeMap::from([(ROOT, Node::Dir(BTreeMap::new()))]);
        let state = Arc::new(Mutex::new(State {
            nodes,
            last: ROOT,
            ..State::default()
        }));
        let shared = state.clone();
        let server = thread::spawn(move || serve(device, &shared));
        Some(Self {
            state,
            mounted: Some(mounted),
            server: Some(server),
        })
    }

    /// Writes a file and creates its parent directories.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        self.state().write(path, content.as_ref());
    }

    /// Removes an entry and everything below it.
    pub(crate) fn remove(&self, path: &str) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut state = self.state();
        let parent = state.dir(parent);
        let Some(Node::Dir(entries)) = state.nodes.get_mut(&parent) else {
            panic!("{path}")
        };
        assert!(entries.remove(name).is_some(), "{path} exists");
    }

    /// Stops answering requests.
    pub(crate) fn hang(&self) {
        self.state().hangs = true;
    }

    /// Answers again, pending requests first.
    pub(crate) fn resume(&self) {
        self.state().hangs = false;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic in the server")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.mounted = None;
        if let Ok(mut state) = self.state.lock() {
            state.ended = true;
        }
        let ended = self.server.take().expect("dropped once").join();
        assert!(
            ended.is_ok() || thread::panicking(),
            "the server did not panic"
        );
    }
}

impl State {
    fn new_node(&mut self, node: Node) -> u64 {
        self.last += 1;
        self.nodes.insert(self.last, node);
        self.last
    }

    fn child(&self, parent: u64, name: &str) -> Option<u64> {
        let Some(Node::Dir(entries)) = self.nodes.get(&parent) else {
            return None;
        };
        entries.get(name).copied()
    }

    fn link(&mut self, parent: u64, name: &str, node: Node) -> u64 {
        let number = self.new_node(node);
        let Some(Node::Dir(entries)) = self.nodes.get_mut(&parent) else {
            panic!("{name}")
        };
        entries.insert(name.to_owned(), number);
        number
    }

    /// Returns the directory at a path and creates it if it is missing.
    fn dir(&mut self, path: &str) -> u64 {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(ROOT, |parent, name| {
                let existing = self.child(parent, name);
                existing.unwrap_or_else(|| self.link(parent, name, Node::Dir(BTreeMap::new())))
            })
    }

    fn write(&mut self, path: &str, content: &[u8]) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.dir(parent);
        self.last += 1;
        let node = Node::File(content.to_vec(), self.last);
        match self.child(parent, name) {
            Some(number) => drop(self.nodes.insert(number, node)),
            None => drop(self.link(parent, name, node)),
        }
    }

    fn attr(&self, number: u64) -> Result<Vec<u8>, Errno> {
        let (mode, size, changed) = match self.nodes.get(&number).ok_or(Errno::NOENT)? {
            Node::Dir(entries) => (0o040_755, 0, entries.len() as u64),
            Node::File(content, changed) => (0o100_644, content.len() as u64, *changed),
        };
        let long = [number, size, size.div_ceil(512), changed, changed, changed];
        // Nanoseconds, mode, links, user, group, device, block, flags.
        let short = [0, 0, 0, mode, 1, 0, 0, 0, 4_096, 0];
        Ok([longs(&long), shorts(&short)].concat())
    }

    /// Response to a request. `None` if the request has no response.
    fn answer(&self, code: u32, number: u64, body: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
        let long = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().expect("4 bytes"));
        let at_most = |bytes: &[u8], most: u32| bytes[..bytes.len().min(most as usize)].to_vec();
        // The attributes may not be cached.
        let entry = |number: u64| Ok([longs(&[number, 0, 0, 0, 0]), self.attr(number)?].concat());
        Some(match code {
            // FORGET, INTERRUPT, BATCH_FORGET
            2 | 36 | 42 => return None,
            // LOOKUP
            1 => {
                let name = body
                    .split(|b| *b == 0)
                    .next()
                    .and_then(|n| str::from_utf8(n).ok());
                let child = name.and_then(|name| self.child(number, name));
                child.ok_or(Errno::NOENT).and_then(entry)
            }
            // GETATTR
            3 => self
                .attr(number)
                .map(|attr| [longs(&[0, 0]), attr].concat()),
            // OPEN, OPENDIR
            14 | 27 => Ok(longs(&[0, 0])),
            // READ
            15 => match self.nodes.get(&number) {
                Some(Node::File(content, _)) => {
                    let from = usize::try_from(long(8))
                        .expect("an offset")
                        .min(content.len());
                    Ok(at_most(&content[from..], short(16)))
                }
                _ => Err(Errno::ISDIR),
            },
            // STATFS
            17 => Ok([
                longs(&[0; 5]),
                shorts(&[4_096, 255, 4_096, 0, 0, 0, 0, 0, 0, 0]),
            ]
            .concat()),
            // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
            18 | 25 | 29 | 34 | 38 => Ok(Vec::new()),
            // INIT: version 7.31, and no abilities.
            26 => Ok([shorts(&[7, 31, 0, 0, 0, 65_536, 1, 0]), vec![0; 32]].concat()),
            // READDIR
            28 => match self.nodes.get(&number) {
                Some(Node::Dir(entries)) => Ok(self.listing(entries, long(8), short(16))),
                _ => Err(Errno::NOTDIR),
            },
            _ => Err(Errno::NOSYS),
        })
    }

    fn listing(&self, entries: &BTreeMap<String, u64>, from: u64, most: u32) -> Vec<u8> {
        let mut all = Vec::new();
        let from = usize::try_from(from).expect("an offset");
        for (at, (name, number)) in entries.iter().enumerate().skip(from) {
            let kind = if matches!(self.nodes[number], Node::Dir(_)) {
                4
            } else {
                8
            };
            let length = u32::try_from(name.len()).expect("a name");
            let mut entry = longs(&[*number, at as u64 + 1]);
            entry.extend(shorts(&[length, kind]));
            entry.extend(name.as_bytes());
            entry.resize(entry.len().next_multiple_of(8), 0);
            if all.len() + entry.len() > most as usize {
                break;
            }
            all.extend(entry);
        }
        all
    }
}

/// Answers requests until the filesystem is unmounted. While the filesystem hangs, requests stay
/// unread: the kernel drops an unread request when its process exits.
fn serve(mut device: File, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let readable = poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&moment));
        let state = state.lock().expect("no panic elsewhere");
        if state.ended {
            return;
        }
        if state.hangs || readable != Ok(1) {
            drop(state);
            // A hanging mount stays readable, so wait here.
            thread::sleep(std::time::Duration::from_millis(1));
            continue;
        }
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(e) if e.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return,
            // The request was withdrawn before it was read.
            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
            Err(e) if e.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => continue,
            Err(e) => panic!("/dev/fuse: {e}"),
        };
        let (head, body) = buffer[..len].split_at(HEAD);
        let code = u32::from_ne_bytes(head[4..8].try_into().expect("4 bytes"));
        let number = u64::from_ne_bytes(head[16..24].try_into().expect("8 bytes"));
        let Some(answer) = state.answer(code, number, body) else {
            continue;
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).expect("bounded by the request");
        let answer = [
            &len.to_ne_bytes()[..],
            &error.to_ne_bytes(),
            &head[8..16],
            &body,
        ]
        .concat();
        match device.write(&answer) {
            Err(e) if e.raw_os_error() != Some(Errno::NOENT.raw_os_error()) => {
                panic!("/dev/fuse: {e}, of {code}")
            }
            // The requesting process has gone.
            Ok(_) | Err(_) => {}
        }
    }
}

fn longs(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn shorts(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}
