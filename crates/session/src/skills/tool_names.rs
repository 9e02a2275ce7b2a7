//! Names of a session's tools, and texts with these names.

use serde_json::{Value, json};

/// Limit of a tool's name on model platforms, in bytes.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// Spelling of the names of a session's tools, in every payload, text, hint and error. A call is
/// accepted in either spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolNames {
    /// A tool has a namespace, and is called `skills.list`: for Codex and the Responses API.
    #[default]
    Namespaced,
    /// A tool has one name, `skills_list`: for model APIs that reject a dot in a name.
    Flat,
}

/// Tool of a session that is no custom tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkillTool {
    /// Lists the skills.
    List,
    /// Reads a file of a skill, or lists the files.
    Read,
    /// Finds the skills that fit keywords.
    Search,
}

/// Invalid name of a tool, made from a namespace and a name. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tool name {0:?} is not valid: a name has 1 to {MAX_TOOL_NAME_BYTES} of the letters A to Z and a \
     to z, digits, `_` and `-`; change the namespace or the name"
)]
pub(crate) struct ToolNameError(String);

impl SkillTool {
    /// Returns the tool with this name, in either spelling.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "skills.list" | "skills_list" => Some(Self::List),
            "skills.read" | "skills_read" => Some(Self::Read),
            "skills.search" | "skills_search" => Some(Self::Search),
            _ => None,
        }
    }
}

impl ToolNames {
    /// Returns the name of the tool that lists skills.
    #[must_use]
    pub fn list(self) -> &'static str {
        match self {
            Self::Namespaced => "skills.list",
            Self::Flat => "skills_list",
        }
    }

    /// Returns the name of the tool that reads a file of a skill.
    #[must_use]
    pub fn read(self) -> &'static str {
        match self {
            Self::Namespaced => "skills.read",
            Self::Flat => "skills_read",
        }
    }

    /// Returns the name of the tool that finds skills.
    #[must_use]
    pub fn search(self) -> &'static str {
        match self {
            Self::Namespaced => "skills.search",
            Self::Flat => "skills_search",
        }
    }

    /// Returns the name of a tool in this spelling.
    #[must_use]
    pub fn join(self, namespace: Option<&str>, name: &str) -> String {
        match (namespace, self) {
            (None, _) => name.to_owned(),
            (Some(namespace), Self::Namespaced) => format!("{namespace}.{name}"),
            (Some(namespace), Self::Flat) => format!("{namespace}_{name}"),
        }
    }

    /// Returns a text with the names in place of `{list}`, `{read}` and `{search}`.
    pub(crate) fn fill_placeholders(self, text: &str) -> String {
        text.replace("{list}", self.list())
            .replace("{read}", self.read())
            .replace("{search}", self.search())
    }
}

/// Returns tools as platforms with namespaces register them: an object for each namespace, in the order of
/// its first tool, and an object for each tool without a namespace. A platform may hide a tool until the
/// model searches for it, which costs a turn, so that each tool says that it is not deferred. Codex rejects
/// a namespace without a description, and a list in which one tool has no type.
pub(crate) fn group_by_namespace(tools: Value) -> Value {
    let mut groups: Vec<Value> = Vec::new();
    let tools = match tools {
        Value::Array(tools) => tools,
        other => vec![other],
    };

    for mut tool in tools {
        tool["deferLoading"] = json!(false);
        tool["type"] = json!("function");
        let fields = tool.as_object_mut();
        let Some(namespace) = fields.and_then(|fields| fields.remove("namespace")) else {
            groups.push(tool);
            continue;
        };

        let group = groups
            .iter_mut()
            .find(|group| group["type"] == "namespace" && group["name"] == namespace);
        match group.and_then(|group| group["tools"].as_array_mut()) {
            Some(members) => members.push(tool),
            None => groups.push(json!({
                "type": "namespace",
                "name": namespace,
                "description": if namespace == "skills" {
                    "Skills: instructions by third parties for kinds of work."
                } else {
                    "Tools of the program."
                },
                "tools": [tool],
            })),
        }
    }
    Value::Array(groups)
}

/// Returns the name, if model platforms accept the name of a tool without a namespace.
pub(crate) fn check_tool_name(name: String) -> Result<String, ToolNameError> {
    let mut bytes = name.bytes();
    let fits = (1..=MAX_TOOL_NAME_BYTES).contains(&name.len());
    if fits && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        Ok(name)
    } else {
        Err(ToolNameError(name))
    }
}

#[cfg(test)]
mod tests {
    use super::{SkillTool, ToolNames, group_by_namespace};
    use serde_json::json;

    #[test]
    fn tools_are_grouped_by_namespace() {
        let tools = json!([
            {"namespace": "skills", "name": "list"},
            {"name": "count"},
            {"namespace": "own", "name": "list"},
            {"namespace": "skills", "name": "read"},
        ]);
        let tool = |name: &str| json!({"type": "function", "name": name, "deferLoading": false});
        let group = |name: &str, description: &str, tools: &[_]| json!({"type": "namespace", "name": name, "description": description, "tools": tools});
        let skills = "Skills: instructions by third parties for kinds of work.";
        assert_eq!(
            group_by_namespace(tools),
            json!([
                group("skills", skills, &[tool("list"), tool("read")]),
                tool("count"),
                group("own", "Tools of the program.", &[tool("list")]),
            ])
        );
    }

    #[test]
    fn a_name_is_found_in_either_spelling() {
        for names in [ToolNames::Flat, ToolNames::Namespaced] {
            assert_eq!(SkillTool::from_name(names.list()), Some(SkillTool::List));
            assert_eq!(SkillTool::from_name(names.read()), Some(SkillTool::Read));
            assert_eq!(
                SkillTool::from_name(names.search()),
                Some(SkillTool::Search)
            );
        }
        for other in [
            "",
            "list",
            "skills",
            "skills-list",
            "skills..list",
            "Skills_list",
        ] {
            assert_eq!(SkillTool::from_name(other), None, "{other}");
        }
        assert_eq!(
            ToolNames::Flat.fill_placeholders("{list} or {search}, then {read}."),
            "skills_list or skills_search, then skills_read."
        );
    }
}
