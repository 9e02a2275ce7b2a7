//! Binds Unix sockets and TCP ports before the runtime starts. A Unix socket lies in a directory
//! that other users cannot write, and never has more permissions than configured.

use super::StartError;
use crate::daemon::config::{Config, ListenAddress, SocketAccess, SocketAccessRules};
use caproot_core::sync::Mutex;
use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, chmod, chownat, fchmod, flock};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::fs::{DirBuilder, File, Metadata, symlink_metadata};
use std::future::pending;
use std::io;
use std::net::SocketAddr as TcpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;

/// Most connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1_024;

/// Bound listener that is not registered with a runtime yet.
#[derive(Debug)]
pub enum BoundListener {
    /// Without a lock, the socket is inherited, and its owner removes the file.
    Unix(OwnedFd, Option<SocketLock>),
    Tcp(OwnedFd),
}

/// Bound listener of the current runtime.
#[derive(Debug)]
pub enum RuntimeListener {
    /// An inherited socket has no socket file of the daemon.
    Unix(ReplaceableListener, Option<OwnedSocket>),
    Tcp(TcpListener),
}

/// Unix listener that is replaced if its socket file was removed.
#[derive(Debug)]
pub struct ReplaceableListener(watch::Receiver<Arc<UnixListener>>);

/// Socket file of this daemon, and its listener.
#[derive(Debug)]
pub struct OwnedSocket {
    pub lock: Arc<Mutex<SocketLock>>,
    listener: watch::Sender<Arc<UnixListener>>,
}

/// Lock of a socket path. Removes the socket file when dropped.
#[derive(Debug)]
pub struct SocketLock {
    file: SocketFile,
    /// Whether the daemon creates the directory for itself only.
    has_own_dir: bool,
    access: SocketAccess,
    /// Locked file; the lock permits replacing a stale socket.
    _lock_file: File,
}

/// Socket file that the daemon made.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
    /// Default group of the unit, if the user of the daemon is not a member and the socket is
    /// therefore accessible to this user only.
    missing_group: Option<u32>,
}

/// Device, inode and birth of a file. Many filesystems use an inode number again at once. Some
/// filesystems store no birth.
#[derive(Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

/// State of a socket path after a missing file was made again.
pub enum SocketPathState {
    /// The path has the socket file of this daemon.
    Own,
    /// The path has a file that this daemon did not make, such as the socket of another daemon.
    Foreign,
    /// The file was missing and is there again.
    Bound(OwnedFd),
    Failed(StartError),
}

impl BoundListener {
    pub fn bind(
        listener: &ListenAddress,
        access_rules: &SocketAccessRules,
    ) -> Result<Self, StartError> {
        match listener {
            ListenAddress::Unix(path) => bind_unix(path, false, access_rules.access_at(path)),
            ListenAddress::UnixInOwnDir(path) => {
                bind_unix(path, true, access_rules.access_at(path))
            }
            ListenAddress::Tcp(address) => {
                let bound = bind_tcp_socket(*address)
                    .and_then(|socket| listen(&socket, BACKLOG).map(|()| Self::Tcp(socket)));
                bound.map_err(|errno| tcp_error(*address, errno))
            }
        }
    }
}

impl RuntimeListener {
    /// Registers a listener with the current runtime.
    pub fn from_bound(bound: BoundListener) -> Result<Self, StartError> {
        let registered = match bound {
            BoundListener::Unix(fd, socket_lock) => {
                UnixListener::from_std(fd.into()).map(|listener| {
                    // Without the sender, the listener is never replaced.
                    let (listener, replaceable) = watch::channel(Arc::new(listener));
                    let owned = socket_lock.map(|socket_lock| {
                        socket_lock.file.warn_about_missing_group();
                        let lock = Arc::new(Mutex::new(socket_lock));
                        OwnedSocket { lock, listener }
                    });
                    Self::Unix(ReplaceableListener(replaceable), owned)
                })
            }
            BoundListener::Tcp(fd) => TcpListener::from_std(fd.into()).map(Self::Tcp),
        };
        registered.map_err(|e| StartError::internal(&format!("registering a listener failed: {e}")))
    }

    /// Returns the address, as `unix:/…` or `tcp:127.0.0.1:43210`.
    pub fn address(&self) -> String {
        match self {
            Self::Unix(listener, _) => {
                let address = listener.0.borrow().local_addr().ok();
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

/// Checks without listening whether this process can listen on the configured addresses. An error
/// has the key of the address.
pub fn check_listeners(config: &Config) -> Result<(), (&'static str, StartError)> {
    let for_grpc = config.listeners.iter().map(|listener| ("listen", listener));
    let for_metrics = config
        .metrics
        .as_ref()
        .map(|listener| ("metrics.listen", listener));

    for (key, listener) in for_grpc.chain(for_metrics) {
        let checked = match listener {
            ListenAddress::Unix(path) => {
                let dir = directory(path);
                // A missing directory is created at the start.
                if matches!(dir.try_exists(), Ok(false)) {
                    directory_metadata(directory(dir)).map(drop)
                } else {
                    check_directory(dir)
                }
            }
            ListenAddress::UnixInOwnDir(_) => Ok(()),
            ListenAddress::Tcp(address) => match bind_tcp_socket(*address) {
                // The running daemon may have the port.
                Ok(_) | Err(Errno::ADDRINUSE) => Ok(()),
                Err(errno) => Err(tcp_error(*address, errno)),
            },
        };

        checked.map_err(|error| (key, error))?;
    }
    Ok(())
}

fn bind_tcp_socket(address: TcpAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = new_socket(family)?;
    // Allows binding while connections of the previous daemon are in TIME_WAIT.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn new_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

fn tcp_error(address: TcpAddr, errno: Errno) -> StartError {
    let error = io::Error::from(errno);
    StartError::listener(format!("cannot listen on tcp:{address}: {error}"))
}

fn bind_unix(
    path: &Path,
    has_own_dir: bool,
    access: SocketAccess,
) -> Result<BoundListener, StartError> {
    prepare_directory(path, has_own_dir)?;
    let lock_file = lock_socket_path(path)?;
    remove_stale_socket(path)?;
    let (socket, file) = create_socket(path, access)?;
    let socket_lock = SocketLock {
        file,
        has_own_dir,
        access,
        _lock_file: lock_file,
    };
    Ok(BoundListener::Unix(socket, Some(socket_lock)))
}

/// Creates the directory of a socket if only the directory is missing, and checks the directory.
fn prepare_directory(path: &Path, has_own_dir: bool) -> Result<(), StartError> {
    let dir = directory(path);
    if has_own_dir {
        create_own_directory(dir)?;
    } else {
        create_missing_directory(dir)?;
    }
    check_directory(dir)
}

/// Binds a socket at a path without a file, and listens. After an error, the path has no file.
fn create_socket(path: &Path, access: SocketAccess) -> Result<(OwnedFd, SocketFile), StartError> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        StartError::listener(format!(
            "cannot listen on unix:{}: the path is longer than 107 bytes; choose a shorter one",
            path.display()
        ))
    })?;
    let (socket, identity) =
        bind_private_socket(path, &address).map_err(|error| unix_error(path, &error))?;
    let mut file = SocketFile {
        path: path.to_owned(),
        identity,
        missing_group: None,
    };

    // Before listen, so that permitted users are never denied.
    let opened = set_socket_access(path, access).and_then(|missing_group| {
        file.missing_group = missing_group;
        listen(&socket, BACKLOG).map_err(|error| unix_error(path, &error.into()))
    });
    if let Err(error) = opened {
        file.remove();
        return Err(error);
    }
    Ok((socket, file))
}

/// Binds a socket to which only the user of the daemon can connect.
fn bind_private_socket(
    path: &Path,
    address: &SocketAddrUnix,
) -> io::Result<(OwnedFd, FileIdentity)> {
    let socket = new_socket(AddressFamily::UNIX)?;
    // Before bind, so that other users cannot connect in between.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, address)?;
    Ok((socket, FileIdentity::of_path(path)?))
}

fn unix_error(path: &Path, error: &io::Error) -> StartError {
    StartError::listener(format!("cannot listen on unix:{}: {error}", path.display()))
}

/// Sets group and mode of a socket file. This is only possible after bind, because of the umask.
/// Only the user of the daemon and root can replace the file in its directory. Returns the group if
/// setting an optional group is not permitted.
fn set_socket_access(
    path: &Path,
    SocketAccess {
        mode,
        group,
        group_is_optional,
    }: SocketAccess,
) -> Result<Option<u32>, StartError> {
    // The group is set only if the socket has another group, because the seccomp filter of a unit may
    // deny fchownat(2).
    let current_group = symlink_metadata(path).map(|meta| meta.gid()).ok();
    if let Some(group) = group.filter(|group| current_group != Some(*group)) {
        let gid = Some(Gid::from_raw(group));
        match chownat(CWD, path, None, gid, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::PERM) if group_is_optional => return Ok(Some(group)),
            Err(Errno::PERM) => {
                return Err(access_error(
                    path,
                    &format!(
                        "the group {group}; the daemon's user must be in it, and no seccomp filter may \
                         deny fchownat(2)"
                    ),
                ));
            }
            Err(error) => return Err(access_error(path, &format!("the group {group}: {error}"))),
        }
    }

    chmod(path, Mode::from_raw_mode(mode))
        .map_err(|error| access_error(path, &format!("the mode {mode:04o}: {error}")))?;
    Ok(None)
}

fn access_error(path: &Path, what: &str) -> StartError {
    let path = path.display();
    StartError::listener(format!("the socket unix:{path} cannot be given {what}"))
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Creates the directory of a socket if only the directory itself is missing. A volume of a container
/// is often writable for every user, so the socket needs a directory in the volume.
fn create_missing_directory(dir: &Path) -> Result<(), StartError> {
    if !matches!(dir.try_exists(), Ok(false)) {
        return Ok(());
    }
    DirBuilder::new().mode(0o755).create(dir).map_err(|e| {
        StartError::listener(format!(
            "cannot create the socket's directory {}: {e}",
            dir.display()
        ))
    })
}

fn create_own_directory(dir: &Path) -> Result<(), StartError> {
    if let Err(e) = DirBuilder::new().mode(0o700).create(dir)
        && e.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(StartError::listener(format!(
            "cannot create {}: {e}",
            dir.display()
        )));
    }

    let meta = directory_metadata(dir)?;
    if meta.mode() & 0o077 != 0 {
        return Err(StartError::listener(format!(
            "{} is accessible to other users; run `chmod 700` on the directory, or choose a socket with \
             --listen",
            dir.display()
        )));
    }
    Ok(())
}

/// Rejects a directory in which another user could replace the socket.
fn check_directory(dir: &Path) -> Result<(), StartError> {
    let meta = directory_metadata(dir)?;
    let own_uid = rustix::process::geteuid().as_raw();
    let primary_group = rustix::process::getegid().as_raw();

    let problem = if meta.uid() != own_uid && meta.uid() != 0 {
        format!("belongs to uid {}", meta.uid())
    } else if meta.mode() & 0o002 != 0 {
        "is writable for every user".to_owned()
    } else if meta.mode() & 0o020 != 0 && meta.gid() != primary_group {
        // The primary group of the user is accepted: on many systems, each user has an own group.
        format!("is writable for group {}", meta.gid())
    } else {
        return Ok(());
    };
    Err(StartError::listener(format!(
        "the socket's directory {} {problem}; choose one that only you can write",
        dir.display()
    )))
}

fn directory_metadata(dir: &Path) -> Result<Metadata, StartError> {
    let problem = match std::fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => return Ok(meta),
        Ok(_) => "not a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(StartError::listener(format!(
        "the socket's directory {}: {problem}",
        dir.display()
    )))
}

fn lock_socket_path(path: &Path) -> Result<File, StartError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR);
    let locked = file.and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file.into())
    });
    match locked {
        Ok(file) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(in_use_error(path)),
        Err(error) => Err(StartError::listener(format!(
            "cannot lock {}: {error}",
            Path::new(&name).display()
        ))),
    }
}

/// Removes a socket file without a listener. Any other file is an error.
fn remove_stale_socket(path: &Path) -> Result<(), StartError> {
    let removed = match symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => Err(io::Error::other(
            "exists and is not a socket; move the file away",
        )),
        Ok(_) => match StdUnixStream::connect(path) {
            Ok(_) => return Err(in_use_error(path)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
            }
            Err(error) => Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(|error| StartError::listener(format!("{}: {error}", path.display())))
}

fn in_use_error(path: &Path) -> StartError {
    StartError::listener(format!(
        "another daemon listens on unix:{}; stop it, or choose a socket with --listen",
        path.display()
    ))
}

impl ReplaceableListener {
    /// Accepts the next connection of the current listener.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let mut listeners = self.0.clone();
        loop {
            let listener = listeners.borrow_and_update().clone();
            let replaced = async {
                if listeners.changed().await.is_err() {
                    // The listener is inherited, or the daemon stops.
                    pending::<()>().await;
                }
            };
            tokio::select! {
                accepted = listener.accept() => return Ok(accepted?.0),
                () = replaced => {}
            }
        }
    }
}

impl OwnedSocket {
    /// Makes new connections arrive at another listener.
    pub fn replace_listener(&self, socket: OwnedFd) -> io::Result<()> {
        let listener = UnixListener::from_std(socket.into())?;
        self.listener.send_replace(Arc::new(listener));
        Ok(())
    }
}

impl SocketLock {
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Looks at the socket path, and makes a missing file again. Blocks on the disk.
    pub fn restore_file(&mut self) -> SocketPathState {
        match FileIdentity::of_path(&self.file.path) {
            Ok(identity) if identity == self.file.identity => SocketPathState::Own,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self
                .bind_again()
                .map_or_else(SocketPathState::Failed, SocketPathState::Bound),
            Ok(_) | Err(_) => SocketPathState::Foreign,
        }
    }

    /// Makes the socket file again, with the access that it had. Fails if the path has a file.
    fn bind_again(&mut self) -> Result<OwnedFd, StartError> {
        prepare_directory(&self.file.path, self.has_own_dir)?;
        let (socket, file) = create_socket(&self.file.path, self.access)?;
        file.warn_about_missing_group();
        self.file = file;
        Ok(socket)
    }
}

impl SocketFile {
    fn warn_about_missing_group(&self) {
        if let Some(group) = self.missing_group {
            tracing::warn!(
                group,
                "only the user of the daemon can connect: this user is not in the group, or a \
                 seccomp filter denies fchownat(2)"
            );
        }
    }

    /// Removes the file, unless the path has another file.
    fn remove(&self) {
        let is_own = FileIdentity::of_path(&self.path).is_ok_and(|found| found == self.identity);
        if is_own && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "removing the socket failed");
        }
    }
}

impl FileIdentity {
    fn of_path(path: &Path) -> io::Result<Self> {
        symlink_metadata(path).map(|metadata| Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().ok(),
        })
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        self.file.remove();
    }
}
