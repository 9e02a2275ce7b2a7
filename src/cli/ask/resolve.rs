//! `caproot resolve`: roots and the components of their plugins, without skills.

use super::{plugins, report};
use crate::cli::args::TargetArgs;
use crate::cli::ask::list::consistency;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{
    OutputFormat, print_json, print_message, print_stderr, print_table, write_stdout,
};
use caproot_client::json::ResolvedRootsJson;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    ListRootsResponse, PublishedRoot, ResolveRootsRequest, ResolvedRoot, RootKind, RootState, Scope,
};
use caproot_core::text::{EscapedText, escape_text};
use clap::Args;
use std::fmt::Write as _;

/// Resolve roots: state, kind, counts, and components of plugins
///
/// Prints the roots to stdout, followed by a tree of the plugins of each root. With --published, prints the
/// id, scope and state of each published root, and in json the selection that a thread uses. Diagnostics
/// and a summary go to stderr. Exits with 1 if a root is not ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot resolve                               # every published root
  caproot resolve --root ./skills --fresh       # a directory, scanned again
  caproot resolve --selected thread-start.json  # roots that a platform selected
  caproot resolve --output json | jq '.roots[].diagnostics'
  caproot resolve --published                   # id, scope and state only
  caproot resolve --published --output json | jq -c '.roots[]'")]
pub struct ResolveArgs {
    /// Include every change before the call
    #[arg(long)]
    fresh: bool,
    /// List the published roots, unresolved: id, scope and state
    #[arg(long, conflicts_with_all = ["fresh", "root", "selected"])]
    published: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints the roots.
pub async fn run(args: ResolveArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut executor = args.target.connection.connect(env).await?;
    if args.published {
        let answer = executor.client.list_roots().await?;
        print_published(&answer, args.output)?;
        return Ok(code_for_states(
            answer.roots.iter().map(PublishedRoot::state),
        ));
    }

    let request = ResolveRootsRequest {
        selected_capability_roots: args
            .target
            .selection
            .selected_roots(&mut executor, env)
            .await?,
        consistency: consistency(args.fresh).into(),
        ..ResolveRootsRequest::default()
    };
    let answer = executor.client.resolve_roots(request).await?;
    let exit_code = code_for_states(answer.roots.iter().map(ResolvedRoot::state));

    match args.output {
        OutputFormat::Text => {
            let rows = answer.roots.iter().map(|root| {
                [
                    escape_text(&root.id),
                    report::root_state_text(root.state(), root.reason),
                    root_contents(root),
                ]
            });
            print_table(&["ROOT", "STATE", "FOUND"], &rows.collect::<Vec<_>>())?;
            write_stdout(|stdout| {
                let mut trees = answer.roots.iter().filter_map(root_tree).flatten();
                trees.try_for_each(|line| writeln!(stdout, "{line}"))
            })?;
            print_stderr(&report::resolve_report(&answer));
        }
        OutputFormat::Json => print_json(&ResolvedRootsJson::new(answer)?)?,
    }

    Ok(exit_code)
}

fn code_for_states(states: impl IntoIterator<Item = RootState>) -> u8 {
    exit::code_for_result(states.into_iter().all(|state| state == RootState::Ready))
}

fn print_published(answer: &ListRootsResponse, output: OutputFormat) -> Result<(), CommandFailure> {
    if output == OutputFormat::Json {
        return print_message(answer);
    }

    let rows = answer.roots.iter().map(|root| {
        [
            escape_text(&root.id),
            report::enum_value_name(root.scope, Scope::as_str_name, "SCOPE_"),
            report::root_state_text(root.state(), root.reason),
        ]
    });
    print_table(&["ID", "SCOPE", "STATE"], &rows.collect::<Vec<_>>())?;
    let mut lines = report::roots_report(answer);
    if answer.roots.is_empty() {
        lines.push(report::NOTHING_PUBLISHED.to_owned());
    }
    print_stderr(&lines);
    Ok(())
}

/// Returns the tree of a root's plugins below the root's id, or `None` without plugins and
/// marketplaces.
fn root_tree(root: &ResolvedRoot) -> Option<Vec<String>> {
    let lines = plugins::plugin_tree(&root.plugins, &root.marketplaces);
    let head = [String::new(), escape_text(&root.id)];
    (!lines.is_empty()).then(|| head.into_iter().chain(lines).collect())
}

/// Describes a root, such as `PLUGIN deploy 1.0: 3 skills, 1 omitted; directories: 12 scanned`.
fn root_contents(root: &ResolvedRoot) -> String {
    let Some(counts) = &root.counts else {
        return String::new();
    };

    let mut text = report::enum_value_name(root.kind, RootKind::as_str_name, "ROOT_KIND_");
    if let Some(plugin) = &root.plugin {
        let _ = write!(text, " {}", EscapedText(&plugin.name));
        if !plugin.version.is_empty() {
            let _ = write!(text, " {}", EscapedText(&plugin.version));
        }
    }

    let skills = report::count_with_noun(counts.skills as usize, "skill");
    let _ = write!(text, ": {skills}");
    for (count, what) in [
        (counts.omitted, "omitted"),
        (counts.other_product, "for other products"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }

    let _ = write!(text, "; directories: {} scanned", counts.directories);
    if counts.skipped_directories > 0 {
        let _ = write!(text, ", {} skipped", counts.skipped_directories);
    }
    text
}
