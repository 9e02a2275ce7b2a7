//! `caproot completions` and `caproot man`: made from the command line's own description.

use super::exit;
use super::failure::Failure;
use super::output::print;
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
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<u8, Failure> {
    // The generator cannot report that it could not write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "caproot", &mut script);
    print(|stdout| stdout.write_all(&script))?;
    Ok(exit::OK)
}

/// Prints or writes manual pages.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<u8, Failure> {
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(command, dir).map_err(|error| unwritten(dir, &error))?;
        return Ok(exit::OK);
    }
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::new(exit::INTERNAL, error))?;
    print(|stdout| stdout.write_all(&page))?;
    Ok(exit::OK)
}

fn unwritten(dir: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!("manual pages cannot be written into {}: {error}", dir.display());
    Failure::new(exit::OUTPUT, sentence)
}
