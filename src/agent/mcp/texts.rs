//! Texts for the model of a host: the instructions of the server, and its tools. Some hosts show a model the
//! instructions and search for tools, others show the tools and no instructions, so both name the
//! skills. Codex shows the first 247 characters of the instructions, Qwen Code the first 157 of a
//! description, and Claude Code 2,048.

use caproot_session::{SkillNameLine, SkillNameList, SkillNameListOptions, ToolNames};
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Limit of all tools as JSON, in bytes. Hosts that search for tools compare and cut them.
pub const MAX_TOOLS_BYTES: usize = 4_096;
/// Limit of the names in the instructions, and in the description of the read tool.
pub const MAX_NAMES_BYTES: usize = 2_000;
/// Bytes that are reserved for the number of skills that a text does not name.
const REST_BYTES: usize = 24;
/// Spelling of the names of the tools.
pub const TOOL_NAMES: ToolNames = ToolNames::Flat;
/// Key in `_meta` of a tool by which Claude Code shows the tool in the first request.
const ALWAYS_LOAD_KEY: &str = "anthropic/alwaysLoad";

/// Texts that the server has for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTexts {
    /// Whether the server has tools.
    pub has_tools: bool,
    /// Whether hosts show the tools without a search, if they can.
    pub always_load: bool,
    /// Names of skills in the texts, at most [`MAX_NAMES_BYTES`].
    pub names: SkillNameListOptions,
    /// Command that runs scripts in the shell of the model, such as `caproot exec`; `None` if the shell is
    /// on another machine.
    pub exec_command: Option<String>,
    /// Whether a lock approves the skills. Then no text of the daemon is shown, such as the cause of an
    /// error.
    pub has_lock: bool,
}

impl Default for ServerTexts {
    fn default() -> Self {
        Self {
            has_tools: true,
            always_load: true,
            names: SkillNameListOptions {
                budget: MAX_NAMES_BYTES,
                with_descriptions: false,
            },
            exec_command: None,
            has_lock: false,
        }
    }
}

impl ServerTexts {
    /// Returns the instructions of the server. `names` is empty if the daemon has not answered.
    pub(super) fn instructions(&self, names: &SkillNameList) -> String {
        // The names stand before all that a host may cut.
        let mut text = if self.has_tools {
            tool_introduction(names)
        } else {
            resource_introduction(names)
        };
        text.push_str(&list_names(names, " Names:", MAX_NAMES_BYTES, false));

        text.push_str(
            "\nA skill may name other files by paths relative to its own directory: read these in the \
             same way. ",
        );
        if self.has_tools {
            text.push_str(&self.scripts_sentence());
        }
        text.push_str("Each prompt is a skill that only a person starts.");
        text
    }

    /// Returns the tools, with the names in the description of the read tool. `names` is empty if the
    /// daemon has not answered.
    pub(super) fn tools(&self, names: &SkillNameList) -> Vec<Tool> {
        if !self.has_tools {
            return Vec::new();
        }
        let payloads = TOOL_NAMES.skill_tools();
        let mut tools: Vec<_> = payloads
            .as_array()
            .into_iter()
            .flatten()
            .map(|payload| self.tool(payload))
            .collect();

        let room = MAX_TOOLS_BYTES.saturating_sub(json_bytes(&tools));
        let read = tools.iter_mut().find(|tool| tool.name == TOOL_NAMES.read());
        if let Some(read) = read {
            let text = self.read_addition(names, room);
            let description = read.description.take().unwrap_or_default();
            read.description = Some(format!("{description}{text}").into());
        }
        tools
    }

    fn tool(&self, payload: &Value) -> Tool {
        let text = |key: &str| payload[key].as_str().unwrap_or_default().to_owned();
        let schema = payload["inputSchema"].as_object().cloned();

        let hints = ToolAnnotations::new().read_only(true).open_world(false);
        let schema = schema.unwrap_or_default();
        let mut tool = Tool::new(text("name"), text("description"), schema).with_annotations(hints);
        if self.always_load {
            let mark = (ALWAYS_LOAD_KEY.to_owned(), true.into());
            tool.meta = Some(MetaObject(Map::from_iter([mark])));
        }
        tool
    }

    /// Returns the text about scripts and skills that follows the description of the read tool, in `room`
    /// bytes of JSON.
    fn read_addition(&self, names: &SkillNameList, room: usize) -> String {
        let mut text = String::new();
        if self.exec_command.is_some() {
            let _ = write!(text, " {}", self.scripts_sentence().trim_end());
        }
        if names.total == 0 {
            return text;
        }

        let _ = write!(
            text,
            "\n\nSkills when this conversation began: {}; {} has the current ones, {} finds some.",
            names.total,
            TOOL_NAMES.list(),
            TOOL_NAMES.search()
        );
        let room = room.saturating_sub(json_len(&text)).min(MAX_NAMES_BYTES);
        let has_descriptions = self.names.with_descriptions;
        let head = if has_descriptions {
            " Names and descriptions by third parties:"
        } else {
            " Names by third parties:"
        };
        text.push_str(&list_names(names, head, room, has_descriptions));
        text
    }

    fn scripts_sentence(&self) -> String {
        match &self.exec_command {
            Some(command) => format!(
                "To run a script of a skill, call `{command} PACKAGE/scripts/run.py --digest \
                 SKILL_DIGEST -- ARGS` in your shell: the result that read the skill has SKILL_DIGEST as \
                 `skill_digest`, and PACKAGE as `resource` without /SKILL.md. "
            ),
            None => "Scripts of skills are on another machine: you cannot run them. ".to_owned(),
        }
    }
}

/// Returns the first sentences for a model with tools, up to the names.
fn tool_introduction(names: &SkillNameList) -> String {
    let (list, read, search) = (TOOL_NAMES.list(), TOOL_NAMES.read(), TOOL_NAMES.search());
    if names.total == 0 {
        return format!(
            "Skills of an executor, by third parties: {list} lists them, {search} finds some. If one fits \
             the work, read it first with {read}."
        );
    }
    format!(
        "{} by third parties. If one fits the work, read it first: {read} with its name as package. \
         Others: {search}, {list}.",
        count_skills(names.total)
    )
}

/// Returns the first sentences for a model with resources, up to the names.
fn resource_introduction(names: &SkillNameList) -> String {
    let count = match names.total {
        0 => "Skills".to_owned(),
        total => count_skills(total),
    };
    format!(
        "{count} by third parties. If one fits the work, read it first: its SKILL.md is a resource, and \
         resources/list has all."
    )
}

fn count_skills(total: usize) -> String {
    if total == 1 {
        "1 skill".to_owned()
    } else {
        format!("{total} skills")
    }
}

/// Returns the names that fit into `room` bytes of JSON after a heading, and the number of the others.
/// Returns nothing if there is no room for a name.
fn list_names(names: &SkillNameList, head: &str, room: usize, with_descriptions: bool) -> String {
    let mut text = head.to_owned();
    let mut used = json_len(head) + REST_BYTES;
    let mut shown = 0;
    for line in &names.lines {
        let item = list_item(line, shown == 0, with_descriptions);
        used += json_len(&item);
        if used > room {
            break;
        }
        text += &item;
        shown += 1;
    }

    let end = match names.total.saturating_sub(shown) {
        _ if shown == 0 => return String::new(),
        0 if with_descriptions => "\n".to_owned(),
        0 => ".".to_owned(),
        rest if with_descriptions => format!("\n{rest} more."),
        rest => format!(", and {rest} more."),
    };
    text + &end
}

/// Returns the item of a skill. Names stand in one line, descriptions in a line each.
fn list_item(line: &SkillNameLine, is_first: bool, with_description: bool) -> String {
    let SkillNameLine { name, description } = line;
    match (with_description, is_first) {
        (true, _) if description.is_empty() => format!("\n- {name}"),
        (true, _) => format!("\n- {name}: {description}"),
        (false, true) => format!(" {name}"),
        (false, false) => format!(", {name}"),
    }
}

/// Returns the bytes of a text in a JSON string.
fn json_len(text: &str) -> usize {
    json_bytes(&text).saturating_sub(2)
}

/// Returns the bytes of a value as JSON.
pub fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_NAMES_BYTES, MAX_TOOLS_BYTES, ServerTexts, SkillNameLine, SkillNameList, json_bytes,
    };

    /// Bytes of the instructions that Codex shows.
    const CODEX_BYTES: usize = 247;
    /// Bytes of a description that Qwen Code shows.
    const QWEN_BYTES: usize = 157;
    /// Bytes of a description that Claude Code shows.
    const CLAUDE_BYTES: usize = 2_048;

    fn names(total: usize, description: &str) -> SkillNameList {
        let lines = (0..total).map(|number| SkillNameLine {
            name: format!("one-of-many-skills-{number:03}"),
            description: description.to_owned(),
        });
        SkillNameList {
            total,
            lines: lines.collect(),
        }
    }

    #[test]
    fn instructions_begin_with_what_each_host_shows() {
        let texts = ServerTexts::default();
        let text = texts.instructions(&names(417, ""));
        let start = &text[..240];
        for part in [
            "417 skills",
            "third parties",
            "skills_read",
            "skills_search",
            "skills_list",
            "one-of-many-skills-000, one-of-many-skills-001, ",
        ] {
            assert!(start.contains(part), "{part} in {start}");
        }
        assert!(text.contains(" more.\nA skill may name"), "{text}");
        let name_bytes = text.matches("one-of-many").count() * "one-of-many-skills-000, ".len();
        assert!(
            (1_800..=MAX_NAMES_BYTES).contains(&name_bytes),
            "{name_bytes}"
        );

        let few = texts.instructions(&names(1, ""));
        assert!(few.starts_with("1 skill by third parties."), "{few}");
        assert!(few.contains("Names: one-of-many-skills-000.\n"), "{few}");
        assert!(few.find("000.").is_some_and(|end| end < CODEX_BYTES));

        let none = texts.instructions(&SkillNameList::default());
        assert!(
            !none.contains("Names") && none.contains("skills_search"),
            "{none}"
        );
        let unnamed = SkillNameList {
            total: 2,
            lines: Vec::new(),
        };
        assert!(!texts.instructions(&unnamed).contains("Names"));
    }

    #[test]
    fn resources_are_named_without_tools() {
        let texts = ServerTexts {
            has_tools: false,
            ..ServerTexts::default()
        };
        let text = texts.instructions(&names(2, ""));
        assert!(
            !text.contains("skills_") && text.contains("resources/list"),
            "{text}"
        );
        assert!(
            text[..CODEX_BYTES].contains("one-of-many-skills-001"),
            "{text}"
        );
        assert!(texts.tools(&names(2, "")).is_empty());
    }

    #[test]
    fn all_tools_together_have_a_limit() {
        for (with_descriptions, description) in [(false, ""), (true, "\"It\" does\\ it. \u{1}")] {
            for exec_command in [None, Some("caproot exec".to_owned())] {
                let mut texts = ServerTexts {
                    exec_command,
                    ..ServerTexts::default()
                };
                texts.names.with_descriptions = with_descriptions;
                let tools = texts.tools(&names(417, description));
                let bytes = json_bytes(&tools);
                assert!((3_900..=MAX_TOOLS_BYTES).contains(&bytes), "{bytes}");

                let read = tools[1].description.clone().expect("a description");
                assert!(read[..QWEN_BYTES].contains("Read a skill before"), "{read}");
                let count = read.find("began: 417; ").expect("the count");
                assert!(count < CLAUDE_BYTES / 2, "{read}");
                assert!(read.contains("one-of-many-skills-009"), "{read}");
                assert!(read.ends_with(" more."), "{read}");
            }
        }
    }

    #[test]
    fn tools_ask_to_be_shown_unless_a_flag_says_no() {
        let mut texts = ServerTexts::default();
        for names in [names(0, ""), names(417, "")] {
            for tool in texts.tools(&names) {
                let meta = tool.meta.expect("a mark").0;
                assert_eq!(meta["anthropic/alwaysLoad"], true);
            }
        }
        texts.always_load = false;
        let tools = texts.tools(&SkillNameList::default());
        assert!(tools.iter().all(|tool| tool.meta.is_none()));
        assert!(
            !tools[1]
                .description
                .as_deref()
                .unwrap_or("")
                .contains("began")
        );
    }

    #[test]
    fn scripts_are_named_where_the_host_can_run_them() {
        let mut texts = ServerTexts::default();
        let names = names(3, "");
        let without = texts.instructions(&names);
        assert!(without.contains("Scripts of skills are on another machine"));
        texts.exec_command = Some("caproot exec --endpoint unix:/x".to_owned());
        let line = "`caproot exec --endpoint unix:/x PACKAGE/scripts/run.py --digest SKILL_DIGEST -- ARGS`";
        assert!(texts.instructions(&names).contains(line));
        let tools = texts.tools(&names);
        assert!(
            tools[1]
                .description
                .as_deref()
                .is_some_and(|text| text.contains(line))
        );
    }
}
