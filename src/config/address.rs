//! Directories and listeners as they are written, in a flag or in a file. What is wrong with one is
//! said so that it goes on after the text.

use super::ListenAddress;
use crate::endpoint::ProcessEnv;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};

/// An absolute path in which `..` is left to the file system, since links may precede it; a relative
/// one begins at `base`.
pub(super) fn absolute_path(dir: &Path, base: Option<&Path>) -> Result<PathBuf, String> {
    if dir.as_os_str().is_empty() {
        return Err("is empty; give a path".to_owned());
    }
    if dir.is_absolute() {
        return Ok(dir.to_owned());
    }
    let Some(base) = base else {
        return Err("is relative, and the current directory is gone; give an absolute path".into());
    };
    Ok(base.join(dir).components().filter(|c| *c != Component::CurDir).collect())
}

/// `unix:PATH` or `tcp:HOST:PORT`.
pub(super) fn parse_listener(text: &str, base: Option<&Path>) -> Result<ListenAddress, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(ListenAddress::Unix(absolute_path(path.as_ref(), base)?));
    }
    let Some(address) = text.strip_prefix("tcp:") else {
        return Err("is neither unix:PATH nor tcp:HOST:PORT".to_owned());
    };
    let address = match address.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into()),
        None => address.parse::<SocketAddr>().ok(),
    };
    match address {
        None => Err("is not tcp:HOST:PORT with an IP address or localhost as HOST".to_owned()),
        Some(address) => Ok(ListenAddress::Tcp(address)),
    }
}

/// The same for what never has TLS, and so never leaves this machine.
pub(super) fn parse_local_listener(
    text: &str,
    base: Option<&Path>,
) -> Result<ListenAddress, String> {
    let listener = parse_listener(text, base)?;
    require_local(&listener)?;
    Ok(listener)
}

/// Refuses a listener that others than this machine reach.
pub(super) fn require_local(listener: &ListenAddress) -> Result<(), String> {
    require_loopback(listener, "")
}

/// Refuses a listener that others than this machine reach, where nothing protects it.
pub(super) fn require_local_or_tls(listener: &ListenAddress) -> Result<(), String> {
    require_loopback(listener, "configure `tls`, or ")
}

fn require_loopback(listener: &ListenAddress, cure: &str) -> Result<(), String> {
    let Some(port) = remote_port(listener) else { return Ok(()) };
    Err(format!(
        "would serve without TLS beyond this machine; {cure}take a loopback address, such as \
         tcp:127.0.0.1:{port}"
    ))
}

/// The port of a listener that is not on loopback.
pub(super) fn remote_port(listener: &ListenAddress) -> Option<u16> {
    let ListenAddress::Tcp(address) = listener else { return None };
    (!address.ip().to_canonical().is_loopback()).then(|| address.port())
}

/// Where a daemon listens that is not told otherwise.
pub(super) fn default_listener(env: &ProcessEnv) -> ListenAddress {
    if let Some(dir) = &env.unit_runtime_dir {
        return ListenAddress::Unix(dir.join("caproot.sock"));
    }
    if let Some(dir) = &env.xdg_runtime_dir {
        return ListenAddress::Unix(dir.join("caproot.sock"));
    }
    ListenAddress::UnixInOwnDir(env.temp_dir.join(format!("caproot-{}/caproot.sock", env.uid)))
}
