//! Rules between flags that attributes of clap cannot express: some flags have environment
//! variables, which a flag on the command line replaces without an error.

use super::command_set::CLIENT_COMMANDS;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// Flags of the connection whose values a fleet file has.
const FLEET_FILE_FLAGS: [&str; 8] = [
    "--endpoint",
    "--timeout",
    "--ca",
    "--cert",
    "--key",
    "--server-name",
    "--spiffe-id",
    "--token-file",
];
/// Commands that use every executor of a fleet unless `--environment-id` names one.
const FLEET_COMMANDS: [&str; 6] = ["list", "search", "lock", "watch", "call", "prompt"];

/// Flags of `watch` for skills, which the watch of a whole fleet does not show.
const SKILL_WATCH_FLAGS: [&str; 4] = ["--product", "--bookmarks", "--root", "--selected"];

/// Flags that name a daemon or its roots, which `lock` does not use with directories.
const DAEMON_FLAGS: [&str; 4] = ["--endpoint", "--fleet", "--root", "--selected"];

/// Checks the flags of a client command. `command` is the program that parsed the matches.
pub fn check_flag_rules(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    if CLIENT_COMMANDS.contains(&name)
        && let Some((kind, sentence)) = broken_rule(name, matches)
        && let Some(command) = command.find_subcommand_mut(name)
    {
        return Err(command.error(kind, sentence));
    }
    Ok(())
}

fn broken_rule(name: &str, matches: &ArgMatches) -> Option<(ErrorKind, String)> {
    let in_fleet = is_given(matches, "fleet");
    let has_id = is_given(matches, "environment_id");
    let has_root = is_given(matches, "root");

    let conflict = |sentence| Some((ErrorKind::ArgumentConflict, sentence));
    let missing = |sentence| Some((ErrorKind::MissingRequiredArgument, sentence));

    if is_given(matches, "dirs")
        && let Some(flag) = first_given(matches, &DAEMON_FLAGS)
    {
        conflict(format!(
            "'DIR' cannot be used with '{flag}': `caproot {name}` reads directories of this \
             machine without a daemon"
        ))
    } else if in_fleet && let Some(flag) = first_given(matches, &FLEET_FILE_FLAGS) {
        conflict(format!(
            "'--fleet' cannot be used with '{flag}': the fleet file has the endpoint, \
             credentials and timeout of each executor"
        ))
    } else if name == "watch"
        && in_fleet
        && !has_id
        && let Some(flag) = first_given(matches, &SKILL_WATCH_FLAGS)
    {
        conflict(format!(
            "'--fleet' cannot be used with '{flag}' unless '--environment-id ID' names one \
             executor: `caproot watch --fleet` shows the states of executors"
        ))
    } else if in_fleet && !has_id && !FLEET_COMMANDS.contains(&name) {
        missing(format!(
            "'--fleet' requires '--environment-id ID': `caproot {name}` uses one executor of the fleet"
        ))
    } else if in_fleet && !has_id && has_root {
        let sentence = "'--root' with '--fleet' requires '--environment-id ID', which names the \
                        executor that has the directory";
        missing(sentence.to_owned())
    } else if has_id && !in_fleet && !has_root {
        let is_for_roots = matches.try_contains_id("root").is_ok();
        let or_root = if is_for_roots { " or '--root DIR'" } else { "" };
        missing(format!(
            "'--environment-id' requires '--fleet FILE'{or_root}"
        ))
    } else {
        None
    }
}

/// Returns the first flag that the command line has.
fn first_given(matches: &ArgMatches, flags: &[&'static str]) -> Option<&'static str> {
    let mut flags = flags.iter().copied();
    flags.find(|flag| is_given(matches, &flag.trim_start_matches("--").replace('-', "_")))
}

/// Whether the command line has a flag. A value of an environment variable does not count.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    // clap panics if a command does not define an argument.
    matches.try_contains_id(id).is_ok()
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}
