//! Commands, their arguments and addresses, with what may be secret taken out. Leaves what may be
//! secret to its parent.

use super::{
    SCHEMES, WITHHELD, find_placeholder, has_token, is_harmless, is_reference, is_secret_name,
    is_switch, looks_random, value,
};

/// Quotes within quotes that are looked into; what is deeper is withheld.
const MAX_DEPTH: usize = 4;

/// A command's arguments, and whether anything of them is withheld.
pub(in crate::domain::plugin) fn arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
) -> (Box<[Box<str>]>, bool) {
    let mut hider = Hider::default();
    let shown = arguments.into_iter().map(|text| hider.argument(text).into()).collect();
    (shown, hider.withheld)
}

/// A command line, and whether anything of it is withheld.
pub(in crate::domain::plugin) fn command(text: &str) -> (String, bool) {
    let mut hider = Hider::default();
    let shown = hider.line(text);
    (shown, hider.withheld)
}

/// An address, and whether anything of it is withheld.
pub(in crate::domain::plugin) fn url(text: &str) -> (String, bool) {
    let mut hider = Hider::default();
    let shown = hider.url(text);
    (shown, hider.withheld)
}

/// Goes from word to word.
#[derive(Default)]
struct Hider {
    /// The word before says that the next one is a secret.
    pending: bool,
    /// The word before says that the next one may be a user and a password.
    user: bool,
    withheld: bool,
    depth: usize,
}

impl Hider {
    fn withhold(&mut self) -> String {
        self.withheld = true;
        WITHHELD.to_owned()
    }

    /// One argument as the program gets it, white space and all.
    fn argument(&mut self, text: &str) -> String {
        let is_flag = text.starts_with('-');
        if self.pending && !is_flag && text.contains(char::is_whitespace) {
            self.pending = false;
            return if is_harmless(text) { text.to_owned() } else { self.withhold() };
        }
        self.line(text)
    }

    /// Words between white space, quotes kept together.
    fn line(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let space = rest.len() - rest.trim_start().len();
            out.push_str(&rest[..space]);
            rest = &rest[space..];
            let end = word_end(rest);
            if end > 0 {
                out.push_str(&self.word(&rest[..end]));
            }
            rest = &rest[end..];
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        let bare = word.trim_matches(['"', '\'', ',', ';', '(', ')']);
        let lower = bare.to_ascii_lowercase();
        if std::mem::take(&mut self.user) && bare.contains(':') && !is_reference(bare) {
            // It may as well be a name, whose value is the next word.
            self.pending = bare.ends_with(':');
            return self.withhold();
        }
        let is_flag = bare.starts_with('-') && bare.len() > 1;
        if std::mem::take(&mut self.pending) && !is_flag {
            if SCHEMES.contains(&&*lower) {
                self.pending = true;
                return word.to_owned();
            }
            return if is_harmless(bare) { word.to_owned() } else { self.withhold() };
        }
        if bare.is_empty() || is_reference(bare) {
            return word.to_owned();
        }
        if bare.len() < word.len() {
            // What was around it goes around what is shown of it.
            let at = word.find(bare).unwrap_or_default();
            let shown = self.inside(bare);
            return format!("{}{shown}{}", &word[..at], &word[at + bare.len()..]);
        }
        self.bare(bare)
    }

    /// What was in quotes.
    fn inside(&mut self, text: &str) -> String {
        if !text.contains(char::is_whitespace) {
            return self.bare(text);
        }
        if self.depth == MAX_DEPTH {
            return self.withhold();
        }
        self.depth += 1;
        let shown = self.line(text);
        self.depth -= 1;
        shown
    }

    /// A word without quotes around it, or with quotes in it.
    fn bare(&mut self, word: &str) -> String {
        if has_token(word) {
            return self.withhold();
        }
        let separator = word.find(['=', ':']);
        if let Some(at) = separator {
            let (name, rest) = (&word[..at], &word[at + 1..]);
            if !rest.starts_with("//") {
                return self.pair(word, name, rest);
            }
        }
        if word.contains("://") {
            return self.url(word);
        }
        if word.contains(char::is_whitespace) {
            return self.inside(word);
        }
        if word.starts_with('-') {
            self.pending = is_secret_name(word);
            self.user = ["-u", "--user"].contains(&word);
        }
        let without = without_placeholders(word);
        if looks_random(&without) { self.withhold() } else { word.to_owned() }
    }

    /// `NAME=VALUE`, `--flag=value`, `Header:value`, `user:password@host`.
    fn pair(&mut self, word: &str, name: &str, rest: &str) -> String {
        let separator = &word[name.len()..=name.len()];
        if separator == ":" && rest.contains('@') && !rest.contains("://") {
            return self.withhold();
        }
        let bare = rest.trim_matches(['"', '\'']);
        if is_secret_name(name) {
            if bare.is_empty() {
                // The value is the next word.
                self.pending = true;
                return word.to_owned();
            }
            if is_harmless(bare) || SCHEMES.contains(&&*bare.to_ascii_lowercase()) {
                self.pending = !is_harmless(bare);
                return word.to_owned();
            }
            return format!("{}{separator}{}", name, self.withhold());
        }
        let is_variable = separator == "="
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if is_variable {
            let shown = value(name, bare).is_some();
            let rest = if shown { rest.to_owned() } else { self.withhold() };
            return format!("{name}={rest}");
        }
        let name_shown = if looks_random(&without_placeholders(name)) {
            self.withhold()
        } else {
            name.to_owned()
        };
        // Each of these takes a piece away.
        format!("{name_shown}{separator}{}", self.tail(rest))
    }

    /// What is behind a separator: more of the same, or the last piece.
    fn tail(&mut self, rest: &str) -> String {
        if self.depth == MAX_DEPTH {
            return if is_reference(rest) || is_switch(rest) {
                rest.to_owned()
            } else {
                self.withhold()
            };
        }
        self.depth += 1;
        let shown = self.line(rest);
        self.depth -= 1;
        shown
    }

    fn url(&mut self, text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else {
            return self.line(text);
        };
        let scheme = if looks_random(scheme) { self.withhold() } else { scheme.to_owned() };
        let (rest, fragment) = split(rest, '#');
        let (rest, query) = split(rest, '?');
        let (authority, path) = split(rest, '/');
        let mut out = format!("{scheme}://");
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = if is_reference(user) { user.to_owned() } else { self.withhold() };
                out.push_str(&user);
                out.push('@');
                host
            }
            None => authority,
        };
        out.push_str(&self.piece(host));
        if let Some(path) = path {
            for segment in path.split('/') {
                out.push('/');
                out.push_str(&self.piece(segment));
            }
        }
        if let Some(query) = query {
            let mut before = '?';
            for pair in query.split('&') {
                out.push(before);
                before = '&';
                out.push_str(&self.query(pair));
            }
        }
        if let Some(fragment) = fragment {
            out.push('#');
            let shown = if is_reference(fragment) { fragment.to_owned() } else { self.withhold() };
            out.push_str(&shown);
        }
        out
    }

    fn query(&mut self, pair: &str) -> String {
        let Some((name, value)) = pair.split_once('=') else { return self.piece(pair) };
        let harmless = is_reference(value) || (!is_secret_name(name) && is_switch(value));
        let value = if harmless { value.to_owned() } else { self.withhold() };
        format!("{}={value}", self.piece(name))
    }

    /// A host, a segment of a path, a name.
    fn piece(&mut self, piece: &str) -> String {
        let without = without_placeholders(piece);
        if looks_random(&without) {
            return self.withhold();
        }
        piece.to_owned()
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

/// What is left of a text once the placeholders are taken out.
fn without_placeholders(text: &str) -> String {
    let mut left = text.to_owned();
    while let Some((at, len)) = find_placeholder(&left) {
        left.replace_range(at..at + len, " ");
    }
    left
}

/// The end of the word with which a text begins: white space that is in no quotes.
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
