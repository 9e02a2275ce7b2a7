//! Config file of `caproot link`.

use crate::daemon::config::{self, LogConfig};
use caproot_core::document::{self, ConfigError, ConfigErrors, DocumentReader, DocumentSection};
use caproot_core::wire::RootId;
use caproot_link::{LinkConfig, read_broker_config};
use std::net::SocketAddr;
use std::path::Path;

/// Keys of the file.
const LINK_KEYS: [&str; 7] = [
    "environment_ids",
    "daemon",
    "nats",
    "max_tunnels",
    "max_dials_per_second",
    "log",
    "metrics",
];
/// Default maximum number of open tunnels.
const MAX_TUNNELS: usize = 512;
/// Default maximum number of dials within a second.
const MAX_DIALS_PER_SECOND: u32 = 50;

/// Checked configuration of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFile {
    /// Configuration of the link itself.
    pub link: LinkConfig,
    /// Filter and format of the log.
    pub log: LogConfig,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
}

impl LinkFile {
    /// Reads a file. Returns all errors at once. Relative paths in the file start at the file's
    /// directory.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::parse(path, &config::read_config_file(path)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let node = document::parse_file(path, text)?;
        let mut errors = ConfigErrors::default();
        let mut reader = DocumentReader {
            file: path,
            errors: &mut errors,
        };
        let top = reader.top_section(&node, LINK_KEYS);

        let environment_ids = reader.required(&top, "environment_ids").map(|item| {
            let empty = Some("empty list; name the environments of the daemon");
            reader.unique_texts(&item, empty, |text| {
                RootId::new(text).map(|_| text.to_owned())
            })
        });
        let daemon = reader.required(&top, "daemon").and_then(|item| {
            // Bytes go to the daemon as they come, so only TLS makes sense there.
            let expected = "expected tls:HOST:PORT with an IP address of this machine, such as \
                                tls:127.0.0.1:7420";
            reader.parsed(&item, |text| {
                parse_local_address(text, "tls:").ok_or(expected)
            })
        });
        let base = path.parent().unwrap_or(Path::new(""));
        let broker = reader
            .required(&top, "nats")
            .and_then(|item| read_broker_config(&item, base, &mut reader));

        let max_tunnels = read_count(&top, &mut reader, "max_tunnels");
        let max_dials = read_count(&top, &mut reader, "max_dials_per_second");
        let log = config::read_log_section(&top, &mut reader);
        let metrics = top.get("metrics").and_then(|item| {
            let section = reader.section(&item, ["listen"])?;
            let listen = reader.required(&section, "listen")?;
            let expected = "expected tcp:HOST:PORT with an IP address of this machine, such as \
                            tcp:127.0.0.1:9465";
            reader.parsed(&listen, |text| {
                parse_local_address(text, "tcp:").ok_or(expected)
            })
        });

        let values = environment_ids.zip(daemon.zip(broker));
        let Some((environment_ids, (daemon, broker))) = errors.or_value(values)? else {
            return Err(ConfigError::file(path, "required keys are missing").into());
        };
        let link = LinkConfig {
            environment_ids,
            daemon,
            broker,
            max_tunnels: max_tunnels.map_or(MAX_TUNNELS, |count| count as usize),
            max_dials_per_second: max_dials.unwrap_or(MAX_DIALS_PER_SECOND),
        };
        Ok(Self { link, log, metrics })
    }
}

/// Reads a count of at most a million.
fn read_count(
    top: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
    key: &str,
) -> Option<u32> {
    let item = top.get(key)?;
    let count = reader.count(&item, &(1..=1_000_000))?;
    u32::try_from(count).ok()
}

/// Parses an address of this machine after a scheme.
fn parse_local_address(text: &str, scheme: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.strip_prefix(scheme)?.parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::super::LINK_EXAMPLE;
    use super::{LINK_KEYS, LinkFile};
    use std::path::{Path, PathBuf};

    fn parse(text: &str) -> Result<LinkFile, Vec<String>> {
        let parsed = LinkFile::parse(Path::new("/etc/link.yaml"), text);
        let plain = |error: &super::ConfigError| error.to_string().replace("/etc/link.yaml:", "");
        parsed.map_err(|errors| errors.iter().map(plain).collect())
    }

    #[test]
    fn a_file_with_all_keys() {
        let file = parse(
            "environment_ids: [vm-1]\ndaemon: tls:127.0.0.1:7420\nnats:\n  servers: [tls://n.example]\n  \
             ca: ca.pem\n  cert: c.pem\n  key: /k\n  creds: x.creds\n  prefix: p\nmax_tunnels: 3\n\
             max_dials_per_second: 4\nlog:\n  filter: debug\nmetrics:\n  listen: tcp:127.0.0.1:1\n",
        );
        let LinkFile { link, log, metrics } = file.expect("a file");
        assert_eq!(link.environment_ids, ["vm-1"]);
        assert_eq!((link.max_tunnels, link.max_dials_per_second), (3, 4));
        assert_eq!(link.broker.servers, ["tls://n.example:4222"]);
        assert_eq!(
            link.broker.identity,
            Some((PathBuf::from("/etc/c.pem"), PathBuf::from("/k")))
        );
        assert_eq!(
            link.broker.creds.as_deref(),
            Some(Path::new("/etc/x.creds"))
        );
        assert_eq!(
            (link.broker.prefix.as_str(), log.filter.as_str()),
            ("p", "debug")
        );
        assert_eq!(metrics.map(|address| address.port()), Some(1));
        let minimal =
            parse("environment_ids: [a]\ndaemon: tls:127.0.0.1:1\nnats: {servers: [tls://n]}\n");
        let link = minimal.expect("a file").link;
        assert_eq!((link.max_tunnels, link.max_dials_per_second), (512, 50));
        assert_eq!(link.broker.prefix, "caproot.v1");
    }

    /// The example shows every key, and the values without `#` are the defaults.
    #[test]
    fn the_example_has_the_defaults() {
        let example = parse(LINK_EXAMPLE).expect("a valid file");
        let required: Vec<_> = LINK_EXAMPLE
            .lines()
            .filter(|line| {
                ["environment_ids:", "daemon:", "nats:", "  servers:"]
                    .iter()
                    .any(|key| line.starts_with(key))
            })
            .collect();
        assert_eq!(parse(&required.join("\n")), Ok(example));
        // The keys in comments are valid together, too.
        let all = LINK_EXAMPLE.lines().map(|line| {
            let rest = line
                .trim_start()
                .strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '));
            let indent = &line[..line.len() - line.trim_start().len()];
            match rest {
                Some(rest) => format!("{indent}{rest}\n"),
                None => format!("{}\n", line.replacen("#  ", "  ", 1)),
            }
        });
        let file = parse(&all.collect::<String>()).expect("a valid file");
        let broker = file.link.broker;
        assert!(broker.ca.is_some() && broker.identity.is_some() && broker.creds.is_some());
        assert!(file.metrics.is_some());
        for key in LINK_KEYS.iter().chain(&caproot_link::BROKER_KEYS) {
            assert!(LINK_EXAMPLE.contains(&format!("{key}:")), "{key}");
        }
    }

    #[test]
    fn all_errors_are_reported() {
        let errors = parse(
            "environment_ids: []\ndaemon: tcp:127.0.0.1:1\nnats: {servers: [nats://n.example], cert: c}\n\
             max_tunnels: 0\nmetrics: {listen: 'tcp:0.0.0.0:1'}\ntunnels: 1\n",
        );
        let errors = errors.expect_err("errors");
        for (at, expected) in [
            "1:18: environment_ids: empty list; name the environments of the daemon",
            "2:9: daemon: invalid value \"tcp:127.0.0.1:1\": expected tls:HOST:PORT",
            "3:7: nats: `cert` and `key` go together",
            "3:18: nats.servers[0]: invalid value \"nats://n.example\": an attacker",
            "4:14: max_tunnels: invalid value 0: expected a whole number from 1",
            "5:19: metrics.listen: invalid value \"tcp:0.0.0.0:1\": expected tcp:HOST:PORT",
            "6:1: tunnels: unknown key; did you mean `max_tunnels`?",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(
                errors
                    .get(at)
                    .is_some_and(|error| error.starts_with(expected)),
                "{errors:#?}"
            );
        }
        assert_eq!(errors.len(), 7);
        let missing = parse("").expect_err("errors");
        assert_eq!(missing.len(), 3, "{missing:?}");
    }
}
