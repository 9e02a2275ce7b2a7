//! Custom tools of a session: definitions and instructions for a model, and the outcome of calls.

#[allow(dead_code)]
#[path = "../../../examples/tools.rs"]
mod example;
mod outcomes;
mod registry;

use std::convert::Infallible;

use caproot_client::Fleet;
use caproot_session::{
    CustomTool, MAX_RESULT_BYTES, Session, SessionOptions, ToolNames, ToolRegistry, ToolResult,
};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{executor, published, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;

/// Looks the weather of a place up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Place {
    /// Its name.
    name: String,
    #[serde(default)]
    days: Vec<u8>,
}

/// The weather there.
#[derive(Debug, Serialize, JsonSchema)]
struct Weather {
    degrees: i32,
    named: String,
}

async fn weather(place: Place) -> Result<Weather, String> {
    match place.name.as_str() {
        "nowhere" => Err("there is\nno such place".to_owned()),
        name => Ok(Weather {
            degrees: i32::from(place.days.iter().sum::<u8>()),
            named: name.into(),
        }),
    }
}

/// Returns a tool that takes and returns any JSON.
fn json_tool<F, R>(name: &str, function: F) -> CustomTool
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, String>> + Send + 'static,
{
    CustomTool::new(name, function)
        .description("Does it.")
        .input_schema(json!({"type": "object"}))
}

/// Returns a tool that returns its arguments.
fn echo(name: &str) -> CustomTool {
    json_tool(name, |value| async { Ok(value) })
}

fn registry_of(tools: impl IntoIterator<Item = CustomTool>) -> ToolRegistry {
    let registry = ToolRegistry::new();
    for tool in tools {
        registry.register(tool).expect("a good tool");
    }
    registry
}

/// Starts a session without skills.
async fn start_session_with_tools(tools: &ToolRegistry) -> Session {
    let options = SessionOptions {
        tools: tools.clone(),
        ..SessionOptions::default()
    };
    Session::start(&Fleet::from_executors([]), Vec::new(), &options)
        .await
        .expect("a session")
}

async fn start_session_with(tools: impl IntoIterator<Item = CustomTool>) -> Session {
    start_session_with_tools(&registry_of(tools)).await
}

/// Parses a result, which must be an object within the size limit.
fn parse_object(result: &ToolResult) -> Value {
    assert!(
        result.json.len() <= MAX_RESULT_BYTES,
        "{} bytes",
        result.json.len()
    );
    let value: Value = serde_json::from_str(&result.json).expect("JSON");
    assert!(value.is_object(), "{value}");
    value
}

async fn tool_value(session: &Session, tool: &str, arguments: Value) -> Value {
    let result = session.call(tool, &arguments).await;
    assert!(
        result.success && !result.external_context,
        "{tool} {arguments}: {}",
        result.json
    );
    parse_object(&result)
}

/// Makes a call that must fail. Returns the error code and message.
async fn tool_error(session: &Session, tool: &str, arguments: Value) -> (String, String) {
    let result = session.call(tool, &arguments).await;
    assert!(!result.success, "{tool} {arguments}: {}", result.json);
    let error = parse_object(&result)["error"].clone();
    let text = |key: &str| {
        error[key]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    assert!(text("next").is_some(), "a model can act on it: {error}");
    (
        text("code").expect("a code"),
        text("message").expect("a message"),
    )
}

#[tokio::test]
async fn a_typed_function_has_a_schema_and_runs() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let tools = registry_of([
        CustomTool::new("look", weather).in_namespace("weather"),
        echo("echo"),
    ]);
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let options = SessionOptions {
        tools,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, vec![published("r")], &options)
        .await
        .expect("a session");

    let payloads = session.flat_tools();
    assert_eq!(
        json!([payloads[0], payloads[1], payloads[2]]),
        session.skill_tools()
    );
    let days = json!({
        "type": "array", "items": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255},
        "default": []
    });
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Its name."}, "days": days},
        "required": ["name"],
        "additionalProperties": false
    });
    let expected_tool = json!({
        "namespace": "weather", "name": "look",
        "description": "Looks the weather of a place up.", "inputSchema": schema
    });
    assert_eq!(payloads[3], expected_tool);
    assert_eq!(payloads[4]["name"], "echo");
    assert_eq!(
        (payloads[4].get("namespace"), payloads[5].clone()),
        (None, Value::Null)
    );

    // The result description is in the instructions, after the skills, and nowhere else.
    let instructions = session.instruction_text(8_000);
    let results = "\n\n## Results of tools\nThese tools return a JSON object on success:\n\
                   - weather.look: The weather there. JSON Schema: {\"properties\":{\"degrees\":";
    assert!(
        instructions.text.contains("- a: Does a.\n"),
        "{}",
        instructions.text
    );
    assert!(instructions.text.contains(results), "{}", instructions.text);
    assert_eq!(
        (instructions.listed, instructions.text.contains("echo")),
        (1, false)
    );
    for budget in 0..instructions.text.len() {
        let cut = session.instruction_text(budget);
        assert!(cut.text.len() <= budget);
        assert!(
            cut.text.contains(results.trim()) || !cut.warnings.is_empty(),
            "{budget}: {cut:?}"
        );
    }

    let result = tool_value(
        &session,
        "weather.look",
        json!({"name": "here", "days": [1, 2]}),
    )
    .await;
    assert_eq!(result, json!({"degrees": 3, "named": "here"}));
    let failed = tool_error(&session, "weather.look", json!({"name": "nowhere"})).await;
    let message = "the tool \"weather.look\" failed: there is no such place";
    assert_eq!(failed, ("TOOL_FAILED".to_owned(), message.to_owned()));
    assert!(session.call("skills.list", &json!({})).await.success);
    for unknown in ["look", "weather.", "weather.none", "skills.look"] {
        assert_eq!(
            tool_error(&session, unknown, json!({})).await.0,
            "UNKNOWN_TOOL"
        );
    }
    daemon.stop().await;
}

/// With flat names, no name, text or error contains a dot.
#[tokio::test]
async fn flat_names_are_in_every_text() {
    let tree = "file r/a/SKILL.md\n| ---\n| name: a\n| description: Does a.\n| ---\n| ";
    let fixture = Fixture::new(&format!("{tree}{}", "x".repeat(20_000)));
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let tools = registry_of([
        CustomTool::new("look", weather).in_namespace("weather"),
        echo("echo"),
    ]);
    let options = SessionOptions {
        tools,
        tool_names: ToolNames::Flat,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, vec![published("r")], &options)
        .await
        .expect("a session");

    let payloads = session.flat_tools();
    let names = payloads
        .as_array()
        .expect("an array")
        .iter()
        .map(|tool| tool["name"].as_str());
    let names: Vec<_> = names.map(|name| name.expect("a name")).collect();
    assert_eq!(
        names,
        [
            "skills_list",
            "skills_read",
            "skills_search",
            "weather_look",
            "echo"
        ]
    );
    let mut texts = vec![payloads.to_string()];
    assert!(!texts[0].contains("namespace"), "{}", texts[0]);
    texts.extend([0, 40, 8_000].map(|budget| session.instruction_text(budget).text));
    assert!(
        texts[3].contains("`skills_read`") && texts[3].contains("- weather_look: "),
        "{texts:?}"
    );

    let list = session.call("skills_list", &json!({})).await;
    assert!(list.success, "{}", list.json);
    let result = tool_value(&session, "weather_look", json!({"name": "here"})).await;
    assert_eq!(result["named"], "here");
    let at = |package: &str, resource: &str, cursor: Value| {
        json!({"authority": {"kind": "executor", "id": "r"}, "package": package,
            "resource": resource, "cursor": cursor})
    };
    let a = "skill://r/a";
    let other = json!({"authority": {"kind": "executor", "id": "s"}, "package": a, "resource": ""});
    for (code, tool, arguments) in [
        ("UNKNOWN_TOOL", "skills.none", json!({})),
        ("INVALID_CURSOR", "skills_list", json!({"cursor": "x"})),
        ("INVALID_ARGUMENTS", "skills_read", json!({})),
        ("INVALID_CURSOR", "skills_read", at(a, "", json!("x"))),
        (
            "PACKAGE_NOT_FOUND",
            "skills_read",
            at("skill://r/none", "", Value::Null),
        ),
        (
            "WRONG_AUTHORITY",
            "skills_read",
            at("skill://s/a", "", Value::Null),
        ),
        ("UNKNOWN_AUTHORITY", "skills_read", other),
    ] {
        let result = session.call(tool, &arguments).await;
        assert_eq!(
            parse_object(&result)["error"]["code"],
            code,
            "{}",
            result.json
        );
        texts.push(
            result
                .json
                .replace("\\\"skills.none\\\"", "the name that was called"),
        );
    }
    texts.push(
        in_time(session.inject(&"$a".into())).await.fragments[0]
            .text
            .clone(),
    );
    for text in texts {
        assert!(
            !text.contains("skills.") && !text.contains("weather.look"),
            "{text}"
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn colliding_flat_names_are_rejected() {
    for (tools, why) in [
        (
            vec![echo("b_c").in_namespace("a"), echo("c").in_namespace("a_b")],
            "\"a_b_c\"",
        ),
        (
            vec![echo("x").in_namespace(&"y".repeat(63))],
            "is not valid",
        ),
    ] {
        let tools = registry_of(tools);
        let options = SessionOptions {
            tools: tools.clone(),
            tool_names: ToolNames::Flat,
            ..SessionOptions::default()
        };
        let refused = Session::start(&Fleet::from_executors([]), Vec::new(), &options).await;
        let refused = refused.expect_err("no session").to_string();
        assert!(refused.contains(why) && !tools.is_sealed(), "{refused}");
        start_session_with_tools(&tools).await;
    }
}

#[tokio::test]
async fn explicit_schemas_replace_those_of_the_types() {
    let input = json!({"type": "object", "properties": {"name": {"enum": ["x", "y"]}}});
    let output = json!({"type": "object", "description": "Mine."});
    let look = |name| {
        let tool = CustomTool::new(name, weather).input_schema(input.clone());
        tool.output_schema(output.clone()).description("Given.")
    };
    let session = start_session_with([
        look("look"),
        look("trusted")
            .output_description("A\nword.")
            .external_context(true),
    ])
    .await;
    let payloads = session.flat_tools();
    let instructions = json!({"name": "trusted", "description": "Given.", "inputSchema": input});
    assert_eq!(payloads[4], instructions);
    let text = session.instruction_text(8_000).text;
    let lines =
        format!("- look: JSON Schema: {output}\n- trusted: A word. JSON Schema: {output}\n");
    assert!(text.ends_with(&lines), "{text}");
    // Arguments that match the schema and not the type are an argument error too.
    let (code, message) = tool_error(&session, "look", json!({"name": "x", "days": ["7"]})).await;
    assert!(
        code == "INVALID_ARGUMENTS" && message.contains("at days[0]: "),
        "{message}"
    );
    let (code, message) = tool_error(&session, "look", json!({"name": "z"})).await;
    assert!(
        code == "INVALID_ARGUMENTS" && message.contains("at /name: "),
        "{message}"
    );
    assert_eq!(
        tool_value(&session, "look", json!({"name": "x"})).await["named"],
        "x"
    );
    for arguments in [json!({"name": "x"}), json!({"name": 1})] {
        assert!(session.call("trusted", &arguments).await.external_context);
    }
    // The doc comment of a type is not used with an explicit schema.
    let bare = CustomTool::new("look", weather).input_schema(json!({"type": "object"}));
    let error = ToolRegistry::new()
        .register(bare)
        .expect_err("no description")
        .to_string();
    assert!(
        error.contains("the description of the tool \"look\""),
        "{error}"
    );
}

#[tokio::test]
async fn results_that_are_not_objects_are_wrapped() {
    let text = |Place { name, .. }: Place| async move { Ok::<_, Infallible>(name) };
    let list = json_tool("list", |value| async move { Ok(json!([value])) });
    let session = start_session_with([CustomTool::new("text", text), list]).await;
    let result = tool_value(&session, "text", json!({"name": "\u{1}"})).await;
    assert_eq!(result, json!({"result": "\u{1}"}));
    assert_eq!(
        tool_value(&session, "list", json!({})).await,
        json!({"result": [{}]})
    );
    let instructions = session.instruction_text(8_000).text;
    let line = "- text: JSON Schema of its field `result`: {\"type\":\"string\"}\n";
    assert!(
        instructions.ends_with(line) && !instructions.contains("- list"),
        "{instructions}"
    );
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_their_place() {
    let session = start_session_with([CustomTool::new("look", weather)]).await;
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for (arguments, places) in [
        (Value::Null, &["at the top"][..]),
        (json!("text"), &["at the top"]),
        (json!({}), &["name"]),
        (json!({"name": 1}), &["/name", "string"]),
        (json!({"name": "x", "days": [1, 2, 300]}), &["/days/2"]),
        (
            json!({"name": "x", "days": [1, "a"], "more": 1}),
            &["/days/1", "more"],
        ),
        (
            json!({"name": null, "days": [-1, -2, -3, -4, -5]}),
            &["and more"],
        ),
        (json!({"name": "x", "days": deep}), &["64 levels"]),
        (json!({"name": "x".repeat(2 << 20)}), &["1048576 bytes"]),
        (json!({"name": ["x".repeat(100_000)]}), &["/name"]),
    ] {
        let (code, message) = tool_error(&session, "look", arguments).await;
        assert_eq!(code, "INVALID_ARGUMENTS");
        for place in places {
            assert!(message.contains(place), "{place}: {message}");
        }
        assert!(message.len() < 1_100, "{message}");
    }
}

#[tokio::test]
async fn the_example_runs() {
    let lines = in_time(example::run()).await.expect("the example succeeds");
    let output = lines.join("\n");
    for part in [
        "tool \"words\" \"count\": \"Counts the words of a text.\"",
        "- words.count: How many words there are, and the longest of them. JSON Schema: {",
        "{\"words\":3,\"longest\":\"words\"}",
        "at /shortest: ",
        "TOOL_FAILED",
        "TOOL_TIMED_OUT",
        "skill://demo/triage-logs",
        "clear: the tools are sealed",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(?s).{0,40}".prop_map(Value::from),
        (0_usize..9_000).prop_map(|bytes| Value::from("\u{1}".repeat(bytes))),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        let key = prop_oneof![
            Just("name".to_owned()),
            Just("days".to_owned()),
            "[a-z]{0,3}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Any arguments give a result within the size limit. The function runs if and only if its type
    /// accepts the arguments.
    #[test]
    fn any_arguments_give_a_bounded_result(arguments in prop_oneof![
        any_json(),
        (any_json(), any_json()).prop_map(|(name, days)| json!({"name": name, "days": days})),
        ("(?s).{0,40}", prop::collection::vec(0_u16..400, 0..4))
            .prop_map(|(name, days)| json!({"name": name, "days": days})),
    ]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let named = |place: Place| async move { Ok::<_, String>(json!({"named": place.name})) };
            let session = start_session_with([CustomTool::new("look", named).description("Looks.")]).await;
            let result = session.call("look", &arguments).await;
            let value = parse_object(&result);
            // serde would accept an array of the fields, but only objects are allowed.
            let place = Some(arguments).filter(Value::is_object).map(serde_json::from_value::<Place>);
            match place {
                Some(Ok(place)) if result.success => assert_eq!(value["named"], place.name),
                Some(Ok(_)) => assert_eq!(value["error"]["code"], "TOO_LARGE"),
                None | Some(Err(_)) => assert_eq!(value["error"]["code"], "INVALID_ARGUMENTS"),
            }
        });
    }
}
