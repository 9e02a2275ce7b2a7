//! Limits on the number and size of the components of a plugin.

use super::PluginComponents;

/// Maximum number of components of one kind in one file, and in one plugin.
pub const MAX_COMPONENTS: usize = 1_000;
/// Approximate maximum size of all components of a plugin on the wire.
pub const MAX_PLUGIN_BYTES: usize = 256 << 10;
/// Approximate maximum size of the components of all plugins below a root on the wire.
pub const MAX_ROOT_PLUGIN_BYTES: usize = 32 << 20;
/// Maximum number of plugins below a root.
pub const MAX_ROOT_PLUGINS: usize = 5_000;

/// Truncates each list of components to `MAX_COMPONENTS` and all of them together to `room` bytes
/// on the wire, of which each component takes `overhead` in addition to its texts. Subtracts the
/// bytes of the components that fit from `room` and returns how many components were omitted.
pub fn truncate_components(
    components: &mut PluginComponents,
    room: &mut usize,
    overhead: usize,
) -> usize {
    let PluginComponents {
        mcp_servers,
        apps,
        hooks,
        agents,
        commands,
        output_styles,
        lsp_servers,
    } = components;
    let omitted = [
        truncate_list(mcp_servers, room, overhead, |c| {
            let named_values = c.environment.iter().chain(&c.headers).map(|v| {
                v.name.len()
                    + optional_len(v.value.as_deref())
                    + optional_len(v.from_variable.as_deref())
            });
            let tools = c.enabled_tools.iter().flatten().chain(&c.disabled_tools);
            let texts = c.args.iter().chain(tools).map(|text| text.len() + 4);
            c.name.len()
                + c.command.len()
                + c.url.len()
                + optional_len(c.description.as_deref())
                + named_values.map(|n| n + 12).sum::<usize>()
                + texts.sum::<usize>()
        }),
        truncate_list(apps, room, overhead, |c| {
            c.name.len() + c.id.len() + optional_len(c.category.as_deref())
        }),
        truncate_list(hooks, room, overhead, |c| {
            c.event.len()
                + c.matcher.len()
                + c.kind.len()
                + c.command.len()
                + c.url.len()
                + c.prompt.len()
                + c.args.iter().map(|arg| arg.len() + 4).sum::<usize>()
        }),
        truncate_list(agents, room, overhead, |c| {
            c.name.len() + c.description.len() + c.model.len()
        }),
        truncate_list(commands, room, overhead, |c| {
            c.name.len() + c.description.len() + c.model.len()
        }),
        truncate_list(output_styles, room, overhead, |c| {
            c.name.len() + c.description.len()
        }),
        truncate_list(lsp_servers, room, overhead, |c| {
            let texts = c.args.iter().chain(&c.environment).chain(&c.extensions);
            c.name.len() + c.command.len() + texts.map(|t| t.len() + 4).sum::<usize>()
        }),
    ];
    omitted.iter().sum()
}

fn optional_len(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

/// Truncates a list to the components that fit into `room`. Returns how many were omitted.
fn truncate_list<T>(
    all: &mut Vec<T>,
    room: &mut usize,
    overhead: usize,
    size: impl Fn(&T) -> usize,
) -> usize {
    let fit = all.iter().take(MAX_COMPONENTS).take_while(|component| {
        let rest = room.checked_sub(size(component) + overhead);
        *room = rest.unwrap_or(0);
        rest.is_some()
    });
    let fit = fit.count();
    let omitted = all.len() - fit;
    all.truncate(fit);
    omitted
}
