//! Pattern of executors: the configuration of each environment that a fleet file does not list.

use super::executors::ExecutorConfig;
use caproot_core::text::SentenceResult as _;

/// Place of the environment id in a pattern.
const PLACEHOLDER: &str = "{id}";
/// Maximum size of a label of a DNS name. Source: RFC 1035, 2.3.4.
const MAX_LABEL_BYTES: usize = 63;

/// Environment id with which a pattern is checked when its file is read.
pub const SAMPLE_ID: &str = "a";

/// Configuration of an executor with places for its environment id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorPattern {
    /// Endpoint with a place.
    pub endpoint: String,
    /// Server name, possibly with a place.
    pub server_name: Option<String>,
    /// SPIFFE ID, possibly with a place.
    pub spiffe_id: Option<String>,
    /// Configuration of the environment [`SAMPLE_ID`].
    pub sample: ExecutorConfig,
}

/// Returns a text with the environment id in all its places.
pub fn fill_id(text: &str, environment_id: &str) -> String {
    text.replace(PLACEHOLDER, environment_id)
}

/// Checks that the endpoint of a pattern has a place for the environment id.
pub fn check_placeholder(endpoint: &str) -> Result<(), &'static str> {
    if endpoint.contains(PLACEHOLDER) {
        return Ok(());
    }
    Err(
        "expected an endpoint with {id} in place of the environment id, such as \
         tls:{id}.executors.example:7420",
    )
}

impl ExecutorPattern {
    /// Returns the executor of an environment. The id comes from a caller, so an id must not change
    /// the shape of the endpoint: `a.other.example` would be another host.
    pub fn fill(&self, environment_id: &str) -> Result<ExecutorConfig, String> {
        if !is_dns_label(environment_id) {
            return Err(
                "the pattern of the fleet file takes only an environment id of 1 to 63 \
                        lower-case letters, digits and hyphens, without a hyphen at either end"
                    .to_owned(),
            );
        }

        let endpoint = fill_id(&self.endpoint, environment_id);
        let mut executor = self.sample.clone();
        executor.endpoint = endpoint
            .parse()
            .context(format_args!("invalid endpoint {endpoint}"))?;

        let fill = |text: &String| fill_id(text, environment_id);
        executor.credentials.server_name = self.server_name.as_ref().map(fill);
        let spiffe_id = self.spiffe_id.as_ref().map(|text| fill(text).parse());
        let spiffe_id = spiffe_id.transpose();
        executor.credentials.spiffe_id =
            spiffe_id.context("invalid SPIFFE ID of the environment")?;
        Ok(executor)
    }
}

/// Whether a text is a label of a DNS name. Upper-case letters are excluded, because DNS does not
/// distinguish them and environments do.
fn is_dns_label(text: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::ExecutorPattern;
    use crate::fleet::ExecutorConfig;
    use proptest::prelude::*;

    fn pattern() -> ExecutorPattern {
        let endpoint = "tls:{id}.executors.example:7420";
        ExecutorPattern {
            endpoint: endpoint.to_owned(),
            server_name: None,
            spiffe_id: Some("spiffe://example/{id}".to_owned()),
            sample: ExecutorConfig::new(endpoint.replace("{id}", "a").parse().expect("valid")),
        }
    }

    proptest! {
        /// No id changes the parts of the endpoint around it.
        #[test]
        fn ids_keep_the_shape_of_the_endpoint(id in "[a-z0-9.:/@{}\\[\\]A-Z_ é-]{0,70}") {
            if let Ok(executor) = pattern().fill(&id) {
                let endpoint = executor.endpoint.to_string();
                let host = endpoint.strip_prefix("tls:").and_then(|e| e.strip_suffix(":7420"));
                let label = host.and_then(|host| host.strip_suffix(".executors.example"));
                prop_assert_eq!(label, Some(id.as_str()));
                prop_assert!(!id.contains(['.', ':', '/']) && id == id.to_lowercase());
                let spiffe = executor.credentials.spiffe_id.expect("an id").to_string();
                prop_assert_eq!(spiffe, format!("spiffe://example/{id}"));
            }
        }
    }

    #[test]
    fn labels_are_accepted_and_other_ids_rejected() {
        for good in ["a", "a-1", "7", &"x".repeat(63)] {
            pattern().fill(good).expect(good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a.b",
            "a_b",
            "{id}",
            "a:1",
            "é",
            &"x".repeat(64),
        ] {
            let error = pattern().fill(bad).expect_err(bad);
            assert!(error.contains("1 to 63 lower-case letters"), "{error}");
        }
    }
}
