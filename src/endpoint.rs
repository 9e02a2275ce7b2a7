//! Where a daemon listens when nobody says otherwise, and how an endpoint is spelled. Touches
//! nothing: binding and connecting are others' work.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// What the process's surroundings say. Handed in, so that whoever reads it can be tested.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessEnv {
    /// The person's home directory, `HOME`.
    pub home: Option<PathBuf>,
    /// Where Codex keeps its files, `CODEX_HOME`, if that is set.
    pub codex_home: Option<PathBuf>,
    /// The machine's configuration directory: `/etc`.
    pub etc: PathBuf,
    /// The runtime directory that systemd made for the unit, if this is one: `RUNTIME_DIRECTORY`.
    pub unit_runtime_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, if it is set to an absolute path; the specification tells to ignore others.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// The directory for temporary files: `TMPDIR`, else `/tmp`.
    pub temp_dir: PathBuf,
    /// The directory that relative paths start from; `None` where it no longer exists.
    pub current_dir: Option<PathBuf>,
    /// The effective user id.
    pub uid: u32,
    /// The sockets that whoever started the process listens on already, and left to it.
    pub inherited_sockets: Vec<InheritedSocketInfo>,
}

/// Where a socket is that was handed over. Whoever made it decides on its mode and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritedSocketInfo {
    /// At a path.
    Unix {
        /// As it was bound.
        path: PathBuf,
        /// Whether its mode lets every user connect.
        open_to_all: bool,
        /// Whether Prometheus scrapes there, and nobody calls.
        for_metrics: bool,
    },
    /// A port.
    Tcp {
        /// As it was bound.
        address: SocketAddr,
        /// The same.
        for_metrics: bool,
    },
}

impl ProcessEnv {
    /// Those of this process. Leaves the sockets to whoever takes them over.
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
            temp_dir: std::env::temp_dir(),
            current_dir: std::env::current_dir().ok(),
            uid: rustix::process::geteuid().as_raw(),
            inherited_sockets: Vec::new(),
        }
    }
}

/// The sockets that clients try, in this order; a daemon without `--listen` takes one of them. The
/// first is the unit's, the last is for a user without a session.
#[must_use]
pub fn default_sockets(env: &ProcessEnv) -> Vec<PathBuf> {
    let mut sockets = vec![PathBuf::from("/run/caproot/caproot.sock")];
    sockets.extend(env.xdg_runtime_dir.as_ref().map(|dir| dir.join("caproot.sock")));
    sockets.push(env.temp_dir.join(format!("caproot-{}/caproot.sock", env.uid)));
    sockets
}

/// The most bytes of a Unix socket's path: `sun_path` of unix(7) less its closing NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// One daemon's address. Prints as it is spelled on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEndpoint(EndpointAddress);

/// The kinds of address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndpointAddress {
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, the host of a v6 address in brackets.
    Tcp(String),
    /// The same, to be spoken to over TLS.
    Tls(String),
}

/// Why a text is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; an endpoint is unix:/PATH, tcp:HOST:PORT, tls:HOST:PORT or a URL of these")]
pub struct EndpointError(&'static str);

impl DaemonEndpoint {
    /// The Unix socket at an absolute path.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        let bytes = path.as_os_str().as_encoded_bytes();
        if !path.is_absolute() {
            return Err(EndpointError("the socket's path must be absolute"));
        }
        if bytes.contains(&0) || bytes.ends_with(b"/") {
            return Err(EndpointError("the path names no socket"));
        }
        if bytes.len() > MAX_SOCKET_PATH_BYTES {
            return Err(EndpointError("the socket's path is over 107 bytes, the kernel's limit"));
        }
        Ok(Self(EndpointAddress::Unix(path)))
    }

    /// `HOST:PORT`.
    fn host_and_port(address: &str) -> Result<String, EndpointError> {
        let (host, port) = address.rsplit_once(':').ok_or(EndpointError("the port is missing"))?;
        if port.parse::<u16>().ok().is_none_or(|port| port == 0) {
            return Err(EndpointError("the port must be a number from 1 to 65535"));
        }
        if !is_host(host) {
            return Err(EndpointError("the host must be a name, a v4 address or a [v6 address]"));
        }
        Ok(address.to_owned())
    }

    /// The address, for whoever connects.
    #[cfg(feature = "client")]
    pub(crate) fn address(&self) -> &EndpointAddress {
        &self.0
    }
}

fn is_host(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().is_ok();
    }
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

impl FromStr for DaemonEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            Self::unix(path)
        } else if text.starts_with('/') {
            Self::unix(text)
        } else if let Some(address) = text.strip_prefix("tcp:") {
            Ok(Self(EndpointAddress::Tcp(Self::host_and_port(address)?)))
        } else if let Some(address) = text.strip_prefix("tls:") {
            Ok(Self(EndpointAddress::Tls(Self::host_and_port(address)?)))
        } else if let Some(address) = text.strip_prefix("http://") {
            let address = address.strip_suffix('/').unwrap_or(address);
            Ok(Self(EndpointAddress::Tcp(Self::host_and_port(address)?)))
        } else if let Some(address) = text.strip_prefix("https://") {
            let address = address.strip_suffix('/').unwrap_or(address);
            Ok(Self(EndpointAddress::Tls(Self::host_and_port(address)?)))
        } else {
            Err(EndpointError("its kind is missing"))
        }
    }
}

impl fmt::Display for DaemonEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // One that begins with two slashes would be taken for what follows `unix://`.
            EndpointAddress::Unix(path)
                if path.as_os_str().as_encoded_bytes().starts_with(b"//") =>
            {
                write!(f, "unix://{}", path.display())
            }
            EndpointAddress::Unix(path) => write!(f, "unix:{}", path.display()),
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
    fn endpoint_forms() {
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
    fn invalid_endpoints() {
        let long = format!("unix:/{}", "a".repeat(107));
        for (text, part) in [
            ("", "its kind"),
            ("run/a.sock", "its kind"),
            ("localhost:80", "its kind"),
            ("unix:", "absolute"),
            ("unix:a.sock", "absolute"),
            ("unix://a/b", "absolute"),
            ("unix:/run/", "no socket"),
            ("unix:/a\0b", "no socket"),
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
    fn default_sockets_in_order() {
        let mut env = ProcessEnv {
            home: None,
            codex_home: None,
            etc: "/etc".into(),
            unit_runtime_dir: None,
            xdg_runtime_dir: Some("/run/user/7".into()),
            temp_dir: "/tmp".into(),
            current_dir: None,
            uid: 7,
            inherited_sockets: Vec::new(),
        };
        let unit = PathBuf::from("/run/caproot/caproot.sock");
        let session = PathBuf::from("/run/user/7/caproot.sock");
        let temp = PathBuf::from("/tmp/caproot-7/caproot.sock");
        assert_eq!(default_sockets(&env), [unit.clone(), session, temp.clone()]);
        env.xdg_runtime_dir = None;
        assert_eq!(default_sockets(&env), [unit, temp]);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_the_same(text in "(unix:|tcp:|http://|/|//|a|\\[::1\\]|é|:|80|0){0,7}", any: String) {
            for text in [text, any] {
                if let Ok(endpoint) = text.parse::<DaemonEndpoint>() {
                    prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
                }
            }
        }
    }
}
