//! A handle on the command line: how it is read, and which root and package it belongs to.

use super::exit;
use super::failure::Failure;
use crate::client::{Client, package_of, root_id};
use crate::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ResolveRootsRequest, SelectedCapabilityRoot, Skill, SkillView,
};

/// Reads a handle.
pub(super) fn handle(text: &str) -> Result<String, &'static str> {
    root_id(text).map(|_| text.to_owned()).ok_or("a handle is skill://ROOT or skill://ROOT/PATH")
}

/// The selected root whose id the handle names.
pub(super) fn root_of(
    handle: &str,
    roots: Vec<SelectedCapabilityRoot>,
) -> Result<SelectedCapabilityRoot, Failure> {
    let id = root_id(handle).unwrap_or_default();
    let ids: Vec<&str> = roots.iter().map(|root| root.id.as_str()).collect();
    let known = if ids.is_empty() { "there is none".to_owned() } else { ids.join(", ") };
    let sentence = format!("no root is named `{id}`; of the selected or published roots: {known}");
    roots
        .into_iter()
        .find(|root| root.id == id)
        .ok_or_else(|| Failure::new(exit::REFUSED, sentence))
        .map_err(|failure| failure.hint("name it with --root ID=DIR or --selected FILE"))
}

/// The listed skill whose package is the handle or holds it. Where none does, send the handle itself
/// as a package: the daemon then says what is wrong with it, or with its root.
pub(super) async fn package(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
    consistency: Consistency,
) -> Result<Option<Skill>, Failure> {
    let request = ListSkillsRequest {
        selected_capability_roots: vec![root.clone()],
        view: SkillView::Basic.into(),
        consistency: consistency.into(),
        ..ListSkillsRequest::default()
    };
    let list = client.list_skills(&request).await?;
    let packages = list.skills.iter().map(|skill| skill.package.as_str());
    let package = package_of(handle, packages).map(str::to_owned);
    Ok(list.skills.into_iter().find(|skill| Some(&skill.package) == package.as_ref()))
}

/// The plugin whose package is the handle or holds it, for what no skill holds.
pub(super) async fn plugin_package(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
    consistency: Consistency,
) -> Result<Option<String>, Failure> {
    let request = ResolveRootsRequest {
        selected_capability_roots: vec![root.clone()],
        consistency: consistency.into(),
        ..ResolveRootsRequest::default()
    };
    let answer = client.resolve_roots(request).await?;
    let plugins = answer.roots.iter().flat_map(|root| &root.plugins);
    Ok(package_of(handle, plugins.map(|plugin| plugin.package.as_str())).map(str::to_owned))
}
