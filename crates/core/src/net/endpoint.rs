//! Addresses of daemons: default sockets, and the syntax of endpoints.
//!
//! ```
//! use caproot_core::net::endpoint::{DaemonEndpoint, ProcessEnv, default_sockets};
//!
//! for text in ["unix:/run/caproot/caproot.sock", "tcp:127.0.0.1:50051", "tls:build.example:7420"] {
//!     let endpoint: DaemonEndpoint = text.parse()?;
//!     assert_eq!(endpoint.to_string(), text);
//! }
//! assert!("build.example:7420".parse::<DaemonEndpoint>().is_err(), "the scheme is missing");
//!
//! // Clients without an endpoint try these sockets in order.
//! let sockets = default_sockets(&ProcessEnv::from_process());
//! assert_eq!(sockets[0].to_str(), Some("/run/caproot/caproot.sock"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

/// Returns whether the host of a URL is this machine: `localhost` or a loopback address. An IPv6
/// address may be in brackets.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let host = strip_brackets(host).unwrap_or(host);
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the text between brackets.
fn strip_brackets(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

/// Environment of the process. Functions take it as an argument, so that tests can replace it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessEnv {
    /// Home directory: `HOME`.
    pub home: Option<PathBuf>,
    /// Directory of Codex: `CODEX_HOME`.
    pub codex_home: Option<PathBuf>,
    /// Configuration directory of the system: `/etc`.
    pub etc: PathBuf,
    /// Runtime directory that systemd created for the unit: `RUNTIME_DIRECTORY`.
    pub unit_runtime_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, if the path is absolute. The specification says to ignore others.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// Directory of caches: `XDG_CACHE_HOME`, if the path is absolute.
    pub xdg_cache_home: Option<PathBuf>,
    /// Directory of data: `XDG_DATA_HOME`, if the path is absolute.
    pub xdg_data_home: Option<PathBuf>,
    /// Directory for temporary files: `TMPDIR`, else `/tmp`.
    pub temp_dir: PathBuf,
    /// Current directory; `None` if it no longer exists.
    pub current_dir: Option<PathBuf>,
    /// Effective user id; 0 on a system without user ids.
    pub uid: u32,
    /// Effective group id; 0 on a system without group ids.
    pub gid: u32,
    /// Listening sockets that the process inherited by socket activation.
    pub inherited_sockets: Vec<InheritedSocketInfo>,
    /// Group of the socket that a systemd unit will pass to the daemon whose config this process
    /// checks.
    pub unit_socket_group: Option<u32>,
}

/// Address of an inherited socket. The service manager sets its mode and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritedSocketInfo {
    /// Unix socket.
    Unix {
        /// Bound path.
        path: PathBuf,
        /// Whether the mode of the socket allows every user to connect.
        open_to_all: bool,
        /// Group of the socket, if its mode allows the members to connect.
        group: Option<u32>,
        /// Whether the socket serves metrics instead of gRPC.
        for_metrics: bool,
    },
    /// TCP socket.
    Tcp {
        /// Bound address.
        address: SocketAddr,
        /// Whether the socket serves metrics instead of gRPC.
        for_metrics: bool,
    },
}

impl ProcessEnv {
    /// Reads the environment of this process, without inherited sockets.
    #[must_use]
    pub fn from_process() -> Self {
        let directory = |name| {
            let dir = std::env::var_os(name).map(PathBuf::from);
            dir.filter(|dir| dir.is_absolute())
        };
        Self {
            home: directory("HOME"),
            codex_home: directory("CODEX_HOME"),
            etc: PathBuf::from("/etc"),
            unit_runtime_dir: directory("RUNTIME_DIRECTORY"),
            xdg_runtime_dir: directory("XDG_RUNTIME_DIR"),
            xdg_cache_home: directory("XDG_CACHE_HOME"),
            xdg_data_home: directory("XDG_DATA_HOME"),
            temp_dir: std::env::temp_dir(),
            current_dir: std::env::current_dir().ok(),
            uid: effective_ids().0,
            gid: effective_ids().1,
            inherited_sockets: Vec::new(),
            unit_socket_group: None,
        }
    }
}

#[cfg(unix)]
fn effective_ids() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// The ids are used only for the paths of Unix sockets and for the daemon.
#[cfg(not(unix))]
fn effective_ids() -> (u32, u32) {
    (0, 0)
}

/// Socket of the daemon of the system, in a directory that only the service manager can create.
pub const SYSTEM_SOCKET: &str = "/run/caproot/caproot.sock";
/// Parent of the runtime directories of users' sessions. A program that starts this one, such as an
/// MCP SDK, may have removed `XDG_RUNTIME_DIR`. Source: `pam_systemd(8)`.
const USER_RUNTIME_DIRS: &str = "/run/user";

/// Returns the sockets that clients try in this order. A daemon without `--listen` binds one of
/// these sockets. The first is the socket of the systemd unit, the second belongs to a user with a
/// session, the last to a user without a session. A system without Unix sockets has no default.
#[must_use]
pub fn default_sockets(env: &ProcessEnv) -> Vec<PathBuf> {
    if cfg!(not(unix)) {
        return Vec::new();
    }
    let session_dir = || PathBuf::from(USER_RUNTIME_DIRS).join(env.uid.to_string());
    let runtime_dir = env.xdg_runtime_dir.clone().unwrap_or_else(session_dir);
    vec![
        PathBuf::from(SYSTEM_SOCKET),
        runtime_dir.join("caproot.sock"),
        env.temp_dir
            .join(format!("caproot-{}/caproot.sock", env.uid)),
    ]
}

/// Maximum size of a Unix socket's path: `sun_path` without the terminating NUL. Source: unix(7).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Address of a daemon. Displays in the syntax of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEndpoint(EndpointAddress);

/// Kinds of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointAddress {
    /// Absolute path of a Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, with an IPv6 address in brackets.
    Tcp(String),
    /// `HOST:PORT` of a TLS server, with an IPv6 address in brackets.
    Tls(String),
}

/// Syntax error of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; expected unix:/PATH, tcp:HOST:PORT, tls:HOST:PORT, http://HOST:PORT or https://HOST:PORT"
)]
pub struct EndpointError(&'static str);

impl DaemonEndpoint {
    /// Returns the endpoint of the Unix socket at an absolute path.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        let bytes = path.as_os_str().as_encoded_bytes();
        Err(EndpointError(if !path.is_absolute() {
            "the path of the socket must be absolute"
        } else if bytes.contains(&0) || bytes.ends_with(b"/") {
            "the path of the socket must name a file"
        } else if bytes.len() > MAX_SOCKET_PATH_BYTES {
            "the path of the socket is longer than 107 bytes"
        } else {
            return Ok(Self(EndpointAddress::Unix(path)));
        }))
    }

    fn host_and_port(address: &str) -> Result<String, EndpointError> {
        let (host, port) = address
            .rsplit_once(':')
            .ok_or(EndpointError("the port is missing"))?;
        if port.parse::<NonZero<u16>>().is_err() {
            return Err(EndpointError("the port must be a number from 1 to 65535"));
        }
        if !is_host(host) {
            return Err(EndpointError(
                "the host must be a name, an IPv4 address or an [IPv6 address]",
            ));
        }
        Ok(address.to_owned())
    }

    /// Whether an attacker on the network can read the connection: TCP without TLS to a host that is
    /// not this machine by its name.
    #[must_use]
    pub fn is_cleartext(&self) -> bool {
        match &self.0 {
            EndpointAddress::Tcp(address) => !address
                .rsplit_once(':')
                .is_some_and(|(host, _)| is_loopback_host(host)),
            EndpointAddress::Unix(_) | EndpointAddress::Tls(_) => false,
        }
    }

    /// Returns the address to connect to.
    #[must_use]
    pub fn address(&self) -> &EndpointAddress {
        &self.0
    }
}

fn is_host(host: &str) -> bool {
    if let Some(v6) = strip_brackets(host) {
        return v6.parse::<Ipv6Addr>().is_ok();
    }
    !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

impl FromStr for DaemonEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with('/') {
            return Self::unix(text);
        }

        let (scheme, rest) = text.split_once(':').unwrap_or_default();
        let in_url = rest.strip_prefix("//");
        let in_url = in_url.map(|address| address.strip_suffix('/').unwrap_or(address));

        let address = match (scheme, in_url) {
            ("unix", _) => return Self::unix(rest.strip_prefix("//").unwrap_or(rest)),
            ("tcp", _) => EndpointAddress::Tcp(Self::host_and_port(rest)?),
            ("tls", _) => EndpointAddress::Tls(Self::host_and_port(rest)?),
            ("http", Some(address)) => EndpointAddress::Tcp(Self::host_and_port(address)?),
            ("https", Some(address)) => EndpointAddress::Tls(Self::host_and_port(address)?),
            _ => return Err(EndpointError("the scheme is missing")),
        };
        Ok(Self(address))
    }
}

impl fmt::Display for DaemonEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // `unix:` followed by two slashes would parse as `unix://`.
            EndpointAddress::Unix(path) => {
                let has_slashes = path.as_os_str().as_encoded_bytes().starts_with(b"//");
                let slashes = if has_slashes { "//" } else { "" };
                write!(f, "unix:{slashes}{}", path.display())
            }
            EndpointAddress::Tcp(address) => write!(f, "tcp:{address}"),
            EndpointAddress::Tls(address) => write!(f, "tls:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DaemonEndpoint, ProcessEnv, default_sockets};
    use proptest::prelude::*;
    use std::path::PathBuf;

    #[test]
    fn all_endpoint_forms_parse() {
        for (text, printed) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("unix:///run/a.sock", "unix:/run/a.sock"),
            ("/run/a.sock", "unix:/run/a.sock"),
            ("//run/a.sock", "unix:////run/a.sock"),
            ("tcp:127.0.0.1:5000", "tcp:127.0.0.1:5000"),
            ("tcp:[::1]:5000", "tcp:[::1]:5000"),
            ("http://localhost:80", "tcp:localhost:80"),
            ("http://my-host.example:80/", "tcp:my-host.example:80"),
            ("tls:[::1]:5000", "tls:[::1]:5000"),
            ("https://my-host.example:443/", "tls:my-host.example:443"),
        ] {
            let endpoint = text.parse::<DaemonEndpoint>().expect(text);
            assert_eq!(endpoint.to_string(), printed);
            assert_eq!(printed.parse(), Ok(endpoint));
        }
    }

    #[test]
    fn invalid_endpoints_are_rejected() {
        let long = format!("unix:/{}", "a".repeat(107));
        for (text, part) in [
            ("", "scheme is missing"),
            ("run/a.sock", "scheme is missing"),
            ("localhost:80", "scheme is missing"),
            ("unix:", "absolute"),
            ("unix:a.sock", "absolute"),
            ("unix://a/b", "absolute"),
            ("unix:/run/", "must name a file"),
            ("unix:/a\0b", "must name a file"),
            (long.as_str(), "107 bytes"),
            ("tcp:localhost", "port is missing"),
            ("tcp:localhost:", "port must"),
            ("tcp:localhost:0", "port must"),
            ("tcp:localhost:65536", "port must"),
            ("tcp::80", "host must"),
            ("tcp:::1:80", "host must"),
            ("tcp:[x]:80", "host must"),
            ("http://user@host:80", "host must"),
            ("http://host:80/path", "port must"),
            ("https://host", "port is missing"),
            ("https://host:443/path", "port must"),
            ("tls:host", "port is missing"),
            ("tls://host:443", "host must"),
        ] {
            let error = text.parse::<DaemonEndpoint>().expect_err(text).to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn default_sockets_are_in_order() {
        let mut env = ProcessEnv {
            home: None,
            codex_home: None,
            etc: "/etc".into(),
            unit_runtime_dir: None,
            xdg_runtime_dir: Some("/run/user/7".into()),
            xdg_cache_home: None,
            xdg_data_home: None,
            temp_dir: "/tmp".into(),
            current_dir: None,
            uid: 7,
            gid: 7,
            inherited_sockets: Vec::new(),
            unit_socket_group: None,
        };
        let unit = PathBuf::from("/run/caproot/caproot.sock");
        let session = PathBuf::from("/run/user/7/caproot.sock");
        let temp = PathBuf::from("/tmp/caproot-7/caproot.sock");
        assert_eq!(
            default_sockets(&env),
            [unit.clone(), session.clone(), temp.clone()]
        );
        env.xdg_runtime_dir = None;
        assert_eq!(default_sockets(&env), [unit, session, temp]);
        env.xdg_runtime_dir = Some("/elsewhere".into());
        assert_eq!(
            default_sockets(&env)[1],
            PathBuf::from("/elsewhere/caproot.sock")
        );
    }

    proptest! {
        #[test]
        fn display_parses_to_the_same_endpoint(text in "(unix:|tcp:|http://|/|//|a|\\[::1\\]|é|:|80|0){0,7}", any: String) {
            for text in [text, any] {
                if let Ok(endpoint) = text.parse::<DaemonEndpoint>() {
                    prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
                }
            }
        }
    }
}
