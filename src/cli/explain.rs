//! `caproot explain`: what a diagnostic code means. Leaves the words to the `check` room.

use super::exit;
use super::failure::CommandFailure;
use super::output::{OutputFormat, print_json, write_stdout};
use super::text::escape_text;
use crate::check::explain::{CodeExplanation, explanation_markdown, explanation_of, find_code};
use crate::domain::DiagnosticCode;
use clap::Args;
use serde_json::{Value, json};

/// Explain a diagnostic code
///
/// Says what it means, how to mend it, and shows an example before and after. Without a code, lists
/// them all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot explain                  every code in a line
  caproot explain yaml_syntax      one of them, in any letter case")]
pub(super) struct ExplainArgs {
    /// The code, as `caproot check` and `caproot list` show it in brackets
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Prints the explanation, or the list.
pub(super) fn run(args: &ExplainArgs) -> Result<u8, CommandFailure> {
    let code =
        args.code.as_deref().map(|text| find_code(text).map_err(|near| unknown_code(text, near)));
    let code = code.transpose()?;
    match (args.output, code) {
        (OutputFormat::Text, Some(code)) => {
            write_stdout(|stdout| write!(stdout, "{}", explanation_markdown(code)))?
        }
        (OutputFormat::Json, Some(code)) => print_json(&explanation_json(code))?,
        (OutputFormat::Json, None) => print_json(&DiagnosticCode::ALL.map(explanation_json))?,
        (OutputFormat::Text, None) => write_stdout(|stdout| {
            let width =
                DiagnosticCode::ALL.map(|code| code.name().len()).into_iter().max().unwrap_or(0);
            for code in DiagnosticCode::ALL {
                let CodeExplanation { default_severity: usual, summary, .. } = explanation_of(code);
                writeln!(stdout, "{:width$}  {:7}  {summary}", code.name(), usual.name())?;
            }
            Ok(())
        })?,
    }
    Ok(exit::OK)
}

fn explanation_json(code: DiagnosticCode) -> Value {
    let CodeExplanation { default_severity: usual, summary, cause, fix: cure, .. } =
        explanation_of(code);
    json!({
        "code": code.name(),
        "severity": usual.name(),
        "summary": summary,
        "cause": cause,
        "cure": cure,
        "markdown": explanation_markdown(code),
    })
}

fn unknown_code(text: &str, near: Option<&'static str>) -> CommandFailure {
    let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    CommandFailure::new(exit::USAGE, format!("there is no code {}{meant}", escape_text(text)))
        .with_hint("`caproot explain` lists every code")
}
