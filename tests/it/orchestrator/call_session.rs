//! `caproot call` as a whole session of a program: own tools, a manager, forks and saved sessions.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::example_dispatch::service::{Fault, Service};
use super::serve_tree;
use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, client_command, run_command};

/// Tools of the program: `words.count`, and `slow` with a short time limit.
const TOOLS: &str = r#"[
    {"namespace": "words", "name": "count", "description": "Counts words.",
     "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
     "outputDescription": "The number of words.", "timeLimit": "1h"},
    {"name": "slow", "description": "Is slow.", "inputSchema": {"type": "object"},
     "timeLimit": "50ms", "externalContext": true}
]"#;

fn call_command(daemon: &Daemon, fixture: &Fixture, words: &str) -> Command {
    fixture.write("tools.json", TOOLS);
    let mut command = client_command(daemon, &format!("call {words}"));
    command.arg("--tools").arg(fixture.path("tools.json"));
    command
}

fn send_request(process: &mut CallProcess, id: impl Into<Value>, mut request: Value) {
    request["id"] = id.into();
    process.send(&request);
}

fn count_call() -> Value {
    json!({"method": "call", "tool": "words.count", "arguments": {"text": "two words"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_the_program_are_called_by_lines() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(call_command(&daemon, &fixture, ""));
    let tools = process.request(json!({"method": "tools"})).await;
    assert_eq!(tools["result"][3]["name"], "words_count");
    assert_eq!(tools["result"][4]["name"], "slow");

    for (answer, success, part) in [
        (json!({"result": {"words": 2}}), true, r#"{"words":2}"#),
        (json!({"result": null}), true, r#"{"result":null}"#),
        (json!({"error": "no dictionary"}), false, "no dictionary"),
        (json!({"bug": "a secret"}), false, "TOOL_INTERNAL_ERROR"),
    ] {
        send_request(&mut process, "call", count_call());
        let event = process.next().await;
        let expected = json!({"event": "tool", "call": event["call"], "session": event["session"],
            "request": "call", "tool": "words_count", "arguments": {"text": "two words"}});
        assert_eq!(event, expected);
        let mut request = answer;
        request["method"] = json!("tool_result");
        request["call"] = event["call"].clone();
        send_request(&mut process, "answer", request);
        let lines = [process.next().await, process.next().await];
        let of = |id: &str| {
            lines
                .iter()
                .find(|line| line["id"] == id)
                .expect("a response")
        };
        assert_eq!(of("answer")["result"], json!({"accepted": true}));
        assert_eq!(
            (&of("call")["success"], &of("call")["externalContext"]),
            (&json!(success), &json!(false))
        );
        let result = of("call")["result"].to_string();
        assert!(
            result.contains(part) && !result.contains("secret"),
            "{result}"
        );
    }

    // The arguments are checked before the program is asked.
    let wrong = json!({"method": "call", "tool": "words.count", "arguments": {}});
    let wrong = process.request(wrong).await;
    assert_eq!(wrong["result"]["error"]["code"], "INVALID_ARGUMENTS");

    // A call without an answer ends with its time limit, and an answer after that is not accepted.
    send_request(
        &mut process,
        "slow",
        json!({"method": "call", "tool": "slow", "arguments": {}}),
    );
    let call = process.next().await["call"].clone();
    let (first, second) = (process.next().await, process.next().await);
    let (cancelled, late) = if first.get("event").is_some() {
        (first, second)
    } else {
        (second, first)
    };
    assert_eq!(cancelled, json!({"event": "toolCancelled", "call": call}));
    assert_eq!(
        (&late["id"], &late["result"]["error"]["code"]),
        (&json!("slow"), &json!("TOOL_TIMED_OUT"))
    );
    assert_eq!(late["externalContext"], true);
    let answer = json!({"method": "tool_result", "call": call, "result": 1});
    assert_eq!(
        process.request(answer).await["result"],
        json!({"accepted": false})
    );
    for bad in [
        json!({"call": call}),
        json!({"call": call, "result": 1, "bug": "x"}),
        json!({"result": 1}),
    ] {
        let mut bad = bad;
        bad["method"] = json!("tool_result");
        assert_eq!(process.request(bad).await["error"]["code"], "BAD_REQUEST");
    }

    // The end of stdin ends the calls that nothing can answer any more.
    send_request(&mut process, "last", count_call());
    assert_eq!(process.next().await["event"], "tool");
    process.close_stdin();
    let last = process.next().await;
    assert_eq!(last["result"]["error"]["code"], "TOOL_INTERNAL_ERROR");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_own_tools_never_block_their_answers() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(call_command(&daemon, &fixture, ""));
    for n in 0..400 {
        send_request(&mut process, n, count_call());
    }
    let mut outcomes = BTreeMap::<String, usize>::new();
    while outcomes.values().sum::<usize>() < 400 {
        let line = process.next().await;
        if line["event"] == "tool" {
            let answer =
                json!({"method": "tool_result", "call": line["call"], "result": {"words": 2}});
            send_request(&mut process, "answer", answer);
        } else if line["id"].is_number() {
            let code = line["error"]["code"].as_str();
            let outcome = code.map_or_else(|| line["result"].to_string(), str::to_owned);
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    // Requests over 256 are rejected while the first 256 wait for the program.
    let counted = outcomes.remove(r#"{"words":2}"#).expect("results");
    assert!(counted >= 256, "{counted} results and {outcomes:?}");
    assert_eq!(
        outcomes.remove("OVERLOADED").unwrap_or_default() + counted,
        400,
        "{outcomes:?}"
    );
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tools_and_managers_are_errors() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let tool = json!({"name": "a", "description": "Does it.", "inputSchema": {"type": "object"}});
    let with = |key: &str, value: Value| {
        let mut tool = tool.clone();
        tool[key] = value;
        json!([tool]).to_string()
    };
    for (text, part) in [
        ("{}".to_owned(), "invalid type: map"),
        ("[{}]".to_owned(), "missing field `name`"),
        (with("more", json!(1)), "unknown field `more`"),
        (
            with("timeLimit", json!("soon")),
            "invalid timeLimit \"soon\" of \"a\"",
        ),
        (
            with("name", json!("a.b")),
            "invalid name or namespace of a tool \"a.b\"",
        ),
        (
            with("inputSchema", json!({"type": "string"})),
            "the schema of the input",
        ),
        (
            json!([tool, tool]).to_string(),
            "there is a tool \"a\" already",
        ),
    ] {
        fixture.write("bad.json", &text);
        let mut command = client_command(&daemon, "call --tools");
        command.arg(fixture.path("bad.json"));
        let output = run_command(command).await;
        assert_eq!(
            (output.code, output.stdout.len()),
            (Some(78), 0),
            "{text}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(part), "{text}: {}", output.stderr);
    }
    for (words, code, part) in [
        ("call --manager http://127.0.0.1:1", 2, "--manager-session"),
        (
            "call --manager ftp://h --manager-session s",
            78,
            "invalid base URL",
        ),
        (
            "call --tools /nonexistent",
            78,
            "cannot use --tools /nonexistent",
        ),
    ] {
        run_command(client_command(&daemon, words))
            .await
            .exited_with(code, part);
    }
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    for method in ["drain", "listen", "send"] {
        let error = process
            .request(json!({"method": method, "text": "x"}))
            .await;
        assert_eq!(error["error"]["code"], "BAD_REQUEST", "{error}");
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

/// Returns the packages of a session's skills.
async fn package_handles(process: &mut CallProcess, session: &Value) -> Vec<String> {
    let request =
        json!({"method": "call", "tool": "skills.list", "arguments": {}, "session": session});
    let list = process.request(request).await;
    let skills = list["result"]["skills"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    skills
        .iter()
        .map(|skill| skill["package"].as_str().expect("text").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_forked_saved_and_restored() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log").await;
    let words = format!("--root one={0} --root two={0}", fixture.path("r").display());
    let mut process = CallProcess::start(call_command(&daemon, &fixture, &words));
    let fork = process
        .request(json!({"method": "fork", "roots": ["two"]}))
        .await;
    let fork = fork["result"]["session"].clone();
    assert_eq!(
        package_handles(&mut process, &fork).await,
        ["skill://two/log", "skill://two/pdf"]
    );
    let narrow = json!({"method": "fork", "session": fork, "exclude": ["name:log"]});
    let narrow = process.request(narrow).await["result"]["session"].clone();
    assert_eq!(
        package_handles(&mut process, &narrow).await,
        ["skill://two/pdf"]
    );
    let error = process
        .request(json!({"method": "fork", "include": ["log"]}))
        .await;
    assert_eq!(error["error"]["code"], "BAD_CONFIG", "{error}");
    let error = process
        .request(json!({"method": "fork", "roots": ["three"]}))
        .await;
    assert_eq!(error["error"]["code"], "BAD_CONFIG");
    assert!(
        error["error"]["message"]
            .as_str()
            .expect("text")
            .contains("three")
    );

    // A fork is saved and closed; a skill changes; the fork is restored with the same id.
    let saved = process
        .request(json!({"method": "save", "session": fork}))
        .await["result"]
        .clone();
    let closed = process
        .request(json!({"method": "close", "session": fork}))
        .await;
    assert_eq!(closed["result"], json!({"session": fork}));
    let unknown = process
        .request(json!({"method": "tools", "session": fork}))
        .await;
    assert_eq!(unknown["error"]["code"], "BAD_REQUEST", "{unknown}");
    fixture.write("r/new/SKILL.md", "---\ndescription: New.\n---\n");
    let restored = process
        .request(json!({"method": "restore", "saved": saved}))
        .await;
    assert_eq!(restored["result"]["session"], fork, "{restored}");
    assert_eq!(restored["result"]["changes"][0]["environmentId"], "local");
    let changes = process
        .request(json!({"method": "changes", "session": fork}))
        .await;
    // The stream may have reported the new skill since then, in `changedAgain`.
    assert_eq!(
        changes["result"][0]["changes"],
        restored["result"]["changes"][0]["changes"]
    );
    let error = process
        .request(json!({"method": "restore", "saved": saved}))
        .await;
    assert!(
        error["error"]["message"]
            .as_str()
            .expect("text")
            .contains("close it first"),
        "{error}"
    );
    let error = process
        .request(json!({"method": "restore", "saved": {"more": 1}}))
        .await;
    assert_eq!(error["error"]["code"], "BAD_CONFIG", "{error}");
    // The restored session has the tools of the program.
    let tools = process
        .request(json!({"method": "tools", "session": fork}))
        .await;
    assert_eq!(tools["result"].as_array().map(Vec::len), Some(5));
    process.request(json!({"method": "close"})).await;
    let list = process
        .request(json!({"method": "call", "tool": "skills.list", "arguments": {}}))
        .await;
    assert_eq!(list["result"]["error"]["code"], "SESSION_CLOSED");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_directories_are_a_source() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill notes/a\ndir empty").await;
    let directory = |id: &str, name: &str| format!("{id}={}", fixture.path(name).display());
    let mut command = client_command(&daemon, "call --events --exclude name:pdf");
    command.arg("--local").arg(directory("mine", "notes"));
    command.arg("--local").arg(directory("more", "empty"));
    let mut process = CallProcess::start(&mut command);
    let list = json!({"method": "call", "tool": "skills.list", "arguments": {}});
    let listed = process.request(list.clone()).await;
    let skills = listed["result"]["skills"].as_array().expect("a list");
    let [skill] = &skills[..] else {
        panic!("one skill: {listed}")
    };
    assert_eq!(skill["package"], "skill://mine/a");
    assert_eq!(skill["authority"], json!({"kind": "local", "id": "mine"}));

    // A change of a directory is an event, and forks and restored sessions have the source.
    fixture.write("empty/b/SKILL.md", "---\ndescription: New.\n---\n");
    let source = json!({"kind": "local", "id": "local"});
    while process.next().await["source"] != source {}
    let fork = process.request(json!({"method": "fork"})).await["result"]["session"].clone();
    let mut list = list;
    list["session"] = fork.clone();
    let saved = process
        .request(json!({"method": "save", "session": fork}))
        .await["result"]
        .clone();
    for _ in 0..2 {
        let listed = process.request(list.clone()).await;
        assert_eq!(
            listed["result"]["skills"][1]["package"], "skill://more/b",
            "{listed}"
        );
        process
            .request(json!({"method": "close", "session": fork}))
            .await;
        let restored = process
            .request(json!({"method": "restore", "saved": saved}))
            .await;
        assert_eq!(restored["result"]["session"], fork, "{restored}");
    }
    assert_eq!(process.end().await, Some(0));

    for (value, code, part) in [
        ("./notes".to_owned(), 2, "write --local ID=DIR"),
        (
            directory("a", "notes/a/SKILL.md"),
            78,
            "cannot use the local directories: invalid value ",
        ),
    ] {
        let mut command = client_command(&daemon, "call --local");
        command.arg(&value);
        run_command(command).await.exited_with(code, part);
    }
    daemon.stop().await;
}

/// Without a daemon, a session has the skills of this machine, unless a flag names an executor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_local_directories_needs_no_executor() {
    let fixture = Fixture::new("skill notes/a\ndir tmp");
    let local = format!("mine={}", fixture.path("notes").display());
    let command = |words: &str| {
        let mut command = caproot(words.split_whitespace());
        command
            .args(["--local", &local])
            .env("TMPDIR", fixture.path("tmp"));
        command
    };
    let mut process = Process::spawn(command("call"));
    process
        .wait_for_log("the session has no executor: no daemon answers at any of")
        .await;
    process.send_line(br#"{"id":1,"method":"call","tool":"skills.list","arguments":{}}"#);
    let line = process.line().await;
    assert!(line.contains("\"skill://mine/a\""), "{line}");
    process.exit().await.succeeded();

    let home = Fixture::new("skill .claude/skills/of-claude\ndir tmp");
    let mut of_claude = caproot(["call", "--preset", "claude"]);
    of_claude
        .env("HOME", home.top())
        .env("TMPDIR", home.path("tmp"));
    let mut process = Process::spawn(of_claude);
    process.send_line(br#"{"id":1,"method":"call","tool":"skills.list","arguments":{}}"#);
    let line = process.line().await;
    assert!(line.contains("\"skill://claude/of-claude\""), "{line}");
    process.exit().await.succeeded();

    for words in ["call --endpoint unix:/none", "call --root /none"] {
        run_command(command(words))
            .await
            .exited_with(3, "no daemon answers at");
    }
    let mut command = caproot(["call"]);
    command.env("TMPDIR", fixture.path("tmp"));
    run_command(command)
        .await
        .exited_with(3, "no daemon answers at any of the default sockets");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_calls_of_a_manager_are_answered() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let service = Service::start().await;
    let words = format!("--manager {} --manager-session mine", service.base_url());
    let mut process = CallProcess::start(call_command(&daemon, &fixture, &words));
    service.call("1", "mine", "skills.list", &json!({}));
    service.fail("1", [Fault::Lost]);
    send_request(&mut process, "drain", json!({"method": "drain"}));
    let dispatched = process.next().await;
    assert_eq!(
        (&dispatched["event"], &dispatched["outcome"]),
        (&json!("dispatched"), &json!("alreadyAnswered"))
    );
    let drained = process.next().await;
    assert_eq!(
        (&drained["id"], &drained["result"]["alreadyAnswered"]),
        (&json!("drain"), &json!(1))
    );
    assert_eq!(service.result("1")["skills"][0]["name"], "pdf");

    // A prompt with a skill; the model of the thread calls a tool of the program.
    service.call("2", "mine", "words.count", &json!({"text": "two words"}));
    let prompt = json!({"method": "send", "text": "use $pdf", "arguments": "two pages",
        "until": ["completed"]});
    send_request(&mut process, "send", prompt);
    loop {
        let line = process.next().await;
        if line["event"] == "tool" {
            let answer =
                json!({"method": "tool_result", "call": line["call"], "result": {"words": 2}});
            send_request(&mut process, "answer", answer);
        } else if line["id"] == "send" {
            assert_eq!(line["result"]["status"], "completed", "{line}");
            assert_eq!(line["result"]["injected"]["fragments"][0]["name"], "pdf");
            break;
        }
    }
    assert_eq!(service.result("2"), json!({"words": 2}));
    let input = &service.turns()[0]["input"];
    assert!(input[0].to_string().contains("ARGUMENTS: two pages"));
    assert_eq!(input[1], json!({"type": "text", "text": "use $pdf"}));

    // This session polls, so it cannot listen; another process listens until its stdin ends.
    let error = process.request(json!({"method": "listen"})).await;
    assert_eq!(error["error"]["code"], "FAILED", "{error}");
    assert_eq!(process.end().await, Some(0));
    let words = words.replace("mine", "theirs");
    let mut process = CallProcess::start(call_command(&daemon, &fixture, &words));
    send_request(&mut process, "listen", json!({"method": "listen"}));
    service.call("3", "theirs", "skills.list", &json!({}));
    while process.next().await["requestId"] != "3" {}
    process.close_stdin();
    let listened = process.next().await;
    assert_eq!(
        listened,
        json!({"id": "listen", "result": {"lastEventId": "3"}})
    );
    assert_eq!(process.end().await, Some(0));
    assert_eq!(service.pending(), [""; 0]);
    assert_eq!(service.repeated(), ["2"; 0]);
    daemon.stop().await;
}
