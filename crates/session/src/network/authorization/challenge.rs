//! Challenge of a server that answered 401 (RFC 9110, section 11.6.1): the parts that the program gets.
//! The server is hostile until they are checked.

use crate::network::address_check::parse_server_url;

/// Bytes of the challenges of a response.
const MAX_CHALLENGE_BYTES: usize = 8 << 10;
/// Bytes of the URL of the metadata.
const MAX_METADATA_BYTES: usize = 2 << 10;
/// Scopes of a challenge, and the bytes of each.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 256;
/// Bytes of an error code.
const MAX_ERROR_BYTES: usize = 64;

/// Checked parts of a challenge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    pub resource_metadata: Option<String>,
    pub scopes: Vec<String>,
    pub error: Option<String>,
    /// Parts that are not passed on, as the end of a sentence. Has no text of the server.
    pub omitted: Option<String>,
}

impl Challenge {
    /// Reads the values of `WWW-Authenticate`. Metadata may have an address that is not globally routable
    /// only on the private origins.
    pub fn parse(text: &str, private_origins: &[String]) -> Self {
        let omit = |reason: &str| Self {
            omitted: Some(format!("its challenge is not passed on: {reason}")),
            ..Self::default()
        };
        if text.len() > MAX_CHALLENGE_BYTES {
            return omit(&format!("it is over {MAX_CHALLENGE_BYTES} bytes"));
        }
        if !text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
            return omit("it has characters that no challenge has");
        }

        let challenges = split_challenges(text);

        // Only a challenge with metadata leads to an authorization server: RFC 9728, 5.1.
        let with_metadata = challenges
            .iter()
            .find(|parameters| find(parameters, "resource_metadata").is_some());
        let Some(parameters) = with_metadata.or(challenges.first()) else {
            return Self::default();
        };

        let mut challenge = Self::default();
        if let Some(url) = find(parameters, "resource_metadata") {
            match check_metadata(url, private_origins) {
                Ok(url) => challenge.resource_metadata = Some(url),
                Err(reason) => {
                    challenge.omitted = Some(format!("its metadata is not passed on: {reason}"));
                }
            }
        }
        let scopes = find(parameters, "scope").unwrap_or_default();
        let scopes: Vec<_> = scopes.split_ascii_whitespace().map(str::to_owned).collect();
        if scopes.len() <= MAX_SCOPES && scopes.iter().all(|scope| is_scope(scope)) {
            challenge.scopes = scopes;
        } else {
            challenge.omitted = Some("its scopes are not passed on: they are malformed".to_owned());
        }
        challenge.error = find(parameters, "error")
            .filter(|error| {
                (1..=MAX_ERROR_BYTES).contains(&error.len())
                    && error.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'))
            })
            .map(str::to_owned);
        challenge
    }
}

/// Returns the URL of the metadata, or the reason why the URL is not passed on.
fn check_metadata(text: &str, private_origins: &[String]) -> Result<String, String> {
    if text.len() > MAX_METADATA_BYTES {
        return Err(format!("its URL is over {MAX_METADATA_BYTES} bytes"));
    }
    // An address that is a name is not resolved here: the program connects to it.
    Ok(parse_server_url(text, private_origins)?.url.to_string())
}

/// Returns whether a text is a scope (RFC 6749, section 3.3).
fn is_scope(text: &str) -> bool {
    text.len() <= MAX_SCOPE_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

/// Name in lower case, and value.
type Parameter = (String, String);

fn find<'a>(parameters: &'a [Parameter], name: &str) -> Option<&'a str> {
    parameters
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value.as_str())
}

/// Returns the parameters of each challenge. The rest after a malformed part is not read.
fn split_challenges(text: &str) -> Vec<Vec<Parameter>> {
    let mut challenges = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (name, after) = split_token(rest);
        if name.is_empty() {
            return challenges;
        }

        let after = after.trim_start_matches([' ', '\t']);
        // A word without a value is the scheme of the next challenge.
        let Some(value) = after.strip_prefix('=') else {
            challenges.push(Vec::new());
            rest = after;
            continue;
        };
        let value = value.trim_start_matches([' ', '\t']);
        let Some((value, after)) = split_value(value) else {
            return challenges;
        };
        if let Some(parameters) = challenges.last_mut() {
            parameters.push((name.to_ascii_lowercase(), value));
        }
        rest = after;
    }
}

/// Returns the token at the beginning of a text, and the rest.
fn split_token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// Returns the value at the beginning of a text, and the rest; `None` for a quoted text without an end.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = split_token(text);
        // The end of a token of 68 letters.
        return Some((value.to_owned(), rest.trim_start_matches('=')));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (index, '"') => return Some((value, &quoted[index + 1..])),
            (_, '\\') => value.push(chars.next()?.1),
            (_, c) => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Challenge;
    use proptest::prelude::*;

    fn parse(text: &str) -> Challenge {
        Challenge::parse(text, &["http://127.0.0.1:1".to_owned()])
    }

    #[test]
    fn the_parts_of_a_challenge_are_read() {
        let text = r#"Negotiate abc==, Basic realm="a, b=\"c\"", bearer resource_metadata="https://a.example/.well-known/oauth-protected-resource/mcp", scope="files:read  files:write" , Error=invalid_token"#;
        let challenge = parse(text);
        assert_eq!(
            challenge.resource_metadata.as_deref(),
            Some("https://a.example/.well-known/oauth-protected-resource/mcp")
        );
        assert_eq!(challenge.scopes, ["files:read", "files:write"]);
        assert_eq!(challenge.error.as_deref(), Some("invalid_token"));
        assert_eq!(challenge.omitted, None);
        assert_eq!(parse("Bearer scope=a").scopes, ["a"]);
        for text in ["", "Bearer", "realm=\"", "=", "Bearer scope=\"a"] {
            assert_eq!(parse(text), Challenge::default(), "{text}");
        }
    }

    #[test]
    fn hostile_parts_are_not_passed_on() {
        let long = format!("Bearer scope=\"{}\"", "x".repeat(9_000));
        let scopes = format!("Bearer scope=\"{}\"", "x ".repeat(65));
        for (text, part) in [
            (long.as_str(), "over 8192 bytes"),
            ("Bearer scope=\"\u{202e}\"", "characters"),
            (&scopes, "scopes are not passed on"),
            ("Bearer scope=\"a\\\\b\"", "scopes are not passed on"),
            ("Bearer resource_metadata=\"http://a.example/\"", "https"),
            (
                "Bearer resource_metadata=\"https://169.254.169.254/\"",
                "not a globally routable",
            ),
            ("Bearer resource_metadata=\"file:///etc/passwd\"", "no host"),
            (
                "Bearer resource_metadata=\"https://u:p@a.example/\"",
                "user",
            ),
            (
                "Bearer resource_metadata=\"https://a.example/\tx\"",
                "placeholder",
            ),
        ] {
            let challenge = parse(text);
            let omitted = challenge.omitted.expect(text);
            assert!(omitted.contains(part), "{text}: {omitted}");
            assert_eq!(challenge.resource_metadata, None, "{text}");
            assert!(challenge.scopes.is_empty(), "{text}");
        }
        let own = parse("Bearer resource_metadata=\"http://127.0.0.1:1/m\", error=\"A B\"");
        assert_eq!(
            own.resource_metadata.as_deref(),
            Some("http://127.0.0.1:1/m")
        );
        assert_eq!(own.error, None);
    }

    proptest! {
        #[test]
        fn each_text_is_read_within_the_limits(text in "[ -~\u{e9}]{0,120}") {
            let challenge = parse(&text);
            let scopes = challenge.scopes.iter();
            prop_assert!(scopes.map(String::len).sum::<usize>() <= text.len());
        }
    }
}
