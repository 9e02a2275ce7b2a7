//! `caproot read`: one file of a listed package.

use crate::cli::args::TargetArgs;
use crate::cli::ask::list::consistency;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::handle_arg::{PackageArg, find_root, find_skill, list_plugins};
use crate::cli::output::{OutputFormat, print_message, write_stdout};
use caproot_client::{Client, enclosing_package};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::ReadResourceRequest;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use clap::Args;
use std::io::{self, Write as _};

/// Bytes that are buffered before the first bytes are printed, so that the read can start again if
/// the file changes.
const BUFFERED_BYTES: usize = 4 << 20;
/// Maximum size of a file that is printed as JSON, which is built in memory.
const MAX_JSON_BYTES: usize = 256 << 20;

/// Print one file of a listed skill
///
/// The handle of a package means its SKILL.md. Prints the exact bytes of the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot read pdf                              # a skill's SKILL.md, by name
  caproot read skill://skills/pdf               # the same file, by handle
  caproot read skill://skills/pdf/scripts/fill.py > fill.py
  caproot read skill://deploy/a --root deploy=/opt/plugins/deploy
  caproot read skill://skills/pdf --output json | jq -r .digest")]
pub struct ReadArgs {
    /// Handle of a package or file, or the name of a skill if no other skill has the name; `caproot
    /// list --long` shows both
    #[arg(value_name = "HANDLE_OR_NAME", value_parser = PackageArg::parse)]
    package: PackageArg,
    /// Size of each page in bytes; 0 means the daemon's default
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    #[arg(value_parser = clap::value_parser!(i64).range(0..))]
    max_bytes: i64,
    /// Look up the package in a catalog that includes every change before the call
    #[arg(long)]
    fresh: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints the file.
pub async fn run(args: ReadArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let (mut client, roots) = args.target.open(env).await?;
    let consistency = consistency(args.fresh);
    let handle = args
        .package
        .resolve(&mut client, &roots, consistency)
        .await?;

    let root = find_root(&handle, roots)?;

    // Without a package, the daemon reports the problem of the handle.
    let skill = find_skill(&mut client, &root, &handle, consistency).await?;
    let package = if let Some(skill) = skill {
        skill.package
    } else {
        let plugins = list_plugins(&mut client, vec![root.clone()], consistency).await?;
        let packages = plugins.iter().map(|plugin| plugin.package.as_str());
        enclosing_package(&handle, packages)
            .unwrap_or(&handle)
            .to_owned()
    };

    let resource = if package == handle {
        String::new()
    } else {
        handle
    };

    let request = ReadResourceRequest {
        root: Some(root),
        package,
        resource,
        max_bytes: args.max_bytes,
        consistency: consistency.into(),
        ..ReadResourceRequest::default()
    };

    match args.output {
        OutputFormat::Text => {
            let mut out = |bytes: &[u8]| io::stdout().lock().write_all(bytes);
            client
                .read_resource(&request, BUFFERED_BYTES, &mut out)
                .await?;
            // Stdout keeps the bytes after the last line feed until a flush, which may fail.
            write_stdout(|_| Ok(()))?;
        }
        OutputFormat::Json => print_as_json(&mut client, &request).await?,
    }
    Ok(exit::OK)
}

async fn print_as_json(
    client: &mut Client,
    request: &ReadResourceRequest,
) -> Result<(), CommandFailure> {
    let mut content = Vec::new();
    let mut collect = |bytes: &[u8]| {
        content.extend_from_slice(bytes);
        let fits = content.len() <= MAX_JSON_BYTES;
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "over 256 MiB of JSON");
        fits.then_some(()).ok_or_else(too_large)
    };

    let mut answer = client
        .read_resource(request, MAX_JSON_BYTES, &mut collect)
        .await?;

    answer.body = Some(match answer.body {
        Some(Body::Contents(_)) => {
            Body::Contents(String::from_utf8(content).or_invalid_response()?)
        }
        Some(Body::Data(_)) | None => Body::Data(content),
    });

    print_message(&answer)
}
