//! File of the keys that may sign a lock: the format of `allowed_signers` in ssh-keygen(1).

use super::LockError;
use super::signature::{SIGNATURE_NAMESPACE, SignatureError, SignerKey};
use crate::bounded_file;
use crate::document::{ConfigError, FileResult as _, TextPosition};
use crate::text::quote_value;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

/// Maximum size of the file in bytes.
pub(super) const MAX_SIGNERS_BYTES: u64 = 1 << 20;
/// Maximum number of keys.
const MAX_SIGNERS: usize = 1_000;
/// Reason for a line in another form.
const EXPECTED_FORM: &str = "expected `PRINCIPALS [OPTIONS] KEY-TYPE KEY`";

/// Keys that may sign a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedSigners(Vec<AllowedSigner>);

/// Line of the file that is about the namespace of locks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedSigner {
    /// Line from 1.
    line: u32,
    principals: Box<str>,
    key: SignerKey,
    valid_after: Option<SystemTime>,
    valid_before: Option<SystemTime>,
}

/// Options of a line.
#[derive(Default)]
struct SignerOptions {
    /// Whether the line is about other namespaces only.
    is_other_namespace: bool,
    valid_after: Option<SystemTime>,
    valid_before: Option<SystemTime>,
}

impl AllowedSigners {
    /// Parses the text of the file. Lines of other namespaces are skipped.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let mut signers = Vec::new();
        for (line, line_number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let start = TextPosition {
                line: line_number,
                column: 1,
            };
            let signer = AllowedSigner::parse(line, line_number)
                .map_err(|reason| LockError::at(start, reason))?;
            signers.extend(signer);
            if signers.len() > MAX_SIGNERS {
                let reason = format!("over {MAX_SIGNERS} keys, the limit of allowed signers");
                return Err(LockError::at(start, reason));
            }
        }
        Ok(Self(signers))
    }

    /// Parses the content of a file. A file without a key for locks is an error.
    pub(super) fn parse_file(path: &Path, bytes: Vec<u8>) -> Result<Self, ConfigError> {
        let text = bounded_file::decode_text(bytes).in_file(path)?;
        let signers = Self::parse(&text).in_file(path)?;

        if signers.0.is_empty() {
            let reason = format!("has no key for the namespace {SIGNATURE_NAMESPACE}");
            return Err(ConfigError::file(path, reason));
        }
        Ok(signers)
    }

    /// Returns the principals of a key that is valid at a time.
    pub(super) fn find_signer(
        &self,
        key: &SignerKey,
        now: SystemTime,
    ) -> Result<&str, SignatureError> {
        let mut expired = None;

        // A key may have several lines, of which one is valid now.
        for signer in self.0.iter().filter(|signer| signer.key == *key) {
            let has_begun = signer.valid_after.is_none_or(|start| start <= now);
            let has_ended = signer.valid_before.is_some_and(|end| end < now);
            if has_begun && !has_ended {
                return Ok(&signer.principals);
            }
            expired = expired.or(Some(signer.line));
        }

        Err(match expired {
            Some(line) => SignatureError::NotValidNow { line },
            None => SignatureError::UnknownKey {
                fingerprint: key.fingerprint(),
            },
        })
    }
}

impl AllowedSigner {
    /// Parses a line that is no comment. Returns `None` for a line of other namespaces.
    fn parse(text: &str, line: u32) -> Result<Option<Self>, String> {
        let words = split_words(text).ok_or("a quote is not closed")?;
        let [principals, rest @ ..] = &words[..] else {
            return Err(EXPECTED_FORM.to_owned());
        };
        let (options, rest) = match rest {
            [first, rest @ ..] if !is_key_type(first) => (Some(first), rest),
            rest => (None, rest),
        };
        let [key_type, key, ..] = rest else {
            return Err(EXPECTED_FORM.to_owned());
        };

        let options = match options {
            Some(text) => SignerOptions::parse(text)?,
            None => SignerOptions::default(),
        };

        // The key is not parsed: keys of other namespaces may have types without support.
        if options.is_other_namespace {
            return Ok(None);
        }
        let key =
            SignerKey::parse_text(key_type, key).map_err(|error| format!("the line {error}"))?;
        Ok(Some(Self {
            line,
            principals: principals.replace('"', "").into(),
            key,
            valid_after: options.valid_after,
            valid_before: options.valid_before,
        }))
    }
}

impl SignerOptions {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let mut names = Vec::new();
        for option in split_options(text) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim_matches('"');
            let name = name.to_ascii_lowercase();
            // ssh-keygen rejects such a line, and the last option would widen the first one.
            if names.contains(&name) {
                return Err(format!("the option {} is given twice", quote_value(&name)));
            }
            names.push(name.clone());

            match name.as_str() {
                "namespaces" => options.is_other_namespace = !includes_locks(value)?,
                "valid-after" => options.valid_after = Some(parse_time(value)?),
                "valid-before" => options.valid_before = Some(parse_time(value)?),
                "cert-authority" => {
                    let reason = "cert-authority is not supported; list the keys of the signers";
                    return Err(reason.to_owned());
                }
                _ => {
                    return Err(format!(
                        "unknown option {}; the options are namespaces, valid-after, valid-before",
                        quote_value(&name)
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Whether a list of namespaces has the namespace of locks.
fn includes_locks(namespaces: &str) -> Result<bool, String> {
    if namespaces.contains(['*', '?', '!']) {
        return Err(format!(
            "patterns in namespaces are not supported; write namespaces=\"{SIGNATURE_NAMESPACE}\""
        ));
    }
    Ok(namespaces
        .split(',')
        .any(|name| name == SIGNATURE_NAMESPACE))
}

/// Parses `YYYYMMDD[HHMM[SS]][Z]`. Without `Z`, the time is of the time zone of this machine.
fn parse_time(text: &str) -> Result<SystemTime, String> {
    let digits = text.strip_suffix(['Z', 'z']);
    let zone = if digits.is_some() {
        TimeZone::UTC
    } else {
        TimeZone::system()
    };

    let digits = digits.unwrap_or(text);
    let is_complete =
        matches!(digits.len(), 8 | 12 | 14) && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_complete {
        return Err(invalid_time(text, "it has another form"));
    }
    let padded = format!("{digits:0<14}");
    let time = DateTime::strptime("%Y%m%d%H%M%S", &padded);
    let zoned = time
        .and_then(|time| time.to_zoned(zone))
        .map_err(|error| invalid_time(text, error))?;
    Ok(zoned.timestamp().into())
}

fn invalid_time(text: &str, cause: impl Display) -> String {
    let text = quote_value(text);
    format!("the time {text} is not valid: {cause}; write YYYYMMDDHHMMSSZ")
}

fn is_key_type(word: &str) -> bool {
    ["ssh-", "sk-ssh-", "ecdsa-", "sk-ecdsa-"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
}

/// Splits a line at blanks outside quotes. Returns `None` if a quote is not closed.
fn split_words(line: &str) -> Option<Vec<&str>> {
    let mut is_quoted = false;
    let words = line.split(|c: char| {
        is_quoted ^= c == '"';
        !is_quoted && matches!(c, ' ' | '\t')
    });
    let words = words.filter(|word| !word.is_empty()).collect();
    (!is_quoted).then_some(words)
}

/// Splits options at commas outside quotes.
fn split_options(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c: char| {
        is_quoted ^= c == '"';
        !is_quoted && c == ','
    })
}
