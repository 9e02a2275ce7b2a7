//! Agents, commands and output styles: Markdown files, each named and described by its frontmatter.

use super::fields::{LabeledMapping, MAX_NAME_CHARS, MAX_TEXT_CHARS, PluginFieldReader};
use super::{ComponentKind, secret_filter};
use crate::domain::{
    ContentDigest, DiagnosticCode, DynamicValue, FileProblem, RelPath, frontmatter, names, text,
};

/// One agent, command or output style.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `Agent`, `Command` and `OutputStyle` say what each means
pub struct PluginPrompt {
    pub name: Box<str>,
    pub description: Box<str>,
    pub model: Box<str>,
    pub tools: Box<[Box<str>]>,
    pub argument_hint: Box<str>,
    /// Of the whole file; `None` where it is over `max_file_bytes`.
    pub digest: Option<ContentDigest>,
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
pub fn read(
    kind: ComponentKind,
    head: &[u8],
    whole: bool,
    name: &[u8],
) -> (Option<PluginPrompt>, Vec<FileProblem>) {
    let mut problems = Vec::new();
    let begins = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).starts_with(b"---");
    let fields = match (begins, kind) {
        (true, _) => match frontmatter::read_mapping(head, whole, &mut problems) {
            Ok(value) => value,
            Err(problem) => {
                problems.push(problem);
                return (None, problems);
            }
        },
        // A command may be a prompt and nothing else.
        (false, ComponentKind::Commands) => DynamicValue::Map(Box::default()),
        (false, _) => {
            let why =
                "no frontmatter, so it is taken for a text beside the others, and not reported";
            problems
                .push(FileProblem::note(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
            return (None, problems);
        }
    };
    let prompt = read_prompt(&fields, name, &mut problems);
    (prompt, problems)
}

fn read_prompt(
    value: &DynamicValue,
    file_name: &[u8],
    problems: &mut Vec<FileProblem>,
) -> Option<PluginPrompt> {
    let mut fields = PluginFieldReader::new(problems);
    let at = LabeledMapping::root(value);
    let own = fields.read_line(at, "name", MAX_NAME_CHARS).unwrap_or_default();
    let name = if own.is_empty() { names::name_from_directory(file_name).0 } else { own };
    if name.is_empty()
        || name.chars().any(char::is_control)
        || text::exceeds_chars(&name, MAX_NAME_CHARS)
    {
        fields.report_unusable("file", &name, "has no name that can be used");
        return None;
    }
    let tools = |fields: &mut PluginFieldReader<'_>| {
        let key =
            ["tools", "allowed-tools"].into_iter().find(|key| at.non_null_value(key).is_some())?;
        let texts = fields.read_verbatim_list(at, key, MAX_TEXT_CHARS);
        let tools = texts.into_iter().flat_map(frontmatter::split_tools).take(256);
        Some(tools.map(|tool| secret_filter::redact_in_text(&tool).into()).collect())
    };
    // Written as a list where it is `[a|b]`.
    let hint = at.non_null_value("argument-hint").map(DynamicValue::to_text).unwrap_or_default();
    Some(PluginPrompt {
        description: fields.read_line(at, "description", MAX_TEXT_CHARS).unwrap_or_default(),
        model: fields.read_line(at, "model", MAX_NAME_CHARS).unwrap_or_default(),
        tools: tools(&mut fields).unwrap_or_default(),
        argument_hint: text::truncate_chars(
            &text::collapse_whitespace(&secret_filter::redact_in_text(&hint)),
            MAX_NAME_CHARS,
        )
        .into(),
        name,
        digest: None,
        size: 0,
        file: RelPath::root(),
    })
}
