//! `caproot config`: checks a config file with the loader of the daemon, and prints an example
//! file.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::file_check::{FileCheckArgs, FileFindings};
use crate::cli::operate::link::LINK_EXAMPLE;
use crate::cli::output::write_stdout;
use crate::daemon::config::{
    Config, ConfigErrors, MAX_FILE_BYTES, ServeFlags, example_file, unit_socket_group,
};
use caproot_core::bounded_file;
use caproot_core::document::FileResult as _;
use caproot_core::net::endpoint::ProcessEnv;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::Path;

/// Check a config file, or print an example file with every key
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot config example > caproot.yaml    # a file with every key
  caproot config check caproot.yaml        # its errors, warnings and a summary")]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a config file like `caproot serve --config`, without starting the daemon
    ///
    /// Prints every error with its file, line, column, key and reason, and exits with 78. Without
    /// errors, prints warnings and a summary of the configuration. The certificates in the file are
    /// checked, too.
    #[command(after_help = "\
Examples:
  caproot config check /etc/caproot/caproot.yaml
  caproot config check caproot.yaml --output json | jq '.errors[].line'
  caproot config example | caproot config check /dev/stdin")]
    Check(FileCheckArgs),
    /// Print a config file with every key, its default and its meaning
    #[command(after_help = "\
Examples:
  caproot config example > caproot.yaml
  caproot config example --link > link.yaml    # the file of `caproot link`")]
    Example {
        /// Print a config file of `caproot link`
        #[arg(long)]
        link: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: &ConfigArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    match &args.command {
        ConfigCommand::Check(check) => check.print_findings(&check_config_file(&check.file, env)),
        ConfigCommand::Example { link } => {
            let file = if *link { LINK_EXAMPLE } else { &example_file() };
            write_stdout(|stdout| stdout.write_all(file.as_bytes()))?;
            Ok(exit::OK)
        }
    }
}

fn check_config_file(file: &Path, env: &ProcessEnv) -> FileFindings {
    // The check inherits no socket, and must still know the group of the unit's socket.
    let env = ProcessEnv {
        unit_socket_group: unit_socket_group(env),
        ..env.clone()
    };
    // A pipe, such as `/dev/stdin`, is read to its end.
    let read = bounded_file::read_file_or_pipe(file, MAX_FILE_BYTES).in_file(file);
    let loaded = read
        .map_err(ConfigErrors::from)
        .and_then(|bytes| Config::from_bytes(ServeFlags::default(), file, bytes, &env));
    match loaded {
        Ok(mut config) => {
            config.warnings.extend(config.advice(&env));
            summarize(config)
        }
        Err(errors) => FileFindings::from_errors(errors.iter()),
    }
}

/// Returns the warnings and the numbers of entries of a valid file.
fn summarize(config: Config) -> FileFindings {
    let caller_rules = config.callers.as_ref();
    // Key of the JSON, number of entries, and the words for one and for several.
    let counts = [
        (
            "environments",
            config.environment_ids.len(),
            "environment",
            "environments",
        ),
        ("listeners", config.listeners.len(), "listener", "listeners"),
        (
            "published_roots",
            config.count_visible_roots(),
            "published root",
            "published roots",
        ),
        (
            "allowed_directories",
            config.extra_allowed_dirs().len(),
            "additional allowed directory",
            "additional allowed directories",
        ),
        (
            "disabled_skills",
            config.disabled_skills.len(),
            "rule that disables skills",
            "rules that disable skills",
        ),
        (
            "callers",
            caller_rules.map_or(0, |rules| rules.callers.rules.len()),
            "caller rule",
            "caller rules",
        ),
    ];

    let summary = counts.map(|(key, count, one, many)| match (key, count) {
        ("callers", 0) => "callers: every user who can connect".to_owned(),
        (_, 1) => format!("1 {one}"),
        _ => format!("{count} {many}"),
    });
    FileFindings {
        errors: Vec::new(),
        summary: summary.join(", "),
        counts: counts
            .into_iter()
            .map(|(key, count, ..)| (key.to_owned(), json!(count)))
            .collect(),
        warnings: config.warnings,
    }
}
