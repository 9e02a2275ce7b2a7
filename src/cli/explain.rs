//! `caproot explain`: what a diagnostic code means. Leaves the words to the `check` room.

use super::exit;
use super::failure::Failure;
use super::output::{Output, print, print_json};
use super::text::shown;
use crate::check::explain::{Explanation, find, markdown, of};
use crate::domain::Code;
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
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the explanation, or the list.
pub(super) fn run(args: &ExplainArgs) -> Result<u8, Failure> {
    let code = args.code.as_deref().map(|text| find(text).map_err(|near| unknown(text, near)));
    let code = code.transpose()?;
    match (args.output, code) {
        (Output::Text, Some(code)) => print(|stdout| write!(stdout, "{}", markdown(code)))?,
        (Output::Json, Some(code)) => print_json(&object(code))?,
        (Output::Json, None) => print_json(&Code::ALL.map(object))?,
        (Output::Text, None) => print(|stdout| {
            let width = Code::ALL.map(|code| code.name().len()).into_iter().max().unwrap_or(0);
            for code in Code::ALL {
                let Explanation { usual, summary, .. } = of(code);
                writeln!(stdout, "{:width$}  {:7}  {summary}", code.name(), usual.name())?;
            }
            Ok(())
        })?,
    }
    Ok(exit::OK)
}

fn object(code: Code) -> Value {
    let Explanation { usual, summary, cause, cure, .. } = of(code);
    json!({
        "code": code.name(),
        "severity": usual.name(),
        "summary": summary,
        "cause": cause,
        "cure": cure,
        "markdown": markdown(code),
    })
}

fn unknown(text: &str, near: Option<&'static str>) -> Failure {
    let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    Failure::new(exit::USAGE, format!("there is no code {}{meant}", shown(text)))
        .hint("`caproot explain` lists every code")
}
