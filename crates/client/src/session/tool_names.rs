//! Names of a session's tools, and texts with these names.

/// Limit of a tool's name on model platforms, in bytes.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// Names by which a model calls a session's tools. By default, a tool has a namespace and is called
/// `namespace.name`: `skills.list` and `skills.read`. Platforms that reject a dot in a name need
/// [`ToolNames::flat`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNames {
    /// Text between a namespace and a name; `None` if tools are registered with their namespace.
    separator: Option<String>,
    list: String,
    read: String,
}

/// Invalid name of a tool, made from a prefix and a separator. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tool name {0:?} is not valid: a name has 1 to {MAX_TOOL_NAME_BYTES} of the letters A to Z and a \
     to z, digits, `_` and `-`; change the prefix or the separator"
)]
pub struct ToolNameError(String);

impl Default for ToolNames {
    fn default() -> Self {
        Self {
            separator: None,
            list: "skills.list".to_owned(),
            read: "skills.read".to_owned(),
        }
    }
}

impl ToolNames {
    /// Returns names without a namespace: `flat("skills", "_")` gives `skills_list` and
    /// `skills_read`. The separator also joins the namespace and the name of a custom tool.
    ///
    /// # Errors
    ///
    /// [`ToolNameError`] if a name would not match `^[a-zA-Z0-9_-]{1,64}$`.
    pub fn flat(prefix: &str, separator: &str) -> Result<Self, ToolNameError> {
        Ok(Self {
            separator: Some(separator.to_owned()),
            list: check_tool_name(format!("{prefix}{separator}list"))?,
            read: check_tool_name(format!("{prefix}{separator}read"))?,
        })
    }

    /// Returns the name of the tool that lists skills.
    #[must_use]
    pub fn list(&self) -> &str {
        &self.list
    }

    /// Returns the name of the tool that reads a file of a skill.
    #[must_use]
    pub fn read(&self) -> &str {
        &self.read
    }

    /// Returns whether tools are registered with their namespace.
    pub(super) fn has_namespace(&self) -> bool {
        self.separator.is_none()
    }

    /// Returns the name of a custom tool; a namespace becomes part of the name.
    #[cfg(feature = "handlers")]
    pub(super) fn flat_name(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<String, ToolNameError> {
        let Some(namespace) = namespace else {
            return check_tool_name(name.to_owned());
        };
        let separator = self.separator.as_deref().unwrap_or(".");
        check_tool_name(format!("{namespace}{separator}{name}"))
    }

    /// Returns a text with the names in place of `{list}` and `{read}`.
    pub(super) fn fill_placeholders(&self, text: &str) -> String {
        text.replace("{list}", &self.list)
            .replace("{read}", &self.read)
    }
}

fn check_tool_name(name: String) -> Result<String, ToolNameError> {
    let fits = (1..=MAX_TOOL_NAME_BYTES).contains(&name.len());
    if fits && name.bytes().all(is_tool_name_byte) {
        Ok(name)
    } else {
        Err(ToolNameError(name))
    }
}

fn is_tool_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::ToolNames;

    #[test]
    fn flat_names_are_checked() {
        let names = ToolNames::flat("skills", "_").expect("valid names");
        assert_eq!((names.list(), names.read()), ("skills_list", "skills_read"));
        assert_eq!(
            names.fill_placeholders("{list}, then {read}."),
            "skills_list, then skills_read."
        );
        assert_eq!(ToolNames::flat("", "").expect("valid names").read(), "read");
        let long = "x".repeat(60);
        for (prefix, separator) in [("skills", "."), ("a b", "_"), ("ä", "_"), (&*long, "_")] {
            assert!(
                ToolNames::flat(prefix, separator).is_err(),
                "{prefix}{separator}"
            );
        }
        assert_eq!(
            ToolNames::default().fill_placeholders("{list}"),
            "skills.list"
        );
    }
}
