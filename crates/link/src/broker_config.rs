//! Addresses and credentials of a broker, as in the `nats` section of a file.

use super::subject::check_prefix;
use caproot_core::document::{DocumentField, DocumentReader};
use caproot_core::net::endpoint::is_loopback_host;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Default prefix of the subjects.
const DEFAULT_PREFIX: &str = "caproot.v1";
/// Port of a server without a port.
const DEFAULT_PORT: u16 = 4222;
/// Port of a `wss://` server without a port.
const DEFAULT_WEBSOCKET_PORT: u16 = 443;
/// Start of the URL of a server behind HTTPS.
const WEBSOCKET_SCHEME: &str = "wss://";
/// Keys of the section `nats` of a fleet file and of a link file.
pub const BROKER_KEYS: [&str; 6] = ["servers", "ca", "cert", "key", "creds", "prefix"];

/// Servers of a NATS cluster, and the credentials of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// URLs of servers: `tls://HOST:PORT`, or `nats://HOST:PORT` for a server on this machine. Or all of them
    /// `wss://HOST:PORT`, for a network from which only HTTPS leaves.
    pub servers: Vec<String>,
    /// Authorities (PEM) that the certificates of the servers must come from. `None` means the
    /// authorities of the machine.
    pub ca: Option<PathBuf>,
    /// Certificate and key (PEM) of this client. The files are read for each connection.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// File with the user and the key of a NATS account. The file is read at the start.
    pub creds: Option<PathBuf>,
    /// First tokens of all subjects.
    pub prefix: String,
}

impl BrokerConfig {
    /// Returns the configuration of servers without credentials.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            ca: None,
            identity: None,
            creds: None,
            prefix: DEFAULT_PREFIX.to_owned(),
        }
    }
}

/// Reads a `nats` section. Relative paths start at `base`.
pub fn read_broker_config(
    field: &DocumentField<'_>,
    base: &Path,
    reader: &mut DocumentReader<'_>,
) -> Option<BrokerConfig> {
    let section = reader.section(field, BROKER_KEYS)?;
    let servers = reader.required(&section, "servers").map(|item| {
        let servers = reader.unique_texts(&item, Some("empty list; name a server"), parse_server);
        let are_websockets = |server: &String| server.starts_with(WEBSOCKET_SCHEME);
        if servers.iter().any(are_websockets) && !servers.iter().all(are_websockets) {
            reader.report_error(&item, "wss:// and other servers; name servers of one kind");
        }
        servers
    });

    if section.get("cert").is_some() != section.get("key").is_some() {
        reader.report_error(field, "`cert` and `key` go together; one is missing");
    }
    let mut path = |key| Some(base.join(reader.text(&section.get(key)?)?));
    let ca = path("ca");
    let identity = path("cert").zip(path("key"));
    let creds = path("creds");

    let prefix = section
        .get("prefix")
        .and_then(|item| reader.parsed(&item, check_prefix))
        .unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
    Some(BrokerConfig {
        servers: servers?,
        ca,
        identity,
        creds,
        prefix,
    })
}

/// Parses the URL of a server. A server on another machine needs TLS: the broker reads no skill, but
/// its credentials would be readable.
fn parse_server(text: &str) -> Result<String, &'static str> {
    let expected = "expected tls://HOST:PORT or wss://HOST:PORT, or nats://127.0.0.1:PORT for a server on this \
                    machine";
    let (scheme, address) = text.split_once("://").ok_or(expected)?;
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| expected)?),
        _ if text.starts_with(WEBSOCKET_SCHEME) => (address, DEFAULT_WEBSOCKET_PORT),
        _ => (address, DEFAULT_PORT),
    };

    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_name = !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if bare.unwrap_or(host).parse::<IpAddr>().is_err() && !is_name {
        return Err(expected);
    }

    match scheme {
        "tls" | "wss" => {}
        "nats" if is_loopback_host(host) => {}
        "nats" => return Err("an attacker on the network could read the credentials; use tls://"),
        _ => return Err(expected),
    }
    Ok(format!("{scheme}://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::parse_server;

    #[test]
    fn servers_are_normalized_or_rejected() {
        for (text, expected) in [
            ("tls://nats.example:4333", "tls://nats.example:4333"),
            ("tls://nats.example", "tls://nats.example:4222"),
            ("tls://[::1]", "tls://[::1]:4222"),
            ("tls://10.0.0.1:1", "tls://10.0.0.1:1"),
            ("wss://nats.example", "wss://nats.example:443"),
            ("wss://nats.example:8443", "wss://nats.example:8443"),
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://localhost", "nats://localhost:4222"),
        ] {
            assert_eq!(parse_server(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "nats.example",
            "tls://",
            "tls://:1",
            "tls://user:word@host:1",
            "tls://a b",
            "nats://nats.example:4222",
            "nats://10.0.0.1",
            "ws://127.0.0.1",
            "tls://a:x",
            "tls://a/b",
            "wss://a/b",
        ] {
            parse_server(bad).expect_err(bad);
        }
    }
}
