//! `caproot list`: the skills below roots. Leaves how problems are worded to `report`, and many executors
//! to `fleet`.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::Failure;
use super::fleet;
use super::output::{Output, print_message, print_table, say};
use super::report;
use super::text::shown;
use crate::endpoint::Env;
use crate::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, RootState, SkillView,
};
use clap::Args;
use std::path::PathBuf;

/// List the skills below roots
///
/// The skills go to stdout; roots that are not ready, what is wrong with skills, and a summary go to
/// stderr. Exits with 1 when a root is not ready, or an executor of --fleet does not answer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot list                                   every published root
  caproot list --root ./skills --fresh           a directory, searched again
  caproot list --root published:team --product codex
  caproot list --selected thread-start.json      the roots that a platform selected
  caproot list --fleet fleet.yaml                what each executor of a file publishes
  caproot list --output json | jq -r '.skills[].package'")]
pub(super) struct ListArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Ask many executors at once: those of this file, in YAML or JSON, which maps environment ids to
    /// endpoints. Without --selected, what each publishes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "timeout", "server_name"])]
    fleet: Option<PathBuf>,
    /// Only skills for this product, or for every product
    #[arg(long, value_name = "PRODUCT", default_value = "", hide_default_value = true)]
    product: String,
    /// Include every change made before the call
    #[arg(long)]
    fresh: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the skills.
pub(super) async fn run(args: ListArgs, env: &Env) -> Result<u8, Failure> {
    let view = match args.output {
        Output::Text => SkillView::Basic,
        Output::Json => SkillView::Full,
    };
    let mut request = ListSkillsRequest {
        product: args.product,
        view: view.into(),
        consistency: consistency(args.fresh).into(),
        ..ListSkillsRequest::default()
    };
    if let Some(file) = &args.fleet {
        args.connection.refuse_endpoint()?;
        return fleet::list(file, args.selection.given()?, &request, args.output).await;
    }
    let (mut client, _) = args.connection.client(env).await?;
    request.selected_capability_roots = args.selection.roots(&mut client, env).await?;
    let list = client.list_skills(&request).await?;
    match args.output {
        Output::Text => {
            print_table(["NAME", "ROOT", "DESCRIPTION"], &rows(&list))?;
            say(&report::lines(&list));
        }
        Output::Json => print_message(&list)?,
    }
    let ready = list.roots.iter().all(|root| root.state() == RootState::Ready);
    Ok(if ready { exit::OK } else { exit::WRONG })
}

/// What `--fresh` asks for.
pub(super) fn consistency(fresh: bool) -> Consistency {
    if fresh { Consistency::Fresh } else { Consistency::Cached }
}

fn rows(list: &ListSkillsResponse) -> Vec<[String; 3]> {
    let skills = list.skills.iter().map(|skill| {
        let root = skill.authority.as_ref().map_or("", |authority| &authority.id);
        [shown(&skill.name), shown(root), shown(&skill.description)]
    });
    skills.collect()
}
