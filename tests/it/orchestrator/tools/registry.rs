//! Registry of custom tools: validation and sealing.

use std::time::Duration;

use caproot_client::Fleet;
use caproot_session::{
    CustomTool, Session, SessionOptions, ToolRegistry, ToolRegistryError, tool_limits as limits,
};
use serde_json::{Value, json};

use super::super::published;
use super::{echo, registry_of, start_session_with_tools, tool_error, tool_value};

#[tokio::test]
async fn a_registry_is_sealed_once_a_session_starts() {
    let tools = registry_of([echo("a"), echo("b"), echo("c").in_namespace("b")]);
    assert_eq!(
        tools.unregister("none"),
        Err(ToolRegistryError::NoSuchTool("none".to_owned()))
    );
    assert_eq!(tools.unregister("b"), Ok(()));
    assert_eq!(tools.names(), ["a", "b.c"]);
    // A session that fails to start does not seal the registry.
    let options = SessionOptions {
        tools: tools.clone(),
        ..SessionOptions::default()
    };
    let failed_start =
        Session::start(&Fleet::from_executors([]), vec![published("")], &options).await;
    assert!(failed_start.is_err() && !tools.is_sealed());

    let session = start_session_with_tools(&tools).await;
    let elsewhere = tools.clone();
    assert!(elsewhere.is_sealed() && elsewhere == tools);
    for refused in [
        elsewhere.register(echo("d")),
        elsewhere.unregister("a"),
        elsewhere.clear(),
    ] {
        assert_eq!(refused, Err(ToolRegistryError::Sealed));
    }
    let sentence = ToolRegistryError::Sealed.to_string();
    assert!(
        sentence.contains("before the start"),
        "the error says what to do: {sentence}"
    );
    assert_eq!(tool_value(&session, "b.c", json!({})).await, json!({}));
    // Another session may use the same registry or a changed copy.
    assert_eq!(
        start_session_with_tools(&tools).await.dynamic_tools(),
        session.dynamic_tools()
    );
    let copy = tools.copy();
    assert!(copy != tools && !copy.is_sealed());
    copy.unregister("a").expect("open");
    let narrower = start_session_with_tools(&copy).await;
    assert_eq!(
        tool_error(&narrower, "a", json!({})).await.0,
        "UNKNOWN_TOOL"
    );
    tool_value(&session, "a", json!({})).await;
    copy.copy().clear().expect("open");
    assert_eq!(copy.names(), ["b.c"]);
}

#[tokio::test]
async fn invalid_tools_are_rejected() {
    let long = "x".repeat(65);
    for name in ["", "a.b", "a b", "ä", "a/b", "a\n", &long] {
        let named = ToolRegistryError::InvalidName(name.to_owned());
        assert_eq!(ToolRegistry::new().register(echo(name)), Err(named.clone()));
        assert_eq!(
            ToolRegistry::new().register(echo("a").in_namespace(name)),
            Err(named)
        );
    }
    let tools = registry_of([
        echo(&long[1..]).in_namespace(&long[1..]),
        echo("A-z_9"),
        echo("skills"),
    ]);
    for (tool, name) in [
        (echo("list").in_namespace("skills"), "skills.list"),
        (echo("list").in_namespace("Skills"), "Skills.list"),
        (echo("skills_other"), "skills_other"),
    ] {
        let refused = tools.register(tool);
        assert_eq!(refused, Err(ToolRegistryError::Reserved(name.to_owned())));
    }
    assert_eq!(
        tools.register(echo("skills")),
        Err(ToolRegistryError::Duplicate("skills".to_owned()))
    );
    for n in tools.names().len()..limits::MAX_TOOLS {
        tools
            .register(echo(&format!("t{n}")).in_namespace("many"))
            .expect("room");
    }
    assert_eq!(
        tools.register(echo("more")),
        Err(ToolRegistryError::TooMany("more".to_owned()))
    );

    let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
    let large = json!({"type": "object", "title": "x".repeat(20_000)});
    let of = |schema: &Value| echo("t").input_schema(schema.clone());
    for (tool, part, why) in [
        (
            of(&json!({"type": "string"})),
            "the schema of the input",
            "\"type\": \"object\"",
        ),
        (
            of(&json!({"type": "nonsense"})),
            "the schema of the input",
            "/type",
        ),
        (
            of(&json!({"type": "object", "$ref": "https://x.example/s"})),
            "the schema of the input",
            "",
        ),
        (
            of(&json!({"type": "object", "properties": {"p": {"pattern": "("}}})),
            "input",
            "",
        ),
        (of(&json!("object")), "the schema of the input", ""),
        (of(&deep), "the schema of the input", "64 levels"),
        (of(&large), "the schema of the input", "16384 bytes"),
        (
            CustomTool::new("t", |n: u8| async move { Ok::<_, String>(n) }),
            "the schema of the input",
            "struct",
        ),
        (
            echo("t").output_schema(json!({"type": 7})),
            "the schema of the output",
            "/type",
        ),
        (
            echo("t").output_schema(large.clone()),
            "the schema of the output",
            "16384 bytes",
        ),
        (
            echo("t").description(" "),
            "the description",
            "it is missing",
        ),
        (
            echo("t").description(&"x".repeat(5_000)),
            "the description",
            "4096 bytes",
        ),
        (
            echo("t").output_description(&"x".repeat(5_000)),
            "description of the output",
            "4096",
        ),
        (
            echo("t").time_limit(Duration::ZERO),
            "the time limit",
            "more than zero",
        ),
        (
            echo("t").time_limit(Duration::MAX),
            "the time limit",
            "at most a day",
        ),
    ] {
        let error = ToolRegistry::new()
            .register(tool)
            .expect_err(part)
            .to_string();
        assert!(
            error.contains(part) && error.contains("tool \"t\""),
            "{error}"
        );
        assert!(error.contains(why) && error.len() < 700, "{error}");
    }
}
