//! `caproot fleet check`: errors of the file and of the credentials that it names.

use serde_json::json;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, run_blocking};

fn check(fixture: &Fixture, more: &[&str]) -> Output {
    let mut command = caproot(["fleet", "check", "fleet.yaml"]);
    run_blocking(command.args(more).current_dir(fixture.top()))
}

#[test]
fn a_valid_file_is_ok() {
    let fixture = Fixture::new("file token\n| secret");
    let text = "executors:\n  a: {endpoint: 'unix:/a.sock'}\n  \
                b: {endpoint: 'tcp:127.0.0.1:1', token_file: token}\n";
    fixture.write("fleet.yaml", text);
    assert_eq!(
        check(&fixture, &[]).succeeded().text(),
        "ok: fleet.yaml: 2 executors\n"
    );
    let expected =
        json!({"file": "fleet.yaml", "ok": true, "warnings": [], "summary": {"executors": 2}});
    assert_eq!(
        check(&fixture, &["--output", "json"]).succeeded().json(),
        expected
    );

    let cleartext = format!(
        "{text}  c: {{endpoint: 'tcp:build.example:1'}}\npattern: {{endpoint: 'tcp:{{id}}.example:1'}}\n"
    );
    fixture.write("fleet.yaml", cleartext);
    let output = check(&fixture, &[]).succeeded();
    let warning = "warning: executors.c.endpoint: tcp:build.example:1 is not encrypted: ";
    assert!(output.text().starts_with(warning), "{}", output.text());
    let warning = "\nwarning: pattern.endpoint: tcp:a0.example:1 is not encrypted: ";
    assert!(output.text().contains(warning), "{}", output.text());
    assert!(
        output.text().ends_with("\nok: fleet.yaml: 3 executors\n"),
        "{}",
        output.text()
    );
}

#[test]
fn all_errors_of_the_file_are_printed() {
    let fixture = Fixture::new("");
    fixture.write(
        "fleet.yaml",
        "executors:\n  a: {endpont: x}\n  b: {endpoint: udp:1}\n",
    );
    let output = check(&fixture, &[]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(78), ""));
    let lines: Vec<_> = output.text().lines().collect();
    let expected = [
        "fleet.yaml:2:7: executors.a.endpont: unknown key; did you mean `endpoint`?",
        "fleet.yaml:2:6: executors.a.endpoint: required key is missing",
        "fleet.yaml:3:17: executors.b.endpoint: invalid value \"udp:1\": the scheme is missing",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for expected in expected {
        assert!(
            lines.iter().any(|line| line.starts_with(expected)),
            "{expected}: {lines:#?}"
        );
    }
    let output = check(&fixture, &["--output", "json"]);
    assert_eq!(output.code, Some(78));
    let answer = output.json();
    assert_eq!(
        (&answer["ok"], &answer["errors"][2]["line"]),
        (&json!(false), &json!(3))
    );
    assert_eq!(answer["errors"][2]["key"], "executors.b.endpoint");

    std::fs::remove_file(fixture.path("fleet.yaml")).expect("removed");
    let output = check(&fixture, &[]);
    assert_eq!(output.code, Some(78));
    assert!(
        output.text().starts_with("fleet.yaml: does not exist"),
        "{}",
        output.text()
    );
}

#[test]
fn credentials_that_cannot_be_used_are_errors() {
    let fixture = Fixture::new("file broken.pem\n| no certificate");
    let text = "executors:\n  a: {endpoint: 'tls:a.example:1', ca: none.pem}\n  \
                b: {endpoint: 'tls:b.example:1', ca: broken.pem}\n  \
                c: {endpoint: 'unix:/c.sock', token_file: none}\n  \
                d: {endpoint: 'unix:/d.sock', ca: none.pem}\n";
    let pattern = "pattern: {endpoint: 'tls:{id}.example:1', ca: broken.pem}\n";
    fixture.write("fleet.yaml", format!("{text}{pattern}"));
    let output = check(&fixture, &[]);
    assert_eq!(output.code, Some(78), "{output:?}");
    let lines: Vec<_> = output.text().lines().collect();
    // A Unix socket has no TLS, so the authorities of `d` are not read.
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[3].starts_with("fleet.yaml: pattern: "), "{lines:#?}");
    for (line, (id, file)) in
        lines
            .iter()
            .zip([("a", "none.pem"), ("b", "broken.pem"), ("c", "none")])
    {
        let start = format!("fleet.yaml: executors.{id}: ");
        assert!(line.starts_with(&start) && line.contains(file), "{line}");
    }
}
