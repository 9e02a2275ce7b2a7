//! Binds the listeners: a Unix socket that only those can reach who are meant to, in a directory that
//! nobody else can write; or a loopback port. Done before there is a runtime, which takes them over
//! later, together with those that were handed over.

use super::StartError;
use super::inherited::InheritedListener;
use crate::config::{Config, ListenAddress, SocketAccess, SocketAccessRules};
use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, chmod, chownat, fchmod, flock};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::fs::{DirBuilder, File, Metadata, symlink_metadata};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener};

/// What the kernel keeps of connections that are not accepted yet.
const BACKLOG: i32 = 1_024;

/// A listener that is bound and that no runtime knows yet.
#[derive(Debug)]
pub(super) enum BoundListener {
    Unix(OwnedFd, SocketLock),
    Tcp(OwnedFd),
    Inherited(InheritedListener),
}

/// A listener that is bound.
#[derive(Debug)]
pub(super) enum RuntimeListener {
    /// Without a claim, the path is another's to take away.
    Unix(UnixListener, Option<SocketLock>),
    Tcp(TcpListener),
}

/// The right to a socket path. Dropped, it takes the socket away.
#[derive(Debug)]
pub(super) struct SocketLock {
    path: PathBuf,
    file_id: (u64, u64),
    /// The unit's group, if the daemon's user is not in it, so that the socket is its own alone.
    missing_group: Option<u32>,
    /// Locked for as long as the daemon lives: whoever has it may replace a stale socket.
    _lock_file: File,
}

impl BoundListener {
    pub(super) fn bind(
        listener: &ListenAddress,
        sockets: &SocketAccessRules,
    ) -> Result<Self, StartError> {
        match listener {
            ListenAddress::Unix(path) => bind_unix(path, sockets.access_at(path)),
            ListenAddress::UnixInOwnDir(path) => {
                create_own_directory(directory(path))?;
                bind_unix(path, sockets.access_at(path))
            }
            ListenAddress::Tcp(address) => bind_tcp(*address).map(Self::Tcp).map_err(|errno| {
                let error = io::Error::from(errno);
                StartError::listener(format!("cannot listen on tcp:{address}: {error}"))
            }),
        }
    }
}

impl RuntimeListener {
    /// Hands a listener over to the runtime that this is called in.
    pub(super) fn from_bound(taken: BoundListener) -> Result<Self, StartError> {
        let bound = match taken {
            BoundListener::Unix(fd, claim) => {
                if let Some(group) = claim.missing_group {
                    tracing::warn!(
                        group,
                        "the socket is the daemon's user's alone, who is not in the unit's group"
                    );
                }
                UnixListener::from_std(fd.into()).map(|listener| Self::Unix(listener, Some(claim)))
            }
            BoundListener::Tcp(fd) => TcpListener::from_std(fd.into()).map(Self::Tcp),
            BoundListener::Inherited(InheritedListener::Unix(listener)) => {
                UnixListener::from_std(listener).map(|listener| Self::Unix(listener, None))
            }
            BoundListener::Inherited(InheritedListener::Tcp(listener)) => {
                TcpListener::from_std(listener).map(Self::Tcp)
            }
        };
        bound.map_err(|e| StartError::internal(format!("the runtime refuses a listener: {e}")))
    }

    /// As printed to whoever started the daemon: `unix:/…` or `tcp:127.0.0.1:43210`.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Unix(listener, _) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                format!("unix:{}", path.unwrap_or(Path::new("")).display())
            }
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("tcp:{address}"),
                Err(_) => "tcp:".to_owned(),
            },
        }
    }
}

/// Checks the directories of the sockets that a daemon would bind. Changes nothing.
pub fn check_socket_directories(config: &Config) -> Result<(), StartError> {
    for listener in config.listeners.iter().chain(&config.metrics) {
        if let ListenAddress::Unix(path) = listener {
            check_directory(directory(path))?;
        }
    }
    Ok(())
}

fn bind_tcp(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // A port is free again at once, whatever connections of the last daemon still linger.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn bind_unix(path: &Path, access: SocketAccess) -> Result<BoundListener, StartError> {
    check_directory(directory(path))?;
    let fail = |e: io::Error| {
        StartError::listener(format!("cannot listen on unix:{}: {e}", path.display()))
    };
    let lock = lock_socket_path(path)?;
    remove_stale_socket(path)?;
    let address = SocketAddrUnix::new(path).map_err(|_| {
        StartError::listener(format!(
            "cannot listen on unix:{}: the path is over 107 bytes; take a shorter one",
            path.display()
        ))
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|e| fail(e.into()))?;
    // Before it has a name, so that there is no moment at which others could connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|e| fail(e.into()))?;
    bind(&socket, &address).map_err(|e| fail(e.into()))?;
    let identity = symlink_metadata(path).map(|m| (m.dev(), m.ino())).map_err(fail)?;
    let mut claim = SocketLock {
        path: path.to_owned(),
        file_id: identity,
        missing_group: None,
        _lock_file: lock,
    };
    // Before it listens, so that whoever is to be let in never meets a closed door.
    claim.missing_group = set_socket_access(path, access)?;
    listen(&socket, BACKLOG).map_err(|e| fail(e.into()))?;
    Ok(BoundListener::Unix(socket, claim))
}

/// Gives a socket its group and mode. It has its name by then, as the kernel takes neither the group
/// nor, because of the umask, the mode from before; nobody but us can exchange it in its directory.
fn set_socket_access(
    path: &Path,
    SocketAccess { mode, group, group_is_optional: may_be_own }: SocketAccess,
) -> Result<Option<u32>, StartError> {
    let fail = |what: String| {
        let path = path.display();
        Err(StartError::listener(format!("the socket unix:{path} cannot be given {what}")))
    };
    if let Some(group) = group {
        let gid = Some(Gid::from_raw(group));
        match chownat(CWD, path, None, gid, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::PERM) if may_be_own => return Ok(Some(group)),
            Err(Errno::PERM) => {
                return fail(format!("the group {group}; the daemon's user must be in it"));
            }
            Err(e) => return fail(format!("the group {group}: {e}")),
        }
    }
    match chmod(path, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(None),
        Err(e) => fail(format!("the mode {mode:04o}: {e}")),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn create_own_directory(dir: &Path) -> Result<(), StartError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => {
            return Err(StartError::listener(format!("cannot make {}: {e}", dir.display())));
        }
    }
    let meta = directory_metadata(dir)?;
    if meta.mode() & 0o077 != 0 {
        return Err(StartError::listener(format!(
            "{} is open to others; run `chmod 700` on it, or choose a socket with --listen",
            dir.display()
        )));
    }
    Ok(())
}

/// Refuses a directory in which somebody else could replace the socket.
fn check_directory(dir: &Path) -> Result<(), StartError> {
    let meta = directory_metadata(dir)?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |why: String| {
        Err(StartError::listener(format!(
            "the socket's directory {} {why}; choose one that only you can write",
            dir.display()
        )))
    };
    if meta.uid() != me && meta.uid() != 0 {
        return refuse(format!("belongs to uid {}", meta.uid()));
    }
    if meta.mode() & 0o002 != 0 {
        return refuse("can be written by everybody".to_owned());
    }
    // A group of the user's own name, as many systems give each user, is nobody else.
    if meta.mode() & 0o020 != 0 && meta.gid() != rustix::process::getegid().as_raw() {
        return refuse(format!("can be written by the group {}", meta.gid()));
    }
    Ok(())
}

fn directory_metadata(dir: &Path) -> Result<Metadata, StartError> {
    let fail =
        |e: String| StartError::listener(format!("the socket's directory {}: {e}", dir.display()));
    let meta = std::fs::metadata(dir).map_err(|e| fail(e.to_string()))?;
    if meta.is_dir() { Ok(meta) } else { Err(fail("not a directory".to_owned())) }
}

fn lock_socket_path(path: &Path) -> Result<File, StartError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fail =
        |e: Errno| StartError::listener(format!("cannot lock {}: {e}", Path::new(&name).display()));
    let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(Errno::WOULDBLOCK) => Err(in_use_error(path)),
        Err(e) => Err(fail(e)),
    }
}

/// Takes away a socket that nobody listens on, and nothing else.
fn remove_stale_socket(path: &Path) -> Result<(), StartError> {
    let fail = |e: String| StartError::listener(format!("{}: {e}", path.display()));
    match symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fail(e.to_string())),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(fail("there is something that is no socket; move it away".to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(in_use_error(path)),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|e| fail(e.to_string()))
        }
        Err(e) => Err(fail(e.to_string())),
    }
}

fn in_use_error(path: &Path) -> StartError {
    StartError::listener(format!(
        "another daemon listens on unix:{}; stop it, or choose a socket with --listen",
        path.display()
    ))
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        let ours = symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file_id);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the socket could not be taken away");
        }
    }
}
