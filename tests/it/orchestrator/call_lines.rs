//! `caproot call` for the packages of other languages: several sessions, watched texts, whole files,
//! cancelled requests, and the schemas of all lines.

use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::serve_tree;
use crate::harness::Daemon;
use crate::harness::process::{caproot, client_command, run_command};

fn count_tool(description: &str) -> Value {
    json!({"name": "count", "description": description, "inputSchema": {"type": "object"}})
}

/// Program that knows an executor, and has the pending calls of a platform.
struct QuestionedProgram {
    endpoint: String,
    pending: Vec<Value>,
    submitted: Vec<Value>,
}

impl QuestionedProgram {
    /// Returns the fields of the answer to an event.
    fn answer(&mut self, event: &Value) -> Value {
        match event["event"].as_str() {
            Some("findExecutor") if event["key"] == "e" && event["environmentId"] == "local" => {
                json!({"result": {"endpoint": self.endpoint}})
            }
            Some("findExecutor") => json!({"error": "no such machine"}),
            Some("listPending") => json!({"result": {"calls": self.pending}}),
            Some("submitResult") => {
                self.pending
                    .retain(|call| call["requestId"] != event["requestId"]);
                self.submitted.push(event.clone());
                json!({"result": null})
            }
            _ => panic!("{event}"),
        }
    }

    /// Sends a request, and answers events until the answer.
    async fn request(&mut self, process: &mut CallProcess, mut request: Value) -> Value {
        request["id"] = json!("request");
        process.send(&request);
        loop {
            let line = process.next().await;
            if line["id"] == "request" {
                return line;
            }
            if line.get("call").is_some() {
                let mut answer = self.answer(&line);
                answer["method"] = json!("tool_result");
                answer["call"] = line["call"].clone();
                process.send(&answer);
            }
        }
    }
}

/// Returns the field `sources` of a session with one daemon.
fn sources_of(daemon: &Daemon) -> Value {
    let executor = json!({"endpoint": format!("tcp:{}", daemon.address)});
    json!({"key": "s", "executors": {"key": "e", "from": {"one": executor}}})
}

/// Starts a session with options, and returns its id.
async fn start_session(process: &mut CallProcess, daemon: &Daemon, mut options: Value) -> Value {
    options["method"] = json!("start");
    options["sources"] = sources_of(daemon);
    let started = process.request(options).await;
    assert_eq!(started["result"]["warnings"], json!([]), "{started}");
    started["result"]["session"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_one_process_have_their_own_options_tools_and_changes() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log").await;
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let hello = process.request(json!({"method": "hello"})).await;
    assert_eq!(hello["result"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(hello["result"]["session"], Value::Null);
    let missing = process.request(json!({"method": "tools"})).await;
    assert_eq!(missing["error"]["code"], "BAD_REQUEST", "{missing}");

    let named =
        json!({"session_id": "one", "include": ["name:pdf"], "tools": [count_tool("First.")]});
    let one = start_session(&mut process, &daemon, named).await;
    assert_eq!(one, "one");
    let tools = json!({"tools": [count_tool("Second.")]});
    let two = start_session(&mut process, &daemon, tools).await;

    // A session has its choice, and the call of a tool names the session.
    let list = process
        .request(json!({"method": "list", "session": one}))
        .await;
    assert_eq!(list["result"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(
        list["result"][0]["mainResource"],
        "skill://local/pdf/SKILL.md"
    );
    for (session, text) in [(&one, "First."), (&two, "Second.")] {
        let tools = process
            .request(json!({"method": "tools", "session": session}))
            .await;
        assert_eq!(tools["result"][3]["description"], text);
        let call = json!({"method": "call", "tool": "count", "arguments": {}, "session": session, "id": 1});
        process.send(&call);
        let event = process.next().await;
        assert_eq!(
            (&event["event"], &event["session"]),
            (&json!("tool"), session)
        );
        process
            .send(&json!({"method": "tool_result", "call": event["call"], "result": 1, "id": 2}));
        let ids = [
            process.next().await["id"].clone(),
            process.next().await["id"].clone(),
        ];
        assert!(
            ids.contains(&json!(1)) && ids.contains(&json!(2)),
            "{ids:?}"
        );
    }

    // Only the watched session has events, with its new text.
    let watched = process
        .request(json!({"method": "watch", "session": two}))
        .await;
    assert!(
        watched["result"]["text"].to_string().contains("- log"),
        "{watched}"
    );
    fixture.write("r/new/SKILL.md", "---\ndescription: New.\n---\n");
    loop {
        let event = process.next().await;
        assert_eq!(
            (&event["event"], &event["session"]),
            (&json!("changed"), &two)
        );
        if event["text"].to_string().contains("- new") {
            break;
        }
    }

    // A closed session has no events, and its id is free again.
    let closed = process
        .request(json!({"method": "close", "session": one}))
        .await;
    assert_eq!(closed["result"]["session"], "one");
    start_session(&mut process, &daemon, json!({"session_id": "one"})).await;
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

/// Each session names its own sources.
#[tokio::test]
async fn without_a_first_session_flags_name_no_sources() {
    for [flag, value] in [
        ["--root", "."],
        ["--selected", "roots.json"],
        ["--fleet", "fleet.yaml"],
        ["--local", "a=."],
        ["--preset", "claude"],
        ["--mcp-servers", "servers.json"],
        ["--site", "example.org"],
        ["--lock", "caproot.lock"],
    ] {
        let refused = run_command(caproot(["call", "--no-session", flag, value])).await;
        refused.exited_with(2, "cannot be used with");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_mistakes_of_a_session_are_reported() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let start = json!({"method": "start", "sources": sources_of(&daemon), "include": ["pdf"],
        "start_timeout": "soon",
        "tools": [count_tool("One."), count_tool("Two."), {"name": "a b", "description": "", "inputSchema": 1}]});
    let mistakes = process.request(start).await["error"].clone();
    assert_eq!(mistakes["code"], "BAD_CONFIG", "{mistakes}");
    assert!(
        mistakes["mistakes"].as_array().expect("mistakes").len() >= 4,
        "{mistakes}"
    );

    for (options, part) in [
        (json!({"roots": [{"id": 1}]}), "roots: "),
        (json!({"saved": {"more": 1}}), "saved session"),
        (json!({"session_id": "a b"}), "invalid session id"),
    ] {
        let mut options = options;
        options["method"] = json!("start");
        options["sources"] = sources_of(&daemon);
        let error = process.request(options).await["error"].clone();
        assert_eq!(error["code"], "BAD_CONFIG", "{error}");
        assert!(error["message"].to_string().contains(part), "{error}");
    }
    let both = json!({"method": "start", "saved": {}, "product": "x"});
    assert_eq!(process.request(both).await["error"]["code"], "BAD_REQUEST");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_cancelled_while_the_maximum_is_in_flight() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    // A session runs 64 calls of its own tools at once.
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let tools = json!({"tools": [count_tool("Waits.")]});
        sessions.push(start_session(&mut process, &daemon, tools).await);
    }

    // Each call waits for the program.
    for id in 0..256 {
        let session = &sessions[id / 64];
        process.send(&json!({"id": id, "method": "call", "tool": "count", "arguments": {}, "session": session}));
    }
    let mut calls = Vec::new();
    while calls.len() < 256 {
        let event = process.next().await;
        assert_eq!(event["event"], "tool", "{event}");
        calls.push(event["call"].clone());
    }

    for id in 0..256 {
        process.send(&json!({"id": "cancel", "method": "cancel", "request": id}));
    }
    let (mut cancelled, mut answers, mut events) = (0, 0, 0);
    while cancelled < 256 || answers < 256 || events < 256 {
        let line = process.next().await;
        if line["event"] == "toolCancelled" {
            events += 1;
        } else if line["id"] == "cancel" {
            assert_eq!(line["result"], json!({"cancelled": 1}));
            answers += 1;
        } else {
            assert_eq!(line["error"]["code"], "CANCELLED", "{line}");
            cancelled += 1;
        }
    }

    let unknown = json!({"method": "cancel", "request": 1});
    assert_eq!(
        process.request(unknown).await["result"],
        json!({"cancelled": 0})
    );
    // A program that reads nothing yet gets all answers later.
    for id in 0..600 {
        process.send(&json!({"id": id, "method": "list", "session": sessions[0]}));
    }
    let mut ids: Vec<u64> = Vec::new();
    while ids.len() < 600 {
        let line = process.next().await;
        assert!(line["result"].is_array(), "{line}");
        ids.push(line["id"].as_u64().expect("a number"));
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..600));
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_has_the_executors_and_the_pending_calls() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let mut program = QuestionedProgram {
        endpoint: format!("tcp:{}", daemon.address),
        pending: vec![
            json!({"requestId": "one", "sessionId": "t", "tool": "skills.list",
            "arguments": {}}),
        ],
        submitted: Vec::new(),
    };

    let sources = json!({"executors": {"key": "e", "from": {"find": ["local", "b"]}}});
    let start = json!({"method": "start", "session_id": "s", "sources": sources});
    let started = program.request(&mut process, start).await;
    let warnings = started["result"]["warnings"].to_string();
    // The text of an exception does not reach a model.
    let is_fixed = warnings.contains("see its log") && !warnings.contains("no such machine");
    assert!(is_fixed, "{started}");
    let wrong = json!({"method": "dispatcher", "session": "s", "thread": "t",
        "max_unsent": 0, "turn_timeout": "x"});
    let wrong = program.request(&mut process, wrong).await;
    let mistakes = wrong["error"]["mistakes"].as_array();
    assert_eq!(mistakes.map(Vec::len), Some(2), "{wrong}");

    let made = json!({"method": "dispatcher", "session": "s", "thread": "t"});
    let made = program.request(&mut process, made).await;
    assert_eq!(made["result"], json!({"dispatcher": 1}));
    let drain = json!({"method": "drain", "dispatcher": 1});
    let drained = program.request(&mut process, drain.clone()).await;
    assert_eq!(drained["result"]["accepted"], 1, "{drained}");
    let [submitted] = program.submitted.as_slice() else {
        panic!("{:?}", program.submitted)
    };
    let result = submitted["result"].as_str().expect("a text");
    assert!(result.contains("skill://local%40local/pdf"), "{result}");

    let close = json!({"method": "close", "session": "s"});
    program.request(&mut process, close).await;
    let ended = program.request(&mut process, drain).await;
    assert_eq!(ended["error"]["code"], "BAD_REQUEST", "{ended}");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_files_are_read_by_name_and_path() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log").await;
    let text = "käse\t\u{1}".repeat(20_000);
    fixture.write("r/pdf/references/long text.md", &text);
    fixture.write(
        "r/deep/pdf/SKILL.md",
        "---\nname: pdf\ndescription: Another.\n---\n",
    );
    fixture.write("r/log/data.bin", "\0");
    let mut process = CallProcess::start(client_command(&daemon, "call"));

    let list = process.request(json!({"method": "list"})).await["result"].clone();
    let skills = list.as_array().expect("skills");
    assert_eq!(skills.len(), 3, "{list}");
    let authority = &skills[0]["authority"];
    for request in [
        json!({"skill": "skill://local/pdf", "path": "./references/long%20text.md#top"}),
        json!({"skill": "skill://local/pdf", "path": "references/long%20text.md", "authority": authority}),
    ] {
        let mut request = request;
        request["method"] = json!("read");
        let answer = process.request(request).await;
        assert!(answer["result"]["text"] == text, "another text");
    }
    let main = process
        .request(json!({"method": "read", "skill": "log"}))
        .await;
    assert!(
        main["result"]["text"]
            .as_str()
            .expect("text")
            .starts_with("---"),
        "{main}"
    );

    for (skill, path, code) in [
        ("none", "", "PACKAGE_NOT_FOUND"),
        ("pdf", "", "AMBIGUOUS_NAME"),
        ("log", "none.md", "RESOURCE_NOT_FOUND"),
        ("log", "../pdf/SKILL.md", "RESOURCE_NOT_FOUND"),
        ("skill://local/pdf", "references/", "RESOURCE_NOT_FOUND"),
    ] {
        let request = json!({"method": "read", "skill": skill, "path": path});
        let error = process.request(request).await["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        // A program calls no tools, and the code is not in the message, too.
        let text = |key: &str| error[key].as_str().expect("text").to_owned();
        assert!(!text("next").contains("skills_"), "{error}");
        assert!(!text("message").contains("NOT_FOUND"), "{error}");
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
