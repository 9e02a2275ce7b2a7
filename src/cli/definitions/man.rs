//! Manual pages: caproot(1), a page for each command, and caproot.yaml(5).

use super::definition::CommandEntry;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::output::write_stdout;
use crate::cli::{commands, exit};
use crate::daemon::config::config_keys;
use caproot_core::text::SentenceResult as _;
use clap::Args;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Name of the manual in the head of each page.
const MANUAL: &str = "caproot manual";

/// Program and version in the foot of each page.
const PROGRAM: &str = concat!("caproot ", env!("CARGO_PKG_VERSION"));

/// Empty date, so that a build can be repeated.
const NO_DATE: &str = "\"\"";

/// No hyphenation, and no spaces to fill a line: both make options hard to read.
const LAYOUT: &str = ".nh\n.ad l\n";

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

/// Print the manual page, or write all manual pages
///
/// The pages are caproot(1), a page for each command, and caproot.yaml(5).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot man | man -l -
  caproot man --dir /usr/local/share/man    # then: man caproot-list")]
pub(crate) struct ManArgs {
    /// Write all pages to the directories man1 and man5 of this directory, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the first manual page, or writes all.
pub(crate) fn run(args: &ManArgs) -> Result<u8, CommandFailure> {
    let pages = manual_pages();
    if let Some(dir) = &args.dir {
        let words = format!("cannot write manual pages to {}", dir.display());
        let written = write_pages(dir, &pages).context(words);
        written.or_exit(exit::OUTPUT_FAILED)?;
    } else {
        write_stdout(|stdout| stdout.write_all(pages[0].source.as_bytes()))?;
    }
    Ok(exit::OK)
}

/// Returns every manual page. The first is caproot(1).
#[must_use]
pub fn manual_pages() -> Vec<ManualPage> {
    let commands = commands();
    let pages = commands
        .iter()
        .map(|command| command_page(command, &commands));
    pages.chain([config_page(&commands)]).collect()
}

/// Writes the pages to the directories `man1` and `man5` of a directory.
fn write_pages(dir: &Path, pages: &[ManualPage]) -> io::Result<()> {
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

/// Returns the page of a command: the sections that clap describes, and then our own.
fn command_page(command: &CommandEntry, commands: &[CommandEntry]) -> ManualPage {
    let name = command.page_name();
    let mut page = Roff::new();

    for section in &command.sections {
        page.control("SH", [section.heading.to_uppercase().as_str()]);
        add_lines(&mut page, &section.lines);
    }

    page.control("SH", ["EXIT STATUS"]);
    for entry in command.exit_codes() {
        add_entry(&mut page, &entry.code.to_string(), entry.meaning);
    }

    let variables: Vec<_> = command.variables().collect();
    let files: Vec<_> = command.files().collect();
    for (heading, entries) in [("ENVIRONMENT", variables), ("FILES", files)] {
        if !entries.is_empty() {
            page.control("SH", [heading]);
        }
        for entry in entries {
            add_entry(&mut page, entry.name, entry.meaning);
        }
    }

    page.control("SH", ["SEE ALSO"]);
    page.text(see_also(&related_pages(command, commands)));

    // Both parts begin with the same definition of the apostrophe.
    let own_sections = page.render();
    let own_sections = own_sections.trim_start_matches(&Roff::new().render());
    let source = definition_source(command, &name) + own_sections;
    finish_page(name, 1, &source)
}

/// Returns the source of the sections that clap describes, from NAME to OPTIONS and COMMANDS.
fn definition_source(command: &CommandEntry, name: &str) -> String {
    let definition = command
        .definition
        .clone()
        .override_usage(command.synopsis())
        .subcommand_help_heading("COMMANDS")
        // The examples have a section of their own, and the head of the page has the version.
        .after_help(Resettable::Reset)
        .version(Resettable::Reset)
        .long_version(Resettable::Reset);

    let mut rendered = Vec::new();
    // Writing to memory does not fail.
    let _ = Man::new(definition)
        .title(name.to_uppercase())
        .date(NO_DATE)
        .source(PROGRAM)
        .manual(MANUAL)
        .render(&mut rendered);

    let rendered = String::from_utf8_lossy(&rendered);
    bold_code(&rendered.replacen(".SH", &format!("{LAYOUT}.SH"), 1))
}

/// Shows text between backticks in bold.
fn bold_code(source: &str) -> String {
    let mut parts = source.split('`');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for (number, part) in parts.enumerate() {
        shown += if number % 2 == 0 { r"\fB" } else { r"\fR" };
        shown += part;
    }
    shown
}

/// Returns the page of the config file.
fn config_page(commands: &[CommandEntry]) -> ManualPage {
    let mut page = Roff::new();
    let title = CONFIG_PAGE.to_uppercase();
    page.control("TH", [&*title, "5", NO_DATE, PROGRAM, MANUAL]);
    page.control("nh", []).control("ad", ["l"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!(
        "{CONFIG_PAGE} - config file of the caproot daemon"
    ))]);

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
    add_keys(&mut page);

    page.control("SH", ["FILES"]);
    let mut files = commands.iter().flat_map(CommandEntry::files);
    if let Some(file) = files.find(|file| file.name.ends_with(CONFIG_PAGE)) {
        add_entry(&mut page, file.name, file.meaning);
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

    finish_page(CONFIG_PAGE.to_owned(), 5, &page.render())
}

fn finish_page(name: String, section: u8, source: &str) -> ManualPage {
    // `\\` is defined in copy mode only. Source: groff(7), "Escape sequences".
    ManualPage {
        name,
        section,
        source: source.replace(r"\\", r"\e"),
    }
}

/// Adds an entry for each key of the config file.
fn add_keys(page: &mut Roff) {
    for key in config_keys() {
        let mut text = key.meaning.to_owned();
        if !key.is_section {
            text = format!("{text} Type: {}.", key.value_type);
        }
        if let Some(default) = &key.default {
            text = format!("{text} Default: {default}.");
        }
        if let Some(flag) = &key.flag {
            text = format!("{text} Flag: `{flag}`.");
        }

        add_entry(page, key.path, &format!("{text} Reload: {}.", key.reload));
    }
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
    let related = commands.iter().filter(|other| {
        let is_named = text.contains(&other.program());
        let is_related = other.name.is_empty() || command.name.is_empty() || is_named;
        other.name != command.name && is_related
    });
    let mut pages: Vec<_> = related.map(|other| (other.page_name(), 1)).collect();
    if command.files().any(|file| file.name.ends_with(CONFIG_PAGE)) {
        pages.push((CONFIG_PAGE.to_owned(), 5));
    }
    pages
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
    let parts = text.split('`').enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    let inlines = parts.map(|(number, part)| match number % 2 {
        0 => roman(part),
        _ => bold(part),
    });
    inlines.collect()
}
