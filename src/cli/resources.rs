//! `caproot resources`: the files of a listed package.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::Failure;
use super::handle_arg::{PackageArg, root_of};
use super::output::{Output, print, print_message, say};
use super::text::shown;
use super::{report, table};
use crate::endpoint::Env;
use crate::proto::caproot::v1::{
    Consistency, ListResourcesRequest, ListResourcesResponse, Resource,
};
use clap::Args;

/// List the files of a listed skill
///
/// The files go to stdout, a summary to stderr. An `x` marks what can be executed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot resources pdf                             by the skill's name
  caproot resources skill://skills/pdf
  caproot resources skill://skills/pdf --digests --output json | jq -r '.resources[].digest'
  caproot resources skill://deploy/a --root deploy=/opt/plugins/deploy")]
pub(super) struct ResourcesArgs {
    /// The handle of a package, or the name of a skill that no other skill has; `caproot list --long`
    /// shows both
    #[arg(value_name = "HANDLE_OR_NAME", value_parser = PackageArg::parse)]
    package: PackageArg,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Show the digest of each file's content too
    #[arg(long)]
    digests: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the files.
pub(super) async fn run(args: ResourcesArgs, env: &Env) -> Result<u8, Failure> {
    let (mut client, _) = args.connection.client(env).await?;
    let roots = args.selection.roots(&mut client, env).await?;
    let package = args.package.resolve(&mut client, &roots, Consistency::Cached).await?;
    let request = ListResourcesRequest {
        root: Some(root_of(&package, roots)?),
        package,
        include_digests: args.digests,
        ..ListResourcesRequest::default()
    };
    let answer = client.list_resources(&request).await?;
    match args.output {
        Output::Text => {
            // Handles are for copying, so none is cut, however narrow the terminal.
            let lines = if args.digests {
                table::lines(&with_digests(&answer), None)
            } else {
                table::lines(&without_digests(&answer), None)
            };
            print(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))?;
            say(&[summary(&answer)]);
        }
        Output::Json => print_message(&answer)?,
    }
    Ok(exit::OK)
}

fn cells(resource: &Resource) -> [String; 4] {
    let mark = if resource.executable { "x" } else { "-" };
    let media_type = shown(&resource.media_type);
    [resource.size_bytes.to_string(), mark.to_owned(), media_type, shown(&resource.resource)]
}

fn without_digests(answer: &ListResourcesResponse) -> Vec<[String; 4]> {
    let head = ["BYTES", "X", "TYPE", "RESOURCE"].map(String::from);
    std::iter::once(head).chain(answer.resources.iter().map(cells)).collect()
}

fn with_digests(answer: &ListResourcesResponse) -> Vec<[String; 5]> {
    let head = ["BYTES", "X", "TYPE", "DIGEST", "RESOURCE"].map(String::from);
    let rows = answer.resources.iter().map(|resource| {
        let [bytes, mark, media_type, handle] = cells(resource);
        let digest = if resource.digest.is_empty() { "-" } else { &resource.digest };
        [bytes, mark, media_type, shown(digest), handle]
    });
    std::iter::once(head).chain(rows).collect()
}

fn summary(answer: &ListResourcesResponse) -> String {
    let bytes: u64 = answer.resources.iter().map(|resource| resource.size_bytes).sum();
    let files = report::counted(answer.resources.len(), "file");
    let cut = if answer.truncated { "; a limit left files out" } else { "" };
    format!("{files}, {bytes} bytes{cut}")
}
