use super::{
    reportable_value, withhold_in_arguments, withhold_in_command, withhold_in_text, withhold_in_url,
};
use proptest::prelude::*;

#[test]
fn values_that_may_be_shown() {
    for (name, text, shown) in [
        ("API_KEY", "${API_KEY}", true),
        ("Authorization", "Bearer ${TOKEN}", true),
        ("Authorization", "Bearer $TOKEN", true),
        ("X", "${A}-${B}", true),
        ("X", "${A:-./x}", true),
        ("X", "", true),
        ("FLAG", "true", true),
        ("PORT", "8080", true),
        ("NODE_ENV", "production", true),
        ("Accept", "application/json, text/event-stream", true),
        ("X", "${A:-hunter2}", false),
        ("API_KEY", "sk-live", false),
        ("PIN", "1234", false),
        ("FOO", "bar", false),
        ("Authorization", "Bearer abc", false),
        ("NODE_ENV", "3f2504e04f8911d39a0c0305e82c3301", false),
        ("X", "${ghp_16C7e42F292c6912E7710c838347Ae178B4a}", false),
    ] {
        assert_eq!(reportable_value(name, text).is_some(), shown, "{name}={text}");
    }
}

#[test]
fn arguments_keep_what_is_no_secret() {
    for (args, expected) in [
        (vec!["-y", "@modelcontextprotocol/server-filesystem@2024.12.1"], None),
        (vec!["tsx", "${CLAUDE_PLUGIN_ROOT}/src/index.ts"], None),
        (vec!["--port=8080", "--host", "localhost"], None),
        (vec!["--token", "${TOKEN}"], None),
        (vec!["--token=${TOKEN}"], None),
        (vec!["--key", "./certs/server.key"], None),
        (vec!["https://example.com/mcp?v=2"], None),
        (vec!["--header", "Authorization: Bearer ${TOKEN}"], None),
        (vec!["--token", "abc"], Some(vec!["--token", "<withheld>"])),
        (vec!["--token", "correct horse"], Some(vec!["--token", "<withheld>"])),
        (vec!["--token=abc"], Some(vec!["--token=<withheld>"])),
        (vec!["--api-key=abc", "x"], Some(vec!["--api-key=<withheld>", "x"])),
        (vec!["-e", "SECRET=x"], Some(vec!["-e", "SECRET=<withheld>"])),
        (vec!["-e", "NAME=x"], Some(vec!["-e", "NAME=<withheld>"])),
        (
            vec!["-H", "Authorization: Bearer abc"],
            Some(vec!["-H", "Authorization: Bearer <withheld>"]),
        ),
        (vec!["-H", "X-Api-Key:abc"], Some(vec!["-H", "X-Api-Key:<withheld>"])),
        (vec!["-u", "me:word"], Some(vec!["-u", "<withheld>"])),
        (vec!["sk-abcdefghijklmnop"], Some(vec!["<withheld>"])),
        (vec!["16C7e42F292c6912E7710c838347Ae178B4a"], Some(vec!["<withheld>"])),
        (vec!["--x", "{\"apiKey\": \"abc\"}"], Some(vec!["--x", "{\"apiKey\": <withheld>"])),
        (vec!["postgres://me:word@db/x"], Some(vec!["postgres://<withheld>@db/x"])),
        (vec!["--db=postgres://me:word@db/x"], Some(vec!["--db=postgres://<withheld>@db/x"])),
        (vec!["me:word@db"], Some(vec!["<withheld>"])),
    ] {
        let (shown, withheld) = withhold_in_arguments(args.iter().copied());
        let shown: Vec<&str> = shown.iter().map(|a| &**a).collect();
        assert_eq!(withheld, expected.is_some(), "{args:?} {shown:?}");
        assert_eq!(shown, expected.unwrap_or(args));
    }
}

#[test]
fn commands_as_declared() {
    for plain in [
        "\"${CLAUDE_PLUGIN_ROOT}/hooks/run-hook.cmd\" session-start",
        "npx protect-mcp@0.7.4 sign --tool \"$TOOL_NAME\" --key \"${KEY:-./protect-mcp.key}\"",
        "if [ -f \"${FLAG:-./.approved}\" ]; then exit 0; fi",
        "mkdir -p out && python -u run.py",
    ] {
        assert_eq!(withhold_in_command(plain), (plain.to_owned(), false));
    }
    for (text, shown) in [
        ("TOKEN=abc run", "TOKEN=<withheld> run"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: Bearer <withheld>' x"),
        ("x --password \"two words\"", "x --password <withheld>"),
        ("bash -c \"x --token abc\"", "bash -c \"x --token <withheld>\""),
    ] {
        assert_eq!(withhold_in_command(text), (shown.to_owned(), true));
    }
}

#[test]
fn a_name_behind_a_flag_for_users() {
    for text in ["-u --token: hunter behind", "--user X-Auth-Token: hunter behind"] {
        let (shown, withheld) = withhold_in_command(text);
        assert!(withheld && !shown.contains("hunter"), "{shown:?}");
        assert!(shown.ends_with(" behind"), "{shown:?}");
    }
}

#[test]
fn addresses() {
    for (text, shown) in [
        ("https://mcp.example.com/v1/mcp", None),
        ("https://${HOST}/mcp?key=${KEY}", None),
        ("https://example.com/mcp?beta=true", None),
        ("https://me:word@example.com/", Some("https://<withheld>@example.com/")),
        ("https://example.com/?api_key=abc", Some("https://example.com/?api_key=<withheld>")),
        ("https://example.com/?x=abc&y=1", Some("https://example.com/?x=<withheld>&y=1")),
        ("https://example.com/s/3f2504e04f89/sse", Some("https://example.com/s/<withheld>/sse")),
        ("https://example.com/#abc", Some("https://example.com/#<withheld>")),
    ] {
        let (found, withheld) = withhold_in_url(text);
        assert_eq!((&*found, withheld), (shown.unwrap_or(text), shown.is_some()));
    }
}

#[test]
fn free_text() {
    let text = "Use  the sk-learn API\nat https://example.com/?q=x";
    assert_eq!(withhold_in_text(text), text);
    assert_eq!(
        withhold_in_text("my key is ghp_16C7e42F292c6912E7710c838347Ae178B4a ok"),
        "my key is <withheld> ok"
    );
    assert_eq!(withhold_in_text("xghp_16C7e42F292c6912E7710c838347Ae178B4a"), "<withheld>");
    assert_eq!(
        withhold_in_text("task-2024-01-01-and-more-of-it"),
        "task-2024-01-01-and-more-of-it"
    );
    assert_eq!(withhold_in_text("see https://a:b@c/"), "see https://<withheld>@c/");
}

proptest! {
    #[test]
    fn a_secret_never_comes_through(
        before in "[a-z -]{0,8}",
        name in "(--token|--api-key|PASSWORD|X-Auth-Token|client_secret)",
        separator in "(=| |: |:)",
        quote in "(|\"|')",
    ) {
        let secret = "hunter";
        let text = format!("{before} {name}{separator}{quote}{secret}{quote} behind");
        let (shown, withheld) = withhold_in_command(&text);
        // A word behind white space is a flag's value only where there is a flag.
        if separator != " " || name.starts_with('-') {
            prop_assert!(withheld && !shown.contains(secret), "{text:?} {shown:?}");
        }
        let _ = (withhold_in_arguments([&*text, "x"]), withhold_in_url(&text), withhold_in_text(&text));
    }

    #[test]
    fn never_panics(any: String, dense in "[-=:@/?&#$\\{\\}\"' a1éK]{0,60}") {
        for text in [any, dense] {
            let _ = (withhold_in_command(&text), withhold_in_arguments([&*text]), withhold_in_url(&text), withhold_in_text(&text), reportable_value(&text, &text));
            let _ = super::may_hold_secret(&text);
        }
    }
}
