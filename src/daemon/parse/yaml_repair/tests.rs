use proptest::prelude::*;

use super::{blank_broken_entries, quote_broken_values};
use crate::daemon::parse::yaml::parse;

fn lines_and_keys(quoted: &[(u32, String)]) -> Vec<(u32, &str)> {
    quoted
        .iter()
        .map(|(line, key)| (*line, key.as_str()))
        .collect()
}

#[test]
fn broken_values_are_quoted() {
    for (yaml, repaired, keys) in [
        (
            "description: A: b, c\n",
            "description: 'A: b, c'\n",
            vec![(1, "description")],
        ),
        (
            "a: b: c\r\nd: e\r\n",
            "a: 'b: c'\r\nd: e\r\n",
            vec![(1, "a")],
        ),
        ("a: ends with:\n", "a: 'ends with:'\n", vec![(1, "a")]),
        ("a: b: c", "a: 'b: c'", vec![(1, "a")]),
        (
            "argument-hint: <d: e.g. 7d>\n",
            "argument-hint: '<d: e.g. 7d>'\n",
            vec![(1, "argument-hint")],
        ),
        (
            "tags: [next,@supabase/ssr]\n",
            "tags: '[next,@supabase/ssr]'\n",
            vec![(1, "tags")],
        ),
        ("h: [a] [b]\n", "h: '[a] [b]'\n", vec![(1, "h")]),
        ("h: {a} b\n", "h: '{a} b'\n", vec![(1, "h")]),
        ("h: @me\n", "h: '@me'\n", vec![(1, "h")]),
        ("h: `x` y\n", "h: '`x` y'\n", vec![(1, "h")]),
        (
            "m:\n  short: It's here: now\n  b: c: d\n",
            "m:\n  short: 'It''s here: now'\n  b: 'c: d'\n",
            vec![(2, "short"), (3, "b")],
        ),
        (
            "a: Use when: x\n  goes on\n  and: on\nb: c\n",
            "a: 'Use when: x goes on and: on'\n\n\nb: c\n",
            vec![(1, "a")],
        ),
        (
            "a: plain\n  goes: on\n",
            "a: 'plain goes: on'\n\n",
            vec![(1, "a")],
        ),
        (
            "l:\n- k: a: b\n  d: e\n",
            "l:\n- k: 'a: b'\n  d: e\n",
            vec![(2, "k")],
        ),
        ("a b: c: d\n", "a b: 'c: d'\n", vec![(1, "a b")]),
        ("a: *b: c\n", "a: '*b: c'\n", vec![(1, "a")]),
        ("a: **b** c\n", "a: '**b** c'\n", vec![(1, "a")]),
        (
            "a: *\nb: %d\n",
            "a: '*'\nb: '%d'\n",
            vec![(1, "a"), (2, "b")],
        ),
        ("a: - b\n", "a: '- b'\n", vec![(1, "a")]),
        ("a: ? b\n", "a: '? b'\n", vec![(1, "a")]),
        ("a: | b\n  c\n", "a: '| b c'\n\n", vec![(1, "a")]),
        ("a: > b\n", "a: '> b'\n", vec![(1, "a")]),
        ("a: b #c\n  d\n", "a: 'b #c d'\n\n", vec![(1, "a")]),
        ("a: \"b\" c\n", "a: '\"b\" c'\n", vec![(1, "a")]),
        (
            "a: \"b\" or \"c\"\n",
            "a: '\"b\" or \"c\"'\n",
            vec![(1, "a")],
        ),
        (
            "a: \"say \"b\", or (\"c\")\"\n",
            "a: 'say \"b\", or (\"c\")'\n",
            vec![(1, "a")],
        ),
        ("a: 'when it's b'\n", "a: 'when it''s b'\n", vec![(1, "a")]),
    ] {
        let (text, quoted) = quote_broken_values(yaml).expect(yaml);
        assert_eq!(text, repaired, "{yaml:?}");
        assert_eq!(lines_and_keys(&quoted), keys, "{yaml:?}");
        assert!(parse(&text).is_ok(), "{text:?}");
        assert_eq!(text.lines().count(), yaml.lines().count(), "{yaml:?}");
    }
}

#[test]
fn quoted_and_block_scalars_are_not_changed() {
    for whole in [
        "x: |\n  a: b: c\n\n  d: @e\n",
        "x: >-\n  a: b: c\n",
        "x: &a |2\n    a: b: c\n",
        "x: !t >\n a: b: c\n",
        "x: \"a: b\n  c: d: e\"\n",
        "x: 'it''s\n  c: d: e'\n",
        "x: \"a \\\" b\n  c: d: e\"\n",
        "- |\n  a: b: c\n",
        "- k: |\n   a: b: c\n  l: m\n",
        "- 'a\n  b: c: d'\n",
        "x: [a,\n  'b: c: d',\n  {e: f}]\n",
        "x: {\n  a: b\n}\n",
        "x: [\n  a\n]\n",
        "# a: b: c\n",
        "x: a # b: c: d\n",
        "x:\n  - a\n  - b: c\n",
    ] {
        assert_eq!(quote_broken_values(whole), None, "{whole:?}");
        let (text, quoted) = quote_broken_values(&format!("{whole}y: b: c\n")).expect(whole);
        assert_eq!(text, format!("{whole}y: 'b: c'\n"));
        assert_eq!(quoted.len(), 1);
    }
}

#[test]
fn other_errors_are_not_repaired() {
    for yaml in [
        "a: 'b\n",
        "a: \"b\"c\n",
        "a: \"b \" c\n",
        "a: \"b \\\" c\" d\n",
        "a: \"b\" c\n  d\n",
        "a: b\u{1}c\n",
        "a\n",
        "a:\n\tb\n",
        "a: 1\na: 2\n",
        "b: [*a, *a]\n",
        "- a\nb: c\n",
        "- \r: b: c\n",
        "\u{a0}: b: c\n",
    ] {
        assert_eq!(quote_broken_values(yaml), None, "{yaml:?}");
    }
}

#[test]
fn broken_entries_that_decide_nothing_are_blanked() {
    let decides = |key: &str| key == "name";
    for (yaml, rest, keys) in [
        (
            "name: a\nx: {b\ny: c\n",
            Some("name: a\n\ny: c\n"),
            vec![(2, "x")],
        ),
        (
            "x: [\n  b\nname: a\r\ny: \"\n",
            Some("\n\nname: a\r\n\n"),
            vec![(1, "x"), (4, "y")],
        ),
        ("name: {a\nx: b\n", None, vec![]),
        ("x: b\n", None, vec![]),
        ("- x: {b\n", None, vec![]),
        ("", None, vec![]),
        (
            "name: a\nx: &b c\ny: *b\nz: *c\n",
            Some("name: a\nx: &b c\ny: *b\n\n"),
            vec![(4, "z")],
        ),
        ("name: *c\n", None, vec![]),
        ("x: 1\nx: 2\n", None, vec![]),
    ] {
        let blanked = parse(yaml)
            .err()
            .and_then(|error| blank_broken_entries(yaml, &error, decides));
        let found = blanked
            .as_ref()
            .map(|(text, keys)| (&**text, lines_and_keys(keys)));
        assert_eq!(found, rest.map(|rest| (rest, keys)), "{yaml:?}");
    }
}

/// A valid entry of a mapping, in any scalar or list style.
fn entry() -> impl Strategy<Value = String> {
    let word = "[a-zA-Z@:,#'\"{}`<>-]{1,6}";
    let lines = prop::collection::vec(prop::collection::vec(word, 1..4), 1..4);
    (lines, 0..6).prop_map(|(lines, style)| {
        let lines: Vec<String> = lines.into_iter().map(|words| words.join(" ")).collect();
        let single = |text: &str| format!("'{}'", text.replace('\'', "''"));
        match style {
            0 => format!("|\n    {}\n", lines.join("\n    ")),
            1 => format!(">-\n    {}\n\n", lines.join("\n\n    ")),
            2 => format!("{}\n", single(&lines.join("\n    "))),
            3 => format!("\"{}\"\n", lines.join("\n    ").replace('"', "\\\"")),
            4 => format!(
                "[{}]\n",
                lines
                    .iter()
                    .map(|l| single(l))
                    .collect::<Vec<_>>()
                    .join(",\n    ")
            ),
            _ => format!(
                "\n    - {}\n",
                lines
                    .iter()
                    .map(|l| single(l))
                    .collect::<Vec<_>>()
                    .join("\n    - ")
            ),
        }
    })
}

proptest! {
    #[test]
    fn valid_entries_keep_their_value(before in entry(), after in entry(), broken: bool) {
        let middle = if broken { "m: x: y\n" } else { "m: 'x: y'\n" };
        let yaml = |middle: &str| format!("b: {before}{middle}c:\n  d: {after}");
        let valid = parse(&yaml("m: 'x: y'\n")).expect("valid");
        match quote_broken_values(&yaml(middle)) {
            Some((text, _)) => prop_assert_eq!(parse(&text), Ok(valid)),
            None => prop_assert!(!broken),
        }
    }

    #[test]
    fn repair_is_idempotent_and_keeps_lines(text in "\\PC{0,100}", dense in "[-?:,\\[\\]{}#&*!|>'\"%@` ab\r\n\t]{0,80}") {
        for yaml in [text, dense] {
            if let Some((repaired, quoted)) = quote_broken_values(&yaml) {
                prop_assert!(!quoted.is_empty());
                prop_assert_eq!(quote_broken_values(&repaired), None, "repaired text needs no repair");
                prop_assert_eq!(repaired.matches('\n').count(), yaml.matches('\n').count());
            }
            let blanked = parse(&yaml).err().and_then(|error| {
                blank_broken_entries(&yaml, &error, |key| key == "a")
            });
            if let Some((rest, _)) = blanked {
                prop_assert_eq!(rest.matches('\n').count(), yaml.matches('\n').count());
            }
        }
    }
}
