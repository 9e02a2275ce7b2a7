//! Redacts possible secrets in commands, arguments and URLs.

use super::{
    AUTH_SCHEMES, MAX_LINE_BYTES, REDACTED_MARKER, has_token, is_harmless_value,
    is_placeholder_text, is_searchable, is_secret_name, is_switch_or_number, looks_random,
    replace_placeholders, reportable_value,
};

/// Maximum depth of nested quotes. Deeper quotes are redacted.
const MAX_QUOTE_DEPTH: usize = 4;

/// Redacts the arguments of a command. Returns whether anything was redacted.
pub fn redact_in_arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
) -> (Box<[Box<str>]>, bool) {
    let mut hider = SecretFilter::default();
    let shown = arguments
        .into_iter()
        .map(|text| {
            hider
                .filter_if_searchable(text, SecretFilter::filter_argument)
                .into()
        })
        .collect();
    (shown, hider.redacted)
}

/// Redacts a command line. Returns whether anything was redacted.
pub fn redact_in_command(text: &str) -> (String, bool) {
    let mut hider = SecretFilter::default();
    let shown = hider.filter_if_searchable(text, SecretFilter::filter_line);
    (shown, hider.redacted)
}

/// Redacts a URL. Returns whether anything was redacted.
pub fn redact_in_url(text: &str) -> (String, bool) {
    let mut hider = SecretFilter::default();
    let shown = hider.filter_if_searchable(text, SecretFilter::filter_url);
    (shown, hider.redacted)
}

/// State of the redaction of one command line, word by word.
#[derive(Default)]
struct SecretFilter {
    /// Whether the next word is the value of a secret, because of the preceding flag or header.
    next_is_secret: bool,
    /// Whether the next word may be `user:password`, because of a preceding `-u` or `--user`.
    next_is_credentials: bool,
    redacted: bool,
    quote_depth: usize,
}

impl SecretFilter {
    fn redact(&mut self) -> String {
        self.redacted = true;
        REDACTED_MARKER.to_owned()
    }

    /// Redacts secrets in a text, or the whole text if it is too long to be searched.
    fn filter_if_searchable(
        &mut self,
        text: &str,
        filter: fn(&mut Self, &str) -> String,
    ) -> String {
        if is_searchable(text, MAX_LINE_BYTES) {
            filter(self, text)
        } else {
            self.redact()
        }
    }

    /// Redacts one argument as the program receives it. Unlike a word, an argument may have spaces.
    fn filter_argument(&mut self, text: &str) -> String {
        let is_flag = text.starts_with('-');
        if self.next_is_secret && !is_flag && text.contains(char::is_whitespace) {
            self.next_is_secret = false;
            return if is_harmless_value(text) {
                text.to_owned()
            } else {
                self.redact()
            };
        }
        self.filter_line(text)
    }

    /// Redacts each word of a line. White space in quotes does not end a word.
    fn filter_line(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let space = rest.len() - rest.trim_start().len();
            out.push_str(&rest[..space]);
            rest = &rest[space..];
            let end = word_end(rest);
            if end > 0 {
                out.push_str(&self.filter_word(&rest[..end]));
            }
            rest = &rest[end..];
        }
        out
    }

    fn filter_word(&mut self, word: &str) -> String {
        let bare = word.trim_matches(['"', '\'', ',', ';', '(', ')']);
        let lower = bare.to_ascii_lowercase();

        if std::mem::take(&mut self.next_is_credentials)
            && bare.contains(':')
            && !is_placeholder_text(bare)
        {
            // The word may also be a header name, whose value is the next word.
            self.next_is_secret = bare.ends_with(':');
            return self.redact();
        }

        let is_flag = bare.starts_with('-') && bare.len() > 1;
        if std::mem::take(&mut self.next_is_secret) && !is_flag {
            if AUTH_SCHEMES.contains(&&*lower) {
                self.next_is_secret = true;
                return word.to_owned();
            }
            // As above, the word may be a header name.
            self.next_is_secret = bare.ends_with(':');
            return if is_harmless_value(bare) {
                word.to_owned()
            } else {
                self.redact()
            };
        }

        if bare.is_empty() || is_placeholder_text(bare) {
            return word.to_owned();
        }

        if bare.len() < word.len() {
            // Keep the quotes and separators around the word.
            let at = word.find(bare).unwrap_or_default();
            let shown = self.filter_quoted(bare);
            return format!("{}{shown}{}", &word[..at], &word[at + bare.len()..]);
        }

        self.filter_bare_word(bare)
    }

    /// Redacts the content of quotes.
    fn filter_quoted(&mut self, text: &str) -> String {
        if !text.contains(char::is_whitespace) {
            return self.filter_bare_word(text);
        }
        if self.quote_depth == MAX_QUOTE_DEPTH {
            return self.redact();
        }
        self.quote_depth += 1;
        let shown = self.filter_line(text);
        self.quote_depth -= 1;
        shown
    }

    /// Redacts a word without quotes around it. The word may have quotes in it.
    fn filter_bare_word(&mut self, word: &str) -> String {
        if has_token(word) {
            return self.redact();
        }

        let separator = word.find(['=', ':']);
        if let Some(at) = separator {
            let rest = &word[at + 1..];
            if !rest.starts_with("//") {
                return self.filter_pair(word, &word[..at], rest);
            }
        }

        if word.contains("://") {
            return self.filter_url(word);
        }
        if word.contains(char::is_whitespace) {
            return self.filter_quoted(word);
        }

        if word.starts_with('-') {
            self.next_is_secret = is_secret_name(word);
            self.next_is_credentials = ["-u", "--user"].contains(&word);
        }

        if looks_random(&replace_placeholders(word)) {
            self.redact()
        } else {
            word.to_owned()
        }
    }

    /// Redacts `NAME=VALUE`, `--flag=value`, `Header:value` or `user:password@host`.
    fn filter_pair(&mut self, word: &str, name: &str, rest: &str) -> String {
        let separator = &word[name.len()..=name.len()];
        if separator == ":" && rest.contains('@') && !rest.contains("://") {
            return self.redact();
        }

        let bare = rest.trim_matches(['"', '\'']);
        if is_secret_name(name) {
            if bare.is_empty() {
                // The next word is the value.
                self.next_is_secret = true;
                return word.to_owned();
            }
            if is_harmless_value(bare) || AUTH_SCHEMES.contains(&&*bare.to_ascii_lowercase()) {
                self.next_is_secret = !is_harmless_value(bare);
                return word.to_owned();
            }
            return format!("{}{separator}{}", name, self.redact());
        }

        let is_variable = separator == "="
            && !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if is_variable {
            let shown = reportable_value(name, bare).is_some();
            let rest = if shown {
                rest.to_owned()
            } else {
                self.redact()
            };
            return format!("{name}={rest}");
        }

        let name_shown = if looks_random(&replace_placeholders(name)) {
            self.redact()
        } else {
            name.to_owned()
        };

        // The recursion ends because each step removes a name.
        format!("{name_shown}{separator}{}", self.filter_pair_value(rest))
    }

    /// Redacts the text after a separator. The text may have more pairs.
    fn filter_pair_value(&mut self, rest: &str) -> String {
        if self.quote_depth == MAX_QUOTE_DEPTH {
            return if is_placeholder_text(rest) || is_switch_or_number(rest) {
                rest.to_owned()
            } else {
                self.redact()
            };
        }
        self.quote_depth += 1;
        let shown = self.filter_line(rest);
        self.quote_depth -= 1;
        shown
    }

    fn filter_url(&mut self, text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else {
            return self.filter_line(text);
        };
        let scheme = if looks_random(scheme) {
            self.redact()
        } else {
            scheme.to_owned()
        };

        let (rest, fragment) = split_at_char(rest, '#');
        let (rest, query) = split_at_char(rest, '?');
        let (authority, path) = split_at_char(rest, '/');

        let mut out = format!("{scheme}://");
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = if is_placeholder_text(user) {
                    user.to_owned()
                } else {
                    self.redact()
                };
                out.push_str(&user);
                out.push('@');
                host
            }
            None => authority,
        };

        out.push_str(&self.filter_url_segment(host));

        if let Some(path) = path {
            for segment in path.split('/') {
                out.push('/');
                out.push_str(&self.filter_url_segment(segment));
            }
        }

        if let Some(query) = query {
            let mut before = '?';
            for pair in query.split('&') {
                out.push(before);
                before = '&';
                out.push_str(&self.filter_query_pair(pair));
            }
        }

        if let Some(fragment) = fragment {
            out.push('#');
            let shown = if is_placeholder_text(fragment) {
                fragment.to_owned()
            } else {
                self.redact()
            };
            out.push_str(&shown);
        }

        out
    }

    fn filter_query_pair(&mut self, pair: &str) -> String {
        let Some((name, value)) = pair.split_once('=') else {
            return self.filter_url_segment(pair);
        };
        let harmless =
            is_placeholder_text(value) || (!is_secret_name(name) && is_switch_or_number(value));
        let value = if harmless {
            value.to_owned()
        } else {
            self.redact()
        };
        format!("{}={value}", self.filter_url_segment(name))
    }

    /// Redacts a host, a path segment or the name of a query parameter.
    fn filter_url_segment(&mut self, piece: &str) -> String {
        if looks_random(&replace_placeholders(piece)) {
            return self.redact();
        }
        piece.to_owned()
    }
}

fn split_at_char(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Returns the end of the first word: the first white space outside of quotes.
fn word_end(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() => return at,
            Some(_) | None => {}
        }
    }
    text.len()
}
