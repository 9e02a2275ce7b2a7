use proptest::prelude::*;

use super::{ParsedSkillMd, read};
use crate::daemon::model::Severity::{Error, Note, Warning};
use crate::daemon::model::limits::MAX_FRONTMATTER_BYTES;
use crate::daemon::model::plugin::ComponentKind;
use crate::daemon::model::{DiagnosticCode, Severity, SkillMdFrontmatter};
use crate::daemon::parse::plugin::prompt;
use crate::daemon::parse::sidecar;

type Expected = (DiagnosticCode, Severity, u32, u32);

fn reading(file: &str, dir: &str) -> ParsedSkillMd {
    read(file.as_bytes(), true, Some(dir.as_bytes()))
}

fn found(reading: &ParsedSkillMd) -> Vec<Expected> {
    reading
        .problems
        .iter()
        .map(|p| (p.code, p.severity, p.line, p.column))
        .collect()
}

/// A skill from lines of frontmatter in the directory `d`, and its problems.
fn skill(yaml: &str) -> (SkillMdFrontmatter, Vec<Expected>) {
    let reading = reading(&format!("---\n{yaml}\n---\n"), "d");
    let problems = found(&reading);
    (
        reading
            .frontmatter
            .unwrap_or_else(|| panic!("{yaml:?}: {:?}", reading.problems)),
        problems,
    )
}

#[test]
fn frontmatter_must_be_fenced_yaml() {
    let error = |code, line, column| vec![(code, Error, line, column)];
    for (file, expected) in [
        ("---\nname: d\ndescription: x\n---\nbody", vec![]),
        ("---\nname: d\ndescription: x\n---", vec![]),
        (
            "--- \t\r\nname: d\r\ndescription: x\r\n---  \r\nbody\r\n",
            vec![],
        ),
        ("\u{feff}---\nname: d\ndescription: x\n---\n", vec![]),
        (
            "---\nname: d\ndescription: x\n----\n---\n",
            error(DiagnosticCode::YamlSyntax, 4, 1),
        ),
        ("---\nname: d\ndescription: |\n  ---\n---\n", vec![]),
        ("", error(DiagnosticCode::NoFrontmatter, 1, 1)),
        (
            "\n---\nname: d\n---\n",
            error(DiagnosticCode::NoFrontmatter, 1, 1),
        ),
        ("----\n", error(DiagnosticCode::NoFrontmatter, 1, 1)),
        ("---", error(DiagnosticCode::NoFrontmatter, 1, 1)),
        (
            "---\nname: d\ndescription: x\n",
            error(DiagnosticCode::NoFrontmatter, 1, 1),
        ),
        (
            "---\n---\n",
            error(DiagnosticCode::MissingDescription, 1, 1),
        ),
        (
            "---\n# nothing\n---\n",
            error(DiagnosticCode::MissingDescription, 1, 1),
        ),
        ("---\n- a\n---\n", error(DiagnosticCode::YamlSyntax, 2, 1)),
        ("---\ntext\n---\n", error(DiagnosticCode::YamlSyntax, 2, 1)),
        (
            "---\nname: d\ndescription: \"a\" b \" c\n---\n",
            error(DiagnosticCode::YamlSyntax, 3, 18),
        ),
        (
            "---\nname: d\nname: e\n---\n",
            error(DiagnosticCode::YamlSyntax, 3, 1),
        ),
        (
            "---\nname: d\n...\nx: y\n---\n",
            error(DiagnosticCode::YamlSyntax, 1, 1),
        ),
    ] {
        let reading = reading(file, "d");
        assert_eq!(found(&reading), expected, "{file:?} {:?}", reading.problems);
        assert_eq!(
            reading.frontmatter.is_some(),
            expected.is_empty(),
            "{file:?}"
        );
    }
    let unclosed = &reading("---\na: b\n", "d").problems[0].message;
    let unopened = &reading("a: b\n", "d").problems[0].message;
    assert_ne!(unclosed, unopened);
}

#[test]
fn only_the_frontmatter_must_be_utf_8() {
    let reading = read(
        b"---\nname: d\ndescription: x\n---\ncaf\xe9",
        true,
        Some(b"d"),
    );
    assert!(reading.frontmatter.is_some() && reading.problems.is_empty());
    let reading = read(
        "---\nname: d\ndescription: é\u{0}\n---\n".as_bytes(),
        true,
        None,
    );
    assert_eq!(
        found(&reading),
        [(DiagnosticCode::YamlSyntax, Error, 3, 15)]
    );
    let reading = read(
        b"---\nname: d\ndescription: \xc3\xa9\xe9\n---\n",
        true,
        Some(b"d"),
    );
    assert_eq!(found(&reading), [(DiagnosticCode::NotUtf8, Error, 3, 15)]);
}

#[test]
fn the_frontmatter_has_a_size_limit() {
    let of = |size: usize| {
        let yaml = format!("name: d\ndescription: {}\n", "x ".repeat(size / 2));
        format!("---\n{}\n---\n", &yaml[..size - 1])
    };
    let fits = reading(&of(MAX_FRONTMATTER_BYTES), "d");
    assert_eq!(
        found(&fits),
        [(DiagnosticCode::FieldTooLong, Warning, 3, 1)]
    );
    let over = reading(&of(MAX_FRONTMATTER_BYTES + 1), "d");
    assert_eq!(found(&over), [(DiagnosticCode::YamlSyntax, Error, 1, 1)]);
    let head = "---\n".to_owned() + &"a: b\n".repeat(14_000);
    assert_eq!(
        found(&read(head.as_bytes(), false, None)),
        [(DiagnosticCode::YamlSyntax, Error, 1, 1)]
    );
    assert_eq!(
        found(&read(head.as_bytes(), true, None)),
        [(DiagnosticCode::NoFrontmatter, Error, 1, 1)]
    );
}

#[test]
fn names_are_checked() {
    let no_name = (DiagnosticCode::NameInvalid, Warning, 0, 0);
    for (line, name, expected) in [
        ("name: d", "d", vec![]),
        (
            "name: \"  a \\n b \"",
            "a b",
            vec![(DiagnosticCode::NameInvalid, Warning, 2, 1); 2],
        ),
        (
            "x: y",
            "d",
            vec![no_name, (DiagnosticCode::FieldUnknown, Note, 2, 1)],
        ),
        (
            "name:",
            "d",
            vec![(DiagnosticCode::NameInvalid, Warning, 2, 1)],
        ),
        (
            "name: ' '",
            "d",
            vec![(DiagnosticCode::NameInvalid, Warning, 2, 1)],
        ),
        (
            "name: [a]",
            "d",
            vec![(DiagnosticCode::FieldInvalid, Warning, 2, 1)],
        ),
        (
            "name: 12",
            "12",
            vec![
                (DiagnosticCode::FieldInvalid, Warning, 2, 1),
                (DiagnosticCode::NameInvalid, Warning, 2, 1),
            ],
        ),
        (
            "name: e",
            "e",
            vec![(DiagnosticCode::NameInvalid, Warning, 2, 1)],
        ),
    ] {
        let (skill, problems) = skill(&format!("{line}\ndescription: x"));
        assert_eq!((&*skill.name, problems), (name, expected), "{line}");
    }
    for name in ["\"a\\x01\"", &"x".repeat(65)] {
        let reading = reading(&format!("---\nname: {name}\ndescription: x\n---\n"), "d");
        assert_eq!(reading.frontmatter, None);
        assert_eq!(
            found(&reading),
            [(DiagnosticCode::NameInvalid, Error, 2, 1)]
        );
    }
}

#[test]
fn a_missing_name_is_taken_from_the_directory() {
    let file = b"---\ndescription: x\n---\n";
    let reading = read(file, true, Some(b"caf\xe9"));
    let problems = [
        (DiagnosticCode::NameInvalid, Warning, 0, 0),
        (DiagnosticCode::NotUtf8, Warning, 0, 0),
    ];
    assert_eq!(found(&reading)[..2], problems);
    assert_eq!(&*reading.frontmatter.expect("listed").name, "caf\u{fffd}");
    for dir in [
        None,
        Some(b" ".as_slice()),
        Some(&[b'x'; 65]),
        Some(b"a\x01"),
    ] {
        let reading = read(file, true, dir);
        assert_eq!(reading.frontmatter, None, "{dir:?}");
        assert_eq!(
            found(&reading)[1..],
            [(DiagnosticCode::NameInvalid, Error, 0, 0)],
            "{dir:?}"
        );
    }
}

#[test]
fn descriptions_are_required_and_truncated() {
    let long = "ä".repeat(1_025);
    for (lines, description, expected) in [
        ("description: >\n  two\n  lines", "two lines", vec![]),
        ("description: two\n  lines", "two lines", vec![]),
        (
            "description: 1.0",
            "1.0",
            vec![(DiagnosticCode::FieldInvalid, Warning, 3, 1)],
        ),
        (
            &format!("description: {long}"),
            &long[..2_048],
            vec![(DiagnosticCode::FieldTooLong, Warning, 3, 1)],
        ),
        (
            "description: A: b, c",
            "A: b, c",
            vec![(DiagnosticCode::YamlRepaired, Warning, 3, 1)],
        ),
    ] {
        let (skill, problems) = skill(&format!("name: d\n{lines}"));
        assert_eq!(
            (&*skill.description, problems),
            (description, expected),
            "{lines}"
        );
    }
    for (lines, expected) in [
        ("", (DiagnosticCode::MissingDescription, Error, 1, 1)),
        (
            "description:",
            (DiagnosticCode::MissingDescription, Error, 3, 1),
        ),
        (
            "description: ' '",
            (DiagnosticCode::MissingDescription, Error, 3, 1),
        ),
        (
            "description: [a]",
            (DiagnosticCode::FieldInvalid, Error, 3, 1),
        ),
        (
            "description: {a: b}",
            (DiagnosticCode::FieldInvalid, Error, 3, 1),
        ),
    ] {
        let reading = reading(&format!("---\nname: d\n{lines}\n---\n"), "d");
        assert_eq!(
            (reading.frontmatter.as_ref(), found(&reading)),
            (None, vec![expected]),
            "{lines}"
        );
    }
}

#[test]
fn broken_yaml_is_repaired() {
    for (lines, key, line) in [
        (
            "argument-hint: <d: e.g. 7d>\ndescription: x",
            "argument-hint",
            3,
        ),
        ("description: x\ntags: [next,@supabase/ssr]", "tags", 4),
        (
            "description: x\nmetadata:\n  short-description: It's short: here",
            "short-description",
            5,
        ),
    ] {
        let reading = reading(&format!("---\nname: d\n{lines}\n---\n"), "d");
        let problem = &reading.problems[0];
        assert_eq!(
            (problem.code, problem.line),
            (DiagnosticCode::YamlRepaired, line),
            "{lines}"
        );
        assert!(
            problem.message.contains(&format!("`{key}`")),
            "{lines} {}",
            problem.message
        );
        let skill = reading.frontmatter.expect(lines);
        assert_eq!(&*skill.description, "x");
        if key == "short-description" {
            assert_eq!(skill.short_description.as_deref(), Some("It's short: here"));
        }
    }
}

#[test]
fn invalid_optional_fields_are_reported() {
    let (note, warning) = (
        vec![(DiagnosticCode::FieldInvalid, Note, 4, 1)],
        vec![(DiagnosticCode::FieldInvalid, Warning, 4, 1)],
    );
    let long = format!("compatibility: {}", "x".repeat(501));
    let wordy = format!("metadata:\n  short-description: {}", "wordy ".repeat(2_000));
    for (lines, expected) in [
        (
            "license: MIT\ncompatibility: any\nmetadata: {a: b}\nallowed-tools: Read",
            vec![],
        ),
        (
            "license:\ncompatibility: ''\nmetadata:\nallowed-tools:",
            vec![],
        ),
        ("license: 2", warning.clone()),
        ("license: [MIT]", warning.clone()),
        ("metadata: text", warning.clone()),
        ("metadata: {a: 1, b: [c], d: e}", note.clone()),
        ("allowed-tools: [Read, 'Bash(git add:*)']", note),
        ("allowed-tools: [1]", warning.clone()),
        ("allowed-tools: {a: b}", warning),
        (
            "version: 1\nuser-invocable: true",
            vec![(DiagnosticCode::FieldUnknown, Note, 4, 1)],
        ),
        (&long, vec![(DiagnosticCode::FieldTooLong, Warning, 4, 1)]),
        (&wordy, vec![(DiagnosticCode::FieldTooLong, Warning, 5, 3)]),
        (
            "metadata: {short-description: 1}",
            vec![(DiagnosticCode::FieldInvalid, Note, 4, 1)],
        ),
    ] {
        let (_, problems) = skill(&format!("name: d\ndescription: x\n{lines}"));
        assert_eq!(problems, expected, "{lines}");
    }
}

#[test]
fn restrictions_of_invocation_are_read() {
    let restrictions = |lines: &str| {
        let (skill, problems) = skill(&format!("name: d\ndescription: x\n{lines}"));
        ((skill.forbids_model, skill.forbids_user), problems)
    };
    for (lines, expected) in [
        ("", (false, false)),
        (
            "disable-model-invocation:\nuser-invocable: ~",
            (false, false),
        ),
        (
            "disable-model-invocation: false\nuser-invocable: true",
            (false, false),
        ),
        ("disable-model-invocation: true", (true, false)),
        ("user-invocable: false", (false, true)),
        (
            "user-invocable: false\ndisable-model-invocation: True",
            (true, true),
        ),
        // The spellings of Claude Code since 2.1.218.
        (
            "user-invocable: no\ndisable-model-invocation: on",
            (true, true),
        ),
        (
            "user-invocable: OFF\ndisable-model-invocation: 1",
            (true, true),
        ),
        (
            "user-invocable: Yes\ndisable-model-invocation: 0",
            (false, false),
        ),
        (
            "user-invocable: 'true'\ndisable-model-invocation: 'false'",
            (false, false),
        ),
    ] {
        assert_eq!(restrictions(lines), (expected, vec![]), "{lines}");
    }

    let warning = vec![(DiagnosticCode::FieldInvalid, Warning, 4, 1)];
    for value in ["maybe", "2", "'y'", "[]", "{}", "0.5"] {
        assert_eq!(
            restrictions(&format!("disable-model-invocation: {value}")),
            ((true, false), warning.clone()),
            "{value}"
        );
        assert_eq!(
            restrictions(&format!("user-invocable: {value}")),
            ((false, true), warning.clone()),
            "{value}"
        );
    }
}

#[test]
fn all_fields_are_read() {
    let (skill, _) = skill(
        "name: d\ndescription: x\nlicense: 2\ncompatibility: |\n  any\n\
         metadata: {version: 1.0, n: , l: [1, a], short-description: \"a \\n b\"}\n\
         allowed-tools: Bash(git add:*), Read,Write  Edit\nextra: {a: [1]}",
    );
    let tools: Vec<&str> = skill.allowed_tools.iter().map(|tool| &**tool).collect();
    assert_eq!(tools, ["Bash(git add:*)", "Read", "Write", "Edit"]);
    let metadata: Vec<_> = skill.metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
    let expected = [
        ("version", "1.0"),
        ("n", ""),
        ("l", "[1,\"a\"]"),
        ("short-description", "a \n b"),
    ];
    assert_eq!(metadata, expected);
    assert_eq!(skill.short_description.as_deref(), Some("a b"));
    assert_eq!(
        (skill.license.as_deref(), skill.compatibility.as_deref()),
        (Some("2"), Some("any"))
    );
    let frontmatter = skill.all_fields.expect("small");
    assert_eq!(
        &*frontmatter.get("extra").expect("kept").to_text(),
        "{\"a\":[1]}"
    );
}

#[test]
fn escaped_hidden_characters_are_reported() {
    let (skill, problems) =
        skill("name: d\ndescription: \"a\\u202eb\"\nmetadata: {k: [\"\\u200b\"], \"\\xad\": x}");
    assert_eq!(&*skill.description, "a\u{202e}b");
    let hidden = |line| (DiagnosticCode::HiddenText, Warning, line, 1);
    assert_eq!(
        problems,
        [
            (DiagnosticCode::FieldInvalid, Note, 4, 1),
            hidden(3),
            hidden(4)
        ]
    );
    assert_eq!(self::skill("name: d\ndescription: \"a\\tb\"").1, []);
}

#[test]
fn a_short_description_is_truncated_like_a_description() {
    let long = "ä".repeat(1_025);
    let (skill, _) = skill(&format!(
        "name: d\ndescription: x\nmetadata: {{short-description: {long}}}"
    ));
    let short = skill.short_description.expect("kept");
    assert_eq!(short.chars().count(), 1_024);
    assert_eq!(
        &*skill.metadata[0].1, long,
        "the entry of `metadata` is not truncated"
    );
}

#[test]
fn only_eight_unknown_keys_are_listed() {
    let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    let yaml = format!("{}: v\n", keys.join(": v\n"));
    let reading = reading(&format!("---\nname: d\ndescription: x\n{yaml}---\n"), "d");
    assert!(
        reading.problems[0].message.contains("`k7` and 4 more"),
        "{:?}",
        reading.problems
    );
}

#[test]
fn fields_too_deep_for_protobuf_are_omitted() {
    let fields = |depth: usize| {
        let yaml = format!("a: {}1{}", "[".repeat(depth), "]".repeat(depth));
        skill(&format!("name: d\ndescription: x\n{yaml}"))
    };
    assert!(fields(29).0.all_fields.is_some());
    let (skill, problems) = fields(30);
    assert!(skill.all_fields.is_none());
    assert!(
        problems.contains(&(DiagnosticCode::FieldTooLong, Warning, 1, 1)),
        "{problems:?}"
    );
}

#[test]
fn fields_expanded_by_aliases_are_omitted() {
    let blow_up = |key: &str, times| {
        let big = format!("big: &b {}", "x".repeat(10_000));
        skill(&format!("name: d\ndescription: x\n{big}\n{key}: {times}"))
    };
    let (skill, problems) = blow_up(
        "metadata",
        "{a: *b, b: *b, c: *b, d: *b, e: *b, f: *b, g: *b}",
    );
    assert!(skill.metadata.is_empty() && skill.all_fields.is_some());
    assert!(
        problems.contains(&(DiagnosticCode::FieldTooLong, Warning, 5, 1)),
        "{problems:?}"
    );
    let (skill, problems) = blow_up("allowed-tools", "[*b, *b, *b, *b, *b, *b, *b]");
    assert!(skill.allowed_tools.is_empty() && skill.all_fields.is_some());
    assert!(
        problems.contains(&(DiagnosticCode::FieldTooLong, Warning, 5, 1)),
        "{problems:?}"
    );
    let (skill, problems) = blow_up("extra", &format!("[{}]", vec!["*b"; 26].join(",")));
    assert!(skill.all_fields.is_none());
    assert!(
        problems.contains(&(DiagnosticCode::FieldTooLong, Warning, 1, 1)),
        "{problems:?}"
    );
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, dir: Option<Vec<u8>>, is_whole: bool, yaml in "(name|description|metadata|allowed-tools|: |\n|  |- |a|'|\"|\\[|\\]|\\{|\\}|@|&x|\\*x|,|\\||#|é|\u{1}){0,30}") {
        let _ = read(&bytes, is_whole, dir.as_deref());
        let fenced = [b"---\n".as_slice(), &bytes, b"\n---\n"].concat();
        let _ = read(&fenced, is_whole, dir.as_deref());
        let reading = read(format!("---\n{yaml}\n---\n").as_bytes(), is_whole, dir.as_deref());
        let is_omitted = reading.problems.iter().any(|p| p.severity == Error);
        prop_assert_eq!(reading.frontmatter.is_none(), is_omitted);
    }
}

mod compact {
    use crate::daemon::model::value::compact::ValueRef;
    use crate::daemon::model::{CompactFrontmatter, DynamicValue, SkillMdFrontmatter};
    use crate::daemon::parse::frontmatter;
    use proptest::prelude::*;

    fn expand(packed: &CompactFrontmatter) -> SkillMdFrontmatter {
        let text = |text: Option<&str>| text.map(Into::into);
        SkillMdFrontmatter {
            name: packed.name().into(),
            description: packed.description().into(),
            short_description: text(packed.short_description()),
            license: text(packed.license()),
            compatibility: text(packed.compatibility()),
            metadata: packed
                .metadata()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            allowed_tools: packed.allowed_tools().map(Into::into).collect(),
            forbids_model: packed.forbids_model(),
            forbids_user: packed.forbids_user(),
            is_switched_off: packed.is_switched_off(),
            all_fields: packed.all_fields().map(ValueRef::to_value),
        }
    }

    /// Returns the frontmatter with the keys of mappings in byte order, as in the compact form.
    fn sorted(mut frontmatter: SkillMdFrontmatter) -> SkillMdFrontmatter {
        frontmatter
            .all_fields
            .iter_mut()
            .for_each(DynamicValue::sort_keys);
        frontmatter.metadata.sort_by(|(a, _), (b, _)| a.cmp(b));
        frontmatter
    }

    proptest! {
        #[test]
        fn parsed_frontmatter_round_trips(
            name in "[a-z]{1,8}", description in "[a-z ]{1,20}[a-z]", key in "[a-z-]{1,20}",
            value in prop_oneof!["[a-z ]{1,9}", "[0-9]{1,3}", Just("~".to_owned())],
            more in prop_oneof![
                Just(""), Just("license: MIT\n"), Just("license: ' MIT'\n"), Just("compatibility: 1\n"),
                Just("allowed-tools: [a, b]\n"), Just("other: [1, {a: b}]\n"),
            ],
        ) {
            let text = format!(
                "---\nname: {name}\ndescription: {description}\n{more}metadata:\n  \
                 short-description: Brief\n  \"{key}\": {value}\n---\n"
            );
            if let Some(skill) = frontmatter::read(text.as_bytes(), true, Some(b"x")).frontmatter {
                prop_assert_eq!(expand(&skill.clone().into()), sorted(skill));
            }
        }

        #[test]
        fn absent_and_large_fields_round_trip(
            text: Option<String>, list: Vec<String>, pairs: Vec<(String, String)>,
            forbids_model: bool, forbids_user: bool, is_switched_off: bool,
            much in prop_oneof![Just(1_usize), 65_400..65_600_usize],
        ) {
            let text = text.filter(|text| !text.is_empty()).map(String::into_boxed_str);
            let skill = SkillMdFrontmatter {
                name: "n".into(),
                description: "d".repeat(much).into(),
                short_description: text.clone(),
                license: None,
                compatibility: text,
                metadata: pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
                allowed_tools: list.into_iter().map(Into::into).collect(),
                forbids_model,
                forbids_user,
                is_switched_off,
                all_fields: None,
            };
            prop_assert_eq!(expand(&skill.clone().into()), sorted(skill));
        }
    }
}

#[test]
fn a_file_in_utf_16_is_not_utf_8() {
    for text in ["\u{feff}---\nname: a\n---\n", "---\ndescription: d\n---\n"] {
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let file: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
            let (_, in_sidecar) = sidecar::read(&file);
            let (prompt, in_prompt) = prompt::read(ComponentKind::Commands, &file, true, b"a");
            assert!(prompt.is_none());
            for problems in [
                read(&file, true, Some(b"d")).problems,
                in_sidecar,
                in_prompt,
            ] {
                let [problem] = &problems[..] else {
                    panic!("{problems:?}");
                };
                assert_eq!(
                    (problem.code, problem.line, problem.column),
                    (DiagnosticCode::NotUtf8, 1, 1)
                );
                assert!(problem.message.contains("UTF-16"), "{problem:?}");
            }
        }
    }
}
