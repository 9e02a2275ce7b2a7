//! Subjects of the broker, and the random tokens in them.

use caproot_core::net::certs::crypto_provider;
use data_encoding::{BASE32_NOPAD, Encoding};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::LazyLock;

/// Maximum size of an environment id that is its own subject token.
const MAX_PLAIN_BYTES: usize = 128;
/// Size of a token in the subject.
const TOKEN_CHARS: usize = 26;

static LOWER_BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE32_NOPAD.specification();
    specification.symbols.make_ascii_lowercase();
    specification
        .encoding()
        .expect("lower-case letters do not collide with digits")
});

/// Random name of a link, of an orchestrator or of a tunnel: 26 characters in `a-z` and `2-7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RandomToken(Box<str>);

impl RandomToken {
    /// Creates a token of 128 random bits. Returns an error if the system has no random bytes.
    pub fn generate() -> Result<Self, &'static str> {
        let mut bytes = [0; 16];
        crypto_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| "the system has no random bytes")?;
        Ok(Self(LOWER_BASE32.encode(&bytes).into()))
    }

    /// Parses a token of a message. Returns `None` for another text, which must not become part of
    /// a subject.
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = text.len() == TOKEN_CHARS
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b));
        is_valid.then(|| Self(text.into()))
    }

    /// Returns the text of the token.
    #[cfg(test)]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RandomToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Subjects of one environment below the prefix of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSubjects {
    prefix: Box<str>,
    environment: String,
}

impl EnvironmentSubjects {
    /// Returns the subjects of an environment.
    pub fn new(prefix: &str, environment_id: &str) -> Self {
        Self {
            prefix: prefix.into(),
            environment: encode_environment_id(environment_id),
        }
    }

    /// Returns the subject of requests for tunnels.
    pub fn dial(&self) -> String {
        format!("{}.in.{}.dial", self.prefix, self.environment)
    }

    /// Returns the subject of the claims of all links.
    pub fn claim(&self) -> String {
        format!("{}.in.{}.claim", self.prefix, self.environment)
    }

    /// Returns the subject on which other links ask a link whether it runs.
    pub fn instance_claim(&self, instance: &RandomToken) -> String {
        format!("{}.in.{}.{instance}.claim", self.prefix, self.environment)
    }

    /// Returns the subject of the frames to a link.
    pub fn to_link(&self, instance: &RandomToken, tunnel: &RandomToken) -> String {
        format!(
            "{}.in.{}.{instance}.{tunnel}",
            self.prefix, self.environment
        )
    }

    /// Returns the subject of the frames to an orchestrator.
    pub fn to_orchestrator(&self, orchestrator: &RandomToken, tunnel: &RandomToken) -> String {
        format!(
            "{}.out.{}.{orchestrator}.{tunnel}",
            self.prefix, self.environment
        )
    }
}

/// Returns the subject token of an environment id. Two ids never have the same token.
pub fn encode_environment_id(environment_id: &str) -> String {
    if environment_id.len() <= MAX_PLAIN_BYTES && is_plain_token(environment_id) {
        return environment_id.to_owned();
    }
    // No plain token has a `=`, so the token of a digest is never another id.
    format!("={}", LOWER_BASE32.encode(&Sha256::digest(environment_id)))
}

/// Whether a text is not empty and has only letters, digits, `_` and `-`.
fn is_plain_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Checks the prefix of subjects: 1 to 64 characters in `A-Z`, `a-z`, `0-9`, `_`, `-` and dots
/// between them.
pub fn check_prefix(text: &str) -> Result<String, &'static str> {
    if text.len() <= 64 && text.split('.').all(is_plain_token) {
        return Ok(text.to_owned());
    }
    Err("expected 1 to 64 letters, digits, `_` and `-`, with dots between them, such as caproot.v1")
}

#[cfg(test)]
mod tests {
    use super::{EnvironmentSubjects, RandomToken, check_prefix, encode_environment_id};
    use proptest::prelude::*;

    proptest! {
        /// Law: two ids have the same token only if they are equal, also if one id is the token of
        /// another.
        #[test]
        fn the_encoding_is_injective(
            one in "[a-zA-Z0-9_.=* >é-]{0,140}",
            two in "[a-z=2-7.]{0,60}|[a-z]{0,140}",
        ) {
            let ids = [one.clone(), two, encode_environment_id(&one), format!("={one}")];
            for a in &ids {
                for b in &ids {
                    prop_assert_eq!(a == b, encode_environment_id(a) == encode_environment_id(b));
                }
            }
        }

        /// Law: each id is one token of a subject, without wildcards.
        #[test]
        fn an_id_is_one_token(id in "\\PC{0,200}") {
            let token = encode_environment_id(&id);
            prop_assert!(!token.is_empty() && token.len() <= 128);
            prop_assert!(!token.contains(|c: char| matches!(c, '.' | '*' | '>') || c.is_whitespace()));
            prop_assert!(token.is_ascii());
        }

        #[test]
        fn other_texts_are_no_tokens(text in "[a-z2-7.*>A-Z01]{0,30}") {
            let is_valid = text.len() == 26 && !text.contains(|c: char| !"abcdefghijklmnopqrstuvwxyz234567".contains(c));
            prop_assert_eq!(RandomToken::parse(&text).is_some(), is_valid);
        }
    }

    #[test]
    fn tokens_are_random_and_valid() {
        let (one, two) = (
            RandomToken::generate().expect("one"),
            RandomToken::generate().expect("two"),
        );
        assert_ne!(one, two);
        assert_eq!(RandomToken::parse(one.as_str()), Some(one));
    }

    #[test]
    fn subjects_have_the_documented_form() {
        let subjects = EnvironmentSubjects::new("caproot.v1", "a.b");
        assert!(subjects.dial().starts_with("caproot.v1.in.="));
        let subjects = EnvironmentSubjects::new("p", "vm-1");
        let token = |c: &str| RandomToken::parse(&c.repeat(26)).expect("a token");
        let (a, b) = ("a".repeat(26), "b".repeat(26));
        assert_eq!(subjects.dial(), "p.in.vm-1.dial");
        assert_eq!(subjects.claim(), "p.in.vm-1.claim");
        assert_eq!(
            subjects.instance_claim(&token("a")),
            format!("p.in.vm-1.{a}.claim")
        );
        assert_eq!(
            subjects.to_link(&token("a"), &token("b")),
            format!("p.in.vm-1.{a}.{b}")
        );
        let out = format!("p.out.vm-1.{a}.{b}");
        assert_eq!(subjects.to_orchestrator(&token("a"), &token("b")), out);
    }

    #[test]
    fn prefixes() {
        for good in ["caproot.v1", "a", "A-b_c.9"] {
            assert_eq!(check_prefix(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "a.", "a..b", "a b", "a.*", ">", &"x".repeat(65)] {
            check_prefix(bad).expect_err(bad);
        }
    }
}
