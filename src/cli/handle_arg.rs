//! A handle or a skill's name on the command line: how it is read, and which root and package it belongs to.

use super::exit;
use super::failure::CommandFailure;
use crate::client::{Client, enclosing_package, root_id};
use crate::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, ResolveRootsRequest, RootState,
    SelectedCapabilityRoot, Skill, SkillView,
};

/// The most candidates that a message lists.
const MAX_CANDIDATES: usize = 10;

/// A package, or a file in one, as the command line names it.
#[derive(Debug, Clone)]
pub(super) enum PackageArg {
    /// A handle.
    Handle(String),
    /// The qualified name of a skill, such as `deploy` or `kit:deploy`.
    Name(String),
}

impl PackageArg {
    /// Reads a handle or a name.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if root_id(text).is_some() {
            return Ok(Self::Handle(text.to_owned()));
        }
        if text.is_empty() || text.starts_with("skill:") {
            return Err("a handle is skill://ROOT or skill://ROOT/PATH");
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// Returns the handle. Looks a name up among the skills of the roots, where one skill must have it.
    pub(super) async fn resolve(
        self,
        client: &mut Client,
        roots: &[SelectedCapabilityRoot],
        consistency: Consistency,
    ) -> Result<String, CommandFailure> {
        let name = match self {
            Self::Handle(handle) => return Ok(handle),
            Self::Name(name) => name,
        };
        let list = client.list_skills(&list_request(roots.to_vec(), consistency)).await?;
        let named: Vec<_> = list.skills.iter().filter(|skill| skill.name == name).collect();
        match &named[..] {
            [skill] => Ok(skill.package.clone()),
            [] => Err(unknown_name(&name, &list)),
            _ => {
                let handles = join_candidates(named.iter().map(|skill| &*skill.package));
                let sentence = format!("{} skills are named `{name}`: {handles}", named.len());
                Err(CommandFailure::new(exit::REJECTED, sentence)
                    .with_hint("give the handle of one of them"))
            }
        }
    }
}

fn unknown_name(name: &str, list: &ListSkillsResponse) -> CommandFailure {
    let mut sentence = format!("no skill has the qualified name `{name}`");
    let bare = |skill: &&Skill| skill.name.rsplit_once(':').is_some_and(|(_, bare)| bare == name);
    let alike: Vec<_> = list.skills.iter().filter(bare).map(|skill| &*skill.name).collect();
    if !alike.is_empty() {
        sentence = format!("{sentence}; plugins have {}", join_candidates(alike.into_iter()));
    }
    let unready = list.roots.iter().filter(|root| root.state() != RootState::Ready).count();
    if unready > 0 {
        sentence = format!("{sentence}; {unready} of {} roots are not ready", list.roots.len());
    }
    CommandFailure::new(exit::REJECTED, sentence)
        .with_hint("`caproot list --long` shows names and handles")
}

/// Joins as many candidates as a person reads.
fn join_candidates<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = all.len().saturating_sub(MAX_CANDIDATES);
    let text = all.take(MAX_CANDIDATES).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

fn list_request(roots: Vec<SelectedCapabilityRoot>, consistency: Consistency) -> ListSkillsRequest {
    ListSkillsRequest {
        selected_capability_roots: roots,
        view: SkillView::Basic.into(),
        consistency: consistency.into(),
        ..ListSkillsRequest::default()
    }
}

/// The selected root whose id the handle names.
pub(super) fn find_root(
    handle: &str,
    roots: Vec<SelectedCapabilityRoot>,
) -> Result<SelectedCapabilityRoot, CommandFailure> {
    let id = root_id(handle).unwrap_or_default();
    let ids: Vec<&str> = roots.iter().map(|root| root.id.as_str()).collect();
    let known = if ids.is_empty() { "there is none".to_owned() } else { ids.join(", ") };
    let sentence = format!("no root is named `{id}`; of the selected or published roots: {known}");
    roots
        .into_iter()
        .find(|root| root.id == id)
        .ok_or_else(|| CommandFailure::new(exit::REJECTED, sentence))
        .map_err(|failure| failure.with_hint("name it with --root ID=DIR or --selected FILE"))
}

/// The listed skill whose package is the handle or holds it. Where none does, send the handle itself
/// as a package: the daemon then says what is wrong with it, or with its root.
pub(super) async fn find_skill(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
    consistency: Consistency,
) -> Result<Option<Skill>, CommandFailure> {
    let list = client.list_skills(&list_request(vec![root.clone()], consistency)).await?;
    let packages = list.skills.iter().map(|skill| skill.package.as_str());
    let package = enclosing_package(handle, packages).map(str::to_owned);
    Ok(list.skills.into_iter().find(|skill| Some(&skill.package) == package.as_ref()))
}

/// The plugin whose package is the handle or holds it, for what no skill holds.
pub(super) async fn find_plugin_package(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
    consistency: Consistency,
) -> Result<Option<String>, CommandFailure> {
    let request = ResolveRootsRequest {
        selected_capability_roots: vec![root.clone()],
        consistency: consistency.into(),
        ..ResolveRootsRequest::default()
    };
    let answer = client.resolve_roots(request).await?;
    let plugins = answer.roots.iter().flat_map(|root| &root.plugins);
    Ok(enclosing_package(handle, plugins.map(|plugin| plugin.package.as_str())).map(str::to_owned))
}
