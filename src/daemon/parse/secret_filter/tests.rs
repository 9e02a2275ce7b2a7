use super::{
    redact_in_arguments, redact_in_declaration, redact_in_line, redact_in_text, redact_in_value,
};
use crate::daemon::parse::json;
use proptest::prelude::*;

const MARKER: &str = "<redacted>";

#[test]
fn harmless_forms_are_shown_whole() {
    for line in [
        // Variables, `$(…)` and paths in shell lines.
        "INPUT=$(cat); FILE=$(echo \"$INPUT\" | jq -r .tool_input.file_path); prettier --write \"$FILE\"",
        "D=\"$HOME/.polish\"; mkdir -p \"$D\" && node \"${CLAUDE_PLUGIN_ROOT}/hook.mjs\"",
        "PYTHONPATH=\"${CLAUDE_PLUGIN_ROOT}/lib\" python3 \"${CLAUDE_PLUGIN_ROOT}/hook.py\"",
        "API_KEY=$KEY; TOKEN=\"${TOKEN:-./token.txt}\" node server.js",
        "TOKEN=$(gh auth token) run --token \"$(cat ./token)\" --now",
        "PASSWORD=`pass show mail` run it",
        "npx protect-mcp@0.7.4 sign --tool \"$TOOL_NAME\" --key \"${KEY:-./protect-mcp.key}\"",
        "if [ -f \"${FLAG:-./.approved}\" ]; then exit 0; fi",
        "${A##*/} ${#B} ${C%.ts} $1 $? $@ 2>&1 >/dev/null",
        // Flags, numbers, words, hosts and addresses.
        "node --max-old-space-size=4096 -p 8080 server2024.js 3600000ms 1920x1080",
        "npx -y @modelcontextprotocol/server-filesystem@2024.12.1 ./data",
        "npm run build:prod && sha256sum x86_64 wkhtmltopdf claude-3-5-sonnet-20241022",
        "git clone git@github.com:example/repo.git https://github.com/gh0st02/49810745762067-ed25519",
        "--host localhost:8080 --api https://api.example.com:8443/v1/mcp#readme",
        "curl -sL \"https://${HOST}/mcp?key=${KEY}&v=2&beta=true\"",
        "curl -u \"${NAME}:${PASSWORD}\" -H \"Authorization: Bearer $TOKEN\" https://example.com/",
        "python -u run.py --token --verbose --key ~/.ssh/id --auth /run/auth.sock",
        "echo '{\"decision\": \"block\", \"reason\": \"Use tabs, не пробелы ✅\"}'",
        "jq -e '.tool_input | select(.a[0] == \"x\")' && sed -E 's/(a|b)+/c/g'",
    ] {
        assert_eq!(redact_in_line(line), line);
    }
    for (name, value) in [
        ("API_KEY", "${API_KEY}"),
        ("Authorization", "Bearer ${TOKEN}"),
        ("Authorization", "Basic {{LOGIN}}"),
        ("X-Token", "${A}-${B}"),
        ("KEY_FILE", "./certs/server.key"),
        ("TOKEN_URL", "https://login.example.com/oauth/token"),
        ("AUTH_HOST", "login.example.com:443"),
        ("SECRET", ""),
        ("DB_PATH", "${CLAUDE_PLUGIN_ROOT}/data"),
        ("PYTHONIOENCODING", "utf-8"),
        ("Accept", "application/json, text/event-stream"),
        ("PORT", "8080"),
        ("FOO", "plain words"),
    ] {
        assert_eq!(redact_in_value(name, value), value, "{name}");
    }
}

#[test]
fn words_after_the_name_of_a_secret_are_withheld() {
    for (line, shown) in [
        ("TOKEN=abc run", "TOKEN=<redacted> run"),
        ("PIN=1234;run", "PIN=<redacted>;run"),
        (
            "x --password \"two words\" y",
            "x --password \"<redacted> <redacted>\" y",
        ),
        (
            "bash -c \"x --token abc y\"",
            "bash -c \"x --token <redacted> y\"",
        ),
        (
            "curl -H 'X-Api-Key: a b' x",
            "curl -H 'X-Api-Key: <redacted> <redacted>' x",
        ),
        (
            "curl -H 'Authorization: Bearer abc' x",
            "curl -H 'Authorization: Bearer <redacted>' x",
        ),
        (
            "--x '{\"apiKey\": \"abc\"}'",
            "--x '{\"apiKey\": \"<redacted>\"}'",
        ),
        (
            "--x {\\\"pwd\\\":\\\"a\\\"}",
            "--x {\\\"pwd\\\":\\\"<redacted>\\\"}",
        ),
        ("a[\"secret\"] = \"b\"", "a[\"secret\"] = \"<redacted>\""),
        ("private_key 'b';", "private_key '<redacted>';"),
        ("curl -u me:word -v", "curl -u <redacted> -v"),
        (
            "curl --user 'me:w(r)d'",
            "curl --user '<redacted>(<redacted>)<redacted>'",
        ),
        ("curl -ume:word", "curl -ume:<redacted>"),
        ("sign \"${KEY:-abc}\"", "sign \"<redacted>\""),
        ("me:word@db", "me:<redacted>"),
        ("password: ab{{c}d e", "password: <redacted> e"),
        ("-u --token: hunter2", "-u <redacted> <redacted>"),
        ("--key --password hunter2", "--key --password <redacted>"),
    ] {
        assert_eq!(redact_in_line(line), shown);
    }
    for (name, value) in [
        ("API_KEY", "abc"),
        ("MAX_TOKENS", "4096"),
        ("X-Auth", "Bearer abc"),
        ("DATABASE_URL", "postgres://me:word@db/x"),
        ("HOOK", "https://example.com/x?sig=abc"),
        ("HOOK", "https://example.com/x?abc"),
        (
            "X",
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        ),
    ] {
        assert_ne!(redact_in_value(name, value), value, "{name}={value}");
    }

    for (arguments, shown) in [
        (
            vec!["--token", "a b", "c"],
            vec!["--token", "<redacted> <redacted>", "c"],
        ),
        (
            vec!["--header", "X-Secret: a b"],
            vec!["--header", "X-Secret: <redacted> <redacted>"],
        ),
        (
            vec!["-e", "SECRET=a", "b"],
            vec!["-e", "SECRET=<redacted>", "b"],
        ),
        (vec!["-u", "me:word", "b"], vec!["-u", MARKER, "b"]),
        (vec!["-u", "run.py"], vec!["-u", "run.py"]),
        (vec!["--token=", "b"], vec!["--token=", MARKER]),
    ] {
        let found = redact_in_arguments(arguments, false);
        assert_eq!(found.iter().map(|text| &**text).collect::<Vec<_>>(), shown);
    }
}

#[test]
fn secrets_in_addresses_are_withheld() {
    for (address, shown) in [
        (
            "https://me:word@example.com/",
            "https://<redacted>@example.com/",
        ),
        (
            "https://${USER}@example.com/",
            "https://${USER}@example.com/",
        ),
        (
            "postgres://me:word@db/x?y=z",
            "postgres://<redacted>@db/x?y=<redacted>",
        ),
        (
            "https://a.example/?api_key=1&b=1",
            "https://a.example/?api_key=<redacted>&b=1",
        ),
        (
            "https://a.example/s/3f2504e04f89/sse",
            "https://a.example/s/<redacted>sse",
        ),
        (
            "https://a.example/?abc#d",
            "https://a.example/?<redacted>#d",
        ),
    ] {
        assert_eq!(redact_in_line(address), shown);
    }
}

/// Secrets in the forms in which services issue them, and the words around them.
#[test]
fn secrets_with_the_shape_of_a_token_are_withheld() {
    for secret in [
        "AKIAQ3EGZX7TLMKJ2W5B",
        "AKIAVVVVVVVVVVVVVVVV",
        "ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX",
        "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ",
        "glpat-heLlowOrld412_example",
        "glrt-2AB8_cDefgh-1IjkLmNo",
        "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
        "xoxs-1234567890-1234567891-1234567892-123a456789",
        "sk-AbCdEfGhIjKlMnOpQrStT3BlbkFJUvWxYzAbCdEfGhIjKlMn",
        "sk_live_AbCdEfGhIjKlMnOpQrStUvWx",
        "SG.AbCdEfGhIjKlMnOp.QrStUvWxYz0123456789AbCdEfGh",
        "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.AbCdEfGhIjKlMnOpQrStUvWxYz012345678",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "0123456789abcdef0123456789abcdef-us12",
        "wXyzAbCdEfGHI/K7LMNOP/aBcDeFgHiJKLMNOPQRST",
        "123456789:AAHaBcDeFgHiJkLmNoPqRsTuVwXyZ01234",
        "A3-ABCDEF-123GHI-JKLM4-56NO7-89PQR-S01TU",
        "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ",
        "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMA",
        "npm_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKCxxxxxxxxxx",
        "sha256~AbCdEfGhIjKlMnOpQrStUvWxYz01234_56789abcdef",
        "cafebabe:deadbeef",
        "JBSWY3DPEHPK3PXP",
        "1234567890123456",
    ] {
        for text in [
            secret.to_owned(),
            format!("FOO={secret}"),
            format!("run \"{secret}\" now"),
            format!("{{\"id\": \"{secret}\"}}"),
            format!("https://example.com/{}/x", secret.replace('/', "-")),
        ] {
            let shown = redact_in_line(&text);
            let longest = secret.split([':', '/']).max_by_key(|part| part.len());
            let longest = longest.expect("a part");
            assert!(
                shown.contains(MARKER) && !shown.contains(longest),
                "{shown}"
            );
        }
        assert_ne!(redact_in_value("FOO", secret), secret);
    }
}

#[test]
fn tokens_in_free_text_are_withheld() {
    let text =
        "Use  the sk-learn API (v2, 2024-01-01)\nat https://example.com/?q=x: the token is new";
    assert_eq!(redact_in_text(text), text);
    let secret = "my key is ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX ok";
    assert_eq!(redact_in_text(secret), "my key is <redacted> ok");
    assert_eq!(redact_in_text("see https://a:b@c/ ok"), "see <redacted> ok");
}

#[test]
fn withheld_values_of_a_declaration_are_named() {
    for (declared, redacted) in [
        (
            r#"{"a": {"b": true, "c": null, "d": [1, "x"]}, "e": 0.5}"#,
            vec![],
        ),
        (
            r#"{"userConfig": {"api_token": {"title": "A token", "sensitive": true}}}"#,
            vec![],
        ),
        (
            r#"{"oauth": {"clientId": "my-client", "callbackPort": 8080}}"#,
            vec![],
        ),
        (
            r#"{"description": "The token: hello", "prompt": "password = x"}"#,
            vec![],
        ),
        (
            r#"{"oauth": {"clientSecret": "abc"}}"#,
            vec!["oauth.clientSecret"],
        ),
        (
            r#"{"userConfig": {"pin": {"title": "A", "default": 1234}}}"#,
            vec!["userConfig.pin.title", "userConfig.pin.default"],
        ),
        (
            r#"{"settings": {"apiKey": {"now": ["abc", 7]}}}"#,
            vec!["settings.apiKey.now"],
        ),
        (
            r#"{"env": {"A": "1", "PASSWORD": "abc"}, "args": ["--key", "b"]}"#,
            vec!["env.PASSWORD", "args"],
        ),
        (r#"{"account": 1234567890123456}"#, vec!["account"]),
        (r#"{"0123456789abcdef0123456789abcdef": 1}"#, vec![MARKER]),
    ] {
        let value = json::parse(declared.as_bytes()).expect("JSON");
        let found = redact_in_declaration(value.as_map().expect("an object"));
        assert_eq!(found.redacted, redacted, "{declared}");
    }
}

proptest! {
    #[test]
    fn secrets_after_any_separator_are_withheld(
        before in "([a-z -]{0,8}|-u|--user|--key|--password)",
        name in "(--token|--api-key|PASSWORD|X-Auth-Token|client_secret)",
        separator in "(=| = |: |:| := )",
        quote in "(|\"|'|\\\\\")",
    ) {
        let text = format!("{before} {name}{separator}{quote}hunter{quote} behind");
        let shown = redact_in_line(&text);
        prop_assert!(!shown.contains("hunter") && shown.ends_with(" behind"), "{text:?} {shown:?}");
    }

    #[test]
    fn never_panics(any: String, dense in "[-=:@/?&#$\\{\\}\"'()`\\\\ a1éK]{0,60}") {
        for text in [any, dense] {
            let _ = (redact_in_line(&text), redact_in_arguments([&*text, &*text], false));
            let _ = (redact_in_text(&text), redact_in_value(&text, &text));
        }
    }
}
