//! Description of a plugin for people: texts, links, colors and images.

use caproot_core::wire::RelPath;
use std::sync::Arc;

/// Description of a plugin for people. Texts are not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented by the proto message `Plugin`
pub struct PluginInfo {
    pub description: Option<Box<str>>,
    pub keywords: Box<[Box<str>]>,
    pub author: Option<PluginAuthor>,
    pub homepage: Option<Box<str>>,
    pub repository: Option<Box<str>>,
    pub license: Option<Box<str>>,
    pub host_capabilities: Arc<[Box<str>]>,
    pub interface: Option<PluginInterface>,
}

/// Author of a plugin, or owner of a marketplace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented by the proto message `Author`
pub struct PluginAuthor {
    pub name: Option<Box<str>>,
    pub email: Option<Box<str>>,
    pub url: Option<Box<str>>,
}

/// Presentation of a plugin in the user interface of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented by the proto message `PluginInterface`
pub struct PluginInterface {
    pub display_name: Option<Box<str>>,
    pub short_description: Option<Box<str>>,
    pub long_description: Option<Box<str>>,
    pub developer_name: Option<Box<str>>,
    pub category: Option<Box<str>>,
    pub capabilities: Box<[Box<str>]>,
    pub website_url: Option<Box<str>>,
    pub privacy_policy_url: Option<Box<str>>,
    pub terms_of_service_url: Option<Box<str>>,
    pub default_prompts: Box<[Box<str>]>,
    pub brand_color: Option<Box<str>>,
    /// Paths of the composer icon, the logo and the dark logo below the plugin.
    pub images: [Option<RelPath>; 3],
    /// Paths below the plugin.
    pub screenshots: Box<[RelPath]>,
}
