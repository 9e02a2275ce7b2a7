//! Skills that only a person may start: they are prompts, and in no list for models.

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, Setup};

const CLOSED: &str = "policy: {allow_implicit_invocation: false}\n";

/// Describes a skill for a fixture. `is_open` says whether a model may start the skill by itself.
fn skill_tree(path: &str, name: &str, is_open: bool) -> String {
    let text = format!(
        "file r/{path}/SKILL.md\n| ---\n| name: {name}\n| description: Of {path}.\n| ---\n| Body.\n"
    );
    let policy = format!("file r/{path}/agents/openai.yaml\n| {CLOSED}");
    if is_open { text } else { text + &policy }
}

fn field_of_each(items: &[Value], key: &str) -> Vec<String> {
    items
        .iter()
        .map(|item| item[key].as_str().expect(key).to_owned())
        .collect()
}

#[tokio::test]
async fn closed_skills_are_prompts_and_in_no_list_for_models() {
    let tree = [
        skill_tree("open", "open", true),
        skill_tree("ship", "ship", false),
        skill_tree("x/twice", "twice", false),
        skill_tree("y/twice", "twice", false),
        skill_tree("odd", "O\\u{200b}dd", false),
        "file r/ship/notes.md\n| More.\n".to_owned(),
    ];
    let (fixture, daemon) = Daemon::publishing("r", &tree.concat()).await;
    let mut host = Host::start(&daemon, "");
    let lists = [("skills/list", "skills"), ("resources/list", "resources")];
    for (method, items) in lists {
        let list = host.call(method, json!({})).await.expect("a list");
        let uris = field_of_each(list[items].as_array().expect("items"), "uri");
        assert_eq!(uris, ["skill://r/open/SKILL.md"], "{method}");
        assert_eq!(list["_meta"]["caproot/omitted"]["policy"], 4, "{method}");
    }
    let call = json!({"name": "skills_list", "arguments": {}});
    let list = host.call("tools/call", call).await.expect("a result");
    let list = list["content"][0]["text"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(
        list.contains("\"open\"") && !list.contains("ship"),
        "{list}"
    );

    // Each file can be read by its exact URI.
    for uri in [
        "skill://r/ship/SKILL.md",
        "skill://r/ship/notes.md",
        "skill://r/odd/SKILL.md",
    ] {
        assert!(
            host.call("resources/read", json!({"uri": uri}))
                .await
                .is_ok(),
            "{uri}"
        );
    }
    let got = host
        .call("skills/get", json!({"uri": "skill://r/ship/SKILL.md"}))
        .await;
    assert_eq!(
        got.expect("the skill")["skill"]["frontmatter"]["name"],
        "ship"
    );

    let prompts = host.call("prompts/list", json!({})).await.expect("a list");
    let prompts = prompts["prompts"].as_array().expect("prompts").clone();
    let twice = ["skill://r/x/twice", "skill://r/y/twice"];
    assert_eq!(
        field_of_each(&prompts, "name"),
        [r"O\u{200b}dd", "ship", twice[0], twice[1]]
    );
    assert_eq!(prompts[1]["description"], "Of ship.");
    for (prompt, path) in prompts
        .iter()
        .zip(["r/odd", "r/ship", "r/x/twice", "r/y/twice"])
    {
        let got = host
            .call("prompts/get", json!({"name": prompt["name"]}))
            .await;
        let got = got.expect("a prompt");
        let [head, text] = got["messages"].as_array().expect("messages").as_slice() else {
            panic!("two messages: {got}")
        };
        assert_eq!(
            (&head["role"], &text["role"]),
            (&json!("user"), &json!("user"))
        );
        let below = format!("skill://{path}/.");
        assert!(
            head["content"]["text"]
                .as_str()
                .is_some_and(|text| text.ends_with(&below))
        );
        let resource = &text["content"]["resource"];
        assert_eq!(resource["uri"], format!("skill://{path}/SKILL.md"));
        let whole = std::fs::read_to_string(fixture.path(&format!("{path}/SKILL.md")));
        assert_eq!(resource["text"], whole.expect("text"));
    }
    // A prompt takes what the user wrote behind its name.
    assert_eq!(prompts[1]["arguments"][0]["name"], "arguments");
    let with_arguments = |text: &str| json!({"name": "ship", "arguments": {"arguments": text}});
    let got = host.call("prompts/get", with_arguments("to prod")).await;
    let got = got.expect("a prompt");
    let text = got["messages"][1]["content"]["resource"]["text"].as_str();
    assert!(
        text.is_some_and(|text| text.ends_with("\n\nARGUMENTS: to prod")),
        "{got}"
    );
    let error = host
        .call("prompts/get", with_arguments(&"x".repeat(5_000)))
        .await
        .expect_err("too long");
    assert_eq!(error["data"]["reason"], "BAD_ARGUMENTS");
    for name in ["open", "none", "twice", ""] {
        let error = host
            .call("prompts/get", json!({"name": name}))
            .await
            .expect_err(name);
        assert_eq!(
            (&error["code"], &error["data"]["reason"]),
            (&json!(-32602), &json!("NOT_FOUND"))
        );
    }
    let error = host
        .call("prompts/list", json!({"cursor": "x"}))
        .await
        .expect_err("no cursor");
    assert_eq!(error["data"]["reason"], "BAD_CURSOR");
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn prompts_come_in_pages() {
    let fixture = Fixture::new("dir r");
    for n in 0..600 {
        let text = format!("---\nname: s{n:03}\ndescription: S.\n---\n");
        fixture.write(&format!("r/s{n:03}/SKILL.md"), text);
        fixture.write(&format!("r/s{n:03}/agents/openai.yaml"), CLOSED);
    }
    fixture.write("r/zz/SKILL.md", "---\nname: zz\ndescription: Z.\n---\n");
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    let (prompts, pages) = host.list_all("prompts/list", "prompts", json!({})).await;
    let expected: Vec<_> = (0..600).map(|n| format!("s{n:03}")).collect();
    assert_eq!((field_of_each(&prompts, "name"), pages), (expected, 2));
    for (method, items) in [("skills/list", "skills"), ("resources/list", "resources")] {
        let (open, _) = host.list_all(method, items, json!({})).await;
        assert_eq!(
            field_of_each(&open, "uri"),
            ["skill://r/zz/SKILL.md"],
            "{method}"
        );
    }
    host.stop_with(daemon).await;
}

/// The frontmatter restricts like the sidecar. A skill that is hidden from models and persons is in no list.
#[tokio::test]
async fn the_frontmatter_moves_skills_between_the_lists() {
    let mut tree = String::new();
    for (name, restrictions) in [
        ("open", ""),
        ("ship", "| disable-model-invocation: true\n"),
        ("inner", "| user-invocable: false\n"),
        (
            "closed",
            "| disable-model-invocation: true\n| user-invocable: false\n",
        ),
    ] {
        let head = format!("file r/{name}/SKILL.md\n| ---\n| name: {name}\n");
        tree += &[&*head, "| description: D.\n", restrictions, "| ---\n"].concat();
    }
    let (fixture, daemon) = Daemon::publishing("r", &tree).await;
    let mut host = Host::start(&daemon, "");

    for (method, items) in [("skills/list", "skills"), ("resources/list", "resources")] {
        let list = host.call(method, json!({})).await.expect("a list");
        let uris = field_of_each(list[items].as_array().expect("items"), "uri");
        assert_eq!(
            uris,
            ["skill://r/inner/SKILL.md", "skill://r/open/SKILL.md"],
            "{method}"
        );
        assert_eq!(list["_meta"]["caproot/omitted"]["policy"], 2, "{method}");
    }
    let call = json!({"name": "skills_list", "arguments": {}});
    let list = host.call("tools/call", call).await.expect("a result");
    let text = list["content"][0]["text"].as_str().expect("text");
    assert!(
        text.contains("\"inner\"") && !text.contains("\"ship\""),
        "{text}"
    );

    let (prompts, _) = host.list_all("prompts/list", "prompts", json!({})).await;
    assert_eq!(field_of_each(&prompts, "name"), ["ship"]);
    for name in ["inner", "closed"] {
        let got = host.call("prompts/get", json!({"name": name})).await;
        assert_eq!(got.expect_err(name)["data"]["reason"], "NOT_FOUND");
    }

    // A skill that becomes a prompt is announced.
    let listen = json!({"notifications": {"promptsListChanged": true}});
    host.send_request("subscriptions/listen", listen);
    host.next_notification().await;
    let text = "---\nname: closed\ndescription: D.\ndisable-model-invocation: true\n---\n";
    fixture.replace("r/closed/SKILL.md", text);
    let changed = host.next_notification().await;
    assert_eq!(changed["method"], "notifications/prompts/list_changed");
    let (prompts, _) = host.list_all("prompts/list", "prompts", json!({})).await;
    assert_eq!(field_of_each(&prompts, "name"), ["closed", "ship"]);
    host.stop_with(daemon).await;
}

/// If its policy changes, a skill moves from one list to the other, and hosts are notified of both.
#[tokio::test]
async fn a_changed_policy_moves_a_skill_between_the_lists() {
    let (fixture, daemon) = Daemon::publishing("r", &skill_tree("ship", "ship", true)).await;
    let mut host = Host::start(&daemon, "");
    host.call("resources/list", json!({}))
        .await
        .expect("a list");
    let (mut older, _) = Host::start_older(&daemon).await;
    for method in ["resources/list", "prompts/list"] {
        older.call(method, json!({})).await.expect("a list");
    }
    let both = json!({"notifications": {"resourcesListChanged": true, "promptsListChanged": true}});
    host.send_request("subscriptions/listen", both);
    let acknowledged = host.next_notification().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    fixture.write("r/ship/agents/openai.yaml", CLOSED);
    for host in [&mut host, &mut older] {
        let methods = [
            host.next_notification().await["method"].clone(),
            host.next_notification().await["method"].clone(),
        ];
        let expected = [
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
        ];
        assert_eq!(methods, expected);
        let prompts = host.call("prompts/list", json!({})).await.expect("a list");
        assert_eq!(prompts["prompts"][0]["name"], "ship");
        let list = host
            .call("resources/list", json!({}))
            .await
            .expect("a list");
        assert_eq!(list["resources"], json!([]));
    }
    // The description of a prompt changes only the list of prompts.
    let text = "---\nname: ship\ndescription: Other.\n---\n";
    fixture.replace("r/ship/SKILL.md", text);
    assert_eq!(
        host.next_notification().await["method"],
        "notifications/prompts/list_changed"
    );
    assert_eq!(host.stop().await.code, Some(0));
    assert_eq!(older.stop().await.code, Some(0));
    daemon.stop().await;
}

/// Only files of listed skills have a URI.
#[tokio::test]
async fn paths_of_a_plugin_into_its_skills_get_their_uris() {
    let tree = "file r/kit/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}\n\
        file r/kit/skills/ship/SKILL.md\n| ---\n| name: ship\n| description: Ships.\n| ---\n\
        | Read ${CLAUDE_PLUGIN_ROOT}/skills/other/more.md, ${PLUGIN_ROOT}/scripts/x and ${CLAUDE_SKILL_DIR}/y.\n"
        .to_owned()
        + &format!("file r/kit/skills/ship/agents/openai.yaml\n| {CLOSED}")
        + &skill_tree("kit/skills/other", "other", true)
        + "file r/kit/skills/other/more.md\n| More.\n";
    let (_fixture, daemon) = Daemon::publishing("r", &tree).await;
    let mut host = Host::start(&daemon, "");
    let prompts = host.call("prompts/list", json!({})).await.expect("a list");
    let name = &prompts["prompts"][0]["name"];
    let got = host.call("prompts/get", json!({"name": name})).await;
    let got = got.expect("a prompt");
    let resource = &got["messages"][1]["content"]["resource"];
    let text = resource["text"].as_str().expect("text");
    let directory = resource["uri"].as_str().expect("a URI");
    let directory = directory.strip_suffix("/SKILL.md").expect("a main file");
    let own = format!("${{PLUGIN_ROOT}}/scripts/x and {directory}/y.");
    assert!(text.contains(&own), "{text}");
    let start = text.find("Read ").expect("a sentence") + "Read ".len();
    let (uri, _) = text[start..].split_once(',').expect("a URI");
    let read = host.call("resources/read", json!({"uri": uri})).await;
    let read = read.unwrap_or_else(|error| panic!("{uri}: {error}"));
    assert_eq!(read["contents"][0]["text"], "More.\n");
    host.stop_with(daemon).await;
}
