//! Pulls of skills of MCP servers and sites.

use super::{PullArgs, PullSources, print_conflicts, print_report};
use crate::cli::agents::sites_args::wait_for_sites;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::join_candidates;
use caproot_client::pull::PullError;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_session::SkillSource;
use caproot_session::sources::pull_skill;
use std::sync::Arc;
use std::time::Duration;

/// How long the command waits for the lists of the sources.
const START_TIMEOUT: Duration = Duration::from_secs(30);

impl PullSources {
    /// Whether there is an MCP server or a site.
    pub fn has_any(&self) -> bool {
        self.mcp_servers.has_servers() || self.sites.has_sites()
    }
}

/// Pulls one skill of MCP servers and sites.
pub async fn pull_from_sources(args: PullArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let options = args.options()?;
    let Some(wanted) = args.package.filter(|_| !args.watch) else {
        let sentence = "--all and --watch need a daemon; name one skill of the sources";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    };

    let sites = args.sources.sites.open().await?;
    let servers = args.sources.mcp_servers.read().await?;
    let mut sources = servers.start(START_TIMEOUT).await;
    sources.extend(wait_for_sites(sites, START_TIMEOUT).await);
    let found = find_skill(&sources, wanted.text())?;

    // The root is that of a daemon.
    let root = SelectedCapabilityRoot::default();
    let approved = options.approved_versions(&found.listed_name());
    let mut request = options.request(root, found.package, args.into, env)?;
    request.approved = approved;
    match pull_skill(&*found.source, &request, &mut |_| {}).await {
        Ok(report) => {
            print_report(&request, &report, args.output)?;
            Ok(exit::OK)
        }
        Err(PullError::Conflicts(conflicts)) => print_conflicts(&request, &conflicts, args.output),
        Err(error) => Err(error.into()),
    }
}

/// Skill of a source.
struct FoundSkill {
    source: Arc<dyn SkillSource>,
    package: String,
}

impl FoundSkill {
    /// Returns the name of the skill, or nothing if the source does not list the skill.
    fn listed_name(&self) -> String {
        let snapshot = self.source.snapshot();
        let mut listed = snapshot.listing.skills.iter();
        let skill = listed.find(|skill| skill.package == self.package);
        skill.map(|skill| skill.name.clone()).unwrap_or_default()
    }
}

/// Finds the skill with a handle or a name. A handle need not be listed.
fn find_skill(
    sources: &[Arc<dyn SkillSource>],
    wanted: &str,
) -> Result<FoundSkill, CommandFailure> {
    let mut owners = sources.iter();
    if let Some(source) = owners.find(|source| source.owns_handle(source.id(), wanted)) {
        return Ok(FoundSkill {
            source: source.clone(),
            package: wanted.to_owned(),
        });
    }

    let mut found = Vec::new();
    let mut problems = Vec::new();
    for source in sources {
        let snapshot = source.snapshot();
        if let Some(reason) = snapshot.unavailable_reason {
            let phrase = source.kind().describe(source.id());
            problems.push(format!("{phrase} cannot be used: {reason}"));
            continue;
        }
        let skills = snapshot.listing.skills.iter();
        let named = skills.filter(|skill| skill.name == wanted);
        found.extend(named.map(|skill| FoundSkill {
            source: source.clone(),
            package: skill.package.clone(),
        }));
    }

    match found.len() {
        1 => Ok(found.remove(0)),
        0 if problems.is_empty() => {
            let sentence = format!("no skill of the sources has the name `{wanted}`");
            Err(CommandFailure::new(exit::REJECTED, sentence))
        }
        0 => Err(CommandFailure::from_messages(exit::TRY_LATER, &problems)),
        count => {
            let handles = join_candidates(found.iter().map(|skill| &*skill.package));
            let sentence = format!("{count} skills are named `{wanted}`: {handles}");
            Err(CommandFailure::new(exit::REJECTED, sentence)
                .with_hint("use the handle of one of the skills"))
        }
    }
}
