use std::fmt::Write as _;

use proptest::prelude::*;

use super::{YamlError, YamlErrorKind, parse};
use crate::daemon::model::value::DynamicValue;
use crate::daemon::parse::json;

fn printed(yaml: &str) -> String {
    parse(yaml)
        .unwrap_or_else(|e| panic!("{yaml:?}: {e:?}"))
        .to_text()
        .into()
}

#[test]
fn values_follow_yaml_1_2() {
    for (yaml, expected) in [
        ("", "null"),
        ("# only a comment\n", "null"),
        ("a", "a"),
        (
            "[1, -2, 18446744073709551615, 1.5, true, yes, ~, 2024-01-01]",
            "[1,-2,18446744073709551615,1.5,true,\"yes\",null,\"2024-01-01\"]",
        ),
        (
            "[.inf, -.inf, .nan, 340282366920938463463374607431768211455]",
            "[\".inf\",\"-.inf\",\".nan\",\"340282366920938463463374607431768211455\"]",
        ),
        ("b: 1\na: 2", "{\"b\":1,\"a\":2}"),
        (
            "1: a\ntrue: b\n[x, y]: c",
            "{\"1\":\"a\",\"true\":\"b\",\"[\\\"x\\\",\\\"y\\\"]\":\"c\"}",
        ),
        ("a: !tag {b: !x [1, !y z]}", "{\"a\":{\"b\":[1,\"z\"]}}"),
        ("a: &x [1]\nb: *x", "{\"a\":[1],\"b\":[1]}"),
        (
            "a: |\n  x: y\n  z\nb: >\n  c\n  d\n",
            "{\"a\":\"x: y\\nz\\n\",\"b\":\"c d\\n\"}",
        ),
    ] {
        assert_eq!(printed(yaml), expected, "{yaml:?}");
    }
}

#[test]
fn errors_have_positions() {
    use YamlErrorKind::{Rejected, Syntax};
    for (yaml, line, column, kind, words) in [
        ("a: b: c", 1, 5, Syntax, "mapping values are not allowed"),
        (
            "a: 1\nä: \"ö\" x",
            2,
            8,
            Syntax,
            "did not find expected key",
        ),
        (
            "a: 1\nb: 2\na: 3\nc: 4",
            3,
            1,
            Rejected,
            "duplicate key `a`",
        ),
        ("a:\n  b: 1\n  b: 2", 3, 3, Rejected, "duplicate key `b`"),
        ("1: a\n'1': b", 2, 1, Rejected, "duplicate key `1`"),
        (
            "a: 1\n...\nb: 2\n",
            0,
            0,
            Rejected,
            "more than one document",
        ),
        ("a: *b", 1, 4, Rejected, "unknown anchor"),
        ("a: x\u{1}y", 1, 5, Syntax, "control characters"),
        (
            "a:\n\tb: c",
            2,
            1,
            Syntax,
            "found character that cannot start any token",
        ),
    ] {
        let error = parse(yaml).expect_err(yaml);
        assert_eq!(
            (error.line, error.column, error.kind),
            (line, column, kind),
            "{yaml:?} {error:?}"
        );
        assert!(error.message.contains(words), "{yaml:?} {error:?}");
        assert!(!error.message.contains(" at "), "{yaml:?} {error:?}");
    }
}

#[test]
fn expansion_bombs_are_rejected() {
    let mut laughs = String::from("a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n");
    for level in 1..=9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        writeln!(laughs, "a{level}: &a{level} [{aliases}]").expect("a string");
    }
    let quadratic = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(28 << 10),
        vec!["*a"; 9_000].join(",")
    );
    let wide = format!(
        "a: &a [{}]\nb: [{}]",
        vec!["[]"; 9_000].join(","),
        vec!["*a"; 9_000].join(",")
    );
    let recursive = "a: &a [*a]".to_owned();
    let keys = format!("{}k{}", "{? ".repeat(60), ": \"\"}".repeat(60));
    let hidden = "{\"}\":".repeat(300);
    let handles = (0..65).fold(String::new(), |all, n| format!("{all}%TAG !a{n}! b\n"));
    let lists = format!("[{}]", "[],".repeat(13_000));
    let nulls = "-\n".repeat(25_000);
    for bomb in [
        laughs, quadratic, wide, recursive, keys, hidden, handles, lists, nulls,
    ] {
        let error = parse(&bomb).expect_err(&bomb[..9]);
        assert_eq!(error.kind, YamlErrorKind::Rejected, "{error:?}");
    }
}

#[test]
fn nesting_is_limited_but_length_is_not() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(64)).is_ok());
    assert_eq!(
        parse(&nested(65)).expect_err("deep").kind,
        YamlErrorKind::Rejected
    );
    let long = "x".repeat(64 << 10);
    assert_eq!(parse(&long), Ok(DynamicValue::Text(long.into())));
}

proptest! {
    #[test]
    fn never_panics(text in "\\PC{0,200}", dense in "[-?:,\\[\\]{}#&*!|>'\"%@` ab\n\t]{0,80}") {
        let _ = (parse(&text), parse(&dense));
    }

    #[test]
    fn values_print_as_json_and_errors_have_positions(
        yaml in "(- |a: |\\? |\\[|\\]|\\{|\\}|, |a|\"|'|\n|  |1|-0x1|~|\\||>-|\\*b|&b |#|\r|é|\u{2028}){0,30}",
    ) {
        match parse(&yaml) {
            Ok(value) if value.is_scalar() => {}
            Ok(value) => prop_assert_eq!(json::parse(value.to_text().as_bytes()), Ok(value)),
            Err(YamlError { line, column, message, .. }) => {
                prop_assert!(!message.is_empty() && !message.chars().any(char::is_control));
                let found = yaml.split('\n').nth((line as usize).saturating_sub(1));
                let columns = found.map_or(0, |line| line.chars().count() + 1);
                prop_assert!(column as usize <= columns, "{}:{} of {:?}", line, column, yaml);
            }
        }
    }

    #[test]
    fn texts_without_aliases_stay_within_the_budget(
        dense in "[-, \\[\\]{}ab0\"\\\\L\n]{0,120}",
        times in 1_usize..2_000,
    ) {
        if let Err(error) = parse(&dense.repeat(times)) {
            prop_assert!(!error.message.contains("too large"), "{error:?}");
        }
    }
}

#[test]
fn an_unclosed_quote_is_reported_at_its_start() {
    for (yaml, line, column) in [
        ("a: \"b\n", 1, 4),
        ("a: 1\nä: 'b\nc: d\n", 2, 4),
        ("a:\n  - x\n  - \"y", 3, 5),
        ("a: 1\r\nb: 'c\r\n", 2, 4),
        ("a: 1\rb: 'c\n", 1, 9),
        ("a: ä\u{2028}b: 'c", 1, 9),
    ] {
        let error = parse(yaml).expect_err(yaml);
        assert_eq!((error.line, error.column), (line, column), "{error:?}");
        assert!(!error.message.contains("line"), "{error:?}");
    }
}
