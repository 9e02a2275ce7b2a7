//! Command line: arguments, commands, output and exit codes. Results go to stdout, all other
//! messages to stderr.

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
mod locate;
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

use crate::net::endpoint::ProcessEnv;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use output::write_stdout;
use std::path::{Path, PathBuf};

/// Version and build of the program.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CAPROOT_BUILD"), ")");

/// Serves the skills and plugins below an executor's capability roots over gRPC.
#[derive(Debug, Parser)]
#[command(name = "caproot", version, long_version = LONG_VERSION)]
#[command(arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills      publish a directory of skills
  caproot list                       skills of the running daemon
  caproot read skill://skills/pdf    instructions of one skill
  caproot check ./skills             problems of your skills
  caproot help list                  help of a command

Exit codes:
  0 success   1 problems found   2 invalid usage   3 no daemon answers
  4 call rejected as invalid   5 not permitted   6 try later   70 internal error
  73 cannot listen   74 cannot write output   75 restart required
  76 version mismatch   78 invalid configuration")]
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

/// All commands except `serve`.
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

/// Print the completions of a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot completions bash > ~/.local/share/bash-completion/completions/caproot
  caproot completions zsh > ~/.zfunc/_caproot
  caproot completions fish > ~/.config/fish/completions/caproot.fish")]
struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Print the manual page, or write a page for each command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot man | man -l -
  caproot man --dir /usr/local/share/man/man1")]
struct ManArgs {
    /// Write a page for each command to this directory, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Command that is ready for the runtime.
#[derive(Debug)]
pub struct PreparedCommand(PreparedKind);

#[derive(Debug)]
enum PreparedKind {
    Serve(serve::ServePreparation),
    User(Box<UserCommand>),
}

/// Does the first part of a command, while the process has one thread.
pub fn prepare_command(
    cli: CommandLine,
    env: &ProcessEnv,
) -> Result<PreparedCommand, CommandFailure> {
    Ok(PreparedCommand(match cli.command {
        CliCommand::Serve(args) => PreparedKind::Serve(serve::prepare_daemon(args, env)?),
        CliCommand::User(other) => PreparedKind::User(Box::new(other)),
    }))
}

/// Runs the rest of a command. `Ok` has the exit code.
pub async fn run(prepared: PreparedCommand, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let command = match prepared.0 {
        PreparedKind::Serve(prepared) => return serve::run(prepared).await,
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

fn print_completions(
    args: &CompletionsArgs,
    mut command: clap::Command,
) -> Result<u8, CommandFailure> {
    // The generator panics on a write error, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "caproot", &mut script);
    write_stdout(|stdout| stdout.write_all(&script))?;
    Ok(exit::OK)
}

/// Prints or writes the manual pages.
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
    let sentence = format!("cannot write manual pages to {}: {error}", dir.display());
    CommandFailure::new(exit::OUTPUT_FAILED, sentence)
}
