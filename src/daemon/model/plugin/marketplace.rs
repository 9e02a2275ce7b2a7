//! Marketplaces: lists of plugins. Most plugins of a list are below the same root.

use super::PluginAuthor;
use crate::daemon::model::DynamicValue;
use caproot_core::wire::RelPath;

/// Paths of marketplace files below a root. A root may have more than one.
pub const MARKETPLACE_PATHS: [&str; 3] = [
    ".agents/plugins/marketplace.json",
    ".claude-plugin/marketplace.json",
    ".cursor-plugin/marketplace.json",
];

/// One marketplace file. Untrusted.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)] // documented by the proto message `Marketplace`
pub struct PluginMarketplace {
    pub name: Box<str>,
    pub display_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub owner: Option<PluginAuthor>,
    pub entries: Box<[MarketplaceEntry]>,
    /// Whether entries were omitted because of a limit.
    pub truncated: bool,
    /// Path of the marketplace file below the root.
    pub declared_by: RelPath,
    /// Mapping of the other keys, without possible secrets; null if there are none.
    pub more: DynamicValue,
}

/// One plugin of a marketplace.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // documented by the proto message `MarketplaceEntry`
pub struct MarketplaceEntry {
    pub name: Box<str>,
    pub description: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub category: Option<Box<str>>,
    /// Directory of the plugin, if the plugin is below the same root.
    pub package: Option<RelPath>,
    /// Kind of the external source, such as `github`. Empty if `package` is set.
    pub source_kind: Box<str>,
    /// Address of the external source. Empty if `package` is set.
    pub source: Box<str>,
    pub installation: Option<Box<str>>,
    pub authentication: Option<Box<str>>,
    /// Directories of the plugin's skills below the root, as the entry lists them.
    pub skills: Box<[RelPath]>,
    /// Mapping of the other keys, without possible secrets; null if there are none.
    pub more: DynamicValue,
}
