//! Checks of a file, for `config check`, `fleet check` and `link check`: arguments and output.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, ignore_closed_stdout, print_json, write_stdout};
use caproot_core::document::{ConfigError, TextPosition};
use caproot_core::text::{EscapedText, escape_text};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// File and output of a check.
#[derive(Debug, Args)]
pub struct FileCheckArgs {
    /// The file to check
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Findings about a file.
#[derive(Debug, Default)]
pub struct FileFindings {
    /// All errors. A file without errors is valid.
    pub errors: Vec<ConfigError>,
    pub warnings: Vec<String>,
    /// Content of the file in a few words, such as `2 executors`.
    pub summary: String,
    /// Numbers of the summary, by the keys of the JSON.
    pub counts: Map<String, Value>,
}

impl FileFindings {
    /// Returns the findings about a file with errors.
    pub fn from_errors<'a>(errors: impl IntoIterator<Item = &'a ConfigError>) -> Self {
        Self {
            errors: errors.into_iter().cloned().collect(),
            ..Self::default()
        }
    }
}

impl FileCheckArgs {
    /// Prints the findings, and returns the exit code.
    pub fn print_findings(&self, findings: &FileFindings) -> Result<u8, CommandFailure> {
        let printed = match self.output {
            OutputFormat::Json => print_json(&self.findings_json(findings)),
            OutputFormat::Text => write_stdout(|stdout| self.write_findings(stdout, findings)),
        };
        // The exit code counts even if the reader of stdout is gone.
        ignore_closed_stdout(printed)?;

        Ok(if findings.errors.is_empty() {
            exit::OK
        } else {
            exit::BAD_CONFIG
        })
    }

    fn write_findings(&self, out: &mut dyn Write, findings: &FileFindings) -> io::Result<()> {
        for error in &findings.errors {
            writeln!(out, "{}", escape_text(&error.to_string()))?;
        }
        for warning in &findings.warnings {
            writeln!(out, "warning: {}", EscapedText(warning))?;
        }
        if !findings.errors.is_empty() {
            return Ok(());
        }

        writeln!(
            out,
            "ok: {}: {}",
            EscapedText(&self.file.to_string_lossy()),
            findings.summary
        )
    }

    fn findings_json(&self, findings: &FileFindings) -> Value {
        let mut json = json!({
            "file": self.file.to_string_lossy(),
            "ok": findings.errors.is_empty(),
            "warnings": findings.warnings,
        });
        if findings.errors.is_empty() {
            json["summary"] = findings.counts.clone().into();
        } else {
            json["errors"] = findings.errors.iter().map(config_error_json).collect();
        }
        json
    }
}

/// Returns a config error as JSON. For an error of the whole file, `line` and `column` are 0, as in
/// a diagnostic.
pub fn config_error_json(error: &ConfigError) -> Value {
    let (line, column) = error.position.map_or((0, 0), |at| (at.line, at.column));
    json!({
        "file": error.file.as_ref().map(|file| file.to_string_lossy()),
        "line": line,
        "column": column,
        "key": error.key,
        "value": error.value,
        "reason": error.reason,
    })
}

/// Parses a config error from its JSON.
pub fn config_error_from_json(json: &Value) -> ConfigError {
    let at = TextPosition {
        line: number_field(json, "line"),
        column: number_field(json, "column"),
    };
    ConfigError {
        file: text_field(json, "file").map(PathBuf::from),
        position: (at.line > 0).then_some(at),
        key: text_field(json, "key").unwrap_or_default(),
        value: text_field(json, "value"),
        reason: text_field(json, "reason").unwrap_or_default(),
    }
}

fn text_field(json: &Value, key: &str) -> Option<String> {
    json[key].as_str().map(str::to_owned)
}

fn number_field(json: &Value, key: &str) -> u32 {
    let number = json[key].as_u64();
    number
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or(0)
}
