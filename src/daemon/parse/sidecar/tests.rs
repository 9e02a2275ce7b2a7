use proptest::prelude::*;

use super::read;
use crate::daemon::model::Severity::{Error, Note, Warning};
use crate::daemon::model::limits::MAX_MANIFEST_BYTES;
use crate::daemon::model::sidecar::{
    SkillInterface, SkillPermissions, SkillSidecar, ToolDependency,
};
use crate::daemon::model::{DiagnosticCode, Severity};

fn found(yaml: &str) -> (SkillSidecar, Vec<(DiagnosticCode, Severity, u32, u32)>) {
    let (sidecar, problems) = read(yaml.as_bytes());
    (
        sidecar,
        problems
            .iter()
            .map(|p| (p.code, p.severity, p.line, p.column))
            .collect(),
    )
}

#[test]
fn all_fields_are_read() {
    let (sidecar, problems) = found(
        "interface:\n  display_name: \"My  Skill\"\n  short_description: does\n  icon_small: ./assets/s.svg\n  \
           icon_large: ../../assets/l.svg\n  brand_color: \"#12abEF\"\n  default_prompt: |\n    a\n    b\n\
         dependencies:\n  tools:\n    - type: mcp\n      value: docs\n      description: d\n      \
           transport: streamable_http\n      url: https://example.com/mcp\n    - {type: cli, value: gh, command: gh}\n\
         policy:\n  allow_implicit_invocation: false\n  products: [codex, unheard-of]\n\
         permissions:\n  network: {enabled: true}\n  file_system: {read: [./a], write: [./b, /c]}\n  \
           macos: {automation: [x]}\n",
    );
    assert_eq!(problems, []);
    let text = |text: &str| Some(Box::from(text));
    let interface = SkillInterface {
        display_name: text("My Skill"),
        short_description: text("does"),
        icon_small: text("./assets/s.svg"),
        icon_large: text("../../assets/l.svg"),
        brand_color: text("#12abEF"),
        default_prompt: text("a\nb"),
    };
    assert_eq!(sidecar.interface, Some(interface));
    let tool = |kind: &str, value: &str| ToolDependency {
        kind: kind.into(),
        value: value.into(),
        description: None,
        transport: None,
        command: None,
        url: None,
    };
    let docs = ToolDependency {
        description: text("d"),
        transport: text("streamable_http"),
        url: text("https://example.com/mcp"),
        ..tool("mcp", "docs")
    };
    assert_eq!(
        *sidecar.dependencies,
        [
            docs,
            ToolDependency {
                command: text("gh"),
                ..tool("cli", "gh")
            }
        ]
    );
    let products: Box<[Box<str>]> = ["codex".into(), "unheard-of".into()].into();
    assert!(sidecar.forbids_model);
    assert_eq!(sidecar.products, products);
    let SkillPermissions {
        network,
        file_system_read: read,
        file_system_write: write,
        macos,
    } = sidecar.permissions.expect("permissions");
    assert_eq!((network, &*read[0], write.len()), (Some(true), "./a", 2));
    assert_eq!(
        &*macos.expect("permissions").to_text(),
        "{\"automation\":[\"x\"]}"
    );
}

#[test]
fn empty_fields_are_omitted() {
    for yaml in [
        "",
        "# comment\n",
        "\u{feff}",
        "{}",
        "interface:\ndependencies:\npolicy:\npermissions:\n",
        "interface: {display_name: , icon_small: ''}\ndependencies: {tools: }\n\
         policy: {allow_implicit_invocation: , products: }\npermissions: {network: , file_system: , macos: }",
    ] {
        assert_eq!(found(yaml), (SkillSidecar::default(), vec![]), "{yaml:?}");
    }
}

#[test]
fn an_unparsable_sidecar_fails_closed() {
    let over = "#".repeat(MAX_MANIFEST_BYTES + 1);
    for (bytes, expected) in [
        (b"a: b: c".as_slice(), (DiagnosticCode::YamlSyntax, 1, 5)),
        (
            b"policy: {}\npolicy: {}",
            (DiagnosticCode::YamlSyntax, 2, 1),
        ),
        (b"- a", (DiagnosticCode::YamlSyntax, 1, 1)),
        (b"text", (DiagnosticCode::YamlSyntax, 1, 1)),
        (b"a: \xff", (DiagnosticCode::NotUtf8, 1, 4)),
        (over.as_bytes(), (DiagnosticCode::FieldTooLong, 0, 0)),
    ] {
        let (sidecar, problems) = read(bytes);
        assert_eq!(sidecar, SkillSidecar::fail_closed());
        assert!(sidecar.forbids_model);
        let [problem] = &problems[..] else {
            panic!("{problems:?}")
        };
        assert_eq!(
            (problem.code, problem.line, problem.column),
            expected,
            "{problem:?}"
        );
        assert_eq!(problem.severity, Error);
    }
}

#[test]
fn an_invalid_policy_fails_closed_and_keeps_other_fields() {
    let rest = "interface: {display_name: d}\n";
    for policy in [
        "policy: yes",
        "policy: [a]",
        "policy: {allow_implicit_invocation: yes}",
        "policy: {allow_implicit_invocation: 'true'}",
        "policy: {allow_implicit_invocation: true, products: codex}",
        "policy: {allow_implicit_invocation: true, products: [1]}",
        "policy: {products: [~]}",
    ] {
        let (sidecar, problems) = found(&format!("{rest}{policy}"));
        assert!(sidecar.forbids_model, "{policy}");
        assert!(sidecar.interface.is_some(), "{policy}");
        assert!(
            matches!(
                problems[..],
                [(DiagnosticCode::FieldInvalid, Warning, _, _)]
            ),
            "{policy} {problems:?}"
        );
    }
    let (sidecar, problems) = found("policy:\n  allow_implicit_invocation: 1\n  products: [codex]");
    assert_eq!(
        (sidecar.products.len(), problems[0].2, problems[0].3),
        (1, 2, 3)
    );
}

#[test]
fn a_secret_is_not_in_a_problem() {
    const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let (_, problems) = read(format!("{TOKEN}: 1\ninterface: {{brand_color: {TOKEN}}}").as_bytes());
    let messages: Vec<&str> = problems.iter().map(|problem| &*problem.message).collect();
    assert_eq!(
        messages,
        [
            "unknown keys, ignored: `<redacted>`",
            "`interface.brand_color` must be `#RRGGBB`, but is `<redacted>`; omitted",
        ]
    );
}

#[test]
fn an_invalid_field_is_omitted() {
    let long = "x".repeat(1_025);
    let word = "x".repeat(65);
    let paths = format!(
        "permissions: {{file_system: {{read: [{}]}}}}",
        vec!["a"; 257].join(",")
    );
    let keep = "dependencies: {tools: [{type: a, value: b}]}\n";
    let invalid = (DiagnosticCode::FieldInvalid, Warning);
    for (yaml, code) in [
        ("interface: text", invalid),
        ("interface: {display_name: 1}", invalid),
        ("interface: {display_name: [a]}", invalid),
        (
            &format!("interface: {{display_name: {word}}}"),
            (DiagnosticCode::FieldTooLong, Warning),
        ),
        (
            &format!("interface: {{default_prompt: {long}}}"),
            (DiagnosticCode::FieldTooLong, Warning),
        ),
        ("interface: {brand_color: red}", invalid),
        ("interface: {brand_color: '#12345'}", invalid),
        ("interface: {brand_color: '#1234é'}", invalid),
        (
            "interface: {colour: red, size: 1}",
            (DiagnosticCode::FieldUnknown, Note),
        ),
        ("permissions: all", invalid),
        ("permissions: {network: all}", invalid),
        ("permissions: {network: {enabled: 1}}", invalid),
        ("permissions: {file_system: [a]}", invalid),
        ("permissions: {file_system: {read: a}}", invalid),
        (&paths, (DiagnosticCode::FieldTooLong, Warning)),
        ("permissions: {macos: true}", invalid),
        (
            &format!(
                "permissions: {{macos: {}1{}}}",
                "{a: ".repeat(31),
                "}".repeat(31)
            ),
            (DiagnosticCode::FieldTooLong, Warning),
        ),
        ("mcp: {}", (DiagnosticCode::FieldUnknown, Note)),
    ] {
        let (sidecar, problems) = found(&format!("{keep}{yaml}"));
        let (kept, _) = found(keep);
        assert_eq!(sidecar, kept, "{yaml}");
        let [(found, severity, ..)] = problems[..] else {
            panic!("{yaml} {problems:?}")
        };
        assert_eq!((found, severity), code, "{yaml}");
    }
    let (sidecar, problems) = found("permissions: {network: false}");
    assert_eq!(
        (sidecar.permissions.expect("permissions").network, problems),
        (Some(false), vec![])
    );
}

#[test]
fn an_invalid_tool_is_omitted() {
    let (sidecar, problems) = found(
        "dependencies:\n  tools:\n  - {type: a, value: b}\n  - text\n  - {type: a}\n  - {value: b}\n  \
         - {type: 1, value: b}\n  - {type: a, value: c, url: [x], more: y}\n",
    );
    let values: Vec<&str> = sidecar
        .dependencies
        .iter()
        .map(|tool| &*tool.value)
        .collect();
    assert_eq!(values, ["b", "c"]);
    assert_eq!(problems.len(), 7, "{problems:?}");
    assert!(problems.iter().all(|(_, severity, ..)| *severity != Error));
    let many = format!("dependencies: {{tools: [{}]}}", vec!["x"; 250].join(","));
    assert_eq!(found(&many).1.len(), 64);
    let over = format!("dependencies: {{tools: [{}]}}", vec!["x"; 257].join(","));
    assert_eq!(
        found(&over).1,
        [(DiagnosticCode::FieldTooLong, Warning, 0, 0)]
    );
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, yaml in "(interface|policy|permissions|dependencies|tools|network|: |\n|  |- |a|'|\\[|\\]|\\{|\\}|&x|\\*x|true|,){0,30}") {
        for bytes in [&bytes, yaml.as_bytes()] {
            let (sidecar, problems) = read(bytes);
            let is_broken = problems.iter().any(|problem| problem.severity == Error);
            prop_assert!(!is_broken || sidecar == SkillSidecar::fail_closed());
            prop_assert!(problems.len() <= 64 && sidecar.dependencies.len() <= 256);
        }
    }
}
