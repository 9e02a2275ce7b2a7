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
    Check(ConfigCheckArgs),
    Example(ConfigExampleArgs),
}

/// Check a config file like `caproot serve --config`, without starting the daemon
///
/// Prints every error with its file, line, column, key and reason, and exits with 78. Without
/// errors, prints warnings and a summary of the configuration. The certificates in the file are
/// checked, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot config check /etc/caproot/caproot.yaml
  caproot config check caproot.yaml --output json | jq '.errors[].line'
  caproot config example | caproot config check /dev/stdin")]
struct ConfigCheckArgs {
    #[command(flatten)]
    check: FileCheckArgs,
}

/// Print a config file with every key, its default and its meaning
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot config example > caproot.yaml
  caproot config example --link > link.yaml    # the file of `caproot link`")]
struct ConfigExampleArgs {
    /// Print a config file of `caproot link`
    #[arg(long)]
    link: bool,
}

impl ConfigExampleArgs {
    fn file(&self) -> String {
        if self.link {
            return LINK_EXAMPLE.to_owned();
        }
        example_file()
    }
}

/// Number of entries of one kind in a config file.
struct EntryCount {
    /// Key of the JSON.
    key: &'static str,
    count: usize,
    one: &'static str,
    many: &'static str,
}

/// Runs the subcommand.
pub fn run(args: &ConfigArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    match &args.command {
        ConfigCommand::Check(ConfigCheckArgs { check }) => {
            check.print_findings(&check_config_file(&check.file, env))
        }
        ConfigCommand::Example(args) => {
            write_stdout(|stdout| stdout.write_all(args.file().as_bytes()))?;
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
    let mut config = match load_file_or_pipe(file, &env) {
        Ok(config) => config,
        Err(errors) => return FileFindings::from_errors(errors.iter()),
    };
    config.warnings.extend(config.advice(&env));

    let counts = entry_counts(&config);
    FileFindings {
        errors: Vec::new(),
        summary: counts
            .iter()
            .map(EntryCount::to_text)
            .collect::<Vec<_>>()
            .join(", "),
        counts: counts
            .iter()
            .map(|entry| (entry.key.to_owned(), json!(entry.count)))
            .collect(),
        warnings: config.warnings,
    }
}

/// Loads a file. A pipe, such as `/dev/stdin`, is read to its end.
fn load_file_or_pipe(file: &Path, env: &ProcessEnv) -> Result<Config, ConfigErrors> {
    let bytes = bounded_file::read_file_or_pipe(file, MAX_FILE_BYTES).in_file(file)?;
    Config::from_bytes(ServeFlags::default(), file, bytes, env)
}

/// Returns the number of entries of each kind.
fn entry_counts(config: &Config) -> [EntryCount; 6] {
    let caller_rules = config.callers.as_ref();
    [
        EntryCount {
            key: "environments",
            count: config.environment_ids.len(),
            one: "environment",
            many: "environments",
        },
        EntryCount {
            key: "listeners",
            count: config.listeners.len(),
            one: "listener",
            many: "listeners",
        },
        EntryCount {
            key: "published_roots",
            count: config.count_visible_roots(),
            one: "published root",
            many: "published roots",
        },
        EntryCount {
            key: "allowed_directories",
            count: config.extra_allowed_dirs().len(),
            one: "additional allowed directory",
            many: "additional allowed directories",
        },
        EntryCount {
            key: "disabled_skills",
            count: config.disabled_skills.len(),
            one: "rule that disables skills",
            many: "rules that disable skills",
        },
        EntryCount {
            key: "callers",
            count: caller_rules.map_or(0, |rules| rules.callers.rules.len()),
            one: "caller rule",
            many: "caller rules",
        },
    ]
}

impl EntryCount {
    fn to_text(&self) -> String {
        match (self.key, self.count) {
            ("callers", 0) => "callers: every user who can connect".to_owned(),
            (_, 1) => format!("1 {}", self.one),
            (_, count) => format!("{count} {}", self.many),
        }
    }
}
