//! The command line: what may be said, and where each command is done. stdout is for results,
//! stderr for everything else.

mod args;
mod call;
mod changes;
mod check;
mod config;
mod config_check;
pub mod exit;
mod explain;
mod failure;
mod fleet;
mod handle_arg;
mod list;
#[cfg(feature = "mcp")]
mod mcp;
mod output;
mod path;
mod plugins;
mod read;
mod report;
mod resolve;
mod resources;
mod root_arg;
mod roots;
mod serve;
mod signals;
mod status;
mod table;
mod text;
mod watch;

pub use failure::{CommandFailure, report_outcome, report_usage_error};

use crate::endpoint::ProcessEnv;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use output::write_stdout;
use std::path::{Path, PathBuf};

/// The version, and of what it was built.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CAPROOT_BUILD"), ")");

/// Serves the skills and plugins below an executor's capability roots over gRPC.
#[derive(Debug, Parser)]
#[command(name = "caproot", version, long_version = LONG_VERSION)]
#[command(arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills      publish a directory of skills
  caproot list                       what the running daemon publishes
  caproot read skill://skills/pdf    one skill's instructions
  caproot check ./skills             what is wrong with your skills
  caproot help list                  more about a command

Exit codes:
  0 fine   1 the answer says something is wrong   2 bad usage   3 no daemon answers
  4 the daemon refused the call as wrong   5 not permitted   6 try later   70 internal error
  73 a listener cannot be made   74 output cannot be written   75 to be started again
  78 bad configuration")]
pub struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::ServeArgs),
    #[command(flatten)]
    User(UserCommand),
}

/// The commands that are no daemon.
#[derive(Debug, Subcommand)]
enum UserCommand {
    Status(status::StatusArgs),
    Roots(roots::RootsArgs),
    Resolve(resolve::ResolveArgs),
    List(list::ListArgs),
    Resources(resources::ResourcesArgs),
    Read(read::ReadArgs),
    Config(config::ConfigArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Path(path::PathArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Watch(watch::WatchArgs),
    Call(call::CallArgs),
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
}

/// Print a shell's completions
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot completions bash > ~/.local/share/bash-completion/completions/caproot
  caproot completions zsh > ~/.zfunc/_caproot
  caproot completions fish > ~/.config/fish/completions/caproot.fish")]
struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Print the manual page, or write one for each command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot man | man -l -
  caproot man --dir /usr/local/share/man/man1")]
struct ManArgs {
    /// Write a page for each command into this directory, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A command that is ready for the runtime.
#[derive(Debug)]
pub struct PreparedCommand(PreparedKind);

#[derive(Debug)]
enum PreparedKind {
    Serve(serve::ServePreparation),
    User(Box<UserCommand>),
}

/// Does the part of a command that must come before the process has a second thread.
pub fn prepare_command(
    cli: CommandLine,
    env: &ProcessEnv,
) -> Result<PreparedCommand, CommandFailure> {
    Ok(PreparedCommand(match cli.command {
        CliCommand::Serve(args) => PreparedKind::Serve(serve::prepare_daemon(args, env)?),
        CliCommand::User(other) => PreparedKind::User(Box::new(other)),
    }))
}

/// Does the rest of what the command line says. `Ok` holds the exit code of an answer that was given.
pub async fn run(begun: PreparedCommand, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let command = match begun.0 {
        PreparedKind::Serve(begun) => return serve::run(begun).await,
        PreparedKind::User(command) => *command,
    };
    match command {
        UserCommand::Status(args) => status::run(args, env).await,
        UserCommand::List(args) => list::run(args, env).await,
        UserCommand::Read(args) => read::run(args, env).await,
        UserCommand::Roots(args) => roots::run(args, env).await,
        UserCommand::Resolve(args) => resolve::run(args, env).await,
        UserCommand::Resources(args) => resources::run(args, env).await,
        UserCommand::Path(args) => path::run(args, env).await,
        UserCommand::Completions(args) => print_completions(&args, CommandLine::command()),
        UserCommand::Man(args) => print_man_pages(&args, CommandLine::command()),
        UserCommand::Config(args) => config::run(&args, env),
        UserCommand::Check(args) => check::run(args, env).await,
        UserCommand::Explain(args) => explain::run(&args),
        UserCommand::Watch(args) => watch::run(args, env).await,
        UserCommand::Call(args) => call::run(args, env).await,
        #[cfg(feature = "mcp")]
        UserCommand::Mcp(args) => mcp::run(args, env).await,
    }
}

/// Prints completions.
fn print_completions(
    args: &CompletionsArgs,
    mut command: clap::Command,
) -> Result<u8, CommandFailure> {
    // The generator cannot report that it could not write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "caproot", &mut script);
    write_stdout(|stdout| stdout.write_all(&script))?;
    Ok(exit::OK)
}

/// Prints or writes manual pages.
fn print_man_pages(args: &ManArgs, command: clap::Command) -> Result<u8, CommandFailure> {
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(command, dir).map_err(|error| man_write_failure(dir, &error))?;
        return Ok(exit::OK);
    }
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| CommandFailure::new(exit::INTERNAL, error))?;
    write_stdout(|stdout| stdout.write_all(&page))?;
    Ok(exit::OK)
}

fn man_write_failure(dir: &Path, error: &std::io::Error) -> CommandFailure {
    let sentence = format!("manual pages cannot be written into {}: {error}", dir.display());
    CommandFailure::new(exit::OUTPUT_FAILED, sentence)
}
