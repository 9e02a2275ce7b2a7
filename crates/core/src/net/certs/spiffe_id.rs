//! SPIFFE IDs: names of workloads in certificates. Source: the SPIFFE ID standard, section 2.

use std::fmt;
use std::str::FromStr;

/// Maximum size. Certificates with longer names are rejected.
const MAX_BYTES: usize = 256;

/// SPIFFE ID of a workload, such as `spiffe://agents.example/executor/a1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpiffeId(String);

/// Error of a text that is not a SPIFFE ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a SPIFFE ID of at most 256 bytes, such as spiffe://agents.example/executor/a1")]
pub struct SpiffeIdError;

impl SpiffeId {
    /// Returns the text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SpiffeId {
    type Err = SpiffeIdError;

    fn from_str(text: &str) -> Result<Self, SpiffeIdError> {
        let rest = text.strip_prefix("spiffe://").ok_or(SpiffeIdError)?;
        let (domain, path) = rest.split_once('/').ok_or(SpiffeIdError)?;
        let in_domain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
        let in_path = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(in_path);
        let is_valid = text.len() <= MAX_BYTES
            && !domain.is_empty()
            && domain.bytes().all(in_domain)
            && path.split('/').all(is_segment);
        is_valid.then(|| Self(text.to_owned())).ok_or(SpiffeIdError)
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::SpiffeId;

    #[test]
    fn only_ids_of_workloads_are_accepted() {
        for good in ["spiffe://a/b", "spiffe://agents.example/ns/x/sa/Y_z-1.0"] {
            assert_eq!(good.parse::<SpiffeId>().expect(good).as_str(), good);
        }
        for bad in [
            "",
            "a",
            "spiffe://",
            "spiffe://a",
            "spiffe://a/",
            "spiffe:///a",
            "spiffe://A/b",
            "spiffe://a/../b",
            "spiffe://a//b",
            "spiffe://a/b/",
            "spiffe://a/b?c",
            "spiffe://a/%41",
            "https://a/b",
            "spiffe://a:1/b",
            "spiffe://a/b c",
        ] {
            assert!(bad.parse::<SpiffeId>().is_err(), "{bad}");
        }
        assert!(
            format!("spiffe://a/{}", "b".repeat(256))
                .parse::<SpiffeId>()
                .is_err()
        );
    }
}
