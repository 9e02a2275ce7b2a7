//! `docs/reference/cli.md`: each command with its options, examples and exit codes.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use caproot::cli::commands;
use caproot::cli::definitions::command_set::{CLIENT_COMMANDS, CommandSet};
use caproot::cli::definitions::definition::{
    CommandEntry, EXAMPLES_HEADING, OPTIONS_HEADING, OptionEntry,
};

use super::check_page;
use crate::harness::process::{caproot, run_blocking};

/// Maximum width of a line of an example, so that the help does not wrap the line on a terminal with 80
/// columns.
const MAX_EXAMPLE_COLUMNS: usize = 78;

/// Escapes a text for a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', r"\|")
}

pub(super) fn with_full_stop(text: &str) -> String {
    if text.ends_with('.') {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

/// Returns the target of a link to a heading.
fn link_target(heading: &str) -> String {
    format!("#{}", heading.to_lowercase().replace(' ', "-"))
}

/// Names the commands of a set in a cell of a table.
pub(super) fn command_names(set: CommandSet) -> String {
    let leaves = leaf_commands();
    let names: Vec<&str> = leaves
        .iter()
        .map(|command| command.name.as_str())
        .filter(|name| set.contains(name))
        .collect();
    if names.len() == leaves.len() {
        return "all".to_owned();
    }
    let has_clients = CLIENT_COMMANDS.iter().all(|name| names.contains(name));
    let others = names
        .iter()
        .filter(|name| !has_clients || !CLIENT_COMMANDS.contains(name));
    let others = others.map(|name| format!("`{name}`"));
    let clients = has_clients.then(|| "[client commands](cli.md#client-commands)".to_owned());
    clients
        .into_iter()
        .chain(others)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the commands that run.
pub(super) fn leaf_commands() -> Vec<CommandEntry> {
    commands()
        .into_iter()
        .filter(CommandEntry::is_runnable)
        .collect()
}

/// Returns the synopsis. Groups of options are abbreviated by their heading.
fn synopsis(command: &CommandEntry) -> String {
    let own = |option: &&OptionEntry| option.heading == OPTIONS_HEADING && !is_help(option);
    let (arguments, flags): (Vec<_>, Vec<_>) = command
        .options
        .iter()
        .filter(own)
        .partition(|option| option.flag.is_none());
    let mut words: Vec<_> = flags.iter().map(|option| option.synopsis()).collect();
    let groups = command.option_headings();
    let groups = groups
        .into_iter()
        .filter(|heading| *heading != OPTIONS_HEADING);
    words.extend(groups.map(|heading| format!("[{}]", heading.to_uppercase())));
    words.extend(arguments.iter().map(|option| option.synopsis()));
    command.synopsis_with(&words)
}

fn is_help(option: &OptionEntry) -> bool {
    option.flag.as_deref() == Some("-h, --help")
}

fn options_of<'a>(command: &'a CommandEntry, heading: &str) -> Vec<&'a OptionEntry> {
    command
        .options
        .iter()
        .filter(|option| option.heading == heading && !is_help(option))
        .collect()
}

fn add_option_table(page: &mut String, options: &[&OptionEntry]) {
    if options.is_empty() {
        return;
    }
    page.push_str("| option | default | meaning |\n| --- | --- | --- |\n");
    for option in options {
        let words = [option.flag.as_deref(), option.value.as_deref()];
        let spelling = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let mut meaning = with_full_stop(&option.help);
        for (value, text) in &option.values {
            write!(meaning, " `{value}`: {}", with_full_stop(text)).expect("a String");
        }
        if let Some(variable) = &option.variable {
            write!(meaning, " Environment variable: `{variable}`.").expect("a String");
        }
        let default = option.default.as_deref().unwrap_or_default();
        writeln!(
            page,
            "| `{}` | {} | {} |",
            cell(&spelling),
            cell(default),
            cell(&meaning)
        )
        .expect("a String");
    }
    page.push('\n');
}

fn add_command(page: &mut String, command: &CommandEntry) {
    writeln!(
        page,
        "## {}\n\n{}\n",
        command.program(),
        with_full_stop(&command.about)
    )
    .expect("a String");
    writeln!(page, "```text\n{}\n```\n", synopsis(command)).expect("a String");
    for paragraph in &command.description {
        writeln!(page, "{paragraph}\n").expect("a String");
    }
    add_option_table(page, &options_of(command, OPTIONS_HEADING));
    let groups = command.option_headings();
    let groups = groups
        .into_iter()
        .filter(|heading| *heading != OPTIONS_HEADING);
    let groups: Vec<_> = groups
        .map(|heading| format!("[{}]({})", heading.to_lowercase(), link_target(heading)))
        .collect();
    if !groups.is_empty() {
        writeln!(
            page,
            "The command also has the {}.\n",
            groups.join(" and the ")
        )
        .expect("a String");
    }
    for section in &command.sections {
        let language = if section.heading == EXAMPLES_HEADING {
            "sh"
        } else {
            "text"
        };
        writeln!(
            page,
            "{}:\n\n```{language}\n{}\n```\n",
            section.heading,
            section.lines.join("\n")
        )
        .expect("a String");
    }
    let codes: Vec<_> = command
        .exit_codes()
        .map(|entry| format!("`{}` {}", entry.code, entry.summary))
        .collect();
    writeln!(page, "[Exit codes](exit-codes.md): {}.\n", codes.join(", ")).expect("a String");
}

fn render_commands() -> String {
    let all = commands();
    let (program, commands) = all.split_first().expect("the program");
    let mut page = String::from(
        "# Commands\n\n\
         `caproot` is the daemon, its client and a linter for skills. A command prints its result to \
         stdout and all other messages to stderr.\n\n\
         `caproot help COMMAND` and the manual page `caproot-COMMAND` have the same text as this page. \
         Each command has the option `-h, --help`.\n\n\
         | command | purpose |\n| --- | --- |\n",
    );
    for command in commands.iter().filter(|command| command.is_runnable()) {
        let (name, about) = (&command.name, with_full_stop(&command.about));
        let target = link_target(&command.program());
        writeln!(page, "| [`{name}`]({target}) | {} |", cell(&about)).expect("a String");
    }
    page.push_str("\nFirst steps:\n\n```sh\n");
    writeln!(page, "{}\n```\n", program.examples().join("\n")).expect("a String");
    page.push_str("## Client commands\n\nThese commands connect to a daemon: ");
    let names: Vec<_> = CLIENT_COMMANDS
        .iter()
        .map(|name| format!("[`{name}`](#caproot-{name})"))
        .collect();
    writeln!(page, "{}.\n", names.join(", ")).expect("a String");
    for heading in [
        "Sources instead of a daemon",
        "Connection options",
        "Root options",
        "Package options",
    ] {
        let with = commands
            .iter()
            .find(|command| !options_of(command, heading).is_empty());
        let options = options_of(with.expect("a command with the options"), heading);
        writeln!(page, "### {heading}\n").expect("a String");
        add_option_table(&mut page, &options);
        // The commands differ only in whether they have the options.
        for command in commands {
            let same = options_of(command, heading);
            assert!(
                same.is_empty() || same == options,
                "{heading} of {}",
                command.name
            );
        }
    }
    for command in commands.iter().filter(|command| command.is_runnable()) {
        add_command(&mut page, command);
    }
    format!("{}\n", page.trim_end())
}

#[test]
fn the_page_of_the_commands_is_current() {
    check_page("cli", &render_commands());
}

#[test]
fn client_commands_are_the_commands_with_an_endpoint() {
    let leaves = leaf_commands();
    let clients = leaves.iter().filter(|command| {
        command
            .options
            .iter()
            .any(|option| option.flag.as_deref() == Some("--endpoint"))
    });
    let clients: Vec<_> = clients.map(|command| command.name.as_str()).collect();
    assert_eq!(clients, CLIENT_COMMANDS);
    for command in &leaves {
        assert_eq!(
            CommandSet::Client.contains(&command.name),
            clients.contains(&command.name.as_str())
        );
    }
}

#[test]
fn each_command_has_examples_that_a_shell_accepts() {
    for command in commands() {
        assert!(
            !command.examples().is_empty(),
            "`{}` has no example",
            command.name
        );
        for line in command.examples() {
            assert!(
                line.chars().count() <= MAX_EXAMPLE_COLUMNS,
                "too wide: {line}"
            );
        }
        let script = command.examples().join("\n");
        let mut shell = Command::new("bash");
        shell.args(["-n", "-c", &script]).stdin(Stdio::null());
        let output = shell.output().expect("bash runs");
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(script.contains("caproot"), "{script}");
    }
}

#[test]
fn the_help_lists_each_command_below_the_heading_of_its_group() {
    let output = run_blocking(caproot(["--help"]));
    let help = output.text();
    let mut heading = "";
    let mut listed = Vec::new();
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "too wide: {line}");
        match line.strip_prefix("  ") {
            None if line.ends_with(':') => heading = line,
            Some(entry) if !["Options:", "Examples:", "Exit codes:"].contains(&heading) => {
                listed.push((heading, entry));
            }
            _ => {}
        }
    }
    assert_eq!(listed[0].0, "Run a daemon:", "{help}");
    assert!(help.contains("\nOptions:\n"), "{help}");

    // Each command of the program, once, with its purpose.
    let all = commands();
    let mut expected = all[0].subcommands.clone();
    expected.push(("help".to_owned(), "Print the help of a command".to_owned()));
    assert_eq!(listed.len(), expected.len(), "{help}");
    for ((_, entry), (name, about)) in listed.iter().zip(&expected) {
        assert!(
            entry.starts_with(name) && entry.ends_with(about),
            "{entry} is not {name}: {about}"
        );
    }
}
