//! Files that declare components, as files: a version in which nothing is redacted can be read.

use super::{resolve, withheld};
use std::fs;

use caproot_core::proto::caproot::v1::ListResourcesRequest;

use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, bytes_of, content_digest, files_request, read_request, rpc_error, selected,
};

#[tokio::test]
async fn a_declaration_file_is_served_if_nothing_in_it_is_redacted() {
    let fixture = Fixture::new(
        r#"
skill r
file r/.claude-plugin/plugin.json
| {"name": "p", "userConfig": {"api_token": {"type": "string", "title": "Token"}}}
file r/.mcp.json
| {"a": {"command": "node", "env": {"DB_PATH": "${CLAUDE_PLUGIN_ROOT}/data"}}}
file r/hooks/hooks.json
| {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "TOKEN=abc notify"}]}]}}
file r/.lsp.json
| {"go": {"command": "gopls"}, "inputs": {"apiKey": "abc"}}
"#,
    );
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let root = selected("r", fixture.path("r"));
    resolve(&daemon, std::slice::from_ref(&root)).await;
    let read = async |file: &str| {
        let handle = format!("skill://r/{file}");
        daemon.read(read_request(&root, "skill://r", &handle)).await
    };

    for file in [".claude-plugin/plugin.json", ".mcp.json"] {
        let answer = read(file).await.expect(file);
        let on_disk = fs::read(fixture.path(&format!("r/{file}"))).expect(file);
        assert_eq!(bytes_of(&answer), on_disk, "{file}");
    }
    for file in ["hooks/hooks.json", ".lsp.json"] {
        let refused = rpc_error(&read(file).await.expect_err(file));
        assert_eq!(&*refused.reason, "RESOURCE_NOT_FOUND", "{file}");
    }
    let listed = daemon
        .list_resources(files_request(&root, "skill://r"))
        .await;
    let list = listed.expect("a list");
    let listed: Vec<_> = list.resources.iter().map(|file| &*file.resource).collect();
    assert_eq!(
        listed,
        [
            "skill://r/.claude-plugin/plugin.json",
            "skill://r/.mcp.json",
            "skill://r/SKILL.md"
        ]
    );
    assert_eq!(
        withheld(&list),
        ["skill://r/.lsp.json", "skill://r/hooks/hooks.json"]
    );

    // A lock can cover the withheld declarations by their digests alone.
    assert!(list.withheld.iter().all(|file| file.digest.is_empty()));
    let digested = ListResourcesRequest {
        include_digests: true,
        ..files_request(&root, "skill://r")
    };
    let digested = daemon.list_resources(digested).await.expect("a list");
    let hooks = fs::read(fixture.path("r/hooks/hooks.json")).expect("the hooks");
    assert_eq!(digested.withheld[1].digest, content_digest(&hooks));
    assert_eq!(digested.withheld[1].size_bytes, hooks.len() as u64);

    // No version that the daemon has not judged is served.
    fixture.replace(
        "r/.mcp.json",
        r#"{"a": {"command": "node", "env": {"PASSWORD": "abc"}}}"#,
    );
    assert!(read(".mcp.json").await.is_err());
    daemon.stop().await;
}

#[tokio::test]
async fn many_notes_hide_no_secret() {
    let odd = (0..70).map(|n| format!("\"Odd{n}\": [{{\"hooks\": [{{\"type\": \"odd\"}}]}}], "));
    let mut json = format!("{{{}", odd.collect::<String>());
    json += r#""Stop": [{"hooks": [{"type": "command", "command": "TOKEN=abc x"}]}]}"#;
    let fixture = Fixture::new("skill r\nfile r/.claude-plugin/plugin.json\n| {\"name\": \"p\"}\n");
    fixture.write("r/hooks/hooks.json", json);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let root = selected("r", fixture.path("r"));
    resolve(&daemon, std::slice::from_ref(&root)).await;
    let request = read_request(&root, "skill://r", "skill://r/hooks/hooks.json");
    assert!(daemon.read(request).await.is_err());
    daemon.stop().await;
}
