//! `caproot prompt`: the text and the tools of a session, as `caproot call` answers them, and the reason
//! for each skill that the text does not show whole.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::fleet::TestFleet;
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_command};
use crate::orchestrator::call_command::CallProcess;
use crate::orchestrator::start_daemon;

const TREE: &str = "repeat 12 skill r/s{}\nskill r/quiet\n\
    file r/quiet/agents/openai.yaml\n| policy: {allow_implicit_invocation: false}";
const TOOLS: &str = r#"[{"namespace": "words", "name": "count", "description": "Counts words.",
    "inputSchema": {"type": "object"}, "outputDescription": "The number of words."}]"#;

fn with_words(command: &mut Command, words: &str, top: &Path) {
    let top = top.to_str().expect("UTF-8");
    command.args(
        words
            .split_whitespace()
            .map(|word| word.replace("TOP", top)),
    );
}

/// Returns the prompt as JSON.
async fn prompt_json(words: &str, top: &Path) -> Value {
    let mut command = caproot(["prompt", "--output", "json"]);
    with_words(&mut command, words, top);
    run_command(command).await.succeeded().json()
}

/// Returns the names of the skills at a place of the text.
fn names_at<'a>(prompt: &'a Value, place: &str) -> Vec<&'a str> {
    let skills = prompt["skills"].as_array().expect("skills").iter();
    let placed = skills.filter(|skill| skill["place"] == place);
    placed
        .map(|skill| skill["name"].as_str().expect("a name"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_and_the_tools_are_those_of_a_session() {
    let fixture = Fixture::new(TREE);
    fixture.write("tools.json", TOOLS);
    let long = format!("---\ndescription: {}\n---\n", "Word ".repeat(60));
    fixture.write("r/s03/SKILL.md", &long);
    let deep = format!("r/{}/{}/deep", "x".repeat(250), "y".repeat(250));
    fixture.write(
        &format!("{deep}/SKILL.md"),
        "---\nname: deep\ndescription: Is deep.\n---\n",
    );
    // With another skill of its name, the text needs the long handle.
    fixture.write(
        "r/also/SKILL.md",
        "---\nname: deep\ndescription: Also.\n---\n",
    );
    let daemon = start_daemon("r", fixture.path("r"), None).await;

    let endpoint = format!("--endpoint tcp:{}", daemon.address);
    for flags in ["", "--tools TOP/tools.json --exclude name:s02"] {
        let flags = format!("{endpoint} {flags}");
        let mut command = caproot(["call"]);
        with_words(&mut command, &flags, fixture.top());
        let mut call = CallProcess::start(command);
        let tools = call.request(json!({"method": "tools"})).await["result"].clone();

        for budget in [40_000, 8_000, 1_420, 1_050, 100, 0] {
            let request = json!({"method": "instructions", "budget": budget});
            let expected = call.request(request).await["result"].clone();
            let words = format!("{flags} --budget {budget}");
            let prompt = prompt_json(&words, fixture.top()).await;
            for key in [
                "text",
                "listed",
                "shortened",
                "omitted",
                "hidden",
                "warnings",
            ] {
                assert_eq!(prompt[key], expected[key], "{key} of {words}");
            }
            assert_eq!(prompt["tools"], tools);
            let text = expected["text"].as_str().expect("a text");
            assert_eq!(prompt["textBytes"], text.len());
            assert_eq!(prompt["budgetBytes"], budget);
            assert_eq!(prompt["toolsBytes"], tools.to_string().len());
            for place in ["shortened", "omitted", "hidden"] {
                let named = names_at(&prompt, place).len();
                assert_eq!(expected[place], named, "{place} of {words}");
            }

            // The output for people has the same text, an empty line and the tools.
            let mut command = caproot(["prompt"]);
            with_words(&mut command, &words, fixture.top());
            let output = run_command(command).await.succeeded();
            let separator = if text.is_empty() { "" } else { "\n" };
            let rest = output.text().strip_prefix(&format!("{text}{separator}"));
            let rest = rest.unwrap_or_else(|| panic!("{words}: {}", output.text()));
            assert_eq!(serde_json::from_str::<Value>(rest).expect("JSON"), tools);
            let sizes = format!("text: {} of {budget} bytes; ", text.len());
            assert!(output.stderr.starts_with(&sizes), "{}", output.stderr);
        }
        assert_eq!(call.end().await, Some(0));
    }

    // Each skill that is not shown whole has a reason.
    let prompt = prompt_json(&format!("{endpoint} --budget 1420"), fixture.top()).await;
    assert_eq!(names_at(&prompt, "hidden"), ["quiet"]);
    assert_eq!(names_at(&prompt, "omitted"), ["deep"]);
    assert_eq!(names_at(&prompt, "shortened"), ["s03"]);
    let mut command = caproot(["prompt", "--budget", "1420"]);
    with_words(&mut command, &endpoint, fixture.top());
    let report = run_command(command).await.succeeded().stderr;
    for part in [
        "hidden: quiet (skill://r/quiet): only a person may call it, by name",
        "bytes, and not all skills fit into the budget of 1420 bytes\n",
        "of 299 bytes of the description, as the whole descriptions exceed the budget of 1420 bytes\n",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prompt_of_a_fleet_names_the_executors_that_are_missing() {
    let fleet = TestFleet::start().await;
    let output = fleet.run("prompt --fleet FLEET --output json").await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let prompt = output.json();
    assert_eq!(names_at(&prompt, "listed"), ["a", "b", "c"]);
    assert_eq!(prompt["skills"][2]["authority"]["id"], "two@two");
    let warnings = prompt["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 2, "{prompt}");
    for (warning, id) in warnings.iter().zip(["dead", "wrong"]) {
        let warning = warning.as_str().expect("a sentence");
        assert!(warning.starts_with(&format!("the roots of {id} are omitted: ")));
    }

    // One executor is complete.
    let one = fleet.run("prompt --fleet FLEET --environment-id one").await;
    let text = one.succeeded().text().to_owned();
    assert!(text.contains("- b: Does b.\n"), "{text}");
    for (words, code) in [
        ("prompt --fleet FLEET --root x", 2),
        ("prompt --fleet /nonexistent", 78),
        ("prompt --endpoint tcp:127.0.0.1:1", 3),
        ("prompt --budget -1", 2),
    ] {
        let output = fleet.run(words).await;
        assert_eq!((output.code, output.text()), (Some(code), ""), "{words}");
    }
    fleet.stop().await;
}
