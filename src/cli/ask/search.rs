//! `caproot search`: the skills that fit keywords, as a model finds them in a session.

use crate::cli::agents::session_args::{ExecutorFlags, OpenedFleet};
use crate::cli::args::{ProductArgs, TargetArgs, parse_timeout};
use crate::cli::ask::list::SkillTable;
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_stderr};
use caproot_client::json::SkillListJson;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{ListSkillsResponse, Skill};
use caproot_core::text::escape_text;
use caproot_session::{Session, SessionOptions, SkillSource};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::time::Duration;

/// Maximum number of skills of a search.
const MAX_LIMIT: u64 = 100;

/// Find skills by keywords
///
/// Prints the skills whose names and descriptions fit the query, the best first. The query is keywords,
/// such as the action, the object and the file type, or a name. A model gets the same skills in the
/// same order from the tool `skills_search`. Skills that only a person may choose are not found.
///
/// With --fleet, searches the executors of the roots of --selected, or every executor for its published
/// roots. With --environment-id as well, searches one executor.
///
/// Exits with 1 if a root is not ready, or if an executor of --fleet does not respond.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot search pdf form fill extract          # every published root
  caproot search --limit 3 triage logs
  caproot search --root ./skills deploy         # a directory
  caproot search --fleet fleet.yaml deploy kubernetes
  caproot search --output json pdf | jq -r '.skills[].package'")]
pub struct SearchArgs {
    /// Keywords, or the name of a skill; together at most 400 characters
    #[arg(required = true, value_name = "QUERY")]
    query: Vec<String>,
    #[command(flatten)]
    product: ProductArgs,
    /// Maximum number of skills
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_LIMIT))]
    limit: usize,
    /// Show the handle of each skill instead of its root, and truncate nothing; json always has
    /// handles
    #[arg(long)]
    long: bool,
    /// How long to wait for executors of --fleet that do not respond, and for the skills, such as 5s or
    /// 1m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    connect_timeout: Duration,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints the found skills.
pub async fn run(args: SearchArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let executor_flags = ExecutorFlags {
        connection: &args.target.connection,
        selection: &args.target.selection,
        connect_timeout: args.connect_timeout,
    };
    let OpenedFleet { fleet, selected } = executor_flags.open_fleet(env).await?;
    let messages = selected.message_lines();
    let options = SessionOptions {
        product: args.product.product.clone(),
        // Only the full view has all fields of `caproot list --output json`.
        plugins: args.output == OutputFormat::Json,
        start_timeout: args.connect_timeout,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, selected.roots, &options).await?;

    let found = session
        .search_skills(&args.query.join(" "), args.limit)
        .await
        .map_err(|error| CommandFailure::new(exit::REJECTED, error.message()))?;

    match args.output {
        OutputFormat::Text => {
            let sources = session.sources();
            let mut table = SkillTable::new(args.long, sources.len() > 1);
            for skill in &found {
                let source = sources.iter().find(|source| lists_skill(&***source, skill));
                table.add_skill(source.map_or("", |source| source.id()), skill);
            }
            table.print()?;
            print_stderr(&[count_with_noun(found.len(), "skill")]);
        }
        // The form of `caproot list --output json`.
        OutputFormat::Json => print_json(&SkillListJson::new(&ListSkillsResponse {
            skills: found.iter().map(|skill| Skill::clone(skill)).collect(),
            ..ListSkillsResponse::default()
        })?)?,
    }

    let problems = source_problems(&session);
    let is_well = messages.is_empty() && problems.is_empty();
    print_stderr(&[messages, problems].concat());
    Ok(exit::code_for_result(is_well))
}

fn lists_skill(source: &dyn SkillSource, skill: &Skill) -> bool {
    let authority = skill.authority.clone().unwrap_or_default();
    source.kind().name() == authority.kind && source.authorities().contains(&authority.id)
}

/// Returns a line for each problem of a source.
fn source_problems(session: &Session) -> Vec<String> {
    let mut problems = Vec::new();
    for source in session.sources() {
        let snapshot = source.snapshot();
        let phrase = source.kind().describe(source.id());
        let reason = snapshot.unavailable_reason.iter();
        problems.extend(reason.map(|reason| format!("{phrase} cannot be used: {reason}")));
        problems.extend(snapshot.listing.warnings.iter().cloned());
    }
    problems
        .iter()
        .map(|problem| format!("warning: {}", escape_text(problem)))
        .collect()
}
