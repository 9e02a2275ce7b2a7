//! Rules between flags that attributes of clap cannot express: some flags have environment
//! variables, which a flag on the command line replaces without an error.

use super::command_set::CLIENT_COMMANDS;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// Flags of the connection whose values a fleet file has: id of the argument, and flag.
const FLEET_FILE_FLAGS: [(&str, &str); 8] = [
    ("endpoint", "--endpoint"),
    ("timeout", "--timeout"),
    ("ca", "--ca"),
    ("cert", "--cert"),
    ("key", "--key"),
    ("server_name", "--server-name"),
    ("spiffe_id", "--spiffe-id"),
    ("token_file", "--token-file"),
];
/// Commands that use every executor of a fleet unless `--environment-id` names one.
const FLEET_COMMANDS: [&str; 6] = ["list", "search", "lock", "watch", "call", "prompt"];

/// Flags of `watch` for skills, which the watch of a whole fleet does not show.
const SKILL_WATCH_FLAGS: [(&str, &str); 4] = [
    ("product", "--product"),
    ("bookmarks", "--bookmarks"),
    ("root", "--root"),
    ("selected", "--selected"),
];

/// Flags that name a daemon or its roots, which `lock` does not use with directories.
const DAEMON_FLAGS: [(&str, &str); 4] = [
    ("endpoint", "--endpoint"),
    ("fleet", "--fleet"),
    ("root", "--root"),
    ("selected", "--selected"),
];

/// Checks the flags of a client command. `command` is the program that parsed the matches.
pub fn check_flag_rules(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let problem = CLIENT_COMMANDS
        .contains(&name)
        .then(|| broken_rule(name, matches))
        .flatten();
    match (problem, command.find_subcommand_mut(name)) {
        (Some((kind, sentence)), Some(command)) => Err(command.error(kind, sentence)),
        _ => Ok(()),
    }
}

fn broken_rule(name: &str, matches: &ArgMatches) -> Option<(ErrorKind, String)> {
    let in_fleet = is_given(matches, "fleet");
    let has_id = is_given(matches, "environment_id");
    let has_root = is_given(matches, "root");

    let conflict = if is_given(matches, "dirs")
        && let Some(flag) = first_given(matches, &DAEMON_FLAGS)
    {
        Some(format!(
            "'DIR' cannot be used with '{flag}': `caproot {name}` reads directories of this \
             machine without a daemon"
        ))
    } else if in_fleet && let Some(flag) = first_given(matches, &FLEET_FILE_FLAGS) {
        Some(format!(
            "'--fleet' cannot be used with '{flag}': the fleet file has the endpoint, \
             credentials and timeout of each executor"
        ))
    } else if name == "watch"
        && in_fleet
        && !has_id
        && let Some(flag) = first_given(matches, &SKILL_WATCH_FLAGS)
    {
        Some(format!(
            "'--fleet' cannot be used with '{flag}' unless '--environment-id ID' names one \
             executor: `caproot watch --fleet` shows the states of executors"
        ))
    } else {
        None
    };
    if let Some(sentence) = conflict {
        return Some((ErrorKind::ArgumentConflict, sentence));
    }

    let missing = if in_fleet && !has_id && !FLEET_COMMANDS.contains(&name) {
        format!(
            "'--fleet' requires '--environment-id ID': `caproot {name}` uses one executor of the fleet"
        )
    } else if in_fleet && !has_id && has_root {
        "'--root' with '--fleet' requires '--environment-id ID', which names the executor that has \
         the directory"
            .to_owned()
    } else if has_id && !in_fleet && !has_root {
        let is_for_roots = matches.try_contains_id("root").is_ok();
        let or_root = if is_for_roots { " or '--root DIR'" } else { "" };
        format!("'--environment-id' requires '--fleet FILE'{or_root}")
    } else {
        return None;
    };
    Some((ErrorKind::MissingRequiredArgument, missing))
}

/// Returns the first flag that the command line has.
fn first_given(matches: &ArgMatches, flags: &[(&str, &'static str)]) -> Option<&'static str> {
    let mut flags = flags.iter();
    let (_, flag) = flags.find(|(id, _)| is_given(matches, id))?;
    Some(flag)
}

/// Whether the command line has a flag. A value of an environment variable does not count.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    // clap panics if a command does not define an argument.
    matches.try_contains_id(id).is_ok()
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}
