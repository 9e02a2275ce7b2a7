//! `caproot explain`: explains diagnostic codes.

use super::exit;
use super::failure::CommandFailure;
use super::output::{OutputFormat, print_json, write_stdout};
use crate::check::explain::{CodeExplanation, explanation_markdown, explanation_of, find_code};
use crate::model::{DiagnosticCode, RootReason};
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::{Value, json};

/// Explain a diagnostic code
///
/// Prints its meaning and fix, with an example before and after. Without a code, lists all codes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot explain                # list of all codes
  caproot explain yaml_syntax    # one code, in any letter case")]
pub struct ExplainArgs {
    /// Code in the brackets of a diagnostic of `caproot check` or `caproot list`
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Prints the explanation, or the list of codes.
pub fn run(args: &ExplainArgs) -> Result<u8, CommandFailure> {
    let code = args
        .code
        .as_deref()
        .map(|text| find_code(text).map_err(|near| unknown_code(text, near)));
    let code = code.transpose()?;
    match (args.output, code) {
        (OutputFormat::Text, Some(code)) => {
            write_stdout(|stdout| write!(stdout, "{}", explanation_markdown(code)))?;
        }
        (OutputFormat::Json, Some(code)) => print_json(&explanation_json(code))?,
        (OutputFormat::Json, None) => print_json(&DiagnosticCode::ALL.map(explanation_json))?,
        (OutputFormat::Text, None) => write_stdout(|stdout| {
            let width = DiagnosticCode::ALL
                .map(|code| code.name().len())
                .into_iter()
                .max()
                .unwrap_or(0);
            for code in DiagnosticCode::ALL {
                let CodeExplanation {
                    default_severity: usual,
                    summary,
                    ..
                } = explanation_of(code);
                writeln!(
                    stdout,
                    "{:width$}  {:7}  {summary}",
                    code.name(),
                    usual.name()
                )?;
            }
            Ok(())
        })?,
    }
    Ok(exit::OK)
}

fn explanation_json(code: DiagnosticCode) -> Value {
    let CodeExplanation {
        default_severity: usual,
        summary,
        cause,
        fix,
        ..
    } = explanation_of(code);
    json!({
        "code": code.name(),
        "severity": usual.name(),
        "summary": summary,
        "cause": cause,
        "fix": fix,
        "markdown": explanation_markdown(code),
    })
}

fn unknown_code(text: &str, near: Option<&'static str>) -> CommandFailure {
    let name = text.trim().to_uppercase().replace('-', "_");
    if let Some(reason) = RootReason::ALL
        .into_iter()
        .find(|reason| reason.name() == name)
    {
        let sentence = format!(
            "{name} is the reason of an unavailable root: {}",
            reason.message()
        );
        return CommandFailure::new(exit::USAGE, sentence)
            .with_hint("`caproot explain` is for the diagnostics of skills and plugins");
    }
    let meant = near
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    CommandFailure::new(
        exit::USAGE,
        format!("unknown code {}{meant}", escape_text(text)),
    )
    .with_hint("`caproot explain` lists all codes")
}
