//! Commands and options as data, for the manual pages and the reference page. Made from the command
//! line that the program parses.

use super::environment::{ENVIRONMENT_VARIABLES, FILES, ReferenceEntry};
use crate::cli::exit::{EXIT_CODES, ExitCodeEntry};
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};

/// Heading of the options without a heading of their own.
pub const OPTIONS_HEADING: &str = "Options";
/// Heading of the examples of a command.
pub const EXAMPLES_HEADING: &str = "Examples";
/// Width of the lines of exit codes in the help.
const HELP_WIDTH: usize = 78;

/// Command with its documentation.
#[derive(Debug, Clone)]
pub struct CommandEntry {
    /// Definition from which clap parses the command.
    pub(crate) definition: Command,
    /// Words after `caproot`, such as `config check`. Empty for the program itself.
    pub name: String,
    /// Purpose of the command in one line.
    pub about: String,
    /// Further paragraphs.
    pub description: Vec<String>,
    /// Options and arguments, in the order of the help.
    pub options: Vec<OptionEntry>,
    /// Sections of the help after the options, such as the examples.
    pub sections: Vec<HelpSection>,
    /// Names and purposes of the subcommands.
    pub subcommands: Vec<(String, String)>,
}

/// Option or argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionEntry {
    /// Spelling, such as `--root` or `-h, --help`. `None` for an argument.
    pub flag: Option<String>,
    /// Name of the value, or the possible values.
    pub value: Option<String>,
    /// Whether the command needs the option.
    pub is_required: bool,
    /// Whether the option can be repeated.
    pub is_repeatable: bool,
    /// Default value, or a description of the default.
    pub default: Option<String>,
    /// Environment variable of the same value.
    pub variable: Option<String>,
    /// Meaning.
    pub help: String,
    /// Possible values that have a meaning of their own.
    pub values: Vec<(String, String)>,
    /// Group of the option in the help.
    pub heading: String,
}

/// Section of lines below a heading, which are shown unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpSection {
    /// Heading without the colon.
    pub heading: String,
    /// Lines without indentation.
    pub lines: Vec<String>,
}

impl CommandEntry {
    /// Returns the name of the manual page.
    #[must_use]
    pub fn page_name(&self) -> String {
        self.program().replace(' ', "-")
    }

    /// Returns the words that run the command.
    #[must_use]
    pub fn program(&self) -> String {
        format!("caproot {}", self.name).trim_end().to_owned()
    }

    /// Whether the command runs without a subcommand.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        !self.definition.is_subcommand_required_set()
    }

    /// Returns the synopsis, with a line for each form of the command.
    #[must_use]
    pub fn synopsis(&self) -> String {
        let (arguments, flags): (Vec<_>, Vec<_>) = self
            .options
            .iter()
            .partition(|option| option.flag.is_none());
        let options = flags.iter().chain(&arguments);
        let words: Vec<_> = options.map(|option| option.synopsis()).collect();
        self.synopsis_with(&words)
    }

    /// Returns the synopsis with the given words for the options.
    #[must_use]
    pub fn synopsis_with(&self, words: &[String]) -> String {
        let program = self.program();
        let own = [&[program.clone()][..], words].concat().join(" ");
        match (self.is_runnable(), self.subcommands.is_empty()) {
            (true, true) => own,
            (true, false) => format!("{own}\n{program} COMMAND"),
            (false, _) => format!("{own} COMMAND"),
        }
    }

    /// Returns the lines of the examples.
    #[must_use]
    pub fn examples(&self) -> &[String] {
        let mut sections = self.sections.iter();
        let examples = sections.find(|section| section.heading == EXAMPLES_HEADING);
        examples.map_or(&[], |section| &section.lines)
    }

    /// Returns the headings of the options, each once.
    #[must_use]
    pub fn option_headings(&self) -> Vec<&str> {
        let mut headings: Vec<&str> = Vec::new();
        for option in &self.options {
            if !headings.contains(&option.heading.as_str()) {
                headings.push(&option.heading);
            }
        }
        headings
    }

    /// Returns the exit codes of the command.
    pub fn exit_codes(&self) -> impl Iterator<Item = &'static ExitCodeEntry> {
        EXIT_CODES
            .iter()
            .filter(|entry| entry.commands.contains(&self.name))
    }

    /// Returns the environment variables of the command.
    pub fn variables(&self) -> impl Iterator<Item = &'static ReferenceEntry> {
        ENVIRONMENT_VARIABLES
            .iter()
            .filter(|entry| entry.is_of_command(&self.name))
    }

    /// Returns the files of the command.
    pub fn files(&self) -> impl Iterator<Item = &'static ReferenceEntry> {
        FILES.iter().filter(|entry| entry.is_of_command(&self.name))
    }
}

impl OptionEntry {
    /// Returns the option as in a synopsis, such as `[--root [ID=]DIR]...`.
    #[must_use]
    pub fn synopsis(&self) -> String {
        let words = self.flag.iter().chain(&self.value);
        let words = words.map(String::as_str).collect::<Vec<_>>().join(" ");
        let repeat = if self.is_repeatable { "..." } else { "" };
        if self.is_required {
            format!("{words}{repeat}")
        } else {
            format!("[{words}]{repeat}")
        }
    }
}

/// Returns every command in the order of the help, each after its parent. The first is the program.
pub(crate) fn command_entries(command: Command) -> Vec<CommandEntry> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut entries = Vec::new();
    collect_entries(&command, "", &mut entries);
    entries
}

fn collect_entries(command: &Command, name: &str, entries: &mut Vec<CommandEntry>) {
    let visible: Vec<_> = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .collect();

    let about = text_of(command.get_about());
    let description = text_of(command.get_long_about())
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .filter(|paragraph| !paragraph.is_empty() && *paragraph != about)
        .collect();

    let mut options: Vec<OptionEntry> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .map(option_entry)
        .collect();
    options.sort_by_key(|option| option.heading != OPTIONS_HEADING);

    entries.push(CommandEntry {
        definition: command.clone(),
        name: name.to_owned(),
        about,
        description,
        options,
        sections: help_sections(&text_of(command.get_after_help())),
        subcommands: visible
            .iter()
            .map(|inner| (inner.get_name().to_owned(), text_of(inner.get_about())))
            .collect(),
    });

    for inner in visible {
        let name = format!("{name} {}", inner.get_name());
        collect_entries(inner, name.trim_start(), entries);
    }
}

fn option_entry(argument: &Arg) -> OptionEntry {
    // clap tells the short from the long help here.
    let text = if argument.get_id() == "help" {
        "Print help".to_owned()
    } else {
        text_of(argument.get_help())
    };
    let OptionHelp { meaning, default } = OptionHelp::parse(&text);

    let possible: Vec<_> = argument
        .get_possible_values()
        .into_iter()
        .filter(|value| !value.is_hide_set())
        .collect();
    let heading = argument.get_help_heading().unwrap_or(OPTIONS_HEADING);
    let variable = argument.get_env();

    OptionEntry {
        flag: flag_spelling(argument),
        value: takes_value(argument).then(|| value_name(argument, &possible)),
        is_required: argument.is_required_set(),
        is_repeatable: matches!(argument.get_action(), ArgAction::Append),
        default: default.or_else(|| shown_default(argument)),
        variable: variable.map(|name| name.to_string_lossy().into_owned()),
        help: meaning,
        values: possible
            .iter()
            .filter_map(|value| Some((value.get_name().to_owned(), value.get_help()?.to_string())))
            .collect(),
        heading: heading.to_owned(),
    }
}

fn flag_spelling(argument: &Arg) -> Option<String> {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let spellings: Vec<_> = short.into_iter().chain(long).collect();
    (!spellings.is_empty()).then(|| spellings.join(", "))
}

fn takes_value(argument: &Arg) -> bool {
    argument
        .get_num_args()
        .is_some_and(|number| number.takes_values())
}

/// Returns the possible values, or the name of the value.
fn value_name(argument: &Arg, possible: &[PossibleValue]) -> String {
    if possible.is_empty() {
        return argument.get_value_names().unwrap_or_default().join(" ");
    }
    let names: Vec<_> = possible.iter().map(PossibleValue::get_name).collect();
    names.join("|")
}

/// Returns the default values that the help shows.
fn shown_default(argument: &Arg) -> Option<String> {
    let defaults = argument.get_default_values();
    let is_shown =
        takes_value(argument) && !defaults.is_empty() && !argument.is_hide_default_value_set();
    let defaults: Vec<_> = defaults
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    is_shown.then(|| defaults.join(" "))
}

/// Help text of an option.
#[derive(Debug, PartialEq, Eq)]
struct OptionHelp {
    meaning: String,
    /// Default in brackets at the end of the text.
    default: Option<String>,
}

impl OptionHelp {
    fn parse(text: &str) -> Self {
        let described = text
            .strip_suffix(']')
            .and_then(|text| text.rsplit_once(" [default: "));
        Self {
            meaning: described.map_or(text, |(meaning, _)| meaning).to_owned(),
            default: described.map(|(_, default)| default.to_owned()),
        }
    }
}

fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// Parses the text after the options: headings that end with a colon, each followed by indented
/// lines.
fn help_sections(text: &str) -> Vec<HelpSection> {
    let mut sections: Vec<HelpSection> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("  "), sections.last_mut()) {
            (Some(line), Some(section)) => section.lines.push(line.to_owned()),
            _ => sections.push(HelpSection {
                heading: line.trim_end_matches(':').to_owned(),
                lines: Vec::new(),
            }),
        }
    }
    sections
}

/// Adds the exit codes to the help of a command with this name, and of its subcommands.
pub(crate) fn add_exit_codes(command: Command, name: &str) -> Command {
    let help = text_of(command.get_after_help());
    let command = command.mut_subcommands(|inner| {
        let name = format!("{name} {}", inner.get_name());
        add_exit_codes(inner, name.trim_start())
    });

    let codes = EXIT_CODES
        .iter()
        .filter(|entry| entry.commands.contains(name));

    let mut lines: Vec<String> = Vec::new();
    for entry in codes {
        let word = format!("{} {}", entry.code, entry.summary);
        match lines.last_mut() {
            Some(line) if line.len() + 3 + word.len() <= HELP_WIDTH => {
                *line = format!("{line}   {word}");
            }
            _ => lines.push(format!("  {word}")),
        }
    }

    let gap = if help.is_empty() { "" } else { "\n\n" };
    command.after_help(format!("{help}{gap}Exit codes:\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::{OptionHelp, help_sections};

    #[test]
    fn sections_keep_their_lines() {
        let sections = help_sections("Requests:\n  a\n    b\n\nExamples:\n  c   # d");
        let sections: Vec<_> = sections
            .iter()
            .map(|part| (part.heading.as_str(), part.lines.join("\n")))
            .collect();
        assert_eq!(
            sections,
            [
                ("Requests", "a\n  b".to_owned()),
                ("Examples", "c   # d".to_owned())
            ]
        );
    }

    #[test]
    fn a_default_in_the_help_is_split_off() {
        let described = OptionHelp::parse("Id; repeat [default: the name]");
        assert_eq!(described.meaning, "Id; repeat");
        assert_eq!(described.default.as_deref(), Some("the name"));

        let bare = OptionHelp::parse("Id [ID=]DIR");
        assert_eq!((bare.meaning.as_str(), bare.default), ("Id [ID=]DIR", None));
    }
}
