//! Parser of a fleet file. It reports all errors at once, with their positions.

use super::{DEFAULT_TIMEOUT, ExecutorConfig};
use crate::client::credentials::ClientCredentials;
use crate::net::endpoint::DaemonEndpoint;
use crate::parse::document::{self, DocumentNode, DocumentValue, TextPosition};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::AsyncReadExt as _;

/// Maximum size of the file: enough for ten thousand executors.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum number of errors that are reported.
const MAX_ERRORS: usize = 100;
/// Keys of one executor.
const EXECUTOR_KEYS: [&str; 7] =
    ["endpoint", "timeout", "ca", "cert", "key", "server_name", "token_file"];

/// Error in a fleet file. Displays as `FILE:LINE:COLUMN: KEY: REASON`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetFileError {
    /// File, as the caller named it.
    pub file: PathBuf,
    /// Position in the file; `None` for the whole file.
    pub at: Option<TextPosition>,
    /// Full key, such as `executors.workspace.endpoint`. May be empty.
    pub key: String,
    /// Reason, and the fix.
    pub reason: String,
}

impl fmt::Display for FleetFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(TextPosition { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for FleetFileError {}

/// All errors in a fleet file, in file order, at most 100. Displays as one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetFileErrors(pub Vec<FleetFileError>);

impl fmt::Display for FleetFileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for FleetFileErrors {}

/// Reads the file. Relative paths in the file start at the file's directory.
pub async fn read(path: &Path) -> Result<BTreeMap<String, ExecutorConfig>, FleetFileErrors> {
    parse(path, text(path).await)
}

async fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A pipe has no size, so the read itself is limited.
    let file = tokio::fs::File::open(path).await?;
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).await?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    Ok(text)
}

fn parse(
    path: &Path,
    text: io::Result<String>,
) -> Result<BTreeMap<String, ExecutorConfig>, FleetFileErrors> {
    let mut reader = FleetFileReader { file: path, errors: Vec::new() };
    let executors = match text {
        Err(error) => {
            reader.record_error(None, "", format!("cannot be read: {error}"));
            BTreeMap::new()
        }
        Ok(text) => match document::parse(&text) {
            Err(error) => {
                reader.record_error(Some(error.position), "", error.reason);
                BTreeMap::new()
            }
            Ok(top) => reader.read_executors(&top),
        },
    };
    if reader.errors.is_empty() {
        return Ok(executors);
    }
    reader.errors.sort_by_key(|error| error.at);
    reader.errors.truncate(MAX_ERRORS);
    Err(FleetFileErrors(reader.errors))
}

struct FleetFileReader<'a> {
    file: &'a Path,
    errors: Vec<FleetFileError>,
}

impl FleetFileReader<'_> {
    fn record_error(&mut self, at: Option<TextPosition>, key: &str, reason: impl Into<String>) {
        let (file, key) = (self.file.to_owned(), key.to_owned());
        self.errors.push(FleetFileError { file, at, key, reason: reason.into() });
    }

    /// Returns the entries of a mapping. Duplicate keys, and a node that is not a mapping, are
    /// errors.
    fn unique_entries<'n>(
        &mut self,
        node: &'n DocumentNode,
        key: &str,
    ) -> Vec<(String, &'n document::DocumentEntry)> {
        let DocumentValue::Map(entries) = &node.value else {
            let shown = node.describe_value().unwrap_or_else(|| "nothing".to_owned());
            self.record_error(
                Some(node.position),
                key,
                format!("expected a mapping, found {shown}"),
            );
            return Vec::new();
        };
        let mut seen = BTreeSet::new();
        let mut once = Vec::new();
        for entry in entries {
            let full =
                if key.is_empty() { entry.key.to_string() } else { format!("{key}.{}", entry.key) };
            if seen.insert(&entry.key) {
                once.push((full, entry));
            } else {
                self.record_error(Some(entry.key_position), &full, "duplicate key; remove one");
            }
        }
        once
    }

    fn read_executors(&mut self, top: &DocumentNode) -> BTreeMap<String, ExecutorConfig> {
        let mut executors = BTreeMap::new();
        let before = self.errors.len();
        let entries = self.unique_entries(top, "");
        let mut named = false;
        for (key, entry) in entries {
            if &*entry.key != "executors" {
                self.record_error(
                    Some(entry.key_position),
                    &key,
                    "is not a key of a fleet; the only key is `executors`",
                );
                continue;
            }
            named = true;
            for (key, entry) in self.unique_entries(&entry.node, &key) {
                if entry.key.is_empty() {
                    self.record_error(
                        Some(entry.key_position),
                        &key,
                        "must not be empty: it is an environment id",
                    );
                }
                if let Some(executor) = self.read_executor(&entry.node, &key) {
                    executors.insert(entry.key.to_string(), executor);
                }
            }
        }
        if !named && self.errors.len() == before {
            self.record_error(
                Some(top.position),
                "executors",
                "is missing; it maps environment ids to executors",
            );
        }
        executors
    }

    fn read_executor(&mut self, node: &DocumentNode, key: &str) -> Option<ExecutorConfig> {
        let before = self.errors.len();
        let mut endpoint = None;
        let mut timeout = DEFAULT_TIMEOUT;
        let mut credentials = ClientCredentials::default();
        let (mut cert, mut private) = (None, None);
        for (key, entry) in self.unique_entries(node, key) {
            if !EXECUTOR_KEYS.contains(&&*entry.key) {
                let known = EXECUTOR_KEYS.join("`, `");
                let reason = format!("is not a key of an executor; the keys are `{known}`");
                self.record_error(Some(entry.key_position), &key, reason);
                continue;
            }
            let DocumentValue::Text(text) = &entry.node.value else {
                let shown = entry.node.describe_value().unwrap_or_else(|| "nothing".to_owned());
                self.record_error(
                    Some(entry.node.position),
                    &key,
                    format!("expected text, found {shown}"),
                );
                continue;
            };
            match &*entry.key {
                "endpoint" => match text.parse::<DaemonEndpoint>() {
                    Ok(parsed) => endpoint = Some(parsed),
                    Err(error) => {
                        self.record_error(Some(entry.node.position), &key, error.to_string());
                    }
                },
                "timeout" => match parse_timeout(text) {
                    Ok(span) => timeout = span,
                    Err(reason) => self.record_error(Some(entry.node.position), &key, reason),
                },
                "server_name" => credentials.server_name = Some(text.to_string()),
                "ca" => credentials.ca = Some(self.path(text)),
                "cert" => cert = Some(self.path(text)),
                "key" => private = Some(self.path(text)),
                _ => credentials.token_file = Some(self.path(text)),
            }
        }
        if cert.is_some() != private.is_some() {
            self.record_error(
                Some(node.position),
                key,
                "`cert` and `key` go together; one is missing",
            );
        }
        credentials.identity = cert.zip(private);
        if endpoint.is_none() && self.errors.len() == before {
            self.record_error(Some(node.position), key, "`endpoint` is missing");
        }
        endpoint.map(|endpoint| ExecutorConfig { endpoint, credentials, timeout })
    }

    fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }
}

/// Parses a duration of more than zero and at most a day.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let fits = !span.is_zero() && span <= Duration::from_hours(24);
    fits.then_some(span).ok_or_else(|| "expected more than zero and at most a day".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::path::Path;
    use std::time::Duration;

    fn fleet(text: &str) -> Result<Vec<(String, super::ExecutorConfig)>, Vec<String>> {
        let file = Path::new("/etc/fleet.yaml");
        let plain = |m: super::FleetFileError| {
            m.to_string().replace("/etc/fleet.yaml:", "").trim().to_owned()
        };
        parse(file, Ok(text.to_owned()))
            .map(|executors| executors.into_iter().collect())
            .map_err(|errors| errors.0.into_iter().map(plain).collect())
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
            let [(a, tls), (b, tcp)] = fleet.as_slice() else { panic!("two: {fleet:?}") };
            assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
            assert_eq!(tcp.timeout, Duration::from_secs(3));
            assert_eq!(tcp.endpoint.to_string(), "tcp:localhost:5");
            let shown = &tls.credentials;
            assert!(shown.ca.as_ref().is_some_and(|ca| ca.is_absolute() && ca.ends_with("ca.pem")));
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
            ("2:17: executors.a.endpoint: ", "the scheme is missing"),
            ("2:26: executors.a.tiemout: ", "`endpoint`, `timeout`"),
            ("3:6: executors.b: ", "`cert` and `key`"),
            ("3:16: executors.b.timeout: ", "more than zero"),
            ("4:3: executors.a: ", "duplicate key"),
            ("5:6: executors.c: ", "expected a mapping"),
            ("6:17: executors.d.endpoint: ", "expected text"),
            ("7:6: executors.e: ", "`endpoint` is missing"),
            ("8:1: more: ", "`executors`"),
        ];
        assert_eq!(wrong.len(), parts.len(), "{wrong:#?}");
        for (text, (place, reason)) in wrong.iter().zip(parts) {
            assert!(text.starts_with(place) && text.contains(reason), "{text} / {place}{reason}");
        }
    }

    #[test]
    fn files_without_a_fleet_are_rejected() {
        for (text, part) in [
            ("", "expected a mapping, found nothing"),
            ("{}", "`executors`"),
            ("a: [", "YAML"),
            ("executors: &x {}", "anchors"),
        ] {
            let wrong = fleet(text).expect_err(text);
            assert!(
                wrong.len() == 1 && (wrong[0].contains(part) || part == "`executors`"),
                "{wrong:?}"
            );
        }
        let nothing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let wrong = parse(Path::new("/none"), Err(nothing)).expect_err("no file");
        assert!(wrong.to_string().starts_with("/none: cannot be read: "));
    }
}
