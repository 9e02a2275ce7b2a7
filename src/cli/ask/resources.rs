//! `caproot resources`: the files of a listed package.

use super::report;
use crate::cli::args::TargetArgs;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::{PackageArg, find_root};
use crate::cli::output::{OutputFormat, print_full_table, print_message, print_stderr};
use caproot_client::listed_package_files;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{Consistency, ListResourcesRequest, Resource};
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
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints the files.
pub async fn run(args: ResourcesArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let (mut client, roots) = args.target.open(env).await?;
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
            let mut head = vec!["BYTES", "X", "TYPE"];
            head.extend(args.digests.then_some("DIGEST"));
            head.push("RESOURCE");
            let rows: Vec<_> = answer
                .resources
                .iter()
                .map(|file| cells(file, args.digests))
                .collect();
            // Not truncated, so that handles can be copied.
            print_full_table(&head, &rows)?;

            let files = report::count_with_noun(answer.resources.len(), "file");
            let bytes: u64 = answer.resources.iter().map(|file| file.size_bytes).sum();
            let end = if answer.truncated {
                Some("; files over a limit are omitted".to_owned())
            } else {
                listed_package_files(&package, &answer.resources, &answer.withheld)
                    .map(|files| format!("; digest of the package: {}", files.content_digest()))
            };
            let end = end.unwrap_or_default();
            print_stderr(&[format!("{files}, {bytes} bytes{end}")]);
            let withheld = answer.withheld.iter().map(|file| &*file.resource);
            print_stderr(&report::withheld_lines(withheld));
        }
        OutputFormat::Json => print_message(&answer)?,
    }
    Ok(exit::OK)
}

fn cells(resource: &Resource, has_digest: bool) -> Vec<String> {
    let mark = if resource.executable { "x" } else { "-" };
    let mut cells = vec![
        resource.size_bytes.to_string(),
        mark.to_owned(),
        escape_text(&resource.media_type),
    ];
    if has_digest {
        let digest = &*resource.digest;
        cells.push(escape_text(if digest.is_empty() { "-" } else { digest }));
    }
    cells.push(escape_text(&resource.resource));
    cells
}
