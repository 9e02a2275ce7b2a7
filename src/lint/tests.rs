//! The processor time of every reader of text grows with the size of the text and not with its
//! square. Each reader gets a text of repeated units in two sizes, and the times are compared.

use crate::daemon::fs::file_head::read_head;
use crate::daemon::model::disabled_skills::parse_glob;
use crate::daemon::model::plugin::ComponentKind;
use crate::daemon::parse::plugin::{self, prompt};
use crate::daemon::parse::{
    frontmatter, json, key_position, manifest, secret_filter, sidecar, yaml, yaml_repair,
};
use crate::lint::body;
use caproot_core::document;
use caproot_core::mountinfo;
use caproot_core::text;
use caproot_core::text::{fences, position, similar};
use caproot_core::wire::RelPath;
use caproot_core::wire::handle::ResourceHandle;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::hint::black_box;
use std::io::{Seek as _, Write as _};
use std::time::Duration;

/// Size of the smaller text in bytes.
const SMALL_BYTES: usize = 1_000;
/// How many times larger the larger text is.
const GROWTH: usize = 4;
/// Greatest growth of the time. Quadratic readers have 16.
const MAX_TIME_GROWTH: f64 = 9.0;
/// Time below which a reader of the larger text is fast enough, for every time of the smaller text.
const NEGLIGIBLE: Duration = Duration::from_millis(5);
/// How many units are generated, in addition to the known ones.
const GENERATED_UNITS: usize = 8;

/// Units that were or could be expensive.
const KNOWN_UNITS: [&str; 44] = [
    "{",
    "$A",
    "${A}",
    "{{",
    "${",
    "{{a",
    "${a:-/",
    "$",
    "}",
    "sk-",
    "eyJ",
    "://",
    "@",
    "a:b@",
    "=",
    "a=",
    "-u ",
    "\"",
    "\"a ",
    "'",
    "\\",
    "[",
    "[a](b) ",
    "![",
    "](",
    "`",
    "*a_",
    "<",
    "&a ",
    "*a,",
    "!a ",
    "- ",
    "? ",
    "a: ",
    "a:\n",
    "#",
    "%TAG !a! b\n",
    "---\n",
    "\n",
    "\t",
    "\u{200d}",
    "\u{fe0f}",
    "é",
    "\\u0061",
];

/// Reader with its name.
type NamedReader = (&'static str, fn(&str));

const READERS: [NamedReader; 31] = [
    ("frontmatter", |text| {
        read_frontmatter(&format!("---\n{text}\n---\n"));
    }),
    ("frontmatter value", |text| {
        read_frontmatter(&format!("---\ndescription: {text}\n---\n"));
    }),
    ("unclosed frontmatter", |text| {
        read_frontmatter(&format!("---\n{text}"));
    }),
    ("yaml", |text| drop(black_box(yaml::parse(text)))),
    ("yaml in quotes", |text| {
        drop(black_box(yaml::parse(&format!("a: \"{text}\""))));
    }),
    ("yaml repair", |text| {
        drop(black_box(yaml_repair::quote_broken_values(text)));
    }),
    ("yaml repair of lines", |text| {
        let lines = format!("a: x: {}", text.replace(' ', "\n "));
        drop(black_box(yaml_repair::quote_broken_values(&lines)));
    }),
    ("sidecar", |text| {
        drop(black_box(sidecar::read(text.as_bytes())));
    }),
    ("sidecar value", |text| {
        let yaml = format!("interface: {{display_name: {text}}}");
        drop(black_box(sidecar::read(yaml.as_bytes())));
    }),
    ("json", |text| drop(black_box(json::parse(text.as_bytes())))),
    ("manifest", |text| {
        drop(black_box(manifest::read(text.as_bytes(), None)));
    }),
    ("manifest values", |text| {
        let text = json_text(text);
        let json = format!(
            "{{\"name\":{text},\"description\":{text},\"homepage\":{text},\"skills\":{text}}}"
        );
        drop(black_box(manifest::read(json.as_bytes(), None)));
    }),
    ("marketplace", |text| {
        let text = json_text(text);
        let json = format!("{{\"plugins\":[{{\"name\":\"a\",\"source\":{text}}},{text}]}}");
        let file = RelPath::root();
        drop(black_box(plugin::marketplace::read(json.as_bytes(), &file)));
    }),
    ("hooks of an event", |text| {
        let hooks = format!("[{}{{}}]", "{},".repeat(text.len() / 3));
        let json = format!("{{{}:{hooks}}}", json_text(text));
        read_components(ComponentKind::Hooks, &json);
    }),
    ("hook", |text| {
        let text = json_text(text);
        let json = format!("{{\"a\":[{{\"command\":{text},\"url\":{text},\"args\":[{text}]}}]}}");
        read_components(ComponentKind::Hooks, &json);
    }),
    ("MCP environment", |text| {
        let text = json_text(text);
        let json = format!("{{\"a\":{{\"command\":\"a\",\"env\":{{\"A\":{text},{text}:\"a\"}}}}}}");
        read_components(ComponentKind::McpServers, &json);
    }),
    ("MCP arguments", |text| {
        let args: Vec<String> = text.split(' ').map(json_text).collect();
        let args = args.join(",");
        let json = format!(
            "{{\"a\":{{\"command\":{},\"args\":[{args}]}}}}",
            json_text(text)
        );
        read_components(ComponentKind::McpServers, &json);
    }),
    ("MCP servers", |text| {
        let servers = format!("{}:{{\"url\":\"a\"}}", json_text(text));
        read_components(ComponentKind::McpServers, &format!("{{{servers}}}"));
    }),
    ("LSP server", |text| {
        let text = json_text(text);
        let json = format!(
            "{{\"a\":{{\"command\":\"a\",\"env\":{{{text}:1}},\"extensionToLanguage\":{{{text}:{text}}},\
             \"settings\":{{{text}:[{text},{{\"token\":{text}}}]}}}}}}"
        );
        read_components(ComponentKind::LspServers, &json);
    }),
    ("app", |text| {
        let text = json_text(text);
        read_components(
            ComponentKind::Apps,
            &format!("{{\"a\":{text},{text}:\"a\"}}"),
        );
    }),
    ("command", |text| {
        let file = format!("---\ndescription: {text}\nallowed-tools: {text}\n---\n");
        let kind = ComponentKind::Commands;
        drop(black_box(prompt::read(kind, file.as_bytes(), true, b"a")));
    }),
    ("secrets in a command", |text| {
        drop(black_box(secret_filter::redact_in_line(text)));
        drop(black_box(secret_filter::redact_in_arguments(
            ["-u", text],
            false,
        )));
    }),
    ("secrets in a URL", |text| {
        drop(black_box(secret_filter::redact_in_line(&format!(
            "a://{text}"
        ))));
    }),
    ("secrets in text", |text| {
        drop(black_box(secret_filter::redact_in_text(text)));
        black_box(secret_filter::has_token_shape(text));
    }),
    ("secrets in a value", |text| {
        drop(black_box(secret_filter::redact_in_value("token", text)));
    }),
    ("fences and positions", |text| {
        black_box(fences::split_file(
            format!("---\n{text}\n---\n{text}").as_bytes(),
        ));
        black_box(key_position::position_of_key(text, &["a", "b"]));
        black_box(position::position_of_byte(text.as_bytes(), text.len()));
    }),
    ("config document", |text| {
        drop(black_box(document::parse(text)));
    }),
    ("globs, handles and names", |text| {
        drop(black_box(parse_glob(text)));
        drop(black_box(ResourceHandle::parse(&format!(
            "skill://a/{text}"
        ))));
        black_box(similar::most_similar(text, ["allowed-tools"]));
    }),
    ("mount table", |text| {
        black_box(mountinfo::parse_mountinfo(text.as_bytes()).count());
        let line = format!("36 35 98:0 /{} /{text} rw", text.replace('\n', ""));
        black_box(mountinfo::parse_mountinfo(line.as_bytes()).count());
    }),
    ("hidden characters", |text| {
        drop(black_box(text::escape_hidden_chars(text)));
        drop(black_box(text::single_line(text)));
        let mut file = File::from(memfd_create("text", MemfdFlags::CLOEXEC).expect("memfd"));
        file.write_all(text.as_bytes()).expect("write");
        file.rewind().expect("rewind");
        let size = text.len() as u64;
        let head = read_head(&file, size, u64::MAX, &mut Vec::new());
        black_box(head.expect("a file").hidden);
    }),
    ("body", |text| {
        let file = format!("---\na: b\n---\n{text}");
        let package = RelPath::root();
        drop(black_box(body::body_links(file.as_bytes(), &package)));
        drop(black_box(body::length_problem(file.as_bytes())));
        drop(black_box(body::use_problem(file.as_bytes(), text)));
        let link = format!("---\na: b\n---\n[a](a/{})", text.replace([' ', '\n'], "/"));
        drop(black_box(body::body_links(link.as_bytes(), &package)));
    }),
];

fn read_frontmatter(file: &str) {
    drop(black_box(frontmatter::read(file.as_bytes(), true, None)));
}

fn read_components(kind: ComponentKind, json: &str) {
    drop(black_box(plugin::read_file(kind, json.as_bytes())));
}

fn json_text(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

/// Repeats a unit up to a size.
fn repeat_unit(unit: &str, bytes: usize) -> String {
    unit.repeat(bytes.div_ceil(unit.len()))
}

/// Returns the processor time that this thread takes to read a text.
fn processor_time(read: fn(&str), text: &str) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(now).expect("a time since the start of the thread")
    };
    let started_at = now();
    read(text);
    now().saturating_sub(started_at)
}

/// Returns the growth of the time if the time of the larger text is not negligible.
fn excess_growth(read: fn(&str), unit: &str) -> Option<f64> {
    let large = repeat_unit(unit, SMALL_BYTES * GROWTH);
    let large_time = processor_time(read, &large);
    if large_time <= NEGLIGIBLE {
        return None;
    }
    let small = repeat_unit(unit, SMALL_BYTES);
    let growth = large_time.as_secs_f64() / processor_time(read, &small).as_secs_f64();
    (growth > MAX_TIME_GROWTH).then_some(growth)
}

/// Returns the growth of the time if it was excessive in each of a few attempts, because another
/// program can disturb the caches of the processor.
fn confirmed_growth(read: fn(&str), unit: &str) -> Option<f64> {
    (0..3).try_fold(f64::MAX, |least, _| {
        Some(excess_growth(read, unit)?.min(least))
    })
}

/// Generates short units from the characters that have a meaning in some format.
fn generated_units() -> Vec<String> {
    let strategy = "[a-bA0 \n\t:,=@/?&#$%!*|>.'\"\\\\{}()\\[\\]<~`_+\\-é\u{200d}]{1,4}";
    let mut runner = TestRunner::default();
    let units = (0..GENERATED_UNITS).map(|_| {
        let unit = strategy.new_tree(&mut runner).expect("a unit");
        unit.current()
    });
    units.collect()
}

#[test]
fn the_time_of_every_reader_is_linear() {
    let units = generated_units();
    let units = KNOWN_UNITS
        .into_iter()
        .chain(units.iter().map(String::as_str));
    let mut quadratic = Vec::new();
    for unit in units {
        for (name, read) in READERS {
            if let Some(growth) = confirmed_growth(read, unit) {
                quadratic.push(format!("{name} with {unit:?}: {growth:.0} times"));
            }
        }
    }
    assert!(
        quadratic.is_empty(),
        "{GROWTH} times the text cost: {quadratic:#?}"
    );
}

/// Replaces placeholders as a filter without a bound does: each round copies the rest of the text.
fn read_in_rounds(text: &str) {
    let mut rest = text.to_owned();
    while let Some(at) = rest.find("$A") {
        rest.replace_range(at..at + 2, " ");
        black_box(rest.split(|c: char| !c.is_alphanumeric()).count());
    }
}

#[test]
fn a_quadratic_reader_is_noticed() {
    let growth = confirmed_growth(read_in_rounds, "$A");
    assert!(growth.is_some(), "{growth:?}");
}
