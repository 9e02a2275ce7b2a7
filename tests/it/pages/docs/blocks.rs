//! The fenced blocks of the pages are correct in their languages.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use caproot::cli::CommandLine;
use clap::Parser as _;
use fancy_regex::Regex;
use serde::Deserialize as _;

use super::page::{pages, top};
use super::shell::{simple_commands, steps, strip_sudo};
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_blocking};

/// Returns the keys of a config file.
fn config_keys() -> BTreeSet<String> {
    let key = Regex::new("(?m)^#?([a-z_]+):").expect("a pattern");
    let example = run_blocking(caproot(["config", "example"]))
        .text()
        .to_owned();
    let found = key.captures_iter(example.as_str()).filter_map(Result::ok);
    found.map(|found| found[1].to_owned()).collect()
}

/// Returns the errors of a config, except those about files and users that another machine has. If
/// the text publishes no root, the roots of the pages are added.
fn config_errors(text: &str) -> Vec<String> {
    let fixture = Fixture::new("dir etc");
    let roots = "\nroots: [{id: team, path: /srv/skills}, {id: demo, path: /srv/demo}]\n";
    let has_roots = text.lines().any(|line| line.starts_with("roots:"));
    fixture.write(
        "etc/caproot.yaml",
        [text, if has_roots { "" } else { roots }].concat(),
    );
    let path = fixture.path("etc/caproot.yaml");
    let output = run_blocking(caproot([
        "config".as_ref(),
        "check".as_ref(),
        path.as_os_str(),
    ]));
    let ignored = Regex::new("does not exist|: no (?:user|group) of this name|^warning: |^ok: ");
    let ignored = ignored.expect("a pattern");
    let lines = output.text().lines().chain(output.stderr.lines());
    let errors = lines.filter(|line| !ignored.is_match(line).expect("a search that ends"));
    errors.map(str::to_owned).collect()
}

#[test]
fn yaml_parses_and_configs_are_valid() {
    let keys = config_keys();
    let (mut wrong, mut configs) = (Vec::new(), 0);
    for page in pages() {
        for block in page.blocks("yaml") {
            for document in serde_yaml::Deserializer::from_str(&block.text) {
                let value = match serde_yaml::Value::deserialize(document) {
                    Ok(value) => value,
                    Err(error) => {
                        wrong.push(format!("{}: {error}", page.at(block.line)));
                        continue;
                    }
                };
                let names = value
                    .as_mapping()
                    .into_iter()
                    .flat_map(|mapping| mapping.keys());
                let names: Vec<_> = names.filter_map(|name| name.as_str()).collect();
                if names.is_empty() || !names.iter().all(|name| keys.contains(*name)) {
                    continue;
                }
                configs += 1;
                let errors = config_errors(&block.text);
                wrong.extend(
                    errors
                        .iter()
                        .map(|e| format!("{}: {e}", page.at(block.line))),
                );
            }
        }
    }
    assert!(configs >= 5, "{configs} configs were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        config_errors("allow: [/srv\n").len(),
        1,
        "an error is found"
    );
    assert_eq!(
        config_errors("limits: {max_dept: 1}\n").len(),
        1,
        "an error is found"
    );
}

#[test]
fn json_parses() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for block in page.blocks("json") {
            count += 1;
            if let Err(error) = serde_json::from_str::<serde_json::Value>(&block.text) {
                wrong.push(format!("{}: {error}", page.at(block.line)));
            }
        }
    }
    assert!(count > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn shell_programs_parse() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for block in page.blocks("sh") {
            count += 1;
            let output = Command::new("bash")
                .args(["-n", "-c", &block.text])
                .output();
            let output = output.expect("bash runs");
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{}: {error}", page.at(block.line)));
            }
        }
    }
    assert!(count > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the error of a command line of caproot, as the binary reports it.
fn command_error(words: &[String]) -> Option<String> {
    let error = CommandLine::try_parse_from(words).err()?;
    // `--help` and `--version` are errors that print to stdout.
    error.use_stderr().then(|| error.to_string())
}

#[test]
fn every_caproot_command_parses() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let consoles = page.blocks("console").into_iter();
        let commands = consoles.flat_map(|block| match steps(&block.text, block.line) {
            Ok(steps) => {
                let commands = steps
                    .into_iter()
                    .filter_map(|step| Some((step.line, step.command?)));
                commands.collect()
            }
            Err(error) => {
                wrong.push(format!("{}: {error}", page.path.display()));
                Vec::new()
            }
        });
        let mut commands: Vec<_> = commands.collect();
        commands.extend(
            page.blocks("sh")
                .into_iter()
                .map(|block| (block.line, block.text)),
        );
        for (line, command) in commands {
            let Some(simple) = simple_commands(&command) else {
                wrong.push(format!("{}: an open quote: {command}", page.at(line)));
                continue;
            };
            for mut words in simple {
                strip_sudo(&mut words);
                if words.first().is_some_and(|word| word.ends_with("caproot")) {
                    count += 1;
                    wrong.extend(command_error(&words).map(|e| format!("{}: {e}", page.at(line))));
                }
            }
        }
    }
    assert!(count > 50, "{count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown = ["caproot", "list", "--no-such-flag"].map(str::to_owned);
    assert!(command_error(&unknown).is_some(), "an error is found");
}

#[test]
fn rust_programs_are_documentation_tests() {
    let lib = fs::read_to_string(top().join("src/lib.rs")).expect("src/lib.rs");
    // The page of a library is a link in its package.
    let crate_pages = ["client", "session"].map(|package| {
        let page = top().join("crates").join(package).join("README.md");
        page.canonicalize().expect("a page")
    });
    for page in pages().iter().filter(|page| page.path.starts_with("docs")) {
        let is_compiled = lib.contains(&format!("include_str!(\"../{}\")", page.path.display()))
            || crate_pages.contains(&top().join(&page.path));
        let programs = page.blocks("rust").len();
        assert!(
            programs == 0 || is_compiled,
            "{}: not included",
            page.path.display()
        );
    }
}
