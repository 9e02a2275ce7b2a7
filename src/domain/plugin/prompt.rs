//! Agents, commands and output styles: Markdown files, each named and described by its frontmatter.

use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{Kind, secret};
use crate::domain::{Code, Digest, Problem, RelPath, Value, frontmatter, names, text};

/// One agent, command or output style.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `Agent`, `Command` and `OutputStyle` say what each means
pub struct Prompt {
    pub name: Box<str>,
    pub description: Box<str>,
    pub model: Box<str>,
    pub tools: Box<[Box<str>]>,
    pub argument_hint: Box<str>,
    /// Of the whole file; `None` where it is over `max_file_bytes`.
    pub digest: Option<Digest>,
    /// In bytes.
    pub size: u64,
    /// Below the plugin.
    pub file: RelPath,
}

/// Reads the head of a Markdown file of this kind: `head` is all of it (`whole`), or as much as is read
/// of a SKILL.md. `name` is the name that it goes by where it does not say. `None` where the file is
/// none of the kind, or cannot be used, which a problem says. Digest, size and place are for the
/// caller to fill.
#[must_use]
pub fn read(kind: Kind, head: &[u8], whole: bool, name: &[u8]) -> (Option<Prompt>, Vec<Problem>) {
    let mut problems = Vec::new();
    let begins = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).starts_with(b"---");
    let fields = match (begins, kind) {
        (true, _) => match frontmatter::mapping(head, whole, &mut problems) {
            Ok(value) => value,
            Err(problem) => {
                problems.push(problem);
                return (None, problems);
            }
        },
        // A command may be a prompt and nothing else.
        (false, Kind::Commands) => Value::Map(Box::default()),
        (false, _) => {
            let why =
                "no frontmatter, so it is taken for a text beside the others, and not reported";
            problems.push(Problem::note(Code::NoFrontmatter, why).at(1, 1));
            return (None, problems);
        }
    };
    let prompt = prompt(&fields, name, &mut problems);
    (prompt, problems)
}

fn prompt(value: &Value, file_name: &[u8], problems: &mut Vec<Problem>) -> Option<Prompt> {
    let mut fields = Fields::new(problems);
    let at = At::root(value);
    let own = fields.line(at, "name", MAX_NAME).unwrap_or_default();
    let name = if own.is_empty() { names::of_directory(file_name).0 } else { own };
    if name.is_empty() || name.chars().any(char::is_control) || text::is_over(&name, MAX_NAME) {
        fields.useless("file", &name, "has no name that can be used");
        return None;
    }
    let tools = |fields: &mut Fields<'_>| {
        let key = ["tools", "allowed-tools"].into_iter().find(|key| at.get(key).is_some())?;
        let texts = fields.texts(at, key, MAX_TEXT);
        let tools = texts.into_iter().flat_map(frontmatter::tools).take(256);
        Some(tools.map(|tool| secret::clean(&tool).into()).collect())
    };
    // Written as a list where it is `[a|b]`.
    let hint = at.get("argument-hint").map(Value::printed).unwrap_or_default();
    Some(Prompt {
        description: fields.line(at, "description", MAX_TEXT).unwrap_or_default(),
        model: fields.line(at, "model", MAX_NAME).unwrap_or_default(),
        tools: tools(&mut fields).unwrap_or_default(),
        argument_hint: text::cut(&text::collapsed(&secret::clean(&hint)), MAX_NAME).into(),
        name,
        digest: None,
        size: 0,
        file: RelPath::root(),
    })
}
