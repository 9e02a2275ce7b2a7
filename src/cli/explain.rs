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
    let code = match &args.code {
        Some(text) => Some(find_code(text).map_err(|near| unknown_code(text, near))?),
        None => None,
    };

    match (args.output, code) {
        (OutputFormat::Text, Some(code)) => {
            write_stdout(|stdout| write!(stdout, "{}", explanation_markdown(code)))?;
        }
        (OutputFormat::Json, Some(code)) => print_json(&explanation_json(code))?,
        (OutputFormat::Json, None) => print_json(&DiagnosticCode::ALL.map(explanation_json))?,
        (OutputFormat::Text, None) => print_all_codes()?,
    }
    Ok(exit::OK)
}

/// Prints each code with its usual severity and its summary.
fn print_all_codes() -> Result<(), CommandFailure> {
    let widths = DiagnosticCode::ALL.map(|code| code.name().len());
    let width = widths.into_iter().max().unwrap_or(0);

    write_stdout(|stdout| {
        for code in DiagnosticCode::ALL {
            let explanation = explanation_of(code);
            let severity = explanation.default_severity.name();
            let name = code.name();
            writeln!(
                stdout,
                "{name:width$}  {severity:7}  {}",
                explanation.summary
            )?;
        }
        Ok(())
    })
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
    let reasons = RootReason::ALL;
    if let Some(reason) = reasons.into_iter().find(|reason| reason.name() == name) {
        let meaning = reason.message();
        let sentence = format!("{name} is the reason of an unavailable root: {meaning}");
        return CommandFailure::new(exit::USAGE, sentence)
            .with_hint("`caproot explain` is for the diagnostics of skills and plugins");
    }

    let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    let sentence = format!("unknown code {}{meant}", escape_text(text));
    CommandFailure::new(exit::USAGE, sentence).with_hint("`caproot explain` lists all codes")
}
