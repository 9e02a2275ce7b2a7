//! Parser of the selected roots that a platform wrote as JSON.

use super::json;
use caproot_core::proto::caproot::v1::{ListRootsResponse, SelectedCapabilityRoot};
use caproot_core::text::SentenceResult as _;
use serde_json::Value;
use std::fmt;

/// Error about JSON of another shape.
const WRONG_SHAPE: &str =
    "expected an array of selected roots, or an object with a `selectedCapabilityRoots` array";

/// Id of a published root in a selection of many executors: `ID@ENVIRONMENT`. In the environment, `%`
/// and `@` are written as `%25` and `%40`, so that two roots never have one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRootId {
    /// Id by which the executor publishes the root.
    pub root_id: String,
    /// Environment of the executor.
    pub environment_id: String,
}

impl PublishedRootId {
    /// Parses an id. Returns `None` for another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (root_id, environment) = text.rsplit_once('@')?;
        if root_id.is_empty() || environment.is_empty() {
            return None;
        }
        let id = Self {
            root_id: root_id.to_owned(),
            environment_id: environment.replace("%40", "@").replace("%25", "%"),
        };
        Some(id).filter(|id| id.to_string() == text)
    }
}

impl fmt::Display for PublishedRootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let environment = self.environment_id.replace('%', "%25").replace('@', "%40");
        write!(f, "{}@{environment}", self.root_id)
    }
}

/// Returns published roots as a selection, in the environment if there is one. Without one, they are
/// in the daemon's first environment.
#[must_use]
pub fn published_selection(
    published: ListRootsResponse,
    environment_id: Option<&str>,
) -> Vec<SelectedCapabilityRoot> {
    published
        .roots
        .into_iter()
        .filter_map(|root| root.selected_capability_root)
        .map(|mut root| {
            // The daemon names its first environment in each root, and may have more environments.
            if let (Some(location), Some(id)) = (&mut root.location, environment_id) {
                id.clone_into(&mut location.environment_id);
            }
            root
        })
        .collect()
}

/// Parses a JSON array of `SelectedCapabilityRoot`, or an object with a `selectedCapabilityRoots`
/// array, such as the parameters of Codex's `thread/start`. The other keys of the object are
/// ignored. The error is one sentence.
pub fn parse_selected_roots(text: &str) -> Result<Vec<SelectedCapabilityRoot>, String> {
    let array = match serde_json::from_str(text).context("invalid JSON")? {
        Value::Array(array) => array,
        Value::Object(mut object) => {
            // proto3 JSON accepts both names of a field.
            let names = ["selectedCapabilityRoots", "selected_capability_roots"];
            match names.into_iter().find_map(|name| object.remove(name)) {
                Some(Value::Array(array)) => array,
                _ => return Err(WRONG_SHAPE.to_owned()),
            }
        }
        _ => return Err(WRONG_SHAPE.to_owned()),
    };

    array
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            json::parse(value).context(format_args!("element {index} is not a selected root"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{PublishedRootId, WRONG_SHAPE, parse_selected_roots};
    use proptest::prelude::*;

    const ROOT: &str = r#"{"id":"deploy-plugin@1","location":{"type":"environment",
        "environmentId":"workspace","path":"/opt/codex/plugins/deploy"}}"#;

    #[test]
    fn arrays_and_objects_are_parsed() {
        for text in [
            format!("[{ROOT}]"),
            format!(r#"{{"model":"x","selectedCapabilityRoots":[{ROOT}],"other":{{}}}}"#),
            format!(r#"{{"selected_capability_roots":[{ROOT}]}}"#),
        ] {
            let roots = parse_selected_roots(&text).expect(&text);
            assert_eq!(roots.len(), 1);
            assert_eq!(roots[0].id, "deploy-plugin@1");
            let location = roots[0].location.as_ref().expect("a location");
            assert_eq!(location.r#type, "environment");
            assert_eq!(location.environment_id, "workspace");
            assert_eq!(location.path, "/opt/codex/plugins/deploy");
        }
        assert_eq!(parse_selected_roots("[]"), Ok(Vec::new()));
    }

    #[test]
    fn errors_name_the_element() {
        for text in ["", "{", "[1,]", "[] []"] {
            let error = parse_selected_roots(text).expect_err(text);
            assert!(error.starts_with("invalid JSON: "), "{text:?}: {error}");
        }
        for text in ["1", "null", "{}", r#"{"selectedCapabilityRoots":{}}"#] {
            assert_eq!(
                parse_selected_roots(text),
                Err(WRONG_SHAPE.to_owned()),
                "{text:?}"
            );
        }
        for element in ["1", "null", r#"{"id":7}"#, r#"{"name":"x"}"#] {
            let text = format!("[{ROOT},{element}]");
            let error = parse_selected_roots(&text).expect_err(element);
            assert!(
                error.starts_with("element 1 is not a selected root: "),
                "{error}"
            );
        }
    }

    proptest! {
        /// Law: different roots have different ids, and each id is parsed to its root.
        #[test]
        fn an_id_has_one_root_and_one_environment(
            root_id in "[a@%0-9]{1,6}",
            environment_id in "[a@%0-9]{1,6}",
        ) {
            let id = PublishedRootId { root_id, environment_id };
            prop_assert_eq!(PublishedRootId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn other_texts_are_no_ids_of_published_roots() {
        for text in ["", "team", "@a", "team@", "team@%", "team@%zz"] {
            assert_eq!(PublishedRootId::parse(text), None, "{text}");
        }
    }
}
