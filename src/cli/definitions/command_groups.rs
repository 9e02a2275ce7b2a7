//! Groups of the commands in `caproot --help`. clap has one heading for all subcommands, so the groups
//! are text of the template. Source: <https://github.com/clap-rs/clap/issues/1553>.

use clap::Command;
use std::fmt::Write as _;

/// Width of the names of commands.
const NAME_WIDTH: usize = 11;
/// Purpose of the command that clap adds.
const HELP_ABOUT: &str = "Print the help of a command";

/// Commands for one task.
struct CommandGroup {
    heading: &'static str,
    /// Names of the commands, in the order of their definition.
    commands: &'static [&'static str],
}

/// All groups, in the order of the definition of the commands.
const COMMAND_GROUPS: [CommandGroup; 7] = [
    CommandGroup {
        heading: "Run a daemon",
        commands: &["serve", "config", "link"],
    },
    CommandGroup {
        heading: "Ask a daemon",
        commands: &[
            "status",
            "resolve",
            "list",
            "search",
            "resources",
            "read",
            "exec",
            "watch",
        ],
    },
    CommandGroup {
        heading: "Copy and approve packages",
        commands: &["pull", "lock"],
    },
    CommandGroup {
        heading: "Write skills and plugins",
        commands: &["new", "check", "explain"],
    },
    CommandGroup {
        heading: "Serve agents",
        commands: &["call", "mcp", "prompt"],
    },
    CommandGroup {
        heading: "Manage many executors",
        commands: &["fleet"],
    },
    CommandGroup {
        heading: "Set up a shell",
        commands: &["completions", "man", "help"],
    },
];

/// Lists the commands of the program in groups.
pub fn with_command_groups(program: Command) -> Command {
    let header = *program.get_styles().get_header();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();

    for group in COMMAND_GROUPS {
        let heading = format!("{header}{}:{header:#}\n", group.heading);
        template.push_str(&heading);
        // Commands that need Linux are not defined elsewhere.
        let commands = group
            .commands
            .iter()
            .filter(|name| **name == "help" || program.find_subcommand(name).is_some());
        for name in commands {
            add_command_line(&mut template, &program, name);
        }
        template.push('\n');
    }

    // A write to a `String` does not fail.
    let _ = write!(
        template,
        "{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    program.help_template(template)
}

fn add_command_line(template: &mut String, program: &Command, name: &str) {
    let about = program
        .find_subcommand(name)
        .and_then(Command::get_about)
        .map_or_else(|| HELP_ABOUT.to_owned(), ToString::to_string);
    let literal = *program.get_styles().get_literal();

    let _ = writeln!(
        template,
        "  {literal}{name:NAME_WIDTH$}{literal:#}  {about}"
    );
}

#[cfg(test)]
mod tests {
    use super::COMMAND_GROUPS;
    use clap::CommandFactory as _;

    #[test]
    fn each_command_is_in_one_group_in_the_order_of_the_definition() {
        let program = crate::cli::CommandLine::command();
        let mut defined: Vec<_> = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        defined.push("help");
        let grouped: Vec<_> = COMMAND_GROUPS
            .iter()
            .flat_map(|group| group.commands)
            .copied()
            .collect();
        assert_eq!(grouped, defined);
    }
}
