//! Parses paths and listen addresses of flags and config files.

use super::ListenAddress;
use caproot_core::net::endpoint::ProcessEnv;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};

/// Makes a path absolute; relative paths start at `base`. Keeps `..`, because a link may precede
/// it.
pub fn absolute_path(dir: &Path, base: Option<&Path>) -> Result<PathBuf, String> {
    if dir.as_os_str().is_empty() {
        return Err("must not be empty; give a path".to_owned());
    }
    if dir.is_absolute() {
        return Ok(dir.to_owned());
    }

    let Some(base) = base else {
        return Err(
            "relative path, but the current directory is gone; give an absolute path".to_owned(),
        );
    };

    Ok(base
        .join(dir)
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect())
}

/// Returns the absolute path of a directory. A missing directory is valid, because it may be created
/// later.
pub fn absolute_directory(dir: &Path, base: Option<&Path>) -> Result<PathBuf, String> {
    let dir = absolute_path(dir, base)?;
    if dir.exists() && !dir.is_dir() {
        return Err("is not a directory".to_owned());
    }
    Ok(dir)
}

/// Parses `unix:PATH` or `tcp:HOST:PORT`.
pub fn parse_listener(text: &str, base: Option<&Path>) -> Result<ListenAddress, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(ListenAddress::Unix(absolute_path(path.as_ref(), base)?));
    }

    let Some(address) = text.strip_prefix("tcp:") else {
        return Err("expected unix:PATH or tcp:HOST:PORT".to_owned());
    };

    let address = match address.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .map(|port| (Ipv4Addr::LOCALHOST, port).into())
            .ok(),
        None => address.parse().ok(),
    };

    address
        .map(ListenAddress::Tcp)
        .ok_or_else(|| "expected tcp:HOST:PORT with an IP address or localhost as HOST".to_owned())
}

/// Rejects an address that other machines can reach.
pub fn require_local(listener: &ListenAddress) -> Result<(), String> {
    require_loopback(listener, "")
}

/// Rejects an address that other machines can reach, and suggests TLS.
pub fn require_local_or_tls(listener: &ListenAddress) -> Result<(), String> {
    require_loopback(listener, "configure `tls`, or ")
}

fn require_loopback(listener: &ListenAddress, other_fix: &str) -> Result<(), String> {
    let Some(port) = remote_port(listener) else {
        return Ok(());
    };
    Err(format!(
        "other machines could connect without TLS; {other_fix}use a loopback address, such as \
         tcp:127.0.0.1:{port}"
    ))
}

/// Returns the port of an address that is not on loopback.
pub fn remote_port(listener: &ListenAddress) -> Option<u16> {
    let ListenAddress::Tcp(address) = listener else {
        return None;
    };
    (!address.ip().to_canonical().is_loopback()).then(|| address.port())
}

/// Returns the address to listen on if none is configured.
pub fn default_listener(env: &ProcessEnv) -> ListenAddress {
    let runtime_dir = env.unit_runtime_dir.as_ref();
    if let Some(dir) = runtime_dir.or(env.xdg_runtime_dir.as_ref()) {
        return ListenAddress::Unix(dir.join("caproot.sock"));
    }
    ListenAddress::UnixInOwnDir(
        env.temp_dir
            .join(format!("caproot-{}/caproot.sock", env.uid)),
    )
}
