//! `caproot resources`: the files of a listed package.

use super::report;
use crate::cli::args::{ConnectionArgs, SelectionArgs};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::{PackageArg, find_root};
use crate::cli::output::{OutputFormat, print_full_table, print_message, print_stderr};
use caproot_client::listed_package_files;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ListResourcesRequest, ListResourcesResponse, Resource,
};
use caproot_core::text::escape_text;
use clap::Args;

/// List the files of a listed skill
///
/// Prints the files to stdout and a summary to stderr. An `x` marks an executable file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot resources pdf                         # by the skill's name
  caproot resources skill://skills/pdf          # by its handle
  caproot resources pdf --digests --output json | jq -r '.resources[].digest'
  caproot resources skill://deploy/a --root deploy=/opt/plugins/deploy")]
pub struct ResourcesArgs {
    /// Handle of a package, or the name of a skill if no other skill has the name; `caproot list
    /// --long` shows both
    #[arg(value_name = "HANDLE_OR_NAME", value_parser = PackageArg::parse)]
    package: PackageArg,
    /// Show the digest of each file, and the digest of the package, for `caproot exec --digest`
    #[arg(long)]
    digests: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Prints the files.
pub async fn run(args: ResourcesArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut executor = args.connection.connect(env).await?;
    let roots = args.selection.selected_roots(&mut executor, env).await?;
    let mut client = executor.client;
    let package = args
        .package
        .resolve(&mut client, &roots, Consistency::Cached)
        .await?;

    let request = ListResourcesRequest {
        root: Some(find_root(&package, roots)?),
        package: package.clone(),
        include_digests: args.digests,
        ..ListResourcesRequest::default()
    };
    let answer = client.list_resources(&request).await?;

    match args.output {
        OutputFormat::Text => {
            // Not truncated, so that handles can be copied.
            if args.digests {
                let head = ["BYTES", "X", "TYPE", "DIGEST", "RESOURCE"];
                print_full_table(&head, &rows_with_digests(&answer))?;
            } else {
                let head = ["BYTES", "X", "TYPE", "RESOURCE"];
                print_full_table(&head, &rows_without_digests(&answer))?;
            }
            let digest = listed_package_files(&package, &answer.resources, &answer.withheld)
                .filter(|_| !answer.truncated)
                .map(|files| format!("; digest of the package: {}", files.content_digest()));
            print_stderr(&[resources_summary(&answer) + &digest.unwrap_or_default()]);
            let withheld = answer.withheld.iter().map(|file| &*file.resource);
            print_stderr(&report::withheld_lines(withheld));
        }
        OutputFormat::Json => print_message(&answer)?,
    }
    Ok(exit::OK)
}

fn cells(resource: &Resource) -> [String; 4] {
    let mark = if resource.executable { "x" } else { "-" };
    let media_type = escape_text(&resource.media_type);
    [
        resource.size_bytes.to_string(),
        mark.to_owned(),
        media_type,
        escape_text(&resource.resource),
    ]
}

fn rows_without_digests(answer: &ListResourcesResponse) -> Vec<[String; 4]> {
    answer.resources.iter().map(cells).collect()
}

fn rows_with_digests(answer: &ListResourcesResponse) -> Vec<[String; 5]> {
    let rows = answer.resources.iter().map(|resource| {
        let [bytes, mark, media_type, handle] = cells(resource);
        let digest = if resource.digest.is_empty() {
            "-"
        } else {
            &resource.digest
        };
        [bytes, mark, media_type, escape_text(digest), handle]
    });
    rows.collect()
}

fn resources_summary(answer: &ListResourcesResponse) -> String {
    let bytes: u64 = answer
        .resources
        .iter()
        .map(|resource| resource.size_bytes)
        .sum();
    let files = report::count_with_noun(answer.resources.len(), "file");
    let cut = if answer.truncated {
        "; files over a limit are omitted"
    } else {
        ""
    };
    format!("{files}, {bytes} bytes{cut}")
}
