//! Parser of a fleet file. It reports all errors at once, with their positions.

use super::executors::{DEFAULT_TIMEOUT, ExecutorConfig};
use super::pattern::{ExecutorPattern, SAMPLE_ID, check_placeholder, fill_id};
use crate::Trust;
use crate::connect::credentials::{ClientCredentials, ClientToken};
use caproot_core::bounded_file;
use caproot_core::document::{
    self, ConfigErrors, DocumentField, DocumentReader, DocumentSection, FileResult as _,
};
use caproot_core::lock::LockFile;
use caproot_core::net::certs::SpiffeId;
use caproot_core::net::endpoint::{DaemonEndpoint, EndpointAddress};
use caproot_core::sync::run_blocking;
use caproot_core::text::SentenceResult as _;
#[cfg(feature = "nats")]
use caproot_link::{BrokerConfig, read_broker_config};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of the file: enough for ten thousand executors.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Keys of one executor, and of the pattern.
const EXECUTOR_KEYS: [&str; 9] = [
    "endpoint",
    "timeout",
    "ca",
    "cert",
    "key",
    "server_name",
    "spiffe_id",
    "token_file",
    "via",
];

/// Executors of a fleet file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetTable {
    executors: BTreeMap<String, ExecutorConfig>,
    /// Pattern of all other executors.
    pattern: Option<ExecutorPattern>,
    /// Broker of the executors with `via: nats`.
    #[cfg(feature = "nats")]
    pub broker: Option<BrokerConfig>,
    /// Files of the lock.
    trust_files: Option<TrustFiles>,
    /// Skills that sessions trust.
    pub trust: Trust,
}

/// Files of the lock of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrustFiles {
    lock: PathBuf,
    /// Keys that may sign the lock.
    signers: Option<PathBuf>,
}

impl FleetTable {
    /// Returns the executor of an environment.
    pub fn find(&self, environment_id: &str) -> Result<Option<ExecutorConfig>, String> {
        match self.executors.get(environment_id) {
            None => {
                let pattern = self.pattern.as_ref();
                pattern
                    .map(|pattern| pattern.fill(environment_id))
                    .transpose()
            }
            listed => Ok(listed.cloned()),
        }
    }

    /// Returns the environments that the file lists, in byte order.
    pub fn environment_ids(&self) -> Vec<String> {
        self.executors.keys().cloned().collect()
    }
}

/// Reads the file and its lock. Relative paths in the file start at the file's directory.
pub async fn read(path: &Path) -> Result<FleetTable, ConfigErrors> {
    let bytes = bounded_file::read_in_time(path, MAX_FILE_BYTES)
        .await
        .in_file(path)?;
    let mut table = parse(path, bytes)?;
    if let Some(files) = table.trust_files.clone() {
        let lock = run_blocking(move || LockFile::read(&files.lock, files.signers.as_deref()));
        let lock = lock.await.context("cannot read the lock").in_file(path)?;
        table.trust = Trust::Lock(Arc::new(lock?.lock));
    }
    Ok(table)
}

fn parse(path: &Path, bytes: Vec<u8>) -> Result<FleetTable, ConfigErrors> {
    let node = document::parse_file(path, &document::decode_file(path, bytes)?)?;

    let mut errors = ConfigErrors::default();
    let mut reader = DocumentReader {
        file: path,
        errors: &mut errors,
    };
    let top = reader.top_section(&node, ["executors", "pattern", "nats", "trust"]);

    let mut table = FleetTable::default();
    let nats = top.get("nats");
    if let Some(field) = &nats {
        read_broker(field, &mut table, &mut reader);
    }
    let has_broker = nats.is_some();
    let trust = top.get("trust");
    table.trust_files = trust.and_then(|field| read_trust_files(&field, &mut reader));
    let pattern = top.get("pattern");
    let has_pattern = pattern.is_some();
    table.pattern = pattern.and_then(|field| read_pattern(&field, has_broker, &mut reader));

    let executors = if has_pattern {
        top.get("executors")
    } else {
        reader.required(&top, "executors")
    };
    if let Some(field) = executors {
        read_executors(&field, has_broker, &mut table, &mut reader);
    }

    errors.or_value(table)
}

fn read_trust_files(
    field: &DocumentField<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<TrustFiles> {
    let section = reader.section(field, ["lock", "signers"])?;
    let base = reader.file.parent().unwrap_or(Path::new(""));
    let lock = reader.required(&section, "lock")?;
    let lock = base.join(reader.text(&lock)?);
    let signers = optional_text(&section, "signers", reader);
    Some(TrustFiles {
        lock,
        signers: signers.map(|path| base.join(path)),
    })
}

fn read_executors(
    field: &DocumentField<'_>,
    has_broker: bool,
    table: &mut FleetTable,
    reader: &mut DocumentReader<'_>,
) {
    for (environment_id, field) in reader.named_fields(field) {
        if environment_id.is_empty() {
            reader.report_error(&field, "the environment id must not be empty");
        }
        let Some(section) = reader.section(&field, EXECUTOR_KEYS) else {
            continue;
        };

        let executor = ExecutorSection {
            field: &field,
            section: &section,
            environment_id,
            has_broker,
        };
        if let Some(executor) = executor.read(reader, |text| Ok(text.to_owned())) {
            table.executors.insert(environment_id.to_owned(), executor);
        }
    }
}

#[cfg(feature = "nats")]
fn read_broker(field: &DocumentField<'_>, table: &mut FleetTable, reader: &mut DocumentReader<'_>) {
    let base = reader.file.parent().unwrap_or(Path::new(""));
    table.broker = read_broker_config(field, base, reader);
}

#[cfg(not(feature = "nats"))]
fn read_broker(field: &DocumentField<'_>, _: &mut FleetTable, reader: &mut DocumentReader<'_>) {
    reader.report_error(field, "this program was built without links: build caproot with `--features link`, or caproot-client with `nats`");
}

fn read_pattern(
    field: &DocumentField<'_>,
    has_broker: bool,
    reader: &mut DocumentReader<'_>,
) -> Option<ExecutorPattern> {
    let section = reader.section(field, EXECUTOR_KEYS)?;
    let executor = ExecutorSection {
        field,
        section: &section,
        environment_id: SAMPLE_ID,
        has_broker,
    };
    let sample = executor.read(reader, |endpoint| {
        check_placeholder(endpoint).map(|()| fill_id(endpoint, SAMPLE_ID))
    })?;

    let mut text = |key| optional_text(&section, key, reader).map(str::to_owned);
    Some(ExecutorPattern {
        endpoint: text("endpoint")?,
        server_name: text("server_name"),
        spiffe_id: text("spiffe_id"),
        sample,
    })
}

/// Section of the executor of an environment.
struct ExecutorSection<'a> {
    field: &'a DocumentField<'a>,
    section: &'a DocumentSection<'a>,
    environment_id: &'a str,
    has_broker: bool,
}

impl ExecutorSection<'_> {
    /// Reads the executor. `to_endpoint` returns the text of the endpoint.
    fn read(
        &self,
        reader: &mut DocumentReader<'_>,
        to_endpoint: impl Fn(&str) -> Result<String, &'static str>,
    ) -> Option<ExecutorConfig> {
        let endpoint = reader.required(self.section, "endpoint").and_then(|item| {
            reader.parsed(&item, |text| {
                let endpoint = to_endpoint(text)?.parse::<DaemonEndpoint>();
                endpoint.map_err(|error| error.to_string())
            })
        });
        let timeout = self
            .section
            .get("timeout")
            .and_then(|item| reader.parsed(&item, parse_timeout));
        let credentials = self.read_credentials(endpoint.as_ref(), reader);
        let via_nats = self.read_via(endpoint.as_ref(), reader);

        Some(ExecutorConfig {
            endpoint: endpoint?,
            credentials,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            via_nats,
        })
    }

    fn read_credentials(
        &self,
        endpoint: Option<&DaemonEndpoint>,
        reader: &mut DocumentReader<'_>,
    ) -> ClientCredentials {
        let section = self.section;
        if section.get("cert").is_some() != section.get("key").is_some() {
            reader.report_error(self.field, "`cert` and `key` go together; one is missing");
        }

        let server_name = optional_text(section, "server_name", reader);
        let server_name = server_name.map(|name| fill_id(name, self.environment_id));
        let spiffe_id = self.read_spiffe_id(endpoint, reader);

        let base = reader.file.parent().unwrap_or(Path::new(""));
        let mut path = |key| optional_text(section, key, reader).map(|p| base.join(p));
        ClientCredentials {
            ca: path("ca"),
            identity: path("cert").zip(path("key")),
            server_name,
            spiffe_id,
            token: path("token_file").map(ClientToken::File),
            socket_users: None,
        }
    }

    fn read_spiffe_id(
        &self,
        endpoint: Option<&DaemonEndpoint>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<SpiffeId> {
        let item = self.section.get("spiffe_id")?;
        if self.section.get("server_name").is_some() {
            let reason = "`server_name` and `spiffe_id` exclude each other";
            reader.report_error(self.field, reason);
        }
        if !endpoint.is_none_or(has_tls) {
            reader.report_error(self.field, "`spiffe_id` needs a tls: endpoint");
        }
        reader.parsed(&item, |text| {
            fill_id(text, self.environment_id).parse::<SpiffeId>()
        })
    }

    /// Returns whether the fleet reaches the executor through the broker.
    fn read_via(&self, endpoint: Option<&DaemonEndpoint>, reader: &mut DocumentReader<'_>) -> bool {
        let Some(item) = self.section.get("via") else {
            return false;
        };
        let via = reader.parsed(&item, |text| match text {
            "nats" if self.has_broker => Ok(()),
            "nats" => Err("the file has no section `nats`, which names the broker"),
            _ => Err("expected nats, or no key for a direct connection"),
        });
        if !endpoint.is_none_or(has_tls) {
            reader.report_error(self.field, "`via` needs a tls: endpoint");
        }
        via.is_some()
    }
}

/// Reads the text of a key, if the section has the key.
fn optional_text<'a>(
    section: &DocumentSection<'a>,
    key: &str,
    reader: &mut DocumentReader<'_>,
) -> Option<&'a str> {
    reader.text(&section.get(key)?)
}

fn has_tls(endpoint: &DaemonEndpoint) -> bool {
    matches!(endpoint.address(), EndpointAddress::Tls(_))
}

/// Parses a duration of more than zero and at most a day.
fn parse_timeout(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text)
        .ok()
        .filter(|span| !span.is_zero() && *span <= Duration::from_hours(24))
        .ok_or("expected a duration of more than 0s and at most 24h, such as 30s")
}

#[cfg(test)]
mod tests {
    use super::parse;
    use caproot_core::document::ConfigError;
    use std::path::Path;
    use std::time::Duration;

    fn fleet(text: &str) -> Result<Vec<(String, super::ExecutorConfig)>, Vec<String>> {
        let fleet = parse(Path::new("/etc/fleet.yaml"), text.into());
        let plain = |error: ConfigError| error.to_string().replace("/etc/fleet.yaml:", "");
        fleet
            .map(|table| table.executors.into_iter().collect())
            .map_err(|errors| errors.into_iter().map(plain).collect())
    }

    #[test]
    fn yaml_and_json_are_equal() {
        let yaml = "executors:\n  b:\n    endpoint: tcp:localhost:5\n    timeout: 3s\n  a:\n    \
                    endpoint: tls:h:1\n    ca: ca.pem\n    cert: /c\n    key: k\n    server_name: s\n    \
                    token_file: t\n";
        let json = r#"{"executors": {"b": {"endpoint": "tcp:localhost:5", "timeout": "3s"},
            "a": {"endpoint": "tls:h:1", "ca": "ca.pem", "cert": "/c", "key": "k",
                  "server_name": "s", "token_file": "t"}}}"#;
        for text in [yaml, json] {
            let fleet = fleet(text).expect(text);
            let [(a, tls), (b, tcp)] = fleet.as_slice() else {
                panic!("two: {fleet:?}")
            };
            assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
            assert_eq!(tcp.timeout, Duration::from_secs(3));
            assert_eq!(tcp.endpoint.to_string(), "tcp:localhost:5");
            let shown = &tls.credentials;
            assert!(
                shown
                    .ca
                    .as_ref()
                    .is_some_and(|ca| ca.is_absolute() && ca.ends_with("ca.pem"))
            );
            let (cert, key) = shown.identity.as_ref().expect("both");
            assert!(cert == Path::new("/c") && key.is_absolute());
            assert_eq!(shown.server_name.as_deref(), Some("s"));
        }
        assert_eq!(fleet("executors: {}").expect("no executors").len(), 0);
    }

    #[test]
    fn all_errors_are_reported() {
        let text = "executors:\n  a: {endpoint: nowhere, tiemout: 1s}\n  b: {timeout: 0s, cert: c}\n  \
                    a: {endpoint: '/s'}\n  c: [1]\n  d: {endpoint: 7}\n  e: {}\nmore: 1\n";
        let wrong = fleet(text).expect_err("errors");
        let parts = [
            (
                "2:17: executors.a.endpoint: invalid value \"nowhere\": ",
                "the scheme is missing",
            ),
            (
                "2:26: executors.a.tiemout: ",
                "unknown key; did you mean `timeout`?",
            ),
            ("3:6: executors.b.endpoint: ", "required key is missing"),
            ("3:6: executors.b: ", "`cert` and `key`"),
            (
                "3:16: executors.b.timeout: invalid value \"0s\": ",
                "more than 0s",
            ),
            ("4:3: executors.a: ", "duplicate key, first set in line 2"),
            (
                "5:6: executors.c: ",
                "expected a mapping, found a list; the keys are endpoint,",
            ),
            (
                "6:17: executors.d.endpoint: invalid value 7: ",
                "expected text",
            ),
            ("7:6: executors.e.endpoint: ", "required key is missing"),
            (
                "8:1: more: ",
                "unknown key; the keys are executors, pattern, nats",
            ),
        ];
        assert_eq!(wrong.len(), parts.len(), "{wrong:#?}");
        for (text, (place, reason)) in wrong.iter().zip(parts) {
            assert!(
                text.starts_with(place) && text.contains(reason),
                "{text} / {place}{reason}"
            );
        }
    }

    #[test]
    fn places_of_the_id_are_filled() {
        let text = "pattern:\n  endpoint: tls:{id}.x.example:1\n  spiffe_id: spiffe://x/e/{id}\n  \
                    ca: ca.pem\n  timeout: 2s\nexecutors:\n  Big.One:\n    endpoint: tls:h:2\n    \
                    server_name: '{id}.y'\n";
        let table = parse(Path::new("/etc/fleet.yaml"), text.into()).expect("a table");
        let a1 = table.find("a1").expect("an id").expect("an executor");
        assert_eq!(
            (a1.endpoint.to_string().as_str(), a1.timeout.as_secs()),
            ("tls:a1.x.example:1", 2)
        );
        assert_eq!(
            a1.credentials.spiffe_id.expect("an id").as_str(),
            "spiffe://x/e/a1"
        );
        assert_eq!(a1.credentials.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
        // A listed executor comes before the pattern, and its id needs no DNS name.
        let listed = table.find("Big.One").expect("an id").expect("an executor");
        assert_eq!(listed.endpoint.to_string(), "tls:h:2");
        assert_eq!(listed.credentials.server_name.as_deref(), Some("Big.One.y"));
        assert_eq!(table.environment_ids(), ["Big.One"]);
        assert!(table.find("a.b").is_err());
    }

    #[test]
    fn errors_of_a_pattern_are_reported() {
        for (text, expected) in [
            (
                "pattern: {endpoint: 'tls:a:1'}",
                "1:21: pattern.endpoint: invalid value \"tls:a:1\": expected an endpoint with {id}",
            ),
            (
                "pattern: {endpoint: 'tls:a:{id}'}",
                "1:21: pattern.endpoint: invalid value \"tls:a:{id}\": the port must be",
            ),
            (
                "pattern: {}",
                "1:10: pattern.endpoint: required key is missing",
            ),
            (
                "pattern: {endpoint: 'tcp:{id}:1', spiffe_id: 'spiffe://a/{id}'}",
                "1:10: pattern: `spiffe_id` needs a tls: endpoint",
            ),
            (
                "pattern: {endpoint: 'tls:{id}:1', spiffe_id: 'a/{id}'}",
                "1:46: pattern.spiffe_id: invalid value \"a/{id}\": expected a SPIFFE ID",
            ),
            (
                "pattern: {endpoint: 'tls:{id}:1', spiffe_id: 'spiffe://a/b', server_name: c}",
                "1:10: pattern: `server_name` and `spiffe_id`",
            ),
        ] {
            let wrong = fleet(text).expect_err(text);
            assert!(
                wrong.len() == 1 && wrong[0].starts_with(expected),
                "{text:?}: {wrong:?}"
            );
        }
    }

    #[test]
    fn files_without_a_fleet_have_one_error() {
        for (text, expected) in [
            ("", "1:1: executors: required key is missing"),
            ("{}", "1:1: executors: required key is missing"),
            ("executors:", "1:1: executors: has no value"),
            (
                "executors: a",
                "1:12: executors: invalid value \"a\": expected a mapping",
            ),
            (
                "[]",
                "1:1: expected a mapping, found a list; the keys are executors, pattern, nats",
            ),
            ("a: [", "1:5: YAML"),
            ("executors: &x {}", "1:12: anchors"),
            (
                "executors: {'': {endpoint: 'tcp:a:1'}}",
                "1:17: executors.\"\": the environment id",
            ),
        ] {
            let wrong = fleet(text).expect_err(text);
            assert!(
                wrong.len() == 1 && wrong[0].starts_with(expected),
                "{text:?}: {wrong:?}"
            );
        }
        let wrong = parse(Path::new("/none"), b"\n\xff".to_vec()).expect_err("no text");
        assert!(
            wrong.to_string().starts_with("/none:2:1: invalid UTF-8"),
            "{wrong}"
        );
    }
}
