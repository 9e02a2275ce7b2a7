//! `docs/reference/config.md`: the keys of the loader.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use caproot::cli::CommandLine;
use caproot::daemon::config::{KeyDescription, config_keys};
use clap::CommandFactory as _;

use super::check_page;
use super::protocol::{link_errors, link_names};

const HEAD: &str = "# Config

Keys of the YAML file that `caproot serve --config FILE` reads. Each key is optional, unless the page says
that it is required in its section. `caproot config example` prints a file with every key, and `caproot config
check FILE` checks a file. [Change the config](../operate/reload.md) describes reloads.

- Relative paths begin at the directory of the file. `~` is not expanded.
- A flag of `caproot serve` replaces the value of the file, lists as a whole.
- Unknown keys, duplicate keys, keys without a value, anchors, aliases and tags are errors.
- A reload applies a file whole or rejects it whole. If a key needs a restart, the daemon arranges the restart
  under systemd, and keeps the previous value otherwise.
- `roots[].id` is the key `id` of each item of the list `roots`.

| key | default | after a reload |
| --- | --- | --- |
";

/// Returns the anchor of a heading, as forges derive it.
fn key_anchor(path: &str) -> String {
    path.chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect()
}

fn render_config(keys: &[KeyDescription]) -> String {
    let mut page = HEAD.to_owned();
    for KeyDescription {
        path,
        default,
        reload,
        ..
    } in keys
    {
        // The keys of a section without a default have the cells.
        let Some(default) = default else {
            writeln!(page, "| [`{path}`](#{}) | | |", key_anchor(path)).expect("a string");
            continue;
        };
        let [default, reload] =
            [&**default, reload].map(|text| text.split(';').next().unwrap_or_default());
        let anchor = key_anchor(path);
        writeln!(page, "| [`{path}`](#{anchor}) | {default} | {reload} |").expect("a string");
    }
    for key in keys {
        let level = if key.path.contains('.') { "###" } else { "##" };
        let KeyDescription {
            path,
            value_type,
            reload,
            ..
        } = key;
        let meaning = link_names(&link_errors(key.meaning, "errors.md"), "api.md");
        write!(
            page,
            "\n{level} `{path}`\n\n{meaning}\n\n- Type: {value_type}\n"
        )
        .expect("a string");
        for (name, text) in [
            ("Default", key.default.clone()),
            ("Example", key.example.map(|example| format!("`{example}`"))),
            ("Flag", key.flag.map(|flag| format!("`{flag}`"))),
            ("Reload", key.default.as_ref().map(|_| (*reload).to_owned())),
        ] {
            if let Some(text) = text {
                writeln!(page, "- {name}: {text}").expect("a string");
            }
        }
    }
    page
}

#[test]
fn the_page_is_current() {
    check_page("config", &render_config(&config_keys()));
}

#[test]
fn the_flags_are_those_of_serve() {
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve").expect("caproot serve");
    // These flags have no key.
    let others = ["config", "help", "stop-with-stdin"];
    let visible = serve
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    let flags: BTreeSet<_> = visible
        .filter_map(clap::Arg::get_long)
        .filter(|long| !others.contains(long))
        .map(|long| format!("--{long}"))
        .collect();
    let in_table: BTreeSet<_> = config_keys()
        .into_iter()
        .filter_map(|key| key.flag.map(str::to_owned))
        .collect();
    assert_eq!(in_table, flags);
}
