//! How much of a plugin is reported: how many components, and how many bytes of them all.

use super::fields::{MAX_NAME_CHARS, PluginFieldReader};
use super::{Plugin, PluginComponents, secret_filter};
use crate::domain::{DiagnosticCode, DynamicValue, FileProblem, text};

/// Components of one kind that one file, and one plugin, may declare.
pub const MAX_COMPONENTS: usize = 1_000;
/// About how many bytes all components of a plugin may take on the wire.
pub const MAX_PLUGIN_BYTES: usize = 256 << 10;
/// The same of all plugins below a root.
pub const MAX_ROOT_PLUGIN_BYTES: usize = 32 << 20;
/// Plugins below a root.
pub const MAX_ROOT_PLUGINS: usize = 5_000;

/// The first entries of a list of components, as many as may be; says where there are more.
pub(super) fn take_components<'v>(
    fields: &mut PluginFieldReader<'_>,
    what: &str,
    entries: &'v [(Box<str>, DynamicValue)],
) -> &'v [(Box<str>, DynamicValue)] {
    if entries.len() > MAX_COMPONENTS {
        let more = entries.len() - MAX_COMPONENTS;
        let why = format!("a file may declare {MAX_COMPONENTS} {what}; {more} are left out");
        fields.report_warning(DiagnosticCode::LimitReached, why);
    }
    &entries[..entries.len().min(MAX_COMPONENTS)]
}

/// A component's name, if it can be one.
pub(super) fn check_component_name(
    fields: &mut PluginFieldReader<'_>,
    what: &str,
    name: &str,
) -> Option<Box<str>> {
    let name = text::collapse_whitespace(&secret_filter::redact_in_text(name));
    let why = if name.is_empty() {
        "has no name"
    } else if text::exceeds_chars(&name, MAX_NAME_CHARS) || name.chars().any(char::is_control) {
        "has a name that is too long, or holds control characters"
    } else {
        return Some(name);
    };
    fields.report_unusable(what, &name, why);
    None
}

impl Plugin {
    /// Leaves out what is over the bounds of one plugin, or over what is left to all below a root;
    /// the problem says how much that was.
    #[must_use]
    pub fn truncate_to_budget(mut self, left: &mut usize) -> (Self, Option<FileProblem>) {
        let given = MAX_PLUGIN_BYTES.min(*left);
        // Of each component: numbers, framing and a handle.
        let (mut room, spare) = (given, 256 + self.handle_len());
        let PluginComponents {
            mcp_servers: servers,
            apps,
            hooks,
            agents,
            commands,
            output_styles,
            lsp_servers,
        } = &mut self.components;
        let left_out = [
            truncate_components(servers, &mut room, spare, |c| {
                let given = c.environment.iter().chain(&c.headers);
                let given = given.map(|g| {
                    g.name.len()
                        + optional_len(g.value.as_deref())
                        + optional_len(g.from_variable.as_deref())
                });
                let tools = c.enabled_tools.iter().flatten().chain(&c.disabled_tools);
                let texts = c.args.iter().chain(tools).map(|text| text.len() + 4);
                c.name.len()
                    + c.command.len()
                    + c.url.len()
                    + optional_len(c.description.as_deref())
                    + given.map(|n| n + 12).sum::<usize>()
                    + texts.sum::<usize>()
            }),
            truncate_components(apps, &mut room, spare, |c| {
                c.name.len() + c.id.len() + optional_len(c.category.as_deref())
            }),
            truncate_components(hooks, &mut room, spare, |c| {
                c.event.len()
                    + c.matcher.len()
                    + c.kind.len()
                    + c.command.len()
                    + c.url.len()
                    + c.prompt.len()
                    + c.args.iter().map(|arg| arg.len() + 4).sum::<usize>()
            }),
            truncate_components(agents, &mut room, spare, |c| {
                c.name.len() + c.description.len() + c.model.len()
            }),
            truncate_components(commands, &mut room, spare, |c| {
                c.name.len() + c.description.len() + c.model.len()
            }),
            truncate_components(output_styles, &mut room, spare, |c| {
                c.name.len() + c.description.len()
            }),
            truncate_components(lsp_servers, &mut room, spare, |c| {
                let texts = c.args.iter().chain(&c.environment).chain(&c.extensions);
                c.name.len() + c.command.len() + texts.map(|t| t.len() + 4).sum::<usize>()
            }),
        ];
        *left -= given - room;
        let left_out: usize = left_out.iter().sum();
        if left_out == 0 {
            return (self, None);
        }
        self.truncated = true;
        let why = format!(
            "a plugin may declare {MAX_COMPONENTS} components of a kind, and {MAX_PLUGIN_BYTES} \
             bytes of them; {left_out} are left out"
        );
        (self, Some(FileProblem::warning(DiagnosticCode::LimitReached, why)))
    }
}

fn optional_len(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

/// Keeps what fits, and says how many did not.
fn truncate_components<T>(
    all: &mut Vec<T>,
    room: &mut usize,
    spare: usize,
    weight: impl Fn(&T) -> usize,
) -> usize {
    let fit = all.iter().take(MAX_COMPONENTS).take_while(|component| {
        let left = room.checked_sub(weight(component) + spare);
        *room = left.unwrap_or(0);
        left.is_some()
    });
    let fit = fit.count();
    let left_out = all.len() - fit;
    all.truncate(fit);
    left_out
}
