//! The command line: what may be said, and where each command is done. stdout is for results,
//! stderr for everything else.

mod args;
mod check;
mod config;
pub mod exit;
mod explain;
mod failure;
mod generated;
mod handle_arg;
mod list;
mod output;
mod path;
mod read;
mod report;
mod resolve;
mod resources;
mod root_arg;
mod roots;
mod serve;
mod status;
mod table;
mod text;

pub use failure::{Failure, explain, report};

use crate::endpoint::Env;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Serves the skills and plugins below an executor's capability roots over gRPC.
#[derive(Debug, Parser)]
#[command(name = "caproot", version, arg_required_else_help = true, max_term_width = 100)]
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
  73 a listener cannot be made   74 output cannot be written   78 bad configuration")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
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
    Completions(generated::CompletionsArgs),
    Man(generated::ManArgs),
}

/// Does what the command line says. `Ok` holds the exit code of an answer that was given.
pub async fn run(cli: Cli, env: &Env) -> Result<u8, Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(args, env).await,
        Command::Status(args) => status::run(args, env).await,
        Command::List(args) => list::run(args, env).await,
        Command::Read(args) => read::run(args, env).await,
        Command::Roots(args) => roots::run(args, env).await,
        Command::Resolve(args) => resolve::run(args, env).await,
        Command::Resources(args) => resources::run(args, env).await,
        Command::Path(args) => path::run(args, env).await,
        Command::Completions(args) => generated::completions(&args, Cli::command()),
        Command::Man(args) => generated::man(&args, Cli::command()),
        Command::Config(args) => config::run(&args, env),
        Command::Check(args) => check::run(args, env).await,
        Command::Explain(args) => explain::run(&args),
    }
}
