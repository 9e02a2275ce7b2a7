//! Groups of the commands in `caproot --help`. clap has one heading for all subcommands, so the groups
//! are text of the template. Source: <https://github.com/clap-rs/clap/issues/1553>.

use clap::Command;

/// Width of the names of commands.
const NAME_WIDTH: usize = 11;
/// Purpose of the command that clap adds.
const HELP_ABOUT: &str = "Print the help of a command";

/// Headings of all groups, each with the names of its commands, in the order of the definition of the
/// commands.
const COMMAND_GROUPS: [(&str, &[&str]); 7] = [
    ("Run a daemon", &["serve", "config", "link"]),
    (
        "Ask a daemon",
        &[
            "status",
            "resolve",
            "list",
            "search",
            "resources",
            "read",
            "exec",
            "watch",
        ],
    ),
    ("Copy and approve packages", &["pull", "lock"]),
    ("Write skills and plugins", &["new", "check", "explain"]),
    ("Serve agents", &["call", "mcp", "prompt"]),
    ("Manage many executors", &["fleet"]),
    ("Set up a shell", &["completions", "man", "help"]),
];

/// Lists the commands of the program in groups.
pub fn with_command_groups(program: Command) -> Command {
    let header = *program.get_styles().get_header();
    let literal = *program.get_styles().get_literal();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();

    for (heading, commands) in COMMAND_GROUPS {
        template = format!("{template}{header}{heading}:{header:#}\n");
        for name in commands {
            let about: &str = match program.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => &about.to_string(),
                None if *name == "help" => HELP_ABOUT,
                // Commands that need Linux are not defined elsewhere.
                None => continue,
            };
            template = format!("{template}  {literal}{name:NAME_WIDTH$}{literal:#}  {about}\n");
        }
        template.push('\n');
    }

    template = format!("{template}{header}Options:{header:#}\n{{options}}{{after-help}}");
    program.help_template(template)
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
            .flat_map(|(_, commands)| *commands)
            .copied()
            .collect();
        assert_eq!(grouped, defined);
    }
}
