//! Command line: arguments, commands, output and exit codes. Results go to stdout, all other
//! messages to stderr.

pub(crate) mod agents;
pub(crate) mod args;
mod ask;
#[cfg(target_os = "linux")]
mod author;
mod changes;
mod color;
#[cfg(target_os = "linux")]
mod copy;
pub mod definitions;
pub(crate) mod executor;
pub mod exit;
pub(crate) mod failure;
mod file_check;
pub(crate) mod fleet;
mod handle_arg;
pub(crate) mod log_args;
#[cfg(target_os = "linux")]
mod operate;
pub(crate) mod output;
mod root_arg;
mod runtime;
pub(crate) mod signals;
mod spinner;
mod table;

pub use failure::{CommandFailure, report_outcome, report_usage_error};
#[cfg(target_os = "linux")]
pub use {
    definitions::{ManualPage, manual_pages},
    operate::serve::sandbox_policy,
};

use crate::agent::call;
use agents::{mcp, prompt};
use ask::{list, read, resolve, resources, search, status, watch};
use caproot_core::net::endpoint::ProcessEnv;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use definitions::definition::{self, CommandEntry};
use definitions::{command_groups, flag_rules};
use output::write_stdout;
use tokio::runtime::Builder;
#[cfg(target_os = "linux")]
use {
    ask::exec,
    author::{check, explain, new},
    copy::{lock, pull},
    definitions::man,
    operate::{config, link, serve},
};
#[cfg(not(target_os = "linux"))]
use {definitions::command_set, std::ffi::OsString};

/// Version and build of the program.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CAPROOT_BUILD"), ")");

/// Serves the skills and plugins below an executor's capability roots over gRPC.
#[derive(Debug, Parser)]
#[command(name = "caproot", version, long_version = LONG_VERSION)]
#[command(arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills      # publish a directory of skills
  caproot list                       # skills of the running daemon
  caproot read skill://skills/pdf    # instructions of one skill
  caproot check ./skills             # problems of your skills
  caproot help list                  # help of a command")]
pub struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    #[cfg(target_os = "linux")]
    Serve(Box<serve::ServeArgs>),
    #[command(flatten)]
    User(Box<UserCommand>),
}

/// All commands except `serve`, in the order of their groups in the help.
#[derive(Debug, Subcommand)]
enum UserCommand {
    #[cfg(target_os = "linux")]
    Config(config::ConfigArgs),
    #[cfg(target_os = "linux")]
    Link(link::LinkArgs),
    Status(status::StatusArgs),
    Resolve(resolve::ResolveArgs),
    List(list::ListArgs),
    Search(search::SearchArgs),
    Resources(resources::ResourcesArgs),
    Read(read::ReadArgs),
    #[cfg(target_os = "linux")]
    Exec(Box<exec::ExecArgs>),
    Watch(watch::WatchArgs),
    #[cfg(target_os = "linux")]
    Pull(Box<pull::PullArgs>),
    #[cfg(target_os = "linux")]
    Lock(lock::LockArgs),
    #[cfg(target_os = "linux")]
    New(new::NewArgs),
    #[cfg(target_os = "linux")]
    Check(check::CheckArgs),
    #[cfg(target_os = "linux")]
    Explain(explain::ExplainArgs),
    Call(Box<call::CallArgs>),
    Mcp(mcp::McpArgs),
    Prompt(Box<prompt::PromptArgs>),
    Fleet(fleet::FleetArgs),
    Completions(CompletionsArgs),
    #[cfg(target_os = "linux")]
    Man(man::ManArgs),
    #[cfg(not(target_os = "linux"))]
    #[command(external_subcommand)]
    Other(Vec<OsString>),
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

/// Parses the arguments of this process.
pub fn parse_command_line() -> Result<CommandLine, clap::Error> {
    let program = definition::add_exit_codes(CommandLine::command(), "");
    let mut command = command_groups::with_command_groups(program);
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    flag_rules::check_flag_rules(&mut command, &matches)?;
    CommandLine::from_arg_matches_mut(&mut matches)
}

/// Returns every command with its documentation. The first is the program.
#[must_use]
pub fn commands() -> Vec<CommandEntry> {
    definition::command_entries(CommandLine::command())
}

/// Command that is ready for the runtime.
#[derive(Debug)]
pub struct PreparedCommand(PreparedKind);

#[derive(Debug)]
enum PreparedKind {
    #[cfg(target_os = "linux")]
    Serve(serve::ServePreparation),
    User(Box<UserCommand>),
}

/// Does the first part of a command, while the process has one thread.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))] // only `serve` uses `env` here
pub fn prepare_command(
    cli: CommandLine,
    env: &ProcessEnv,
) -> Result<PreparedCommand, CommandFailure> {
    Ok(PreparedCommand(match cli.command {
        #[cfg(target_os = "linux")]
        CliCommand::Serve(args) => PreparedKind::Serve(serve::prepare_daemon(*args, env)?),
        CliCommand::User(other) => PreparedKind::User(other),
    }))
}

/// Runs the rest of a command with this number of threads. `Ok` has the exit code.
pub fn run_command(
    prepared: PreparedCommand,
    env: &ProcessEnv,
    threads: usize,
) -> Result<u8, CommandFailure> {
    let builder = if let PreparedKind::User(command) = &prepared.0
        && matches!(**command, UserCommand::Call(_))
    {
        // Each wake-up of another thread costs a line more than its answer.
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    };
    runtime::run_in_runtime(builder, run_prepared(prepared, env))
}

async fn run_prepared(prepared: PreparedCommand, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let command = match prepared.0 {
        #[cfg(target_os = "linux")]
        PreparedKind::Serve(prepared) => return serve::run(prepared).await,
        PreparedKind::User(command) => *command,
    };

    match command {
        #[cfg(target_os = "linux")]
        UserCommand::Config(args) => config::run(&args, env),
        #[cfg(target_os = "linux")]
        UserCommand::Link(args) => link::run(args).await,
        UserCommand::Status(args) => status::run(args, env).await,
        UserCommand::Resolve(args) => resolve::run(args, env).await,
        UserCommand::List(args) => list::run(args, env).await,
        UserCommand::Search(args) => search::run(args, env).await,
        UserCommand::Resources(args) => resources::run(args, env).await,
        UserCommand::Read(args) => read::run(args, env).await,
        #[cfg(target_os = "linux")]
        UserCommand::Exec(args) => exec::run(*args, env).await,
        UserCommand::Watch(args) => watch::run(args, env).await,
        #[cfg(target_os = "linux")]
        UserCommand::Pull(args) => Box::pin(pull::run(*args, env)).await,
        #[cfg(target_os = "linux")]
        UserCommand::Lock(args) => lock::run(args, env).await,
        #[cfg(target_os = "linux")]
        UserCommand::New(args) => new::run(&args),
        #[cfg(target_os = "linux")]
        UserCommand::Check(args) => check::run(args, env).await,
        #[cfg(target_os = "linux")]
        UserCommand::Explain(args) => explain::run(&args),
        UserCommand::Call(args) => call::run(*args, env).await,
        UserCommand::Mcp(args) => mcp::run(args, env).await,
        UserCommand::Prompt(args) => prompt::run(*args, env).await,
        UserCommand::Fleet(args) => fleet::run(args).await,
        UserCommand::Completions(args) => {
            // The generator panics on a write error, so it writes to memory.
            let mut script = Vec::new();
            let mut program = CommandLine::command();
            clap_complete::generate(args.shell, &mut program, "caproot", &mut script);
            write_stdout(|stdout| stdout.write_all(&script))?;
            Ok(exit::OK)
        }
        #[cfg(target_os = "linux")]
        UserCommand::Man(args) => man::run(&args),
        #[cfg(not(target_os = "linux"))]
        UserCommand::Other(args) => Err(unknown_command(&args)),
    }
}

/// Returns the failure of a command that this system does not have.
#[cfg(not(target_os = "linux"))]
fn unknown_command(args: &[OsString]) -> CommandFailure {
    let name = args
        .first()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if command_set::LINUX_COMMANDS.contains(&name.as_str()) {
        let sentence =
            format!("`caproot {name}` needs Linux; run it on the executor, or in a container");
        return CommandFailure::new(exit::NEEDS_LINUX, sentence);
    }
    let sentence =
        format!("there is no command `{name}`; `caproot --help` lists the commands of this system");
    CommandFailure::new(exit::USAGE, sentence)
}
