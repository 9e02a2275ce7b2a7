//! Manual pages: caproot(1), a page for each command, and caproot.yaml(5).

use super::definition::{CommandEntry, EXAMPLES_HEADING, OPTIONS_HEADING, OptionEntry};
use crate::config::config_keys;
use roff::{Inline, Roff, bold, italic, roman};
use std::path::Path;
use std::{fs, io};

/// Name of the manual in the head of each page.
const MANUAL: &str = "caproot manual";

/// Name of the page of the config file.
const CONFIG_PAGE: &str = "caproot.yaml";

/// Config file in the examples of caproot.yaml(5).
const CONFIG_EXAMPLE: &str = "\
# One published root, which only the group `agents` may use
roots:
  - id: team
    path: /srv/skills
callers:
  - name: agents
    gids: [agents]
    roots: [team]
log: {format: journald}
watch_config: true
";

/// Manual page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManualPage {
    /// Name, such as `caproot-list`.
    pub name: String,
    /// Section of the manual.
    pub section: u8,
    /// Source in the format of man(7).
    pub source: String,
}

/// Returns all pages. The first is caproot(1).
pub(super) fn manual_pages(commands: &[CommandEntry]) -> Vec<ManualPage> {
    let pages = commands
        .iter()
        .map(|command| command_page(command, commands));
    pages.chain([config_page(commands)]).collect()
}

/// Writes the pages to the directories `man1` and `man5` of a directory.
pub(super) fn write_pages(dir: &Path, pages: &[ManualPage]) -> io::Result<()> {
    for page in pages {
        let section = dir.join(format!("man{}", page.section));
        // The parent must exist, so that a misspelt path is an error.
        match fs::create_dir(&section) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::write(
                section.join(format!("{}.{}", page.name, page.section)),
                &page.source,
            )?,
        }
    }
    Ok(())
}

fn command_page(command: &CommandEntry, commands: &[CommandEntry]) -> ManualPage {
    let name = command.page_name();
    let mut page = start_page(&name, 1, &command.about);
    page.control("SH", ["SYNOPSIS"]);
    add_synopsis(&mut page, command);
    page.control("SH", ["DESCRIPTION"]);
    if command.description.is_empty() {
        page.text(markup(&with_full_stop(&command.about)));
    }
    for (number, paragraph) in command.description.iter().enumerate() {
        if number > 0 {
            page.control("PP", []);
        }
        page.text(markup(paragraph));
    }
    for section in command
        .sections
        .iter()
        .filter(|part| part.heading != EXAMPLES_HEADING)
    {
        page.control("SH", [section.heading.to_uppercase().as_str()]);
        add_lines(&mut page, &section.lines);
    }
    if !command.subcommands.is_empty() {
        page.control("SH", ["COMMANDS"]);
        for (inner, about) in &command.subcommands {
            page.control("TP", []).text([bold(inner.as_str())]);
            page.text(markup(&with_full_stop(about)));
        }
    }
    page.control("SH", ["OPTIONS"]);
    for heading in command.option_headings() {
        if heading != OPTIONS_HEADING {
            page.control("SS", [heading]);
        }
        for option in command
            .options
            .iter()
            .filter(|option| option.heading == heading)
        {
            add_option(&mut page, option);
        }
    }
    page.control("SH", ["EXAMPLES"]);
    add_lines(&mut page, command.examples());
    page.control("SH", ["EXIT STATUS"]);
    for entry in command.exit_codes() {
        add_entry(&mut page, &entry.code.to_string(), entry.meaning);
    }
    page.control("SH", ["ENVIRONMENT"]);
    for entry in command.variables() {
        add_entry(&mut page, entry.name, entry.meaning);
    }
    if command.files().next().is_some() {
        page.control("SH", ["FILES"]);
        for entry in command.files() {
            add_entry(&mut page, entry.path, entry.meaning);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text(see_also(&related_pages(command, commands)));
    finish_page(name, 1, &page)
}

/// Returns the page of the config file.
fn config_page(commands: &[CommandEntry]) -> ManualPage {
    let mut page = start_page(CONFIG_PAGE, 5, "config file of the caproot daemon");
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("caproot serve --config "), italic("FILE")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text(markup(
        "The file is YAML. Each key is optional, unless its text says that the key is required in its \
         section. Relative paths begin at the directory of the file. Unknown and duplicate keys are \
         errors. A flag of `caproot serve` replaces the value of its key, lists as a whole.",
    ));
    page.control("PP", []);
    page.text(markup(
        "On SIGHUP, the daemon applies a changed file whole or rejects the file whole. If a key needs a \
         restart, the daemon exits so that systemd starts a new process. Without systemd, the daemon \
         keeps the previous value of the key.",
    ));
    page.control("SH", ["KEYS"]);
    for key in config_keys() {
        let mut sentences = vec![key.meaning.to_owned()];
        sentences.extend((!key.is_section).then(|| format!("Type: {}.", key.value_type)));
        sentences.extend(
            key.default
                .iter()
                .map(|default| format!("Default: {default}.")),
        );
        sentences.extend(key.flag.iter().map(|flag| format!("Flag: `{flag}`.")));
        sentences.push(format!("Reload: {}.", key.reload));
        add_entry(&mut page, key.path, &sentences.join(" "));
    }
    page.control("SH", ["FILES"]);
    let files = commands.iter().flat_map(CommandEntry::files);
    if let Some(file) = files
        .into_iter()
        .find(|file| file.path.ends_with(CONFIG_PAGE))
    {
        add_entry(&mut page, file.path, file.meaning);
    }
    page.control("SH", ["EXAMPLES"]);
    let lines: Vec<String> = CONFIG_EXAMPLE.lines().map(str::to_owned).collect();
    add_lines(&mut page, &lines);
    page.control("SH", ["SEE ALSO"]);
    let names = [
        "caproot",
        "caproot-serve",
        "caproot-config-check",
        "caproot-config-example",
    ];
    page.text(see_also(&names.map(|name| (name.to_owned(), 1))));
    finish_page(CONFIG_PAGE.to_owned(), 5, &page)
}

/// Starts a page with its head and the section NAME.
fn start_page(name: &str, section: u8, about: &str) -> Roff {
    let mut page = Roff::new();
    let version = concat!("caproot ", env!("CARGO_PKG_VERSION"));
    let section = section.to_string();
    page.control(
        "TH",
        [
            name.to_uppercase().as_str(),
            &section,
            "\"\"",
            version,
            MANUAL,
        ],
    );
    // No hyphenation, and no spaces to fill a line: both make options hard to read.
    page.control("nh", []).control("ad", ["l"]);
    page.control("SH", ["NAME"]);
    let mut head = vec![roman(format!("{name} - "))];
    head.extend(markup(about.trim_end_matches('.')));
    page.text(head);
    page
}

fn finish_page(name: String, section: u8, page: &Roff) -> ManualPage {
    // `\\` is defined in copy mode only. Source: groff(7), "Escape sequences".
    let source = page.render().replace(r"\\", r"\e");
    ManualPage {
        name,
        section,
        source,
    }
}

fn add_synopsis(page: &mut Roff, command: &CommandEntry) {
    let mut line = vec![bold(command.program())];
    let arguments = command
        .options
        .iter()
        .filter(|option| option.flag.is_none());
    let flags = command
        .options
        .iter()
        .filter(|option| option.flag.is_some());
    for option in flags.chain(arguments) {
        let (open, close) = if option.is_required {
            ("", "")
        } else {
            ("[", "]")
        };
        line.push(roman(format!(" {open}")));
        line.extend(option_spelling(option));
        let repeat = if option.is_repeatable { "..." } else { "" };
        line.push(roman(format!("{close}{repeat}")));
    }
    if !command.subcommands.is_empty() {
        line.extend([roman(" "), italic("COMMAND")]);
    }
    page.text(line);
}

/// Returns the flag and the name of its value.
fn option_spelling(option: &OptionEntry) -> Vec<Inline> {
    let mut line = Vec::new();
    if let Some(flag) = &option.flag {
        for (number, spelling) in flag.split(", ").enumerate() {
            line.extend((number > 0).then(|| roman(", ")));
            line.push(bold(spelling));
        }
    }
    if let Some(value) = &option.value {
        line.extend((!line.is_empty()).then(|| roman(" ")));
        line.push(italic(value.as_str()));
    }
    line
}

fn add_option(page: &mut Roff, option: &OptionEntry) {
    page.control("TP", []).text(option_spelling(option));
    let mut sentences = vec![with_full_stop(&option.help)];
    let values = option.values.iter();
    sentences.extend(values.map(|(value, text)| format!("`{value}`: {}", with_full_stop(text))));
    sentences.extend(
        option
            .default
            .iter()
            .map(|default| format!("Default: {default}.")),
    );
    sentences.extend(
        option
            .variable
            .iter()
            .map(|name| format!("Environment: `{name}`.")),
    );
    page.text(markup(&sentences.join(" ")));
}

fn add_entry(page: &mut Roff, head: &str, meaning: &str) {
    page.control("TP", []).text([bold(head)]);
    page.text(markup(meaning));
}

/// Adds lines that are not filled.
fn add_lines(page: &mut Roff, lines: &[String]) {
    page.control("nf", []);
    for line in lines {
        page.text([roman(line.as_str())]);
    }
    page.control("fi", []);
}

/// Returns the pages to which the page of a command refers: caproot(1), the commands that its text
/// names, and caproot.yaml(5) if the command uses the config file.
fn related_pages(command: &CommandEntry, commands: &[CommandEntry]) -> Vec<(String, u8)> {
    let text = command
        .description
        .iter()
        .chain(command.examples())
        .fold(String::new(), |text, part| text + part + "\n");
    let is_related = |other: &&CommandEntry| {
        let names_other = other.name.is_empty() || text.contains(&other.program());
        other.name != command.name && (command.name.is_empty() || names_other)
    };
    let pages = commands
        .iter()
        .filter(is_related)
        .map(|other| (other.page_name(), 1));
    let config = command.files().any(|file| file.path.ends_with(CONFIG_PAGE));
    pages
        .chain(config.then(|| (CONFIG_PAGE.to_owned(), 5)))
        .collect()
}

fn see_also(pages: &[(String, u8)]) -> Vec<Inline> {
    let mut line = Vec::new();
    for (number, (name, section)) in pages.iter().enumerate() {
        line.extend((number > 0).then(|| roman(", ")));
        line.extend([bold(name.as_str()), roman(format!("({section})"))]);
    }
    line
}

/// Shows text between backticks in bold.
fn markup(text: &str) -> Vec<Inline> {
    let parts = text
        .split('`')
        .enumerate()
        .filter(|(_, part)| !part.is_empty());
    parts
        .map(|(number, part)| {
            if number % 2 == 1 {
                bold(part)
            } else {
                roman(part)
            }
        })
        .collect()
}

fn with_full_stop(text: &str) -> String {
    if text.ends_with('.') {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}
