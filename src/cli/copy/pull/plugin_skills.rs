//! Skills of a pulled plugin, which are packages of their own.

use crate::cli::ask::report::count_with_noun;
use crate::cli::copy::pull::join_candidates;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::list_request;
use crate::cli::output::print_stderr;
use caproot_client::Client;
use caproot_client::pull::{PullError, PullRequest};
use caproot_core::proto::caproot::v1::Consistency;
use caproot_core::text::escape_text;
use caproot_core::wire::handle::is_within;

/// Returns the failure of a pull without files, with the skills of the plugin.
pub async fn no_files_failure(client: &mut Client, request: &PullRequest) -> CommandFailure {
    let failure = CommandFailure::from(PullError::NoFiles);
    match list_skills_below(client, request).await {
        Ok(skills) if !skills.is_empty() => failure.with_hint(other_packages_hint(&skills)),
        _ => failure,
    }
}

/// Reports the skills of a pulled plugin. The skills of a pulled skill are a part of it.
pub async fn report_other_packages(
    client: &mut Client,
    request: &PullRequest,
) -> Result<(), CommandFailure> {
    if request.dir.join("SKILL.md").exists() {
        return Ok(());
    }
    let skills = list_skills_below(client, request).await?;
    if !skills.is_empty() {
        print_stderr(&[format!("hint: {}", other_packages_hint(&skills))]);
    }
    Ok(())
}

fn other_packages_hint(skills: &[String]) -> String {
    let count = count_with_noun(skills.len(), "skill");
    let handles = escape_text(&join_candidates(skills.iter().map(String::as_str)));
    format!("{count} of the plugin can be pulled, each to its own directory: {handles}")
}

/// Returns the handles of the skills in a package.
async fn list_skills_below(
    client: &mut Client,
    request: &PullRequest,
) -> Result<Vec<String>, CommandFailure> {
    let roots = vec![request.root.clone()];
    let list = list_request(roots, Consistency::Cached);
    let list = client.list_skills(&list).await?;
    let below = list.skills.into_iter().map(|skill| skill.package);
    Ok(below
        .filter(|package| is_within(package, &request.package))
        .collect())
}
