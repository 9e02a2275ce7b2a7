//! Declarations of plugins: the response of `ResolveRoots`, and the files that can be read.

mod changes;
mod command;
mod corpus;
mod declaration_files;
mod invalid_declarations;
mod products;

use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, bytes_of, content_digest, files_request, read_request, rpc_error, selected,
};
use caproot_core::proto::caproot::v1::{
    ComponentKind, Diagnostic, DiagnosticCode, HostCapability, ListResourcesResponse, McpTransport,
    Plugin, PluginComponent, ResolveRootsRequest, ResolveRootsResponse, RootKind,
    SelectedCapabilityRoot,
};
use prost_types::value::Kind;
use tonic::Code;

/// Returns the handles of the files that are not served.
fn withheld(list: &ListResourcesResponse) -> Vec<&str> {
    let withheld = list.withheld.iter();
    withheld.map(|file| file.resource.as_str()).collect()
}

/// Plugin with every kind of declaration.
const TREE: &str = r##"
file r/.codex-plugin/plugin.json
| {"name": "demo", "version": "1.2", "description": "Does it.", "keywords": ["a"],
|  "author": {"name": "Me", "url": "https://example.com"}, "homepage": "https://example.com/demo",
|  "mcpServers": "./config/mcp.json", "apps": "./config/apps.json", "lspServers": {"go": {"command": "gopls"}},
|  "interface": {"displayName": "Demo", "brandColor": "#010203", "logo": "./assets/logo.svg",
|                "screenshots": ["./assets/one.png", "./assets/none.png"]}}
file r/.claude-plugin/plugin.json
| {"name": "other"}
file r/.agents/plugins/marketplace.json
| {"name": "shop", "plugins": [{"name": "inner", "source": "./nested/inner"}]}
file r/config/mcp.json
| {"mcpServers": {"local": {"command": "npx", "args": ["serve"], "cwd": "./server", "env": {"KEY": "${KEY}"}},
|                 "remote": {"url": "https://example.com/mcp", "headers": {"X-Api-Key": "hunter2"}}}}
file r/.mcp.json
| {"unread": {"command": "hunter2"}}
file r/config/apps.json
| {"apps": {"mail": {"id": "connector_1"}}}
file r/hooks/hooks.json
| {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/x"}]}]}}
file r/agents/reviewer.md
| ---
| name: reviewer
| description: Reviews.
| model: fast
| ---
| Review it.
file r/agents/README.md
| # Not an agent
file r/commands/sub/go.md
| Go on.
file r/output-styles/terse.md
| ---
| name: terse
| description: Says little.
| ---
file r/assets/logo.svg
| <svg/>
file r/assets/one.png
| png
file r/secret.txt
| hunter2
skill r/skills/one
file r/nested/inner/.claude-plugin/plugin.json
| {"name": "inner", "requires": {"hostCapabilities": ["local.exec@1", "tray"], "node": "22"}}
file r/nested/inner/.mcp.json
| {"a": {"type": "sse", "url": "https://example.com/sse"}}
"##;

/// Calls `ResolveRoots` page by page, and joins the pages.
pub(crate) async fn resolve_in_pages(
    daemon: &Daemon,
    roots: &[SelectedCapabilityRoot],
    page_size: i32,
) -> ResolveRootsResponse {
    let mut request = ResolveRootsRequest {
        selected_capability_roots: roots.to_vec(),
        consistency: 2,
        page_size,
        ..ResolveRootsRequest::default()
    };
    let mut answer: Option<ResolveRootsResponse> = None;
    loop {
        let page = daemon.try_resolve(request.clone()).await;
        let page = page.expect("ResolveRoots");
        let token = page.next_page_token.clone();
        match &mut answer {
            None => answer = Some(page),
            Some(answer) => {
                assert_eq!(
                    answer.revision, page.revision,
                    "all pages have the same revision"
                );
                for (root, more) in answer.roots.iter_mut().zip(page.roots) {
                    root.plugins.extend(more.plugins);
                    root.marketplaces.extend(more.marketplaces);
                }
            }
        }
        if token.is_empty() {
            let mut answer = answer.expect("a page");
            answer.next_page_token.clear();
            return answer;
        }
        request.page_token = token;
    }
}

pub(crate) async fn resolve(
    daemon: &Daemon,
    roots: &[SelectedCapabilityRoot],
) -> ResolveRootsResponse {
    resolve_in_pages(daemon, roots, 0).await
}

/// Builds a tree, and resolves its directory `r`. Returns the plugins and diagnostics.
async fn resolve_tree(tree: &str) -> (Fixture, Daemon, Vec<Plugin>, Vec<Diagnostic>) {
    let fixture = Fixture::new(tree);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let root = answer.roots.into_iter().next().expect("a root");
    (fixture, daemon, root.plugins, root.diagnostics)
}

/// Returns a text of a declaration.
fn declared_text<'a>(component: &'a PluginComponent, key: &str) -> &'a str {
    let declaration = component.declaration.as_ref().expect("a declaration");
    match &declaration.fields[key].kind {
        Some(Kind::StringValue(text)) => text,
        other => panic!("{key}: {other:?}"),
    }
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<DiagnosticCode> {
    diagnostics.iter().map(Diagnostic::code).collect()
}

#[tokio::test]
async fn every_kind_of_declaration_is_reported() {
    let fixture = Fixture::new(TREE);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let root = &answer.roots[0];
    assert_eq!(root.kind(), RootKind::Plugin);
    assert_eq!(root.counts.expect("ready").plugins, 2);
    let [demo, inner] = &root.plugins[..] else {
        panic!("{:?}", root.plugins)
    };
    assert_eq!(
        (&*demo.package, &*demo.manifest),
        ("skill://r", "skill://r/.codex-plugin/plugin.json")
    );
    assert_eq!(
        demo.other_manifests,
        ["skill://r/.claude-plugin/plugin.json"]
    );
    assert_eq!(
        (&*demo.name, &*demo.version, &*demo.description),
        ("demo", "1.2", "Does it.")
    );
    assert_eq!(
        (&*demo.homepage, &demo.keywords),
        ("https://example.com/demo", &vec!["a".to_owned()])
    );
    assert_eq!(demo.author.as_ref().expect("given").name, "Me");
    let interface = demo.interface.as_ref().expect("given");
    assert_eq!(
        (&*interface.display_name, &*interface.brand_color),
        ("Demo", "#010203")
    );
    assert_eq!(interface.logo, "skill://r/assets/logo.svg");
    assert_eq!(interface.screenshots, ["skill://r/assets/one.png"]);
    let required: Vec<_> = demo.required_capabilities().collect();
    assert_eq!(
        required,
        [
            HostCapability::McpStdio,
            HostCapability::McpStreamableHttp,
            HostCapability::Apps,
            HostCapability::Hooks,
            HostCapability::Agents,
            HostCapability::Commands,
            HostCapability::OutputStyles,
            HostCapability::Lsp,
        ]
    );
    let [local, remote] = &demo.mcp_servers[..] else {
        panic!("{demo:?}")
    };
    assert_eq!(
        (&*local.name, local.transport()),
        ("local", McpTransport::Stdio)
    );
    assert_eq!(
        (&*local.command, &local.args, &*local.cwd),
        ("npx", &vec!["serve".to_owned()], "server")
    );
    assert_eq!(local.environment[0].value.as_deref(), Some("${KEY}"));
    assert_eq!(local.declared_by, "skill://r/config/mcp.json");
    assert_eq!(
        (remote.transport(), &*remote.url),
        (McpTransport::StreamableHttp, "https://example.com/mcp")
    );
    assert_eq!(
        (&*remote.headers[0].name, &remote.headers[0].value),
        ("X-Api-Key", &None)
    );
    assert!(remote.redacted && !local.redacted);
    let all = demo.components.iter();
    let all: Vec<_> = all
        .map(|component| (component.kind(), &*component.name, &*component.file))
        .collect();
    assert_eq!(
        all,
        [
            (ComponentKind::App, "mail", "skill://r/config/apps.json"),
            (
                ComponentKind::Hook,
                "PreToolUse",
                "skill://r/hooks/hooks.json"
            ),
            (ComponentKind::LspServer, "go", &*demo.manifest),
            (
                ComponentKind::Agent,
                "reviewer",
                "skill://r/agents/reviewer.md"
            ),
            (ComponentKind::Command, "go", "skill://r/commands/sub/go.md"),
            (
                ComponentKind::OutputStyle,
                "terse",
                "skill://r/output-styles/terse.md"
            ),
        ]
    );
    let [mail, hook, _, reviewer, ..] = &demo.components[..] else {
        panic!("{demo:?}")
    };
    assert_eq!(declared_text(mail, "id"), "connector_1");
    assert_eq!(declared_text(hook, "matcher"), "Bash");
    assert_eq!(declared_text(hook, "command"), "${CLAUDE_PLUGIN_ROOT}/x");
    assert_eq!(declared_text(reviewer, "model"), "fast");
    assert!(reviewer.digest.starts_with("sha256:") && reviewer.size_bytes > 0);
    assert!(demo.components.iter().all(|component| !component.redacted));
    assert_eq!(
        (&*inner.package, &*inner.name),
        ("skill://r/nested/inner", "inner")
    );
    assert_eq!(inner.mcp_servers[0].transport(), McpTransport::Sse);
    let [shop] = &root.marketplaces[..] else {
        panic!("{:?}", root.marketplaces)
    };
    assert_eq!(
        (&*shop.name, &*shop.plugins[0].package),
        ("shop", "skill://r/nested/inner")
    );
    let found = codes(&root.diagnostics);
    let expected = [
        DiagnosticCode::PathMissing,
        DiagnosticCode::SecretRedacted,
        DiagnosticCode::NoFrontmatter,
    ];
    assert_eq!(found, expected, "{:?}", root.diagnostics);
    let text = format!("{answer:?}");
    assert!(
        !text.contains("hunter2") && !text.contains("unread"),
        "{text}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_component_has_the_digest_of_its_file() {
    let (fixture, daemon, plugins, _) = resolve_tree(TREE).await;
    let demo = &plugins[0];
    let of_file = |file: &str| {
        let bytes = std::fs::read(fixture.path(&format!("r/{file}"))).expect(file);
        (content_digest(&bytes), bytes.len() as u64)
    };
    for component in &demo.components {
        let file = component.file.strip_prefix("skill://r/").expect("a file");
        let stated = (component.digest.clone(), component.size_bytes);
        assert_eq!(stated, of_file(file), "{}", component.name);
    }
    let (servers, _) = of_file("config/mcp.json");
    assert!(!demo.mcp_servers.is_empty());
    assert!(
        demo.mcp_servers
            .iter()
            .all(|server| server.digest == servers)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn all_files_can_be_read_except_those_with_secrets() {
    // In the second tree, a skill has the same package as the plugin. In the third, a skill contains
    // the nested plugin.
    for tree in [
        TREE.to_owned(),
        format!("{TREE}\nskill r\n"),
        format!("{TREE}\nskill r/nested\n"),
    ] {
        let (fixture, daemon, ..) = resolve_tree(&tree).await;
        let root = selected("r", fixture.path("r"));
        let get = |package: &str, resource: &str| {
            let handle = |path: &str| {
                if path.is_empty() {
                    "skill://r".to_owned()
                } else {
                    format!("skill://r/{path}")
                }
            };
            read_request(&root, &handle(package), &handle(resource))
        };
        for (file, content) in [
            ("agents/reviewer.md", "Review it."),
            ("commands/sub/go.md", "Go on."),
            ("output-styles/terse.md", "terse"),
            ("assets/logo.svg", "<svg/>"),
            ("assets/one.png", "png"),
        ] {
            let answer = daemon.read(get("", file)).await.expect(file);
            let text = String::from_utf8(bytes_of(&answer)).expect("UTF-8");
            assert!(text.contains(content), "{file} {text}");
        }
        for file in [
            ".codex-plugin/plugin.json",
            ".claude-plugin/plugin.json",
            ".agents/plugins/marketplace.json",
            "config/apps.json",
            "hooks/hooks.json",
            "nested/inner/.mcp.json",
            "nested/inner/.claude-plugin/plugin.json",
        ] {
            daemon.read(get("", file)).await.expect(file);
        }
        // The daemon does not read the first, and the second has a secret.
        for file in [".mcp.json", "config/mcp.json"] {
            let refused = daemon.read(get("", file)).await.expect_err(file);
            let refused = rpc_error(&refused);
            assert_eq!(
                (refused.code, &*refused.reason),
                (Code::NotFound, "RESOURCE_NOT_FOUND"),
                "{file}"
            );
        }
        if tree == TREE {
            let request = files_request(&root, "skill://r");
            let list = daemon.list_resources(request).await.expect("a list");
            let listed: Vec<_> = list.resources.iter().map(|r| &*r.resource).collect();
            assert_eq!(
                listed,
                [
                    "skill://r/.agents/plugins/marketplace.json",
                    "skill://r/.claude-plugin/plugin.json",
                    "skill://r/.codex-plugin/plugin.json",
                    "skill://r/agents/README.md",
                    "skill://r/agents/reviewer.md",
                    "skill://r/assets/logo.svg",
                    "skill://r/assets/one.png",
                    "skill://r/commands/sub/go.md",
                    "skill://r/config/apps.json",
                    "skill://r/hooks/hooks.json",
                    "skill://r/nested/inner/.claude-plugin/plugin.json",
                    "skill://r/nested/inner/.mcp.json",
                    "skill://r/output-styles/terse.md",
                    "skill://r/secret.txt",
                    "skill://r/skills/one/SKILL.md",
                ]
            );
            assert_eq!(
                withheld(&list),
                ["skill://r/.mcp.json", "skill://r/config/mcp.json"]
            );
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn joined_pages_equal_the_whole_response() {
    let fixture = Fixture::new(TREE);
    for n in 0..40 {
        fixture.write(
            &format!("r/more/p{n}/.codex-plugin/plugin.json"),
            format!("{{\"name\":\"p{n}\"}}"),
        );
    }
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let roots = [
        selected("r", fixture.path("r")),
        selected("s", fixture.path("r/more")),
    ];
    let whole = resolve(&daemon, &roots).await;
    assert_eq!(
        (whole.roots[0].plugins.len(), whole.roots[1].plugins.len()),
        (42, 40)
    );
    let diagnostics = whole.roots[0].diagnostics.clone();
    for page_size in [1, 7, 41, 83] {
        let joined = resolve_in_pages(&daemon, &roots, page_size).await;
        assert_eq!(joined.roots[0].plugins, whole.roots[0].plugins);
        assert_eq!(joined.roots[1].plugins, whole.roots[1].plugins);
        assert_eq!(joined.roots[0].marketplaces, whole.roots[0].marketplaces);
        assert_eq!(joined.roots[0].diagnostics, diagnostics);
    }
    let request = ResolveRootsRequest {
        selected_capability_roots: roots.to_vec(),
        page_size: 1,
        ..ResolveRootsRequest::default()
    };
    let first = daemon.try_resolve(request.clone()).await.expect("a page");
    let page_token = first.next_page_token;
    let other = ResolveRootsRequest {
        selected_capability_roots: roots[..1].to_vec(),
        page_token,
        ..ResolveRootsRequest::default()
    };
    let refused = daemon
        .try_resolve(other)
        .await
        .expect_err("token of another request");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let negative = ResolveRootsRequest {
        page_size: -1,
        ..request
    };
    let refused = daemon.try_resolve(negative).await.expect_err("a bad size");
    assert_eq!(refused.code(), Code::InvalidArgument);
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_inside_a_plugin_is_a_skill_set() {
    let fixture = Fixture::new(TREE);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("s", fixture.path("r/skills"))]).await;
    assert_eq!(
        (answer.roots[0].kind(), answer.roots[0].plugins.len()),
        (RootKind::SkillSet, 0)
    );
    let listed = daemon
        .list(&[selected("s", fixture.path("r/skills"))])
        .await;
    assert_eq!(listed.skills[0].name, "demo:one");
    daemon.stop().await;
}
