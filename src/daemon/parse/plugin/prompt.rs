//! Agents, commands and output styles: Markdown files with frontmatter.

use super::declarations::read_declaration;
use crate::daemon::model::plugin::{ComponentKind, PluginComponent};
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem};
use crate::daemon::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS};
use crate::daemon::parse::{collect_problems, frontmatter, names};
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};

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
) -> (Option<PluginComponent>, Vec<FileProblem>) {
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    let has_frontmatter = text.starts_with(b"---") || fences::is_utf16(head);

    let (prompt, problems) = collect_problems(|problems| {
        // The reader of frontmatter reports a file in UTF-16.
        let value = match kind {
            _ if has_frontmatter => frontmatter::read_mapping(head, is_whole, problems)?,
            // A command may be a prompt without frontmatter.
            ComponentKind::Commands => DynamicValue::Map(Box::default()),
            _ => {
                let why = "no frontmatter; the file is ignored";
                let problem = FileProblem::note(DiagnosticCode::NoFrontmatter, why);
                return Err(problem.with_position(1, 1));
            }
        };

        let mut fields = FieldReader::new(problems);
        let name = fields
            .read_line(FieldMapping::root(&value), "name", MAX_NAME_CHARS)
            .unwrap_or_else(|| names::name_from_directory(default_name).0);
        let name = fields.check_component_name(kind.noun(), &name);
        Ok(name.and_then(|name| read_declaration(&mut fields, kind, &name, &value, None)))
    });
    (prompt.flatten(), problems)
}
