//! `caproot list`: the skills below roots. Leaves how problems are worded to `report`, and many executors
//! to `fleet`.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::CommandFailure;
use super::fleet;
use super::output::{OutputFormat, print_full_table, print_message, print_stderr, print_table};
use super::report;
use super::text::escape_text;
use crate::endpoint::ProcessEnv;
use crate::proto::caproot::v1::{Consistency, ListSkillsRequest, RootState, Skill, SkillView};
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
  caproot list --long                            with handles, for `caproot read` and scripts
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
    /// Show the handle of each skill in place of its root, and cut nothing; json always holds handles
    #[arg(long)]
    long: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Prints the skills.
pub(super) async fn run(args: ListArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let view = match args.output {
        OutputFormat::Text => SkillView::Basic,
        OutputFormat::Json => SkillView::Full,
    };
    let mut request = ListSkillsRequest {
        product: args.product,
        view: view.into(),
        consistency: consistency(args.fresh).into(),
        ..ListSkillsRequest::default()
    };
    if let Some(file) = &args.fleet {
        args.connection.refuse_endpoint()?;
        let roots = args.selection.roots_from_file()?;
        return fleet::list_fleet(file, roots, &request, args.long, args.output).await;
    }
    let (mut client, _) = args.connection.connect(env).await?;
    request.selected_capability_roots = args.selection.selected_roots(&mut client, env).await?;
    let list = client.list_skills(&request).await?;
    match args.output {
        OutputFormat::Text => {
            let rows: Vec<_> =
                list.skills.iter().map(|skill| skill_row(skill, args.long)).collect();
            print_skills(["NAME", location_header(args.long), "DESCRIPTION"], &rows, args.long)?;
            let mut lines = report::skills_report(&list);
            if list.roots.is_empty() && args.selection.selects_published() {
                lines.push(report::NOTHING_PUBLISHED.to_owned());
            }
            print_stderr(&lines);
        }
        OutputFormat::Json => print_message(&list)?,
    }
    let ready = list.roots.iter().all(|root| root.state() == RootState::Ready);
    Ok(if ready { exit::OK } else { exit::PROBLEMS_FOUND })
}

/// What `--fresh` asks for.
pub(super) fn consistency(fresh: bool) -> Consistency {
    if fresh { Consistency::Fresh } else { Consistency::Cached }
}

/// The name, place and description of a skill. The place is the handle with `--long`, else the root.
pub(super) fn skill_row(skill: &Skill, is_long: bool) -> [String; 3] {
    let root = || skill.authority.as_ref().map_or("", |authority| &authority.id);
    let place = if is_long { &skill.package } else { root() };
    [escape_text(&skill.name), escape_text(place), escape_text(&skill.description)]
}

/// The head of the column with the place.
pub(super) fn location_header(is_long: bool) -> &'static str {
    if is_long { "HANDLE" } else { "ROOT" }
}

/// Prints skills. A long table is as wide as its rows, so that every handle can be copied.
pub(super) fn print_skills<const N: usize>(
    head: [&str; N],
    rows: &[[String; N]],
    is_long: bool,
) -> Result<(), CommandFailure> {
    if is_long { print_full_table(head, rows) } else { print_table(head, rows) }
}
