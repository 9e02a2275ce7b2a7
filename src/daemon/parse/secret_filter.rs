//! Redacts possible secrets. A part of a text is shown only if it has a harmless form: a placeholder,
//! a variable, `$(…)`, a path, a flag, a number, a word without the shape of a token, a host with a port,
//! or a URL without user and query. A word or number is redacted too if its variable, flag, header or
//! key has the name of a secret.

mod declaration;
mod token_shape;

use super::budget;
use caproot_core::text;
use regex::Regex;
use std::sync::LazyLock;

pub(crate) use declaration::redact_in_declaration;
pub(crate) use token_shape::has_token_shape;

/// Replacement for a redacted part.
const REDACTED_MARKER: &str = "<redacted>";
/// Maximum size of a text. A longer text is redacted as a whole.
const MAX_TEXT_BYTES: usize = 32 << 10;
/// Maximum number of open quotes and brackets.
const MAX_OPEN: usize = 16;
/// Parts of names of secrets, in lower case.
const TELLING_PARTS: [&str; 8] = [
    "pass", "pwd", "secret", "token", "key", "auth", "cred", "pin",
];
/// Names with such a part that no secret has.
const HARMLESS_NAMES: [&str; 4] = ["author", "authors", "keyword", "keywords"];
/// Words before the secret of a header.
const AUTH_SCHEMES: [&str; 4] = ["bearer", "basic", "token", "digest"];
/// Flags before a user and a password.
const USER_FLAGS: [&str; 2] = ["-u", "--user"];

/// `$NAME`, `{{NAME}}` or `${{ NAME }}`, and `${NAME:-default}` or `${NAME#pattern}`. The groups are the
/// names, and then the default.
const PLACEHOLDER: &str = r"\$([0-9A-Za-z_]{1,64})|\$?\{\{ *([0-9A-Za-z_.-]{1,64}) *\}\}|\$\{[!#]?([0-9A-Za-z_.:@-]{1,64}?)(?::?[-=+?#%/^,]+([^{}]{0,200}))?\}";
static PLACEHOLDERS: LazyLock<Regex> = LazyLock::new(|| pattern(PLACEHOLDER));
/// Parts of a command line: URL, word, white space, and the signs that open or close something.
static LINE_PARTS: LazyLock<Regex> =
    LazyLock::new(|| line_parts(r"[0-9A-Za-z_./~@+%\x80-\u{10FFFF}-]"));
/// Parts after the name of a secret. A word is everything up to white space and quotes, so that no sign of
/// the secret is shown.
static COVERED_PARTS: LazyLock<Regex> =
    LazyLock::new(|| line_parts(r#"[^\x00-\x20"'`()<>|&;,$\\]"#));
/// Path, flag, host with port, or no letter and digit at all.
static HARMLESS_FORM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:\.{0,2}|~)/[0-9A-Za-z_./~+@,:\x80-\u{10FFFF}-]*|--?[A-Za-z][0-9A-Za-z-]*|(?:localhost|[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)+):[0-9]{1,5}|[^0-9A-Za-z\x80-\u{10FFFF}]*)$",
    )
});
/// `password@` after a colon.
static PASSWORD_START: LazyLock<Regex> = LazyLock::new(|| pattern(r#"^[^\x00-\x20"'@/]{1,200}@"#));
/// `user:password` after white space.
static USER_START: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^[\x00-\x20"']*[^\x00-\x20:]{0,200}:(?:[^/]|/[^/]|$)"#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

fn line_parts(word: &str) -> Regex {
    pattern(&format!(
        "(?s)(?P<url>[A-Za-z][0-9A-Za-z+.-]{{0,31}}://(?:{PLACEHOLDER}|[^\\x00-\\x20\"'`<>()|;\\\\])*)\
         |(?P<word>(?:{PLACEHOLDER}|{word})+)|[\\x00-\\x20]+|\\\\?[\"'`]|\\$\\(|."
    ))
}

/// Redacts parts of the value of a variable, header or key.
pub fn redact_in_value(name: &str, value: &str) -> String {
    LineFilter::new(is_telling(name)).filter(value)
}

/// Redacts parts of a command line.
pub fn redact_in_line(line: &str) -> String {
    LineFilter::new(false).filter(line)
}

/// Redacts parts of the arguments of a command. An argument may be the value of the flag before.
pub fn redact_in_arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    is_covered: bool,
) -> Vec<Box<str>> {
    let mut filter = LineFilter::new(is_covered);
    let shown = arguments.into_iter().map(|argument| {
        filter.begin_argument(argument);
        filter.filter(argument).into()
    });
    shown.collect()
}

/// Redacts tokens, and URLs with a user, in a text for people.
pub fn redact_in_text(prose: &str) -> String {
    if !budget::charge_work(prose.len()) {
        return REDACTED_MARKER.to_owned();
    }
    let words = prose.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        let mut runs = bare.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let has_token = runs.any(|run| run.len() >= 20 && has_token_shape(run));
        let authority = bare
            .split_once("://")
            .and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        if has_token || authority.is_some_and(|authority| authority.contains('@')) {
            format!("{REDACTED_MARKER}{}", &word[bare.len()..])
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

/// Formats an invalid path for a message. Absolute paths are not disclosed.
pub fn quote_path(path: &str) -> String {
    if path.starts_with(['/', '\\', '~']) || path.get(1..2) == Some(":") {
        return "an absolute path".to_owned();
    }
    text::quote_word(&redact_in_line(path))
}

/// Whether a name is that of a secret.
fn is_telling(name: &str) -> bool {
    let lower = name.trim_start_matches('-').to_ascii_lowercase();
    !HARMLESS_NAMES.contains(&&*lower) && TELLING_PARTS.iter().any(|part| lower.contains(part))
}

/// Text after the name of a secret that the name covers.
#[derive(Clone, Copy, PartialEq)]
enum NameCover {
    Nothing,
    /// The next word. `is_rest` is whether the rest of the quotes or of the argument follows.
    Next {
        is_rest: bool,
    },
    /// The text up to white space.
    Word,
    /// The rest of the quotes or of the argument.
    Rest,
}

/// Kind of the last word, which decides whether a value follows.
#[derive(Clone, Copy, PartialEq)]
enum LastWord {
    Other,
    /// Name of a secret. The value follows after `:` or `=`.
    Name,
    /// Flag with the name of a secret, or before a user. The value may also follow after white space.
    Flag,
}

/// Filter of a command line, one word or sign at a time.
struct LineFilter<'t> {
    /// Cover at the start of each argument.
    base: NameCover,
    cover: NameCover,
    /// Ends of the open quotes and brackets, each with the cover outside.
    open: Vec<(&'t str, NameCover)>,
    last: LastWord,
    is_argument: bool,
    shown: String,
}

impl<'t> LineFilter<'t> {
    fn new(is_covered: bool) -> Self {
        let base = if is_covered {
            NameCover::Rest
        } else {
            NameCover::Nothing
        };
        Self {
            base,
            cover: base,
            open: Vec::new(),
            last: LastWord::Other,
            is_argument: false,
            shown: String::new(),
        }
    }

    /// Ends the last argument. A flag at its end covers the next argument.
    fn begin_argument(&mut self, argument: &str) {
        let is_value = match self.last {
            LastWord::Flag if USER_FLAGS.contains(&&*self.shown) => USER_START.is_match(argument),
            LastWord::Flag => true,
            LastWord::Name | LastWord::Other => matches!(self.cover, NameCover::Next { .. }),
        };
        self.cover = if is_value { NameCover::Rest } else { self.base };
        (self.is_argument, self.last) = (true, LastWord::Other);
        self.open.clear();
    }

    fn filter(&mut self, text: &'t str) -> String {
        self.shown.clear();
        if text.len() > MAX_TEXT_BYTES || !budget::charge_work(text.len()) {
            return REDACTED_MARKER.to_owned();
        }

        let mut at = 0;
        while at < text.len() {
            let parts = match self.cover {
                NameCover::Nothing => &LINE_PARTS,
                _ => &COVERED_PARTS,
            };
            let Some(found) = parts.captures_at(text, at) else {
                break;
            };
            at = found.get_match().end();
            if let Some(url) = found.name("url") {
                self.take_url(url.as_str());
            } else if let Some(word) = found.name("word") {
                self.take_word(word.as_str(), &text[at..]);
            } else {
                self.take_sign(found.get_match().as_str(), &text[at..]);
            }
        }
        self.shown.clone()
    }

    fn show(&mut self, text: &str, is_harmless: bool) {
        self.shown
            .push_str(if is_harmless { text } else { REDACTED_MARKER });
    }

    fn take_word(&mut self, word: &str, rest: &str) {
        self.last = LastWord::Other;
        let is_scheme = AUTH_SCHEMES.contains(&&*word.to_ascii_lowercase());
        if self.cover != NameCover::Nothing {
            let is_shown = (is_scheme && self.cover != NameCover::Word) || is_harmless(word, true);
            self.show(word, is_shown);
            // A sign alone is no value: `apikey := …`. After another name, the value is still to come:
            // `-u --token: …`.
            let name = word.trim_end_matches([':', '=']);
            let is_name = is_telling(name)
                && !name.contains([':', '='])
                && (name.starts_with('-')
                    || name.len() < word.len()
                    || rest.trim_start().starts_with([':', '=']));
            let is_value = !is_scheme && word.contains(char::is_alphanumeric) && !is_name;
            if is_value {
                self.begin_value();
            }
            return;
        }

        self.show(word, is_harmless(word, false));
        let is_user_flag =
            USER_FLAGS.contains(&word) && (rest.is_empty() || USER_START.is_match(rest));
        let is_name = is_telling(word) || (word.starts_with("-u") && rest.starts_with(':'));
        if is_user_flag || (is_name && word.starts_with('-')) {
            self.last = LastWord::Flag;
        } else if is_name && !word.starts_with('$') {
            self.last = LastWord::Name;
        } else if word == "Bearer" {
            self.cover = NameCover::Next { is_rest: false };
        }
    }

    fn take_sign(&mut self, sign: &'t str, rest: &str) {
        self.shown.push_str(sign);
        let after = std::mem::replace(&mut self.last, LastWord::Other);
        match sign {
            ":" | "=" if after != LastWord::Other => {
                let is_rest = sign == ":" && (self.is_argument || !self.open.is_empty());
                self.cover = NameCover::Next { is_rest };
            }
            // `user:password@host`
            ":" if PASSWORD_START.is_match(rest) => self.cover = NameCover::Next { is_rest: false },
            "$(" => {
                self.open(")");
                self.cover = NameCover::Nothing;
            }
            ")" => drop(self.close(")")),
            // `headers["apiKey"] = …`
            "[" | "]" => self.last = after,
            ";" | "|" | "&" if self.cover != NameCover::Rest => self.cover = NameCover::Nothing,
            "`" if !self.close(sign) => {
                self.open(sign);
                self.cover = NameCover::Nothing;
            }
            _ if sign.ends_with(['"', '\'']) => {
                // The name may be in quotes: `"apiKey": "…"`.
                self.last = match after {
                    LastWord::Flag => LastWord::Name,
                    _ => after,
                };
                if !self.close(sign) {
                    self.open(sign);
                    if self.cover != NameCover::Nothing || after != LastWord::Other {
                        self.cover = NameCover::Rest;
                    }
                }
            }
            _ if sign.trim().is_empty() => match (after, self.cover) {
                (LastWord::Flag, _) => self.cover = NameCover::Next { is_rest: false },
                (LastWord::Name, _) => self.last = after,
                (_, NameCover::Word) => self.cover = NameCover::Nothing,
                _ => {}
            },
            _ => {}
        }
    }

    fn open(&mut self, end: &'t str) {
        if self.open.len() < MAX_OPEN {
            self.open.push((end, self.cover));
        }
    }

    /// Closes quotes or a bracket, and all that were opened inside. Returns whether they were open.
    fn close(&mut self, end: &str) -> bool {
        let Some(at) = self.open.iter().rposition(|(open, _)| *open == end) else {
            return false;
        };
        self.cover = match self.open[at].1 {
            NameCover::Next { is_rest: false } => NameCover::Word,
            NameCover::Next { is_rest: true } => NameCover::Nothing,
            outside => outside,
        };
        self.open.truncate(at);
        true
    }

    /// Shows a URL without its user, the values of its query, and the segments that may be tokens.
    fn take_url(&mut self, url: &str) {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let (address, pairs) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));

        self.show(scheme, !has_token_shape(scheme));
        self.shown.push_str("://");
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(user, host)| {
                self.show(user, is_only_placeholders(user));
                self.shown.push('@');
                host
            });
        self.show(host, is_harmless(host, false));
        for segment in path.split_inclusive('/') {
            self.show(segment, is_harmless(segment, false));
        }

        // Only the fragment of a URL may be a word: `#readme`.
        let mut before = '#';
        for pair in pairs.split_inclusive(['?', '&', '#']) {
            let bare = pair.trim_end_matches(['?', '&', '#']);
            let value_at = bare.find('=').map(|at| at + 1);
            let default_at = if before == '#' { bare.len() } else { 0 };
            let (name, value) = bare.split_at(value_at.unwrap_or(default_at));

            self.show(name, is_harmless(name, false));
            let is_number = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
            let is_switch = (is_number || ["true", "false"].contains(&value)) && !is_telling(name);
            self.show(value, is_switch || is_only_placeholders(value));
            self.shown.push_str(&pair[bare.len()..]);
            before = pair.chars().next_back().unwrap_or(before);
        }

        self.begin_value();
    }

    /// Ends the wait for the value of a name.
    fn begin_value(&mut self) {
        match self.cover {
            NameCover::Next { is_rest: true } => self.cover = NameCover::Rest,
            NameCover::Next { is_rest: false } => self.cover = NameCover::Word,
            _ => {}
        }
    }
}

/// Whether a word is harmless. `is_covered` is whether its name is that of a secret.
fn is_harmless(word: &str, is_covered: bool) -> bool {
    let bare = without_placeholders(word, is_covered);
    bare.is_some_and(|bare| {
        !has_token_shape(&bare) && (!is_covered || HARMLESS_FORM.is_match(&bare))
    })
}

fn is_only_placeholders(text: &str) -> bool {
    without_placeholders(text, true).is_some_and(|bare| !bare.contains(char::is_alphanumeric))
}

/// Returns the text without its placeholders; `None` if a placeholder has a default that is not harmless.
fn without_placeholders(text: &str, is_covered: bool) -> Option<String> {
    let mut bare = String::with_capacity(text.len());
    let mut end = 0;
    for found in PLACEHOLDERS.captures_iter(text) {
        let group = |at| found.get(at).map(|group| group.as_str());
        let name = (1..=3).find_map(group).unwrap_or_default();
        let default = group(4).unwrap_or_default();
        let is_covered = is_covered || is_telling(name);
        if has_token_shape(name) || !is_harmless(default, is_covered) {
            return None;
        }
        bare.push_str(&text[end..found.get_match().start()]);
        end = found.get_match().end();
    }
    bare.push_str(&text[end..]);
    Some(bare)
}

#[cfg(test)]
mod tests;
