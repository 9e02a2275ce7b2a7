//! Agents, commands and output styles: Markdown files with frontmatter.

use crate::model::plugin::{ComponentKind, PluginPrompt};
use crate::model::{DiagnosticCode, DynamicValue, FileProblem};
use crate::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::parse::{frontmatter, names, secret_filter};
use caproot_core::text;
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};
use caproot_core::wire::RelPath;

/// Reads the frontmatter of a Markdown file of this kind. `head` is the whole file if `is_whole`,
/// else its beginning, with the same minimum size as for [`frontmatter::read`]. `default_name` is
/// used if the frontmatter has no name. Returns `None` and a problem if the file is invalid or not
/// of this kind. The caller sets digest, size and path.
#[must_use]
pub fn read(
    kind: ComponentKind,
    head: &[u8],
    is_whole: bool,
    default_name: &[u8],
) -> (Option<PluginPrompt>, Vec<FileProblem>) {
    let mut problems = Vec::new();
    let is_utf16 = fences::is_utf16(head);
    let has_fence = head
        .strip_prefix(BYTE_ORDER_MARK)
        .unwrap_or(head)
        .starts_with(b"---");
    // The reader of frontmatter reports a file in UTF-16.
    let fields = match (has_fence || is_utf16, kind) {
        (true, _) => match frontmatter::read_mapping(head, is_whole, &mut problems) {
            Ok(value) => value,
            Err(problem) => {
                problems.push(problem);
                return (None, problems);
            }
        },
        // A command may be a prompt without frontmatter.
        (false, ComponentKind::Commands) => DynamicValue::Map(Box::default()),
        (false, _) => {
            let why = "no frontmatter; the file is ignored";
            problems
                .push(FileProblem::note(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
            return (None, problems);
        }
    };
    let prompt = read_prompt(&fields, default_name, &mut problems);
    (prompt, problems)
}

fn read_prompt(
    value: &DynamicValue,
    default_name: &[u8],
    problems: &mut Vec<FileProblem>,
) -> Option<PluginPrompt> {
    let mut fields = FieldReader::new(problems);
    let at = FieldMapping::root(value);
    let name = fields
        .read_line(at, "name", MAX_NAME_CHARS)
        .unwrap_or_default();
    let name = if name.is_empty() {
        names::name_from_directory(default_name).0
    } else {
        name
    };
    if name.is_empty()
        || name.chars().any(char::is_control)
        || text::exceeds_chars(&name, MAX_NAME_CHARS)
    {
        fields.report_unusable("file", &name, "has no valid name");
        return None;
    }
    let tools = |fields: &mut FieldReader<'_>| {
        let key = at.find_present_key(["tools", "allowed-tools"])?;
        let texts = fields.read_verbatim_list(at, key, MAX_TEXT_CHARS);
        let tools = texts
            .into_iter()
            .flat_map(frontmatter::split_tools)
            .take(256);
        Some(
            tools
                .map(|tool| secret_filter::redact_in_text(&tool).into())
                .collect(),
        )
    };
    // Authors write `[a|b]`, which YAML reads as a list.
    let hint = at
        .non_null_value("argument-hint")
        .map(DynamicValue::to_text)
        .unwrap_or_default();
    Some(PluginPrompt {
        description: fields
            .read_line(at, "description", MAX_TEXT_CHARS)
            .unwrap_or_default(),
        model: fields
            .read_line(at, "model", MAX_NAME_CHARS)
            .unwrap_or_default(),
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
