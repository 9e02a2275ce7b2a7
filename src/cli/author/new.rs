//! `caproot new`: creates a skill.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, write_stdout};
use crate::lint::new_skill::{NewSkillError, PLACEHOLDER_END, create_skill, suggest_valid_name};
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Create a skill
///
/// Makes the directory NAME with a SKILL.md. With your description, the skill passes `caproot check
/// --deny-warnings`. Overwrites nothing. A name has 1 to 64 lower-case letters, digits and single hyphens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot new fill-forms
  caproot new fill-forms --into skills
  caproot new fill-forms --description 'Fills forms. Use when a form is blank.'")]
pub struct NewArgs {
    /// Name of the skill and of its directory
    #[arg(value_name = "NAME")]
    name: String,
    /// Purpose of the skill, and when to use it [default: a text to replace]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Directory that gets the directory of the skill
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Creates the skill and prints the path of its SKILL.md.
pub fn run(args: &NewArgs) -> Result<u8, CommandFailure> {
    let description = match &args.description {
        Some(description) => description.clone(),
        None => format!("Describe what {} does. {PLACEHOLDER_END}", args.name),
    };

    let into = args.into.strip_prefix(".").unwrap_or(&args.into);
    let file = create_skill(into, &args.name, &description).map_err(|error| {
        let exit = match error {
            NewSkillError::InvalidName(_) | NewSkillError::InvalidDescription(_) => exit::USAGE,
            NewSkillError::Exists(_) => exit::BAD_CONFIG,
            NewSkillError::Unwritable { .. } => exit::OUTPUT_FAILED,
        };
        let failure = CommandFailure::new(exit, &error);
        match (error, suggest_valid_name(&args.name)) {
            (NewSkillError::InvalidName(_), Some(name)) => {
                failure.with_hint(format!("a valid name is `{name}`"))
            }
            _ => failure,
        }
    })?;

    let path = file.to_string_lossy();
    match args.output {
        OutputFormat::Json => print_json(&json!({ "name": args.name, "path": path }))?,
        OutputFormat::Text => write_stdout(|stdout| writeln!(stdout, "{}", escape_text(&path)))?,
    }
    Ok(exit::OK)
}
