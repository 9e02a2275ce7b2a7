//! File of the keys that may sign a lock: the format of `allowed_signers` in ssh-keygen(1).

use super::signature::{SIGNATURE_NAMESPACE, SignerKey};
use crate::bounded_file;
use crate::document::{ConfigError, FileResult as _, TextPosition};
use crate::text::quote_value;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::HashSet;
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
    options: SignerOptions,
}

/// Options of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SignerOptions {
    valid_after: Option<SystemTime>,
    valid_before: Option<SystemTime>,
}

impl AllowedSigners {
    /// Parses the text of the file. Lines of other namespaces are skipped.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
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
                .map_err(|reason| ConfigError::at(start, reason))?;
            signers.extend(signer);
            if signers.len() > MAX_SIGNERS {
                let reason = format!("over {MAX_SIGNERS} keys, the limit of allowed signers");
                return Err(ConfigError::at(start, reason));
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
    pub(super) fn find_signer(&self, key: &SignerKey, now: SystemTime) -> Result<&str, String> {
        let mut expired = None;

        // A key may have several lines, of which one is valid now.
        for signer in self.0.iter().filter(|signer| signer.key == *key) {
            let SignerOptions {
                valid_after,
                valid_before,
            } = signer.options;
            if valid_after.is_none_or(|start| start <= now)
                && valid_before.is_none_or(|end| end >= now)
            {
                return Ok(&signer.principals);
            }
            expired.get_or_insert(signer.line);
        }

        Err(match expired {
            Some(line) => format!(
                "is of a key that is not valid now; see valid-after and valid-before in line {line} \
                 of the allowed signers"
            ),
            None => format!(
                "is of the key {}, which the allowed signers do not have in the namespace \
                 {SIGNATURE_NAMESPACE}",
                key.fingerprint()
            ),
        })
    }
}

impl AllowedSigner {
    /// Parses a line that is no comment. Returns `None` for a line of other namespaces.
    fn parse(text: &str, line: u32) -> Result<Option<Self>, String> {
        let words = split_words(text).ok_or("a quote is not closed")?;
        let (principals, options, key_type, key) = match &words[..] {
            [principals, key_type, key, ..] if is_key_type(key_type) => {
                (principals, None, key_type, key)
            }
            [principals, options, key_type, key, ..] if !is_key_type(options) => {
                (principals, Some(options), key_type, key)
            }
            _ => return Err(EXPECTED_FORM.to_owned()),
        };
        let options = match options {
            Some(text) => SignerOptions::parse(text)?,
            None => Some(SignerOptions::default()),
        };

        // The key is not parsed: keys of other namespaces may have types without support.
        let Some(options) = options else {
            return Ok(None);
        };
        let key =
            SignerKey::parse_text(key_type, key).map_err(|error| format!("the line {error}"))?;
        Ok(Some(Self {
            line,
            principals: principals.replace('"', "").into(),
            key,
            options,
        }))
    }
}

impl SignerOptions {
    /// Parses options. Returns `None` for a line of other namespaces.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        let mut is_of_locks = true;
        let mut names = HashSet::new();
        let mut is_quoted = false;
        // Commas within quotes separate nothing.
        for option in text.split(|c: char| {
            is_quoted ^= c == '"';
            !is_quoted && c == ','
        }) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim_matches('"');
            let name = name.to_ascii_lowercase();
            // ssh-keygen rejects such a line, and the last option would widen the first one.
            if !names.insert(name.clone()) {
                return Err(format!("the option {} is given twice", quote_value(&name)));
            }

            match name.as_str() {
                "namespaces" => is_of_locks = includes_locks(value)?,
                "valid-after" => options.valid_after = Some(parse_time(value)?),
                "valid-before" => options.valid_before = Some(parse_time(value)?),
                "cert-authority" => {
                    return Err(
                        "cert-authority is not supported; list the keys of the signers".into(),
                    );
                }
                _ => {
                    return Err(format!(
                        "unknown option {}; the options are namespaces, valid-after, valid-before",
                        quote_value(&name)
                    ));
                }
            }
        }
        Ok(is_of_locks.then_some(options))
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
    let zoned = if is_complete {
        DateTime::strptime("%Y%m%d%H%M%S", format!("{digits:0<14}"))
            .and_then(|time| time.to_zoned(zone))
            .map_err(|error| error.to_string())
    } else {
        Err("it has another form".to_owned())
    };
    let zoned = zoned.map_err(|cause| {
        let text = quote_value(text);
        format!("the time {text} is not valid: {cause}; write YYYYMMDDHHMMSSZ")
    })?;
    Ok(zoned.timestamp().into())
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
