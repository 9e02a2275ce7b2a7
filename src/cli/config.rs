//! `caproot config`: checks a config file with the loader of the daemon, and prints an example
//! file.

use super::exit;
use super::failure::CommandFailure;
use super::link::LINK_EXAMPLE;
use super::output::{OutputFormat, ignore_closed_stdout, print_json, write_stdout};
use crate::config::{
    Config, ConfigError, ConfigErrors, MAX_FILE_BYTES, ServeFlags, TextPosition, example_file,
    unit_socket_group,
};
use caproot_core::bounded_file;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::text::{EscapedText, escape_text};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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
    /// The config file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
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

/// Runs the subcommand.
pub fn run(args: &ConfigArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    match &args.command {
        ConfigCommand::Check(args) => check_config_file(args, env),
        ConfigCommand::Example(args) => {
            write_stdout(|stdout| stdout.write_all(args.file().as_bytes()))?;
            Ok(exit::OK)
        }
    }
}

fn check_config_file(args: &ConfigCheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let env = ProcessEnv {
        unit_socket_group: unit_socket_group(env),
        ..env.clone()
    };
    let mut loaded = load_file_or_pipe(&args.file, &env);
    if let Ok(config) = &mut loaded {
        config.warnings.extend(config.advice(&env));
    }
    let printed = match args.output {
        OutputFormat::Json => print_json(&config_check_json(&args.file, &loaded)),
        OutputFormat::Text => write_stdout(|stdout| match &loaded {
            Ok(config) => {
                for warning in &config.warnings {
                    writeln!(stdout, "warning: {}", EscapedText(warning))?;
                }
                writeln!(
                    stdout,
                    "ok: {}: {}",
                    EscapedText(&args.file.to_string_lossy()),
                    config_summary(config)
                )
            }
            Err(errors) => errors
                .iter()
                .try_for_each(|m| writeln!(stdout, "{}", escape_text(&m.to_string()))),
        }),
    };
    // The exit code counts even if the reader of stdout is gone.
    ignore_closed_stdout(printed)?;
    Ok(if loaded.is_ok() {
        exit::OK
    } else {
        exit::BAD_CONFIG
    })
}

/// Loads a file. A pipe, such as `/dev/stdin`, is read to its end.
fn load_file_or_pipe(file: &Path, env: &ProcessEnv) -> Result<Config, ConfigErrors> {
    let bytes = bounded_file::read_file_or_pipe(file, MAX_FILE_BYTES)
        .map_err(|error| ConfigError::file(file, error.to_string()))?;
    Config::from_bytes(ServeFlags::default(), file, bytes, env)
}

/// Returns the number of entries of each kind.
fn config_counts(config: &Config) -> [(&'static str, &'static str, usize); 6] {
    let allowed = config.extra_allowed_dirs().len();
    let rules = config
        .callers
        .as_ref()
        .map_or(0, |rules| rules.callers.rules.len());
    [
        ("environment", "environments", config.environment_ids.len()),
        ("listener", "listeners", config.listeners.len()),
        (
            "published root",
            "published_roots",
            config.count_visible_roots(),
        ),
        (
            "additional allowed directory",
            "allowed_directories",
            allowed,
        ),
        (
            "rule that disables skills",
            "disabled_skills",
            config.disabled_skills.len(),
        ),
        ("caller rule", "callers", rules),
    ]
}

fn config_summary(config: &Config) -> String {
    let counts = config_counts(config).map(|(one, _, count)| match (count, one) {
        (1, one) => format!("1 {one}"),
        (n, "additional allowed directory") => format!("{n} additional allowed directories"),
        (n, "rule that disables skills") => format!("{n} rules that disable skills"),
        (0, "caller rule") => "callers: every user who can connect".to_owned(),
        (n, "caller rule") => format!("{n} caller rules"),
        (n, one) => format!("{n} {one}s"),
    });
    counts.join(", ")
}

fn config_check_json(file: &Path, loaded: &Result<Config, ConfigErrors>) -> Value {
    let file = file.to_string_lossy();
    match loaded {
        Ok(config) => {
            let summary =
                config_counts(config).map(|(_, key, count)| (key.to_owned(), json!(count)));
            let summary = Value::Object(summary.into_iter().collect());
            json!({ "file": file, "ok": true, "warnings": config.warnings, "summary": summary })
        }
        Err(errors) => {
            let errors: Vec<_> = errors.iter().map(config_error_json).collect();
            json!({ "file": file, "ok": false, "errors": errors })
        }
    }
}

/// Returns a config error as JSON. For an error of the whole file, `line` and `column` are 0, as in
/// a diagnostic.
pub fn config_error_json(error: &ConfigError) -> Value {
    let (line, column) = error.position.map_or((0, 0), |at| (at.line, at.column));
    json!({
        "file": error.file.as_ref().map(|file| file.to_string_lossy()),
        "line": line,
        "column": column,
        "key": error.key,
        "value": error.value,
        "reason": error.reason,
    })
}

/// Parses a config error from its JSON.
pub fn config_error_from_json(json: &Value) -> ConfigError {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    let number = |key: &str| {
        json[key]
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0)
    };
    let at = TextPosition {
        line: number("line"),
        column: number("column"),
    };
    ConfigError {
        file: text("file").map(PathBuf::from),
        position: (at.line > 0).then_some(at),
        key: text("key").unwrap_or_default(),
        value: text("value"),
        reason: text("reason").unwrap_or_default(),
    }
}
