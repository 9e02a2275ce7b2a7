//! Variables in the declared values of MCP servers: `${NAME}` and `${NAME:-default}`.

/// Variables for the directory of a plugin, as Claude Code, Codex and Agent Plugins name them.
pub const PLUGIN_DIR_VARIABLES: [&str; 3] =
    ["CLAUDE_PLUGIN_ROOT", "CODEX_PLUGIN_ROOT", "PLUGIN_ROOT"];

/// Part of a declared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePart<'a> {
    /// Text to take as it is.
    Text(&'a str),
    /// Variable to replace.
    Variable {
        /// Name between the braces.
        name: &'a str,
        /// Text after `:-`, which counts without a value.
        default: Option<&'a str>,
    },
}

/// Returns the parts of a declared value.
#[must_use]
pub fn split_variables(value: &str) -> Vec<ValuePart<'_>> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let inner = &rest[start + 2..start + length];
        let (name, default) = inner
            .split_once(":-")
            .map_or((inner, None), |(name, default)| (name, Some(default)));
        parts.push(ValuePart::Text(&rest[..start]));
        parts.push(ValuePart::Variable { name, default });
        rest = &rest[start + length + 1..];
    }
    parts.push(ValuePart::Text(rest));
    parts.retain(|part| *part != ValuePart::Text(""));
    parts
}

#[cfg(test)]
mod tests {
    use super::{ValuePart, split_variables};
    use proptest::prelude::*;

    #[test]
    fn variables_of_values_are_found() {
        let parts = split_variables("Bearer ${TOKEN:-x}!");
        let token = ValuePart::Variable {
            name: "TOKEN",
            default: Some("x"),
        };
        let expected = [ValuePart::Text("Bearer "), token, ValuePart::Text("!")];
        assert_eq!(parts, expected);
        assert_eq!(split_variables("${A"), [ValuePart::Text("${A")]);
    }

    proptest! {
        #[test]
        fn values_without_variables_stay_as_they_are(value in "[^$]{0,40}") {
            let mut expected = vec![ValuePart::Text(&value)];
            expected.retain(|_| !value.is_empty());
            prop_assert_eq!(split_variables(&value), expected);
        }
    }
}
