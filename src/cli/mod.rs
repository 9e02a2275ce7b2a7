//! The command line: what may be said, and where each command is done. stdout is for results,
//! stderr for everything else.

mod args;
mod changes;
pub mod exit;
mod failure;
mod list;
mod output;
mod read;
mod report;
mod root_arg;
mod serve;
mod status;
mod table;
mod text;
mod watch;

pub use failure::{Failure, explain, report};

use crate::endpoint::Env;
use clap::{Parser, Subcommand};

/// Serves the skills and plugins below an executor's capability roots over gRPC.
#[derive(Debug, Parser)]
#[command(name = "caproot", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills      publish a directory of skills
  caproot list                       what the running daemon publishes
  caproot read skill://skills/pdf    one skill's instructions
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
    List(list::ListArgs),
    Read(read::ReadArgs),
    Watch(watch::WatchArgs),
}

/// Does what the command line says. `Ok` holds the exit code of an answer that was given.
pub async fn run(cli: Cli, env: &Env) -> Result<u8, Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(args, env).await,
        Command::Status(args) => status::run(args, env).await,
        Command::List(args) => list::run(args, env).await,
        Command::Read(args) => read::run(args, env).await,
        Command::Watch(args) => watch::run(args, env).await,
    }
}
