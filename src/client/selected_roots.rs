//! Reads the selection that a platform wrote as JSON.

use super::json;
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use serde_json::Value;

/// Why a text is no selection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectedRootsError {
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Syntax(String),
    /// It is JSON of another shape.
    #[error(
        "it is neither an array of selected roots nor an object with a `selectedCapabilityRoots` \
         array"
    )]
    Shape,
    /// One element is no selected root.
    #[error("element {index} is no selected root: {cause}")]
    Element {
        /// Its place in the array, from 0.
        index: usize,
        /// What is wrong with it.
        cause: String,
    },
}

/// The roots in a JSON array of `SelectedCapabilityRoot`, or in the `selectedCapabilityRoots` of an
/// object such as the parameters of Codex's `thread/start`, whose other keys are not looked at.
pub fn parse_selected_roots(text: &str) -> Result<Vec<SelectedCapabilityRoot>, SelectedRootsError> {
    let value = serde_json::from_str(text);
    let array = match value.map_err(|error| SelectedRootsError::Syntax(error.to_string()))? {
        Value::Array(array) => array,
        Value::Object(mut object) => {
            // proto3 JSON takes a field by either name.
            let names = ["selectedCapabilityRoots", "selected_capability_roots"];
            match names.into_iter().find_map(|name| object.remove(name)) {
                Some(Value::Array(array)) => array,
                _ => return Err(SelectedRootsError::Shape),
            }
        }
        _ => return Err(SelectedRootsError::Shape),
    };
    let element = |(index, value)| {
        json::parse(value).map_err(|cause| SelectedRootsError::Element { index, cause })
    };
    array.into_iter().enumerate().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::{SelectedRootsError, parse_selected_roots};

    const ROOT: &str = r#"{"id":"deploy-plugin@1","location":{"type":"environment",
        "environmentId":"workspace","path":"/opt/codex/plugins/deploy"}}"#;

    #[test]
    fn array_and_object() {
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
    fn garbage() {
        for text in ["", "{", "[1,]", "[] []"] {
            assert!(
                matches!(parse_selected_roots(text), Err(SelectedRootsError::Syntax(_))),
                "{text:?}"
            );
        }
        for text in ["1", "null", "{}", r#"{"selectedCapabilityRoots":{}}"#] {
            assert_eq!(parse_selected_roots(text), Err(SelectedRootsError::Shape), "{text:?}");
        }
        for element in ["1", "null", r#"{"id":7}"#, r#"{"name":"x"}"#] {
            let text = format!("[{ROOT},{element}]");
            let error = parse_selected_roots(&text).expect_err(element);
            assert!(matches!(error, SelectedRootsError::Element { index: 1, .. }), "{error}");
        }
    }
}
