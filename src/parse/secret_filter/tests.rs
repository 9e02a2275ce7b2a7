use super::{
    redact_in_arguments, redact_in_command, redact_in_text, redact_in_url, reportable_value,
};
use proptest::prelude::*;

#[test]
fn harmless_values_are_reported() {
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
        assert_eq!(
            reportable_value(name, text).is_some(),
            shown,
            "{name}={text}"
        );
    }
}

#[test]
fn arguments_are_redacted_only_if_secret() {
    for (args, expected) in [
        (
            vec!["-y", "@modelcontextprotocol/server-filesystem@2024.12.1"],
            None,
        ),
        (vec!["tsx", "${CLAUDE_PLUGIN_ROOT}/src/index.ts"], None),
        (vec!["--port=8080", "--host", "localhost"], None),
        (vec!["--token", "${TOKEN}"], None),
        (vec!["--token=${TOKEN}"], None),
        (vec!["--key", "./certs/server.key"], None),
        (vec!["https://example.com/mcp?v=2"], None),
        (vec!["--header", "Authorization: Bearer ${TOKEN}"], None),
        (vec!["--token", "abc"], Some(vec!["--token", "<redacted>"])),
        (
            vec!["--token", "correct horse"],
            Some(vec!["--token", "<redacted>"]),
        ),
        (vec!["--token=abc"], Some(vec!["--token=<redacted>"])),
        (
            vec!["--api-key=abc", "x"],
            Some(vec!["--api-key=<redacted>", "x"]),
        ),
        (
            vec!["-e", "SECRET=x"],
            Some(vec!["-e", "SECRET=<redacted>"]),
        ),
        (vec!["-e", "NAME=x"], Some(vec!["-e", "NAME=<redacted>"])),
        (
            vec!["-H", "Authorization: Bearer abc"],
            Some(vec!["-H", "Authorization: Bearer <redacted>"]),
        ),
        (
            vec!["-H", "X-Api-Key:abc"],
            Some(vec!["-H", "X-Api-Key:<redacted>"]),
        ),
        (vec!["-u", "me:word"], Some(vec!["-u", "<redacted>"])),
        (vec!["sk-abcdefghijklmnop"], Some(vec!["<redacted>"])),
        (
            vec!["16C7e42F292c6912E7710c838347Ae178B4a"],
            Some(vec!["<redacted>"]),
        ),
        (
            vec!["--x", "{\"apiKey\": \"abc\"}"],
            Some(vec!["--x", "{\"apiKey\": <redacted>"]),
        ),
        (
            vec!["postgres://me:word@db/x"],
            Some(vec!["postgres://<redacted>@db/x"]),
        ),
        (
            vec!["--db=postgres://me:word@db/x"],
            Some(vec!["--db=postgres://<redacted>@db/x"]),
        ),
        (vec!["me:word@db"], Some(vec!["<redacted>"])),
    ] {
        let (shown, redacted) = redact_in_arguments(args.iter().copied());
        let shown: Vec<&str> = shown.iter().map(|a| &**a).collect();
        assert_eq!(redacted, expected.is_some(), "{args:?} {shown:?}");
        assert_eq!(shown, expected.unwrap_or(args));
    }
}

#[test]
fn commands_are_redacted_only_if_secret() {
    for plain in [
        "\"${CLAUDE_PLUGIN_ROOT}/hooks/run-hook.cmd\" session-start",
        "npx protect-mcp@0.7.4 sign --tool \"$TOOL_NAME\" --key \"${KEY:-./protect-mcp.key}\"",
        "if [ -f \"${FLAG:-./.approved}\" ]; then exit 0; fi",
        "mkdir -p out && python -u run.py",
    ] {
        assert_eq!(redact_in_command(plain), (plain.to_owned(), false));
    }
    for (text, shown) in [
        ("TOKEN=abc run", "TOKEN=<redacted> run"),
        (
            "curl -H 'Authorization: Bearer abc' x",
            "curl -H 'Authorization: Bearer <redacted>' x",
        ),
        ("x --password \"two words\"", "x --password <redacted>"),
        (
            "bash -c \"x --token abc\"",
            "bash -c \"x --token <redacted>\"",
        ),
        (
            "-pw PASSWORD: hunter behind",
            "-pw <redacted> <redacted> behind",
        ),
    ] {
        assert_eq!(redact_in_command(text), (shown.to_owned(), true));
    }
}

#[test]
fn a_header_name_after_a_user_flag_redacts_the_next_word() {
    for text in [
        "-u --token: hunter behind",
        "--user X-Auth-Token: hunter behind",
    ] {
        let (shown, redacted) = redact_in_command(text);
        assert!(redacted && !shown.contains("hunter"), "{shown:?}");
        assert!(shown.ends_with(" behind"), "{shown:?}");
    }
}

#[test]
fn secrets_in_urls_are_redacted() {
    for (text, shown) in [
        ("https://mcp.example.com/v1/mcp", None),
        ("https://${HOST}/mcp?key=${KEY}", None),
        ("https://example.com/mcp?beta=true", None),
        (
            "https://me:word@example.com/",
            Some("https://<redacted>@example.com/"),
        ),
        (
            "https://example.com/?api_key=abc",
            Some("https://example.com/?api_key=<redacted>"),
        ),
        (
            "https://example.com/?x=abc&y=1",
            Some("https://example.com/?x=<redacted>&y=1"),
        ),
        (
            "https://example.com/s/3f2504e04f89/sse",
            Some("https://example.com/s/<redacted>/sse"),
        ),
        (
            "https://example.com/#abc",
            Some("https://example.com/#<redacted>"),
        ),
    ] {
        let (found, redacted) = redact_in_url(text);
        assert_eq!(
            (&*found, redacted),
            (shown.unwrap_or(text), shown.is_some())
        );
    }
}

#[test]
fn tokens_in_free_text_are_redacted() {
    let text = "Use  the sk-learn API\nat https://example.com/?q=x";
    assert_eq!(redact_in_text(text), text);
    assert_eq!(
        redact_in_text("my key is ghp_16C7e42F292c6912E7710c838347Ae178B4a ok"),
        "my key is <redacted> ok"
    );
    assert_eq!(
        redact_in_text("xghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        "<redacted>"
    );
    assert_eq!(
        redact_in_text("task-2024-01-01-and-more-of-it"),
        "task-2024-01-01-and-more-of-it"
    );
    assert_eq!(
        redact_in_text("see https://a:b@c/"),
        "see https://<redacted>@c/"
    );
}

proptest! {
    #[test]
    fn secrets_after_any_separator_are_redacted(
        before in "[a-z -]{0,8}",
        name in "(--token|--api-key|PASSWORD|X-Auth-Token|client_secret)",
        separator in "(=| |: |:)",
        quote in "(|\"|')",
    ) {
        let secret = "hunter";
        let text = format!("{before} {name}{separator}{quote}{secret}{quote} behind");
        let (shown, redacted) = redact_in_command(&text);
        // A word after white space is a value only if a flag precedes it.
        if separator != " " || name.starts_with('-') {
            prop_assert!(redacted && !shown.contains(secret), "{text:?} {shown:?}");
        }
        let _ = (redact_in_arguments([&*text, "x"]), redact_in_url(&text), redact_in_text(&text));
    }

    #[test]
    fn never_panics(any: String, dense in "[-=:@/?&#$\\{\\}\"' a1éK]{0,60}") {
        for text in [any, dense] {
            let _ = (redact_in_command(&text), redact_in_arguments([&*text]), redact_in_url(&text), redact_in_text(&text), reportable_value(&text, &text));
            let _ = super::may_hold_secret(&text);
        }
    }
}
