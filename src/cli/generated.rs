//! `caproot completions` and `caproot man`: made from the command line's own description.

use super::exit;
use super::failure::CommandFailure;
use super::output::write_stdout;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// Print a shell's completions
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot completions bash > ~/.local/share/bash-completion/completions/caproot
  caproot completions zsh > ~/.zfunc/_caproot
  caproot completions fish > ~/.config/fish/completions/caproot.fish")]
pub(super) struct CompletionsArgs {
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
pub(super) struct ManArgs {
    /// Write a page for each command into this directory, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints completions.
pub(super) fn print_completions(
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<u8, CommandFailure> {
    // The generator cannot report that it could not write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "caproot", &mut script);
    write_stdout(|stdout| stdout.write_all(&script))?;
    Ok(exit::OK)
}

/// Prints or writes manual pages.
pub(super) fn print_man_pages(args: &ManArgs, command: Command) -> Result<u8, CommandFailure> {
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
