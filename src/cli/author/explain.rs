//! `caproot explain`: explains every code that the commands print.

use crate::cli::author::codes::{CodeEntry, all_codes, find_codes};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_table, write_stdout};
use caproot_core::text::escape_text;
use clap::Args;

/// Explain a code of a message
///
/// Knows the codes of diagnostics, roots, errors, tool calls and exit codes. Prints the meaning and the
/// fix, for a diagnostic with an example before and after. A code with several meanings has several
/// explanations. Without a code, lists all codes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot explain                # list of all codes
  caproot explain yaml_syntax    # one code, in any letter case
  caproot explain 'error[NOT_ALLOWED]'    # a code as it was printed
  caproot explain 78             # an exit code")]
pub struct ExplainArgs {
    /// Code of a diagnostic, a root, an error or a tool call, or an exit code
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// Output format; json prints an array
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Prints the explanations, or the list of codes.
pub fn run(args: &ExplainArgs) -> Result<u8, CommandFailure> {
    let codes = match &args.code {
        Some(text) => find_codes(text).map_err(|near| {
            let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            CommandFailure::new(
                exit::USAGE,
                format!("unknown code {}{meant}", escape_text(text)),
            )
            .with_hint("`caproot explain` lists all codes")
        })?,
        None => all_codes(),
    };

    match (args.output, &args.code) {
        (OutputFormat::Json, _) => {
            let json: Vec<_> = codes.iter().map(CodeEntry::to_json).collect();
            print_json(&json)?;
        }
        (OutputFormat::Text, Some(_)) => {
            let texts: Vec<_> = codes.into_iter().map(|code| code.markdown).collect();
            write_stdout(|stdout| write!(stdout, "{}", texts.join("\n")))?;
        }
        // The place of a diagnostic is its usual severity.
        (OutputFormat::Text, None) => {
            let rows = codes
                .into_iter()
                .map(|code| [code.name, code.kind.describe(), code.summary]);
            print_table(&["CODE", "PLACE", "MEANING"], &rows.collect::<Vec<_>>())?;
        }
    }
    Ok(exit::OK)
}
