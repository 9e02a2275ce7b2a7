//! Redacts possible secrets in declarations. Text is redacted unless it is known to be harmless.
//!
//! - The value of an environment variable or header is reported only if it is a placeholder, a
//!   switch or a small number, or a plain value of one of a few known names.
//! - A word of a command is redacted if the preceding flag, variable or header has the name of a
//!   secret, or if the word looks random or like a token.
//! - A value over 4 KiB and a command line over 32 KiB are redacted without a search.
//! - User information, query and fragment of a URL are redacted unless they are placeholders.

mod command_line;
mod declaration;

use super::budget;
use aho_corasick::AhoCorasick;
use caproot_core::text;
use std::borrow::Cow;
use std::sync::LazyLock;

pub(crate) use command_line::{redact_in_arguments, redact_in_command, redact_in_url};
pub(crate) use declaration::redact_in_declaration;

/// Replacement for redacted text.
const REDACTED_MARKER: &str = "<redacted>";

/// Maximum size of the value of a variable or header. A longer value is redacted without a search.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// Maximum size of a command line, argument or URL: 8,192 characters of a command. A longer text is
/// redacted without a search.
const MAX_LINE_BYTES: usize = 32 << 10;
/// Maximum size of a placeholder: the longest name, and a path as default value.
const MAX_PLACEHOLDER_BYTES: usize = 256;
/// Maximum number of bytes after the prefix of a token that are examined.
const MAX_TOKEN_BYTES: usize = 256;
/// Parts of names of secrets, compared without separators.
const SECRET_NAME_PARTS: [&str; 21] = [
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "bearer",
    "cookie",
    "session",
    "signature",
    "private",
    "authorization",
    "authentication",
    "oauth",
    "webhook",
    "connectionstring",
    "databaseurl",
    "jwt",
];
/// Whole words of names of secrets.
const SECRET_NAME_WORDS: [&str; 9] = [
    "key", "keys", "pat", "pass", "pw", "auth", "dsn", "sas", "pin",
];
/// End of the first line of a private key in PEM.
const PRIVATE_KEY_MARKER: &str = "PRIVATE KEY-----";
/// Prefixes of tokens of well-known services, and [`PRIVATE_KEY_MARKER`].
const TOKEN_MARKERS: [&str; 28] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "pk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "whsec_",
    "tvly-",
    PRIVATE_KEY_MARKER,
];
/// Names of variables and headers with values that are not secret.
const PLAIN_VALUE_NAMES: [&str; 18] = [
    "node_env",
    "log_level",
    "rust_log",
    "debug",
    "verbose",
    "lang",
    "lc_all",
    "tz",
    "port",
    "host",
    "environment",
    "region",
    "accept",
    "accept-language",
    "content-type",
    "user-agent",
    "mcp-protocol-version",
    "pythonunbuffered",
];
/// Authentication schemes, which precede the secret in a header.
const AUTH_SCHEMES: [&str; 4] = ["bearer", "basic", "token", "digest"];

/// Returns the value of an environment variable or header if the value is harmless.
pub fn reportable_value(name: &str, value: &str) -> Option<Box<str>> {
    if !is_searchable(value, MAX_VALUE_BYTES) {
        return None;
    }
    let text = value.trim();
    let plain_name = PLAIN_VALUE_NAMES.contains(&&*name.to_ascii_lowercase());
    let harmless = is_placeholder_text(text)
        || (!is_secret_name(name) && is_switch_or_number(text))
        || (plain_name && is_plain_value(text));
    harmless.then(|| value.into())
}

/// Whether a redacted value is likely a secret, in contrast to an unknown value.
pub fn is_likely_secret(name: &str, value: &str) -> bool {
    if value.trim().is_empty() {
        return false;
    }
    !is_searchable(value, MAX_VALUE_BYTES) || is_secret_name(name) || looks_random(value)
}

/// Whether a text may be searched for secrets: it is not over `max_bytes`, and its file has not used
/// up its budget. Any other text is redacted as a whole.
fn is_searchable(text: &str, max_bytes: usize) -> bool {
    text.len() <= max_bytes && budget::charge_work(text.len())
}

/// Redacts tokens and the user information of URLs in free text.
pub fn redact_in_text(text: &str) -> String {
    if !budget::charge_work(text.len()) {
        return REDACTED_MARKER.to_owned();
    }

    if !has_token(text) && !text.contains("://") {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(char::is_whitespace) {
        let bare = part.trim_end_matches(char::is_whitespace);
        out.push_str(&redact_word(bare));
        out.push_str(&part[bare.len()..]);
    }
    out
}

/// Redacts a token, and the user information of a URL.
fn redact_word(word: &str) -> String {
    if has_token(word) {
        return REDACTED_MARKER.to_owned();
    }
    let has_user = word.split_once("://").is_some_and(|(_, rest)| {
        let host = rest.split(['/', '?', '#']).next();
        host.is_some_and(|host| host.contains('@'))
    });
    if has_user {
        redact_in_url(word).0
    } else {
        word.to_owned()
    }
}

/// Formats an invalid path for a message. Absolute paths are not disclosed.
pub fn redact_in_path(path: &str) -> String {
    if path.starts_with(['/', '\\', '~']) || path.get(1..2) == Some(":") {
        return "an absolute path".to_owned();
    }
    text::quote_word(&redact_in_command(path).0)
}

/// Whether a line of a file may contain a secret, so that messages must not quote the line.
#[must_use]
pub fn may_hold_secret(line: &str) -> bool {
    let (_, redacted) = redact_in_command(line);
    redacted || is_secret_name(line) || looks_random(line)
}

/// Whether a flag, variable or header with this name is likely to contain a secret.
fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let joined: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    SECRET_NAME_PARTS.iter().any(|part| joined.contains(part))
        || words.any(|word| SECRET_NAME_WORDS.contains(&word))
        // Camel case, such as `apiKey`.
        || name.ends_with("Key")
        || name.ends_with("Auth")
}

/// Whether a text consists of placeholders, with at most authentication schemes and separators
/// between them.
fn is_placeholder_text(text: &str) -> bool {
    let rest = replace_placeholders(text);
    let has_placeholder = matches!(rest, Cow::Owned(_));
    (has_placeholder || text.is_empty())
        && rest.split_whitespace().all(|word| {
            AUTH_SCHEMES.contains(&&*word.to_ascii_lowercase())
                || word.chars().all(|c| ":/-_.".contains(c))
        })
}

/// Whether a text is a switch, such as `true` or `off`, or a number of at most 5 digits.
fn is_switch_or_number(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "on", "off", "yes", "no", "auto", "none"];
    let is_number = text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    is_number || WORDS.contains(&&*text.to_ascii_lowercase())
}

/// Whether a text is short ASCII that does not look random.
fn is_plain_value(text: &str) -> bool {
    text.len() <= 128 && text.is_ascii() && !looks_random(text) && !text.contains('@')
}

/// Whether a text is a path that does not look random. The path of a key file is not a secret.
fn is_plain_path(text: &str) -> bool {
    let starts = ["./", "../", "/", "~/"]
        .iter()
        .any(|start| text.starts_with(start));
    starts && !looks_random(text)
}

/// Whether a value may be reported even if its name is the name of a secret.
fn is_harmless_value(text: &str) -> bool {
    const SWITCHES: [&str; 2] = ["true", "false"];
    is_placeholder_text(text) || SWITCHES.contains(&text) || is_plain_path(text)
}

/// Whether part of a text is a token or looks generated: letters mixed with digits, or a long run
/// of either.
fn looks_random(text: &str) -> bool {
    let mut pieces = text.split(|c: char| !c.is_ascii_alphanumeric());
    has_token(text)
        || pieces.any(|piece| {
            let digits = piece.bytes().filter(u8::is_ascii_digit).count();
            let letters = piece.len() - digits;
            (letters > 0 && digits >= 3 && piece.len() >= 8) || digits >= 12 || piece.len() >= 40
        })
}

/// Whether a text contains a token of a well-known service or a PEM private key.
pub fn has_token(text: &str) -> bool {
    // One pass finds all markers.
    static MARKERS: LazyLock<AhoCorasick> =
        LazyLock::new(|| AhoCorasick::new(TOKEN_MARKERS).expect("short markers"));
    MARKERS
        .find_overlapping_iter(text)
        .any(|found| is_token_at(text, found.start(), TOKEN_MARKERS[found.pattern()]))
}

/// Whether a token begins with the marker at `at`.
fn is_token_at(text: &str, at: usize, marker: &str) -> bool {
    if marker == PRIVATE_KEY_MARKER {
        return true;
    }

    // A text may be full of prefixes, so the time for each of them is bounded.
    let rest = text[at + marker.len()..].bytes().take(MAX_TOKEN_BYTES);
    let run = rest
        .clone()
        .take_while(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b));
    let (len, digits) = run.fold((0, 0), |(len, digits), b| {
        (len + 1, digits + u32::from(b.is_ascii_digit()))
    });
    let before = text[..at].bytes().next_back();
    let whole_word = before.is_none_or(|b| !b.is_ascii_alphanumeric());

    // After other letters, the prefix may be part of a word unless a generated run follows.
    let piece = rest.take_while(u8::is_ascii_alphanumeric).count();
    (whole_word && len >= 12 && (digits > 0 || len >= 16)) || (piece >= 20 && digits >= 3)
}

/// Replaces each placeholder by a space: `$NAME`, `${NAME}` or `{{NAME}}`. Borrows a text without
/// placeholders. Ignores a placeholder with a default value that is not harmless.
fn replace_placeholders(text: &str) -> Cow<'_, str> {
    let mut replaced = String::new();
    // Offset of the text that is not in `replaced` yet.
    let mut done = 0;

    for (at, _) in text.match_indices(['$', '{']) {
        if at < done {
            continue;
        }
        if let Some(len) = placeholder_len(&text[at..]) {
            replaced.push_str(&text[done..at]);
            replaced.push(' ');
            done = at + len;
        }
    }

    if done == 0 {
        return Cow::Borrowed(text);
    }

    replaced.push_str(&text[done..]);
    Cow::Owned(replaced)
}

/// Returns the length of the placeholder at the start of a text.
fn placeholder_len(text: &str) -> Option<usize> {
    // A text may be full of openings, so the search for each end is bounded.
    let text = &text[..text.floor_char_boundary(MAX_PLACEHOLDER_BYTES)];

    if let Some(rest) = text.strip_prefix("${") {
        let end = rest.find('}')?;
        let (name, default) = rest[..end].split_once(":-").unwrap_or((&rest[..end], ""));
        let harmless = default.is_empty() || is_switch_or_number(default) || is_plain_path(default);
        return (is_variable_name(name) && harmless).then_some(end + 3);
    }

    if let Some(rest) = text.strip_prefix("{{") {
        let end = rest.find("}}")?;
        return is_variable_name(rest[..end].trim()).then_some(end + 4);
    }

    let rest = text.strip_prefix('$')?;
    let len = rest
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
        .count();
    is_variable_name(&rest[..len]).then_some(len + 1)
}

/// Whether a text is the name of a variable: at most 64 characters, and not generated.
fn is_variable_name(name: &str) -> bool {
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
    first && rest && name.len() <= 64 && !looks_random(name)
}

#[cfg(test)]
mod tests;
