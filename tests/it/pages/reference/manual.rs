//! Manual pages: sections, examples, and the rendered text.

use std::fs;
use std::process::{Command, Stdio};

use caproot::cli::{commands, manual_pages};

use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_blocking};

/// Sections of the page of each command.
const COMMAND_SECTIONS: &[&str] = &[
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "EXAMPLES",
    "EXIT STATUS",
    "ENVIRONMENT",
    "SEE ALSO",
];

/// Returns a page as text, with the program mandoc or man. `None` if neither is installed.
fn render(source: &str) -> Option<String> {
    let fixture = Fixture::new("");
    fixture.write("page", source);
    let programs: [(&str, &[&str]); 2] = [("mandoc", &["-Tutf8", "-Owidth=100"]), ("man", &["-l"])];
    for (program, args) in programs {
        let mut command = Command::new(program);
        command
            .args(args)
            .arg(fixture.path("page"))
            .stdin(Stdio::null());
        command.env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
        let Ok(output) = command.output() else {
            continue;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Bold and underlined characters are overstruck.
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let mut plain = String::new();
        for character in text.chars() {
            if character == '\u{8}' {
                plain.pop();
            } else {
                plain.push(character);
            }
        }
        return Some(plain);
    }
    println!("SKIPPED: neither mandoc nor man is installed");
    None
}

/// Returns the lines of a rendered section without their indentation.
fn section_lines<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_page_has_all_sections() {
    let commands = commands();
    for (page, command) in manual_pages().iter().zip(&commands) {
        let headings: Vec<_> = page
            .source
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        let headings: Vec<_> = headings
            .iter()
            .map(|heading| heading.trim_matches('"'))
            .collect();
        for section in COMMAND_SECTIONS {
            assert!(
                headings.contains(section),
                "{}: {section} in {headings:?}",
                page.name
            );
        }
        assert_eq!(
            command.files().next().is_some(),
            headings.contains(&"FILES"),
            "{}",
            page.name
        );
    }
    assert_eq!(
        commands
            .iter()
            .filter(|command| command.files().next().is_some())
            .count(),
        18
    );
}

#[test]
fn examples_keep_the_lines_of_the_help() {
    for (page, command) in manual_pages().iter().zip(&commands()) {
        let words = command.name.split_whitespace();
        let help = run_blocking(caproot(std::iter::once("help").chain(words)))
            .text()
            .to_owned();
        let (_, examples) = help.split_once("\nExamples:\n").expect("examples");
        let examples: Vec<_> = examples
            .lines()
            .take_while(|line| !line.is_empty())
            .collect();
        let examples: Vec<_> = examples.iter().map(|line| &line[2..]).collect();
        assert_eq!(examples, command.examples(), "`{}`", command.name);
        let Some(text) = render(&page.source) else {
            return;
        };
        let rendered = section_lines(&text, "EXAMPLES");
        let indent = rendered
            .first()
            .map_or(0, |line| line.len() - line.trim_start().len());
        let rendered: Vec<_> = rendered.iter().map(|line| &line[indent..]).collect();
        assert_eq!(rendered, examples, "`{}`:\n{text}", command.name);
    }
}

#[test]
fn a_synopsis_has_the_values_of_options() {
    let pages = manual_pages();
    let page = pages
        .iter()
        .find(|page| page.name == "caproot-list")
        .expect("the page");
    let Some(text) = render(&page.source) else {
        return;
    };
    let synopsis = section_lines(&text, "SYNOPSIS").join(" ");
    let synopsis = synopsis.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        synopsis.starts_with("caproot list [--product PRODUCT] [--lock FILE]"),
        "{synopsis}"
    );
    assert!(synopsis.contains("[--output text|json]"), "{synopsis}");
    assert!(synopsis.contains("[--root [ID=]DIR]..."), "{synopsis}");
}

#[test]
fn the_page_of_the_config_file_has_every_key_and_a_valid_example() {
    let pages = manual_pages();
    let page = pages.last().expect("a page");
    assert_eq!((page.name.as_str(), page.section), ("caproot.yaml", 5));
    for section in [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "KEYS",
        "FILES",
        "EXAMPLES",
        "SEE ALSO",
    ] {
        let head = if section.contains(' ') {
            format!("\"{section}\"")
        } else {
            section.to_owned()
        };
        assert!(
            page.source
                .lines()
                .any(|line| line == format!(".SH {head}")),
            "{section}"
        );
    }
    let Some(text) = render(&page.source) else {
        return;
    };
    let keys = section_lines(&text, "KEYS");
    for key in caproot::daemon::config::config_keys() {
        let starts = |line: &&str| line.trim_start().split(' ').next() == Some(key.path);
        assert!(keys.iter().any(starts), "{}", key.path);
    }
    let rendered = section_lines(&text, "EXAMPLES");
    let indent = rendered[0].len() - rendered[0].trim_start().len();
    let example: Vec<_> = rendered.iter().map(|line| &line[indent..]).collect();
    // The group need not exist on the machine of the test.
    let example = example.join("\n").replace("[agents]", "[0]");
    let fixture = Fixture::new("dir run\nmode 0700 run");
    fixture.write("caproot.yaml", &example);
    let file = fixture.path("caproot.yaml");
    let ended = run_blocking(caproot(["config", "check", file.to_str().expect("UTF-8")]));
    assert_eq!(ended.code, Some(0), "{example}\n{}", ended.text());
    assert!(
        ended.text().contains("1 published root,"),
        "{}",
        ended.text()
    );
}

#[test]
fn pages_are_written_below_their_sections() {
    let fixture = Fixture::new("dir man");
    let dir = fixture.path("man");
    let dir = dir.to_str().expect("UTF-8");
    for _ in 0..2 {
        let ended = run_blocking(caproot(["man", "--dir", dir]));
        assert_eq!(
            (ended.code, ended.text(), ended.stderr.as_str()),
            (Some(0), "", "")
        );
    }
    let pages = manual_pages();
    for page in &pages {
        let file = format!("man/man{0}/{1}.{0}", page.section, page.name);
        assert_eq!(
            fs::read_to_string(fixture.path(&file)).expect("a page"),
            page.source,
            "{file}"
        );
    }
    assert_eq!(
        run_blocking(caproot(["man"])).text().to_owned(),
        pages[0].source
    );
    assert_eq!(
        run_blocking(caproot(["man", "--dir", &format!("{dir}/none")])).code,
        Some(74)
    );
}
