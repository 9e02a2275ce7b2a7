//! `caproot prompt`: the text and the tools that a model receives in a session, with their sizes and
//! with the reason for each skill that the text does not show whole.

use crate::agent::call::tools::ToolCallbacks;
use crate::cli::agents::session_args::SessionArgs;
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::log_args::LogArgs;
use crate::cli::output::{OutputFormat, print_json, print_stderr, write_stdout};
use crate::cli::signals::run_until_signal;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::text::{escape_json, escape_text};
use caproot_session::{DEFAULT_BUDGET, InstructionText, SkillInText, TextPlace};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;

/// Maximum number of skills of one place on stderr. The JSON has all.
const MAX_REPORTED_SKILLS: usize = 20;

/// Print the text and the tools that a model receives
///
/// Starts a session as `caproot call` does, with the same flags, and prints to stdout the text that
/// describes the skills to a model, an empty line, and the tools as JSON. The text is the answer of
/// `caproot call` to the request `instructions`, byte for byte, and the tools are the answer to `tools`.
///
/// The sizes go to stderr, and a line for each skill that the text does not show whole, with the reason.
/// If the descriptions do not fit into the budget, the text truncates all of them to one length of at
/// least 100 bytes, and then omits skills. A model finds an omitted skill with the tool `skills_search`.
/// A skill that models are not offered, or of a rule of --manual, is hidden: only a person may
/// call the skill, by name.
///
/// Exits with 1 if an executor or another source does not respond, or reports a problem such as a root
/// that is not ready. The text has the other skills.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot prompt                                # published roots
  caproot prompt --budget 2000                  # with a small budget
  caproot prompt --root ./skills 2>/dev/null    # text and tools only
  caproot prompt --fleet fleet.yaml --selected thread-start.json
  caproot prompt --output json | jq '.skills[] | select(.place != \"listed\")'")]
pub struct PromptArgs {
    /// Maximum size of the text in bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_BUDGET)]
    budget: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Text and tools of a session.
struct SessionPrompt {
    budget: usize,
    instructions: InstructionText,
    tools: Value,
    /// Problems of the executors and the session.
    warnings: Vec<String>,
}

/// Prints the prompt of a session.
pub async fn run(args: PromptArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    run_until_signal(print_prompt(args, env)).await
}

async fn print_prompt(args: PromptArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    args.log.start()?;
    let opened = args.session.open_fleet(env).await?;
    let messages = opened.selected.messages.clone();

    // No model calls the tools of the program, so no event comes.
    let (sender, _events) = unbounded_channel();
    let callbacks = Arc::new(ToolCallbacks::new(sender));
    let parts = args.session.start_parts(&callbacks, false).await?;
    let session = parts.start_session(&opened.fleet, opened.selected).await?;

    let is_well = messages.is_empty()
        && session.sources().iter().all(|source| {
            let snapshot = source.snapshot();
            snapshot.unavailable_reason.is_none() && snapshot.listing.warnings.is_empty()
        });

    let instructions = session.instruction_text(args.budget);
    let prompt = SessionPrompt {
        budget: args.budget,
        tools: session.flat_tools(),
        warnings: [messages, instructions.warnings.clone()].concat(),
        instructions,
    };
    match args.output {
        OutputFormat::Text => prompt.print_text()?,
        OutputFormat::Json => print_json(&prompt.to_json())?,
    }
    Ok(exit::code_for_result(is_well))
}

impl SessionPrompt {
    fn print_text(&self) -> Result<(), CommandFailure> {
        let tools = serde_json::to_string_pretty(&self.tools).or_exit(exit::INTERNAL)?;
        let text = &self.instructions.text;

        write_stdout(|stdout| {
            if io::stdout().is_terminal() {
                for line in text.lines() {
                    writeln!(stdout, "{}", escape_text(line))?;
                }
            } else {
                write!(stdout, "{text}")?;
            }
            if !text.is_empty() {
                writeln!(stdout)?;
            }
            writeln!(stdout, "{}", escape_json(&tools))
        })?;
        print_stderr(&self.report_lines());
        Ok(())
    }

    /// Returns the sizes, and a line for each skill that the text does not show whole.
    fn report_lines(&self) -> Vec<String> {
        let instructions = &self.instructions;
        let mut lines = vec![
            format!(
                "text: {} of {} bytes; {} listed, {} shortened, {} omitted, {} hidden",
                instructions.text.len(),
                self.budget,
                count_with_noun(instructions.listed, "skill"),
                instructions.shortened,
                instructions.omitted,
                instructions.hidden,
            ),
            format!(
                "tools: {} bytes; {}",
                self.tools_bytes(),
                count_with_noun(self.tools.as_array().map_or(0, Vec::len), "tool")
            ),
        ];

        for place in ["shortened", "name-only", "omitted", "hidden", "merged"] {
            let skills = instructions.skills.iter();
            let mut placed = skills.filter(|placed| place_name(placed.place) == place);
            lines.extend(placed.by_ref().take(MAX_REPORTED_SKILLS).map(|placed| {
                format!(
                    "{place}: {} ({}): {}",
                    escape_text(&placed.skill.name),
                    escape_text(&placed.skill.package),
                    self.reason(placed.place)
                )
            }));
            let more = placed.count();
            if more > 0 {
                let more = count_with_noun(more, "more skill");
                lines.push(format!("{place}: {more}; --output json has all"));
            }
        }

        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|warning| format!("warning: {}", escape_text(warning))));
        lines
    }

    /// Returns the size of the tools as JSON without white space.
    fn tools_bytes(&self) -> usize {
        self.tools.to_string().len()
    }

    fn to_json(&self) -> Value {
        let instructions = &self.instructions;
        let skills = instructions.skills.iter();
        json!({
            "text": instructions.text,
            "textBytes": instructions.text.len(),
            "budgetBytes": self.budget,
            "listed": instructions.listed,
            "shortened": instructions.shortened,
            "omitted": instructions.omitted,
            "hidden": instructions.hidden,
            "tools": self.tools,
            "toolsBytes": self.tools_bytes(),
            "skills": skills.map(|skill| self.skill_json(skill)).collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }

    fn skill_json(&self, placed: &SkillInText) -> Value {
        let SkillInText { skill, place, .. } = placed;
        let authority = skill.authority.clone().unwrap_or_default();
        let mut json = json!({
            "name": skill.name,
            "package": skill.package,
            "authority": { "kind": authority.kind, "id": authority.id },
            "place": place_name(*place),
        });
        if *place != TextPlace::Listed {
            json["reason"] = self.reason(*place).into();
        }
        if let TextPlace::Shortened {
            description_bytes,
            shown_bytes,
        } = place
        {
            json["descriptionBytes"] = (*description_bytes).into();
            json["shownBytes"] = (*shown_bytes).into();
        }
        json
    }

    /// Returns the reason for a place in the text, as the end of a line.
    fn reason(&self, place: TextPlace) -> String {
        let budget = self.budget;
        match place {
            TextPlace::Listed => String::new(),
            TextPlace::Shortened {
                description_bytes,
                shown_bytes,
            } => format!(
                "{shown_bytes} of {description_bytes} bytes of the description, as the whole \
                 descriptions exceed the budget of {budget} bytes"
            ),
            TextPlace::OmittedWithoutRoom => {
                format!("the skills before take the budget of {budget} bytes")
            }
            TextPlace::OmittedAsTooLong { line_bytes } => format!(
                "its name or handle takes {line_bytes} bytes, and not all skills fit into the budget \
                 of {budget} bytes"
            ),
            TextPlace::NameOnly => "a rule of --name-only matches it".to_owned(),
            TextPlace::Hidden => {
                "only a person may call it, by name (a rule of --manual, or a reason that \
                                  `caproot list --all` shows)"
                    .to_owned()
            }
            TextPlace::Merged => {
                "equal to a skill of another environment, which the text shows".to_owned()
            }
        }
    }
}

fn place_name(place: TextPlace) -> &'static str {
    match place {
        TextPlace::Listed => "listed",
        TextPlace::NameOnly => "name-only",
        TextPlace::Shortened { .. } => "shortened",
        TextPlace::OmittedWithoutRoom | TextPlace::OmittedAsTooLong { .. } => "omitted",
        TextPlace::Hidden => "hidden",
        TextPlace::Merged => "merged",
    }
}
