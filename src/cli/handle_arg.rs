//! Handle or skill name on the command line, and its root and package.

use super::exit;
use super::failure::CommandFailure;
use caproot_client::{Client, PublishedRootId, approved_root_id, enclosing_package, root_id};
use caproot_core::proto::caproot::v1::{
    CapabilityRootLocation, Consistency, ListSkillsRequest, ListSkillsResponse, Plugin,
    ResolveRootsRequest, RootState, SelectedCapabilityRoot, Skill, SkillView,
};
use caproot_core::text::similar::suggest_skill_names;
use caproot_core::wire::RootId;
use std::fmt::Write as _;

/// Maximum number of candidates in a message.
const MAX_CANDIDATES: usize = 10;

/// Package or file on the command line.
#[derive(Debug, Clone)]
pub enum PackageArg {
    /// Handle.
    Handle(String),
    /// Qualified name of a skill, such as `deploy` or `kit:deploy`.
    Name(String),
}

impl PackageArg {
    /// Parses a handle or a name.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if root_id(text).is_some() {
            return Ok(Self::Handle(text.to_owned()));
        }
        if text.is_empty() || text.starts_with("skill:") {
            return Err("invalid handle: expected skill://ROOT or skill://ROOT/PATH");
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// Returns the handle or the name.
    pub fn text(&self) -> &str {
        let (Self::Handle(text) | Self::Name(text)) = self;
        text
    }

    /// Returns the handle. A name must belong to exactly one skill of the roots.
    pub async fn resolve(
        self,
        client: &mut Client,
        roots: &[SelectedCapabilityRoot],
        consistency: Consistency,
    ) -> Result<String, CommandFailure> {
        let name = match self {
            Self::Handle(handle) => return Ok(handle),
            Self::Name(name) => name,
        };

        let list = client
            .list_skills(&list_request(roots.to_vec(), consistency))
            .await?;
        let skills = list.skills.iter();
        let named: Vec<_> = skills.filter(|skill| skill.name == name).collect();

        match &named[..] {
            [skill] => Ok(skill.package.clone()),
            [] => Err(unknown_name(&name, &list)),
            _ => {
                let handles = join_candidates(named.iter().map(|skill| &*skill.package));
                let sentence = format!("{} skills are named `{name}`: {handles}", named.len());
                Err(CommandFailure::new(exit::REJECTED, sentence)
                    .with_hint("use the handle of one of the skills"))
            }
        }
    }
}

fn unknown_name(name: &str, list: &ListSkillsResponse) -> CommandFailure {
    let mut sentence = format!("no skill has the qualified name `{name}`");

    let names = || list.skills.iter().map(|skill| skill.name.as_str());
    // No skill has the name itself.
    let alike: Vec<_> = names().filter(|full| bare_name(full) == name).collect();
    if !alike.is_empty() {
        let alike = join_candidates(alike.into_iter());
        let _ = write!(sentence, "; plugins have {alike}");
    } else if let Some(question) = suggest_skill_names(name, names()) {
        let _ = write!(sentence, "; {question}");
    }

    let roots = list.roots.iter();
    let unready = roots
        .filter(|root| root.state() != RootState::Ready)
        .count();
    if unready > 0 {
        let total = list.roots.len();
        let _ = write!(sentence, "; {unready} of {total} roots are not ready");
    }
    CommandFailure::new(exit::REJECTED, sentence)
        .with_hint("`caproot list --long` shows names and handles")
}

/// Returns the name of a skill without its plugin.
pub fn bare_name(qualified: &str) -> &str {
    qualified
        .rsplit_once(':')
        .map_or(qualified, |(_, bare)| bare)
}

/// Joins the first candidates, and counts the others.
pub fn join_candidates<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = all.len().saturating_sub(MAX_CANDIDATES);
    let text = all.take(MAX_CANDIDATES).collect::<Vec<_>>().join(", ");
    match more {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

pub fn list_request(
    roots: Vec<SelectedCapabilityRoot>,
    consistency: Consistency,
) -> ListSkillsRequest {
    ListSkillsRequest {
        selected_capability_roots: roots,
        view: SkillView::Basic.into(),
        consistency: consistency.into(),
        ..ListSkillsRequest::default()
    }
}

/// Returns the plugins of the roots with all their components.
pub async fn list_plugins(
    client: &mut Client,
    roots: Vec<SelectedCapabilityRoot>,
    consistency: Consistency,
) -> Result<Vec<Plugin>, CommandFailure> {
    let request = ResolveRootsRequest {
        selected_capability_roots: roots,
        consistency: consistency.into(),
        ..ResolveRootsRequest::default()
    };
    Ok(client
        .resolve_roots(request)
        .await?
        .roots
        .into_iter()
        .flat_map(|root| root.plugins)
        .collect())
}

/// Returns the selected root of the handle. A session on a fleet has handles with the environment of a
/// published root, which mean the published root itself.
pub fn find_root(
    handle: &str,
    roots: Vec<SelectedCapabilityRoot>,
) -> Result<SelectedCapabilityRoot, CommandFailure> {
    let parsed = root_id(handle);
    let id = parsed.as_ref().map_or("", RootId::as_str);
    if let Some(root) = find_fleet_root(id, &roots) {
        return Ok(root);
    }

    let ids: Vec<&str> = roots.iter().map(|root| root.id.as_str()).collect();
    let known = if ids.is_empty() {
        "none".to_owned()
    } else {
        ids.join(", ")
    };
    let sentence = format!("unknown root `{id}`; selected or published roots: {known}");

    let root = roots
        .into_iter()
        .find(|root| has_id(root, id))
        .ok_or_else(|| {
            CommandFailure::new(exit::REJECTED, sentence)
                .with_hint("select the root with --root ID=DIR or --selected FILE")
        })?;

    // The daemon rejects a handle of another root, so that the root gets the id of the handle.
    Ok(SelectedCapabilityRoot {
        id: id.to_owned(),
        ..root
    })
}

/// Whether a root has an id, or a session with a lock names it so.
fn has_id(root: &SelectedCapabilityRoot, id: &str) -> bool {
    root.id == id || approved_root_id(root) == id
}

/// Returns the published root that a session on a fleet names by this id, in the environment of the id.
/// The daemon rejects an environment that it does not have.
fn find_fleet_root(id: &str, roots: &[SelectedCapabilityRoot]) -> Option<SelectedCapabilityRoot> {
    let PublishedRootId {
        root_id,
        environment_id,
    } = PublishedRootId::parse(id)?;
    if roots.iter().any(|root| root.id == id) {
        return None;
    }

    let root = roots.iter().find(|root| {
        let location = root.location.as_ref();
        let path = format!("published:{}", root.id);
        has_id(root, &root_id) && location.is_some_and(|location| location.path == path)
    })?;
    let location = root.location.clone().unwrap_or_default();
    Some(SelectedCapabilityRoot {
        id: id.to_owned(),
        location: Some(CapabilityRootLocation {
            environment_id,
            ..location
        }),
    })
}

/// Finds the listed skill whose package is the handle or contains the handle. Without a skill, the
/// caller sends the handle itself as the package: the daemon then reports the problem of the handle
/// or the root.
pub async fn find_skill(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
    consistency: Consistency,
) -> Result<Option<Skill>, CommandFailure> {
    let skills = client
        .list_skills(&list_request(vec![root.clone()], consistency))
        .await?
        .skills;
    let packages = skills.iter().map(|skill| skill.package.as_str());
    let package = enclosing_package(handle, packages).map(str::to_owned);
    let mut skills = skills.into_iter();
    Ok(skills.find(|skill| Some(&skill.package) == package.as_ref()))
}
