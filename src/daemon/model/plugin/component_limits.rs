//! Limits on the number and size of the components of a plugin.

use super::{ComponentKind, McpServer, PluginComponent, PluginComponents};
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

/// Bytes that remain for components.
struct ComponentBudget {
    remaining: usize,
    /// Bytes that each component takes in addition to its texts.
    overhead: usize,
}

impl ComponentBudget {
    /// Takes the bytes of a component. After the first component that does not fit, nothing fits.
    fn take(&mut self, size: usize) -> bool {
        let rest = self.remaining.checked_sub(size + self.overhead);
        self.remaining = rest.unwrap_or(0);
        rest.is_some()
    }
}

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
    let mut budget = ComponentBudget {
        remaining: *room,
        overhead,
    };

    mcp_servers.truncate(MAX_COMPONENTS);
    mcp_servers.retain(|server| budget.take(server_size(server)));

    let mut counts = [0; ComponentKind::ALL.len()];
    others.retain(|component| {
        let count = &mut counts[component.kind as usize];
        *count += 1;
        *count <= MAX_COMPONENTS && budget.take(component_size(component))
    });

    *room = budget.remaining;
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

fn component_size(component: &PluginComponent) -> usize {
    component.name.len() + value_size(&component.declaration)
}

/// Returns the size of a declaration, with the charge for its values.
#[must_use]
pub fn value_size(value: &DynamicValue) -> usize {
    value.wire_size() + value.value_count() * VALUE_BYTES
}
