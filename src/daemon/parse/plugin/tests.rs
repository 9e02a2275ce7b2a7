use super::{documented_keys, marketplace, prompt, read_file};
use crate::daemon::model::limits::MAX_MANIFEST_BYTES;
use crate::daemon::model::plugin::{
    ComponentKind, MAX_COMPONENTS, ManifestProduct, McpTransport, PluginComponents,
};
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, PluginManifest, Severity};
use crate::daemon::parse::{frontmatter, json, manifest};
use caproot_core::wire::RelPath;
use proptest::prelude::*;

fn codes(problems: &[FileProblem]) -> Vec<DiagnosticCode> {
    problems.iter().map(|p| p.code).collect()
}

fn file(kind: ComponentKind, json: &str) -> (PluginComponents, Vec<FileProblem>) {
    let (found, problems) = read_file(kind, json.as_bytes());
    (found.expect("an object"), problems)
}

fn plugin(json: &str) -> (PluginManifest, Vec<FileProblem>) {
    let (found, problems) = manifest::read(json.as_bytes(), Some(b"dir"));
    (found.expect("usable"), problems)
}

#[test]
fn servers_may_be_wrapped_or_not() {
    let inner = r#"{"a": {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${TOKEN}", "N": "1"},
        "cwd": "./server", "enabled_tools": ["one"], "startup_timeout_sec": 2.5, "timeout": 700},
        "b": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer $T"}},
        "c": {"type": "sse", "url": "https://x.example/sse", "disabled": true}}"#;
    let outer = format!("{{\"mcpServers\": {inner}}}");
    let (found, problems) = file(ComponentKind::McpServers, inner);
    assert_eq!(problems, []);
    assert_eq!(
        file(ComponentKind::McpServers, &outer),
        (found.clone(), problems)
    );
    let [a, b, c] = &found.mcp_servers[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&*a.name, a.transport, &*a.command),
        ("a", McpTransport::Stdio, "npx")
    );
    assert_eq!(a.environment[0].value.as_deref(), Some("${TOKEN}"));
    assert_eq!(a.environment[1].value.as_deref(), Some("1"));
    assert_eq!(
        (a.cwd.as_bytes(), a.startup_timeout_ms, a.tool_timeout_ms),
        (&b"server"[..], Some(2_500), Some(700))
    );
    assert_eq!(a.enabled_tools.as_deref(), Some(&["one".into()][..]));
    assert_eq!(
        (b.transport, &*b.url),
        (McpTransport::StreamableHttp, "https://x.example/mcp")
    );
    assert_eq!(b.headers[0].value.as_deref(), Some("Bearer $T"));
    assert_eq!((c.transport, c.enabled), (McpTransport::Sse, Some(false)));
    assert!(found.mcp_servers.iter().all(|s| !s.redacted));
}

#[test]
fn secrets_are_redacted() {
    let json = r#"{"a": {"command": "x --token hunter2", "args": ["--api-key=hunter2"],
        "env": {"PASSWORD": "hunter2", "FOO": "a=b&token=hunter2"}},
        "b": {"url": "https://u:hunter2@x.example/?key=hunter2", "headers": {"X-Key": "hunter2"},
              "env_http_headers": {"X-A": "A_VAR"}, "bearer_token_env_var": "B_VAR"}}"#;
    let (found, problems) = file(ComponentKind::McpServers, json);
    assert_eq!(codes(&problems), [DiagnosticCode::SecretRedacted; 2]);
    assert!(found.mcp_servers.iter().all(|s| s.redacted));
    assert!(
        !format!("{found:?}{problems:?}").contains("hunter2"),
        "{found:?} {problems:?}"
    );
    assert_eq!(
        found.mcp_servers[0].environment[0].name.as_ref(),
        "PASSWORD"
    );
    assert_eq!(
        found.mcp_servers[1].headers[1].from_variable.as_deref(),
        Some("A_VAR")
    );
}

#[test]
fn invalid_servers_are_omitted() {
    for (json, code) in [
        (r#"{"a": {}}"#, DiagnosticCode::ComponentInvalid),
        (
            r#"{"a": {"type": "stdio", "url": "https://x"}}"#,
            DiagnosticCode::ComponentInvalid,
        ),
        (
            r#"{"a": {"type": "ws", "url": "wss://x"}}"#,
            DiagnosticCode::ComponentInvalid,
        ),
        (r#"{"a": []}"#, DiagnosticCode::ComponentInvalid),
        (
            r#"{"": {"command": "x"}}"#,
            DiagnosticCode::ComponentInvalid,
        ),
    ] {
        let (found, problems) = file(ComponentKind::McpServers, json);
        assert_eq!(
            (found.mcp_servers.len(), codes(&problems)),
            (0, vec![code]),
            "{json}"
        );
        assert_eq!(problems[0].severity, Severity::Error);
    }
    let (found, problems) = file(
        ComponentKind::McpServers,
        r#"{"a": {"command": "x", "cwd": "/opt", "extra": 1}}"#,
    );
    assert_eq!(found.mcp_servers.len(), 1);
    assert_eq!(
        codes(&problems),
        [DiagnosticCode::PathInvalid, DiagnosticCode::FieldUnknown]
    );
}

#[test]
fn invalid_files_are_ignored() {
    for (json, line) in [
        ("{\"a\": 1, \"a\": 2}".to_owned(), 1),
        ("{\n// no\n}".to_owned(), 2),
        ("[]".to_owned(), 1),
        (" ".repeat(MAX_MANIFEST_BYTES + 1), 0),
    ] {
        let (found, problems) = read_file(ComponentKind::McpServers, json.as_bytes());
        assert_eq!(
            (found, codes(&problems)),
            (None, vec![DiagnosticCode::PluginFileInvalid])
        );
        assert_eq!(problems[0].line, line);
    }
    let many: Vec<_> = (0..10_000)
        .map(|n| format!("\"{n}\":{{\"command\":\"x\"}}"))
        .collect();
    let (found, problems) = file(
        ComponentKind::McpServers,
        &format!("{{{}}}", many.join(",")),
    );
    assert_eq!(
        (found.mcp_servers.len(), codes(&problems)),
        (MAX_COMPONENTS, vec![DiagnosticCode::LimitReached])
    );
}

#[test]
fn components_are_read_from_json() {
    let (found, problems) = file(
        ComponentKind::Hooks,
        r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
            {"type": "command", "command": "\"${CLAUDE_PLUGIN_ROOT}/x\" go", "timeout": 5},
            {"type": "command"}]}],
           "sessionStart": [{"command": "./y"}], "Odd": [{"hooks": [{"type": "new"}]}]}}"#,
    );
    assert_eq!(
        codes(&problems),
        [
            DiagnosticCode::ComponentInvalid,
            DiagnosticCode::FieldUnknown,
            DiagnosticCode::FieldUnknown
        ],
        "{problems:?}"
    );
    let [first, second, odd] = &found.others[..] else {
        panic!("{found:?}")
    };
    assert_eq!(&*first.name, "PreToolUse");
    let expected = r#"{"command":"\"${CLAUDE_PLUGIN_ROOT}/x\" go","matcher":"Bash","timeout":5,"type":"command"}"#;
    assert_eq!(&*first.declaration.to_text(), expected);
    assert_eq!(&*second.declaration.to_text(), r#"{"command":"./y"}"#);
    assert_eq!(&*odd.declaration.to_text(), r#"{"type":"new"}"#);

    let (found, problems) = file(
        ComponentKind::Apps,
        r#"{"apps": {"a": {"id": "connector_1"}, "b": {}, "c": "connector_2"}}"#,
    );
    assert_eq!(codes(&problems), [DiagnosticCode::ComponentInvalid]);
    assert_eq!(
        declared(&found),
        [
            ("a", r#"{"id":"connector_1"}"#.into()),
            ("c", r#"{"id":"connector_2"}"#.into())
        ]
    );
    let (named, problems) = file(ComponentKind::Apps, r#"{"apps": {"id": "connector_1"}}"#);
    assert_eq!((named.others.len(), problems), (1, vec![]));

    let json =
        r#"{"go": {"command": "gopls", "args": ["serve"], "extensionToLanguage": {".go": "go"}}}"#;
    let (found, problems) = file(ComponentKind::LspServers, json);
    assert_eq!(problems, []);
    let expected = r#"{"args":["serve"],"command":"gopls","extensionToLanguage":{".go":"go"}}"#;
    assert_eq!(declared(&found), [("go", expected.into())]);
}

/// Names and declarations of the components.
fn declared(components: &PluginComponents) -> Vec<(&str, Box<str>)> {
    let others = components.others.iter();
    others
        .map(|component| (&*component.name, component.declaration.to_text()))
        .collect()
}

#[test]
fn unknown_keys_of_a_declaration_are_kept_without_their_secrets() {
    for (declared_json, shown, has_secret) in [
        (
            r#"{"timeout":5,"async":true,"odd":[1,{"a":null}]}"#,
            "",
            false,
        ),
        (
            r#"{"initializationOptions":{"mode":"fast","token":"${T}"}}"#,
            "",
            false,
        ),
        (r#"{"env":{"PORT":"80","FOO":"bar"}}"#, "", false),
        (
            r#"{"env":{"PASSWORD":"hunter2"}}"#,
            r#"{"env":{"PASSWORD":"<redacted>"}}"#,
            true,
        ),
        (
            r#"{"settings":{"apiKey":{"now":["hunter2",7]}}}"#,
            r#"{"settings":{"apiKey":{"now":["<redacted>","<redacted>"]}}}"#,
            true,
        ),
        (
            r#"{"args":["--token","hunter2","x"]}"#,
            r#"{"args":["--token","<redacted>","x"]}"#,
            true,
        ),
        (
            r#"{"url":"https://u:hunter2@x.example/"}"#,
            r#"{"url":"https://<redacted>@x.example/"}"#,
            true,
        ),
        (
            r#"{"prompt":"Say token: hello to ghp_16C7e42F292c6912E7710c838347Ae178B4a"}"#,
            r#"{"prompt":"Say token: hello to <redacted>"}"#,
            true,
        ),
        (
            r#"{"a ghp_16C7e42F292c6912E7710c838347Ae178B4a":1,"b":2}"#,
            r#"{"b":2}"#,
            true,
        ),
        (
            r#"{"account":1234567890123456}"#,
            r#"{"account":"<redacted>"}"#,
            true,
        ),
    ] {
        let shown = if shown.is_empty() {
            declared_json
        } else {
            shown
        };
        let json = format!(r#"{{"a":{{"command":"x",{}}}"#, &declared_json[1..]);
        let (found, problems) = file(ComponentKind::LspServers, &json);
        let found = &found.others[0];
        let DynamicValue::Map(entries) = &found.declaration else {
            panic!("{found:?}")
        };
        let rest = entries.iter().filter(|(key, _)| &**key != "command");
        let rest = DynamicValue::Map(rest.cloned().collect());
        let mut expected = json::parse(shown.as_bytes()).expect("JSON");
        expected.sort_keys();
        assert_eq!(rest.to_text(), expected.to_text());
        assert_eq!(found.redacted, shown != declared_json, "{declared_json}");
        let expected = if has_secret {
            vec![DiagnosticCode::SecretRedacted]
        } else {
            vec![]
        };
        assert_eq!(codes(&problems), expected, "{declared_json}");
    }
}

#[test]
fn declarations_are_bounded() {
    let nested = format!("{}1{}", r#"{"a":"#.repeat(31), "}".repeat(31));
    let long = format!("[\"{}\"]", vec!["x ".repeat(3_500); 10].join("\",\""));
    for value in [nested, long] {
        let json = format!(r#"{{"a":{{"command":"x","more":{value}}},"b":{{"command":"x"}}}}"#);
        let (found, problems) = file(ComponentKind::LspServers, &json);
        assert_eq!(found.others.len(), 1);
        assert_eq!(codes(&problems), [DiagnosticCode::ComponentInvalid]);
    }
    // The keys of a group belong to each of its hooks.
    let hooks = r#"{"command":"x"},"#.repeat(2_000);
    let json = format!(
        r#"{{"Stop":[{{"matcher":"{}","hooks":[{hooks}1]}}]}}"#,
        "a".repeat(9_000)
    );
    let (found, problems) = file(ComponentKind::Hooks, &json);
    assert_eq!(found.others.len(), 0);
    assert_eq!(codes(&problems), [DiagnosticCode::ComponentInvalid]);
}

#[test]
fn manifest_details_are_read() {
    let (found, problems) = plugin(
        r##"{"name": "p", "description": " two\n words ", "keywords": ["a", "b"], "author": "me",
            "homepage": "https://x.example/?token=hunter2", "license": "MIT",
            "mcpServers": {"a": {"command": "x"}}, "apps": "./config/apps.json",
            "agents": ["./agents/one.md", "../two.md"], "hooks": {},
            "interface": {"displayName": "P", "brandColor": "#12ab34", "logo": "./assets/l.svg",
            "screenshots": ["./s.png", "/etc/x"], "odd": 1}, "themes": [], "dependancies": ["x"]}"##,
    );
    let expected = [
        DiagnosticCode::PathInvalid,
        DiagnosticCode::SecretRedacted,
        DiagnosticCode::FieldUnknown,
        DiagnosticCode::PathInvalid,
        DiagnosticCode::FieldUnknown,
    ];
    assert_eq!(codes(&problems), expected, "{problems:?}");
    assert!(problems[4].message.contains("did you mean `dependencies`"));
    let more = found.declarations.more.to_text();
    assert_eq!(&*more, r#"{"dependancies":["x"],"themes":[]}"#);
    let declared = &found.declarations;
    assert_eq!(declared.info.description.as_deref(), Some("two words"));
    assert_eq!(
        declared.info.homepage.as_deref(),
        Some("https://x.example/?token=<redacted>")
    );
    assert_eq!(declared.inline_components.mcp_servers.len(), 1);
    let named = |kind| {
        declared
            .sources
            .named_paths(kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        named(ComponentKind::Apps),
        [RelPath::new(b"config/apps.json").expect("a path")]
    );
    assert_eq!(named(ComponentKind::Agents).len(), 1);
    assert!(
        declared
            .sources
            .default_paths(ComponentKind::Hooks, ManifestProduct::Codex)
            .is_empty()
    );
    assert_eq!(
        declared
            .sources
            .default_paths(ComponentKind::LspServers, ManifestProduct::Codex)
            .len(),
        1
    );
    let interface = declared.info.interface.as_ref().expect("given");
    assert_eq!(interface.brand_color.as_deref(), Some("#12ab34"));
    assert!(interface.images[1].is_some() && interface.screenshots.len() == 1);
}

#[test]
fn the_page_of_documented_keys_is_complete() {
    let page = include_str!("../../../../docs/author/plugin-keys.md");
    let keys = [
        documented_keys::MANIFEST,
        documented_keys::MCP_SERVER,
        documented_keys::MARKETPLACE,
        documented_keys::MARKETPLACE_ENTRY,
        &frontmatter::KNOWN_FIELDS,
    ];
    for key in keys.concat() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn other_keys_of_a_server_are_passed_on() {
    let (found, problems) = file(
        ComponentKind::McpServers,
        r#"{"api": {"url": "https://a.example/mcp", "headersHelper": "${CLAUDE_PLUGIN_ROOT}/token.sh",
            "oauth": {"clientId": "caproot"}, "headersHelpr": "x", "apiKey": "hunter2"}}"#,
    );
    let [server] = &found.mcp_servers[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        &*server.more.to_text(),
        r#"{"apiKey":"<redacted>","headersHelper":"${CLAUDE_PLUGIN_ROOT}/token.sh","headersHelpr":"x","oauth":{"clientId":"caproot"}}"#
    );
    assert!(server.redacted);
    let [unknown, redacted] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert!(unknown.message.contains("`headersHelpr`") && !unknown.message.contains("`oauth`"));
    assert!(unknown.message.contains("did you mean `headersHelper`?"));
    assert!(redacted.message.contains("`apiKey`"));
}

#[test]
fn prompts_are_read_from_frontmatter() {
    let read = |kind, text: &str| prompt::read(kind, text.as_bytes(), true, b"file");
    let (agent, problems) = read(
        ComponentKind::Agents,
        "---\nname: a\ndescription: Does.\nmodel: m\ntools: A, B(c d)\n---\nx",
    );
    let agent = agent.expect("an agent");
    let expected = r#"{"description":"Does.","model":"m","name":"a","tools":"A, B(c d)"}"#;
    assert_eq!(
        (&*agent.name, &*agent.declaration.to_text()),
        ("a", expected)
    );
    assert_eq!((agent.redacted, problems), (false, vec![]));
    let (agent, problems) = read(ComponentKind::Agents, "# A text");
    assert_eq!(
        (agent, codes(&problems)),
        (None, vec![DiagnosticCode::NoFrontmatter])
    );
    let (command, problems) = read(ComponentKind::Commands, "# A text");
    assert_eq!(
        (&*command.expect("a command").name, problems),
        ("file", vec![])
    );
    let (agent, problems) = read(ComponentKind::Agents, "---\nname: \"a\n---\n");
    assert_eq!(
        (agent, codes(&problems)),
        (None, vec![DiagnosticCode::YamlSyntax])
    );
}

#[test]
fn marketplace_entries_are_read() {
    let (found, problems) = marketplace::read(
        br#"{"name": "m", "owner": {"name": "o"}, "metadata": {"pluginRoot": "./plugins"}, "plugins": [
            {"name": "a", "source": "./a"}, {"name": "b", "source": "b"},
            {"name": "c", "source": {"source": "github", "repo": "o/c"}},
            {"name": "d", "source": {"source": "local", "path": "./d"}, "policy": {"installation": "AVAILABLE"}},
            {"name": "e"}, {"name": "f", "source": "../f"}]}"#,
        &RelPath::root(),
    );
    let expected = [
        DiagnosticCode::ComponentInvalid,
        DiagnosticCode::PathInvalid,
        DiagnosticCode::ComponentInvalid,
    ];
    assert_eq!(codes(&problems), expected);
    let found = found.expect("a list");
    let place = |at: usize| {
        found.entries[at]
            .package
            .as_ref()
            .map(|p| p.as_bytes().to_vec())
    };
    assert_eq!(
        (place(0), place(1)),
        (Some(b"a".to_vec()), Some(b"plugins/b".to_vec()))
    );
    assert_eq!((place(2), &*found.entries[2].source), (None, "o/c"));
    assert_eq!((place(3), found.entries.len()), (Some(b"d".to_vec()), 4));
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, dense in "[\\[\\]{}:,\"a$./é \n-]{0,60}") {
        for bytes in [&bytes[..], dense.as_bytes()] {
            for kind in ComponentKind::ALL {
                let _ = (read_file(kind, bytes), prompt::read(kind, bytes, true, bytes));
                let named = [b"{\"", kind.manifest_key().as_bytes(), b"\":{\"a\":{\"command\":\"", bytes, b"\"}}}"].concat();
                let _ = (read_file(kind, &named), manifest::read(&named, None));
            }
            let _ = marketplace::read(bytes, &RelPath::root());
        }
    }
}
