//! Small files that would be expensive to parse. Each of them gets a diagnostic, and all of them at
//! once cost the real daemon a bounded amount of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use caproot_core::proto::caproot::v1::DiagnosticCode::{
    FieldInvalid, FieldTooLong, FieldUnknown, ManifestInvalid, MissingDescription, NameInvalid,
    NoFrontmatter, SecretRedacted, YamlRepaired, YamlSyntax,
};
use caproot_core::proto::caproot::v1::{DiagnosticCode, RootState};

use crate::harness::fixture::{Fixture, unescape};
use crate::harness::process::Process;
use crate::harness::process_usage::most_anonymous;
use crate::harness::replica::Replica;
use crate::harness::selected;
use crate::harness::watch_harness::watch_request;

/// Maximum number of threads that read files. The daemon uses no more threads than processors.
const MAX_THREADS: usize = 8;
/// Maximum memory of the daemon.
const MAX_DAEMON_KIB: u64 = 50 << 10;
/// Copies of each file, at most one for each thread, so that several threads meet the most expensive file at
/// once.
const COPIES: usize = 4;

fn numbered(value: &str, count: usize) -> String {
    (0..count)
        .map(|n| format!("k{n}: {value}\n"))
        .collect::<Vec<_>>()
        .concat()
}

/// Frontmatter between its fences in the escapes of a [`Fixture`], with the expected diagnostic.
const FRONTMATTER: &[(&str, &str, DiagnosticCode)] = &[
    (
        "laughs",
        r"a: &a [\{2000*x,}]\nb: &b [\{1333**a,}]\nc: [\{1333**b,}]",
        YamlSyntax,
    ),
    (
        "quadratic",
        r"a: &a \{28000*x}\nb: [\{9333**a,}]",
        YamlSyntax,
    ),
    ("recursive", "a: &a [*a]", YamlSyntax),
    ("deep-lists", r"\{64000*[}", YamlSyntax),
    ("deep-mappings", r"\{16000*{a: }", YamlSyntax),
    ("deep-and-hidden", r#"\{12800*{"\x7d":}"#, YamlSyntax),
    ("deep-blocks", r"\{32000*- }", YamlSyntax),
    ("deep-keys", r#"\{60*{? }k\{60*: ""\x7d}"#, YamlSyntax),
    (
        "deep-and-well",
        r"description: d\nx: \{60*[}k\{60*]}",
        FieldTooLong,
    ),
    (
        "deep-and-sent",
        r"description: d\nx: \{29*{a: }1\{29*\x7d}",
        FieldUnknown,
    ),
    ("tag-handles", r"\{5818*%TAG !a! b\n}", YamlSyntax),
    ("keys-twice", r"\{21333*a:\n}", YamlSyntax),
    ("tabs", r"a:\n\{64000*\t}b: c", YamlRepaired),
    ("open-quote", r#"a: "\{32000*x\n}"#, YamlRepaired),
    ("over-64-KiB", r"a: \{70000*x}", YamlSyntax),
    ("one-line", r"description: \{64000*x}", FieldTooLong),
    (
        "one-line-repaired",
        r"description: \{21333*x: }",
        YamlRepaired,
    ),
    ("name", r"description: d\nname: \{64000*x}", NameInvalid),
    (
        "crlf",
        r"description: d\r\nname: [\{12000*a,\r\n }]\r\n",
        FieldInvalid,
    ),
    (
        "lists",
        r"description: d\nmetadata: [\{20000*[],}]",
        YamlSyntax,
    ),
    (
        "nulls",
        r"description: d\nmetadata:\n\{30000*-\n}",
        YamlSyntax,
    ),
];

const MAIN: &str = "SKILL.md";
const SIDECAR: &str = "agents/openai.yaml";
const MANIFEST: &str = ".codex-plugin/plugin.json";

/// Whole files below a directory that is otherwise a skill, each with its path, its content in the
/// escapes of a [`Fixture`], and the expected diagnostic.
const FILES: &[(&str, &str, &str, DiagnosticCode)] = &[
    ("bare", MAIN, r"\{1048576*x}", NoFrontmatter),
    ("open", MAIN, r"---\n\{13107*a: b\n}", NoFrontmatter),
    ("open-line", MAIN, r"---\na: \{1048576*x}", YamlSyntax),
    (
        "marked",
        MAIN,
        r"\u{feff}---\r\n\{12800*\xef\xbb\xbf\r\n}---\r\n",
        MissingDescription,
    ),
    (
        "tools",
        SIDECAR,
        r"dependencies:\n  tools:\n\{10000*  - {type: a, value: b\x7d\n}",
        YamlSyntax,
    ),
    (
        "wrong-tools",
        SIDECAR,
        r"dependencies: {tools: [\{256*1,}]}",
        FieldInvalid,
    ),
    ("nulls-beside", SIDECAR, r"x:\n\{130560*-\n}", YamlSyntax),
    (
        "lists-beside",
        SIDECAR,
        r"permissions: {macos: {x: [\{87040*[],}]}}",
        YamlSyntax,
    ),
    (
        "macos",
        SIDECAR,
        r"x:\npermissions:\n  macos: \{30*{a: }1\{30*\x7d}",
        FieldUnknown,
    ),
    ("deep-beside", SIDECAR, r#"\{52224*{"\x7d":}"#, YamlSyntax),
    ("over-256-KiB", SIDECAR, r"\{307200*#}", FieldTooLong),
    ("nested", MANIFEST, r"\{261120*[}", ManifestInvalid),
    (
        "nested-well",
        MANIFEST,
        r"[\{87040*[],}[]]",
        ManifestInvalid,
    ),
    (
        "mappings",
        MANIFEST,
        r#"{"name":1,"x":[\{87040*{\x7d,}1]}"#,
        ManifestInvalid,
    ),
    ("keys", MANIFEST, r#"\{52224*{"a":}"#, ManifestInvalid),
    (
        "long-name",
        MANIFEST,
        r#"{"name":"\{43520*\\u0061}"}"#,
        ManifestInvalid,
    ),
];

/// Writes each costly file into a skill of its own below `r`. Returns the handles of the files with the
/// expected diagnostics. The names of the skills end in `-{copy}`.
fn write_costly_files(fixture: &Fixture, copy: usize) -> BTreeMap<String, DiagnosticCode> {
    let mut expected = BTreeMap::new();
    let mut write = |name: &str, file: &str, content: &[u8], code| {
        fixture.write(&format!("r/{name}-{copy}/{file}"), content);
        expected.insert(format!("skill://r/{name}-{copy}/{file}"), code);
    };
    let fenced = |yaml: &[u8]| [b"---\n", yaml, b"\n---\n"].concat();

    for (name, yaml, code) in FRONTMATTER {
        write(name, MAIN, &fenced(&unescape(yaml)), *code);
    }
    let repaired = format!("description: d\n{}", numbered("@", 5_000));
    write(
        "lines-repaired",
        MAIN,
        &fenced(repaired.as_bytes()),
        YamlRepaired,
    );

    let mut write_beside = |name: &str, file: &str, content: &[u8], code| {
        let main = format!("---\nname: {name}-{copy}\ndescription: d\n---\n");
        fixture.write(&format!("r/{name}-{copy}/{MAIN}"), main);
        write(name, file, content, code);
    };
    for (name, file, content, code) in FILES {
        write_beside(name, file, &unescape(content), *code);
    }
    let keys = numbered("", 25_000);
    write_beside("keys-beside", SIDECAR, keys.as_bytes(), YamlSyntax);
    expected
}

/// Values of 250 KiB that a search for placeholders may read many times.
fn placeholder_values() -> impl Iterator<Item = String> {
    let units = ["{", "$A", "${A}", "{{", "${", "{{A", "${A:-/", "sk-"];
    units
        .into_iter()
        .map(|unit| unit.repeat((250 << 10) / unit.len()))
}

#[tokio::test]
async fn long_values_of_plugins_do_not_make_their_root_slow() {
    let fixture = Fixture::new("dir r");
    let mut plugins = 0;
    for value in placeholder_values() {
        let plugin = format!("r/p{plugins}");
        fixture.write(
            &format!("{plugin}/.codex-plugin/plugin.json"),
            format!("{{\"name\": \"p{plugins}\"}}"),
        );
        fixture.write(
            &format!("{plugin}/.mcp.json"),
            format!("{{\"a\": {{\"command\": \"x\", \"env\": {{\"A\": \"{value}\"}}}}}}"),
        );
        plugins += 1;
    }
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let listed = daemon.list(&[selected("r", fixture.path("r"))]).await;
    assert_eq!(listed.roots[0].state(), RootState::Ready, "{listed:?}");
    let redacted = listed.diagnostics.iter();
    let redacted = redacted.filter(|d| d.code() == SecretRedacted);
    assert_eq!(redacted.count(), plugins);
    serving.stop().await;
}

#[tokio::test]
async fn each_costly_file_is_reported_and_memory_is_bounded() {
    let fixture = Fixture::new("dir r");
    let mut expected: BTreeMap<String, DiagnosticCode> = BTreeMap::new();
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_THREADS);
    for n in 0..threads.min(COPIES) {
        expected.extend(write_costly_files(&fixture, n));
    }
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    // A root whose first scan takes long gets its status after the scan.
    let request = watch_request(vec![selected("r", fixture.path("r"))]);
    let mut replica = Replica::open(&daemon, request).await;
    while replica
        .roots
        .get("r")
        .is_none_or(|root| root.state() != RootState::Ready)
    {
        replica.next_batch().await;
    }
    let most = most_anonymous(serving.pid());

    let mut found: BTreeMap<&str, BTreeSet<DiagnosticCode>> = BTreeMap::new();
    for diagnostic in &replica.diagnostics["r"] {
        found
            .entry(&diagnostic.resource)
            .or_default()
            .insert(diagnostic.code());
    }
    for (resource, code) in &expected {
        let codes = found.get(resource.as_str());
        assert!(
            codes.is_some_and(|codes| codes.contains(code)),
            "{resource}: {codes:?}"
        );
    }
    // Frontmatter that fits the nesting limit is sent in full depth.
    let skill = |name: &str| &replica.skills[&format!("skill://r/{name}-0")];
    assert_eq!(skill("deep-and-well").frontmatter, None);
    assert!(skill("deep-and-sent").frontmatter.is_some());
    assert!(
        skill("macos")
            .permissions
            .as_ref()
            .is_some_and(|wanted| wanted.macos.is_some())
    );

    println!("{} bombs: {most} KiB on {threads} threads", expected.len());
    assert!(most <= MAX_DAEMON_KIB, "{most} KiB");
    serving.stop().await;
}
