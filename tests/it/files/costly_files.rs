//! Small files that would be expensive to parse. Each of them gets a diagnostic, and all of them at
//! once cost the real daemon a bounded amount of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use caproot_core::proto::caproot::v1::DiagnosticCode::{
    FieldInvalid, FieldTooLong, FieldUnknown, ManifestInvalid, MissingDescription, NameInvalid,
    NoFrontmatter, SecretRedacted, YamlRepaired, YamlSyntax,
};
use caproot_core::proto::caproot::v1::{DiagnosticCode, RootState};

use crate::harness::fixture::Fixture;
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

/// Frontmatter between its fences, with the expected diagnostic.
fn frontmatter() -> Vec<(&'static str, String, DiagnosticCode)> {
    let many = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    let aliases = |name: &str| many(&format!("*{name},"), 4_000);
    let laughs = format!(
        "a: &a [{}]\nb: &b [{}]\nc: [{}]",
        many("x,", 4_000),
        aliases("a"),
        aliases("b")
    );
    let keys = format!("{}k{}", "{? ".repeat(60), ": \"\"}".repeat(60));
    let closed = format!("description: d\nx: {}k{}", "[".repeat(60), "]".repeat(60));
    let sent = format!(
        "description: d\nx: {}1{}",
        "{a: ".repeat(29),
        "}".repeat(29)
    );
    let lists = format!("description: d\nmetadata: [{}]", many("[],", 60_000));
    let nulls = format!("description: d\nmetadata:\n{}", many("-\n", 60_000));
    let repaired = numbered("@", 5_000);
    vec![
        ("laughs", laughs, YamlSyntax),
        (
            "quadratic",
            format!("a: &a {}\nb: [{}]", many("x", 28_000), many("*a,", 28_000)),
            YamlSyntax,
        ),
        ("recursive", "a: &a [*a]".into(), YamlSyntax),
        ("deep-lists", many("[", 64_000), YamlSyntax),
        ("deep-mappings", many("{a: ", 64_000), YamlSyntax),
        ("deep-and-hidden", many("{\"}\":", 64_000), YamlSyntax),
        ("deep-blocks", many("- ", 64_000), YamlSyntax),
        ("deep-keys", keys, YamlSyntax),
        ("deep-and-well", closed, FieldTooLong),
        ("deep-and-sent", sent, FieldUnknown),
        ("tag-handles", many("%TAG !a! b\n", 64_000), YamlSyntax),
        ("keys-twice", many("a:\n", 64_000), YamlSyntax),
        (
            "tabs",
            format!("a:\n{}b: c", many("\t", 64_000)),
            YamlRepaired,
        ),
        (
            "open-quote",
            format!("a: \"{}", many("x\n", 64_000)),
            YamlRepaired,
        ),
        (
            "over-64-KiB",
            format!("a: {}", many("x", 70_000)),
            YamlSyntax,
        ),
        (
            "one-line",
            format!("description: {}", many("x", 64_000)),
            FieldTooLong,
        ),
        (
            "one-line-repaired",
            format!("description: {}", many("x: ", 64_000)),
            YamlRepaired,
        ),
        (
            "lines-repaired",
            format!("description: d\n{repaired}"),
            YamlRepaired,
        ),
        (
            "name",
            format!("description: d\nname: {}", many("x", 64_000)),
            NameInvalid,
        ),
        (
            "crlf",
            format!("description: d\r\nname: [{}]\r\n", many("a,\r\n ", 60_000)),
            FieldInvalid,
        ),
        ("lists", lists, YamlSyntax),
        ("nulls", nulls, YamlSyntax),
    ]
}

/// Whole files below a directory that is otherwise a skill, with the expected diagnostic.
fn build_costly_files() -> Vec<(&'static str, &'static str, String, DiagnosticCode)> {
    let many = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    let whole = 255 << 10;
    let tools = |count| {
        format!(
            "dependencies:\n  tools:\n{}",
            "  - {type: a, value: b}\n".repeat(count)
        )
    };
    let (main, sidecar, manifest) = (
        "SKILL.md",
        "agents/openai.yaml",
        ".codex-plugin/plugin.json",
    );
    vec![
        ("bare", main, many("x", 1 << 20), NoFrontmatter),
        (
            "open",
            main,
            format!("---\n{}", many("a: b\n", 1 << 16)),
            NoFrontmatter,
        ),
        (
            "open-line",
            main,
            format!("---\na: {}", many("x", 1 << 20)),
            YamlSyntax,
        ),
        (
            "marked",
            main,
            format!("\u{feff}---\r\n{}---\r\n", many("\u{feff}\r\n", 64_000)),
            MissingDescription,
        ),
        ("tools", sidecar, tools(10_000), YamlSyntax),
        (
            "wrong-tools",
            sidecar,
            format!("dependencies: {{tools: [{}]}}", "1,".repeat(256)),
            FieldInvalid,
        ),
        (
            "nulls-beside",
            sidecar,
            format!("x:\n{}", many("-\n", whole)),
            YamlSyntax,
        ),
        (
            "lists-beside",
            sidecar,
            format!("permissions: {{macos: {{x: [{}]}}}}", many("[],", whole)),
            YamlSyntax,
        ),
        (
            "macos",
            sidecar,
            format!(
                "x:\npermissions:\n  macos: {}1{}",
                "{a: ".repeat(30),
                "}".repeat(30)
            ),
            FieldUnknown,
        ),
        ("deep-beside", sidecar, many("{\"}\":", whole), YamlSyntax),
        ("keys-beside", sidecar, numbered("", 25_000), YamlSyntax),
        ("over-256-KiB", sidecar, many("#", 300 << 10), FieldTooLong),
        ("nested", manifest, many("[", whole), ManifestInvalid),
        (
            "nested-well",
            manifest,
            format!("[{}[]]", many("[],", whole)),
            ManifestInvalid,
        ),
        (
            "mappings",
            manifest,
            format!("{{\"name\":1,\"x\":[{}1]}}", many("{},", whole)),
            ManifestInvalid,
        ),
        ("keys", manifest, many("{\"a\":", whole), ManifestInvalid),
        (
            "long-name",
            manifest,
            format!("{{\"name\":\"{}\"}}", many("\\u0061", whole)),
            ManifestInvalid,
        ),
    ]
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
        for (name, yaml, code) in frontmatter() {
            fixture.write(
                &format!("r/{name}-{n}/SKILL.md"),
                format!("---\n{yaml}\n---\n"),
            );
            expected.insert(format!("skill://r/{name}-{n}/SKILL.md"), code);
        }
        for (name, file, content, code) in build_costly_files() {
            let skill = format!("r/{name}-{n}/SKILL.md");
            fixture.write(
                &skill,
                format!("---\nname: {name}-{n}\ndescription: d\n---\n"),
            );
            fixture.write(&format!("r/{name}-{n}/{file}"), content);
            expected.insert(format!("skill://r/{name}-{n}/{file}"), code);
        }
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
