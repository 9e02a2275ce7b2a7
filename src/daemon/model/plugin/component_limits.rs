//! Limits on the number and size of the components of a plugin.

use super::{ComponentKind, McpServer, PluginComponents};
use crate::daemon::model::DynamicValue;

/// Maximum number of components of one kind in one file, and in one plugin.
pub const MAX_COMPONENTS: usize = 1_000;
/// Approximate maximum size of all components of a plugin on the wire.
pub const MAX_PLUGIN_BYTES: usize = 256 << 10;
/// Approximate maximum size of the components of all plugins below a root on the wire.
pub const MAX_ROOT_PLUGIN_BYTES: usize = 32 << 20;
/// Maximum number of plugins below a root.
pub const MAX_ROOT_PLUGINS: usize = 5_000;

/// Charge for each value of a declaration. A decoded value takes up to 1 KiB in a client, and
/// a plugin must fit into the memory that a client has for one message.
const VALUE_BYTES: usize = 16;

/// Truncates the components of each kind to `MAX_COMPONENTS` and all of them together to `room` bytes
/// on the wire, of which each component takes `overhead` in addition to its texts. Subtracts the
/// bytes of the components that fit from `room` and returns how many components were omitted.
pub fn truncate_components(
    components: &mut PluginComponents,
    room: &mut usize,
    overhead: usize,
) -> usize {
    let PluginComponents {
        mcp_servers,
        others,
    } = components;
    let declared = mcp_servers.len() + others.len();
    // After the first component that does not fit, nothing fits.
    let mut take = |size: usize| {
        let rest = room.checked_sub(size + overhead);
        *room = rest.unwrap_or(0);
        rest.is_some()
    };

    mcp_servers.truncate(MAX_COMPONENTS);
    mcp_servers.retain(|server| take(server_size(server)));

    let mut counts = [0; ComponentKind::ALL.len()];
    others.retain(|component| {
        let count = &mut counts[component.kind as usize];
        *count += 1;
        let size = component.name.len() + value_size(&component.declaration);
        *count <= MAX_COMPONENTS && take(size)
    });

    declared - mcp_servers.len() - others.len()
}

fn server_size(server: &McpServer) -> usize {
    let values = server.environment.iter().chain(&server.headers);
    let named_values = values.map(|value| {
        let texts = [value.value.as_deref(), value.from_variable.as_deref()];
        12 + value.name.len() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    });
    let tools = server.enabled_tools.iter().flatten();
    let texts = server
        .args
        .iter()
        .chain(tools)
        .chain(&server.disabled_tools);

    server.name.len()
        + server.command.len()
        + server.url.len()
        + server.description.as_deref().map_or(0, str::len)
        + named_values.sum::<usize>()
        + texts.map(|text| text.len() + 4).sum::<usize>()
        + value_size(&server.more)
}

/// Returns the size of a declaration, with the charge for its values.
#[must_use]
pub fn value_size(value: &DynamicValue) -> usize {
    value.wire_size() + value.value_count() * VALUE_BYTES
}
