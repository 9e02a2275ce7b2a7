//! Cost of reading texts: YAML, JSON, config files, handles.

use std::path::Path;

use caproot::daemon::config::{Config, ProcessEnv, ServeFlags};
use caproot::daemon::parse::{frontmatter, json, manifest, sidecar};
use caproot::lint::SourceExcerpt;
use caproot_core::wire::ResourceHandle;

use super::assert_in_proportion;

fn repeated(unit: &str, size: usize) -> String {
    unit.repeat(size / unit.len())
}

/// Building blocks of YAML, and texts that have made YAML parsers slow.
const SHAPES: &[&str] = &[
    "[", "{", "[{", "{a: ", "[a, ", "- ", "? ", "a: ", "- - ", "!a ", "&a ", "*a ", "'", "\"", "x",
    " ", "\t", "\n", "\r", "#", "%", "a:\n", "- a\n", "? a\n", "\\", "{?", "[?", "\"a\": ", ",",
    "]", "[]", "[],", "!<", "a\n\n", "ä", "\u{85}", "\u{feff}", "[a: ,", "&a\n", "--- ", "---\n",
    "...\n", "|\n", "[\"]\",", "{\"}\":", "[\n", "[a: b, ", ">\n ", ": ", "[a,\n", "{a,\n",
    "- [\n", "{\"", "{a: 1}\n", "@ ", "`", "a: @\n", "a: [\n", "a: \"\n", "a: '\n", "a: |\n",
    "a: b:\n", "-\n", "''", "\\\"", "::", "#:", " #",
];

/// Longer building blocks.
const MORE_SHAPES: &[&str] = &[
    "['}',{a: ",
    "%TAG ! a\n",
    "- {a: [b, c]}\n",
    "a: 'b''c'\n",
    "a: b: c\n  d: e\n",
];

fn shapes() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().chain(MORE_SHAPES).copied()
}

/// Joins lines until the text has at least `size` bytes.
fn join_lines(line: impl Fn(usize) -> String, size: usize) -> String {
    let mut text = String::new();
    for n in 0..size {
        text.push_str(&line(n));
        if text.len() >= size {
            break;
        }
    }
    text
}

/// Function that returns the line of a number.
type Line = fn(usize) -> String;

fn fenced(yaml: &str) -> Vec<u8> {
    format!("---\n{yaml}\n---\n").into()
}

#[test]
fn repeated_frontmatter_is_read_in_linear_time() {
    for shape in shapes() {
        for before in ["", "a: ", "a: [", "a: b: c\n"] {
            let make = |size| fenced(&format!("{before}{}", repeated(shape, size)));
            assert_in_proportion(&format!("{before:?} {shape:?}"), 60 << 10, make, |head| {
                let _ = frontmatter::read(head, true, Some(b"a"));
            });
        }
    }
}

#[test]
fn frontmatter_of_distinct_lines_is_read_in_linear_time() {
    let kinds: [(&str, Line); 16] = [
        ("keys", |n| format!("k{n}: v\n")),
        ("keys that are lists", |n| format!("[k{n}]: v\n")),
        ("keys that are mappings", |n| format!("? k{n}: v\n: w\n")),
        ("keys in braces", |n| {
            format!("{}k{n}: v,", if n == 0 { "{" } else { "" })
        }),
        ("keys in metadata", |n| {
            format!("{}  k{n}: [v]\n", if n == 0 { "metadata:\n" } else { "" })
        }),
        ("anchors", |n| format!("k{n}: &a{n} v\n")),
        ("aliases", |n| {
            if n == 0 {
                "k: &a v\n".into()
            } else {
                format!("k{n}: *a\n")
            }
        }),
        ("tag handles", |n| format!("%TAG !a{n}! b\n")),
        ("tags", |n| format!("- !a{n} b\n")),
        ("values with colons", |n| format!("k{n}: a: b\n")),
        ("values with brackets", |n| format!("k{n}: [a] b\n")),
        ("continued values", |n| format!("k{n}: a: b\n  c: d\n")),
        ("one continued value", |n| {
            if n == 0 {
                "k: a: b\n".into()
            } else {
                "  c: d\n".into()
            }
        }),
        ("unclosed quotes", |n| format!("k{n}: \"a\n")),
        ("unclosed brackets", |n| format!("k{n}: [a\n")),
        ("an item each", |n| format!("- k{n}: a: b\n")),
    ];
    for (name, line) in kinds {
        let make = |size| fenced(&join_lines(line, size));
        assert_in_proportion(name, 60 << 10, make, |head| {
            let _ = frontmatter::read(head, true, Some(b"a"));
        });
    }
}

#[test]
fn sidecars_are_read_in_linear_time() {
    let kinds: [(&str, Line); 7] = [
        ("tools", |n| {
            format!(
                "{}  - {{type: a, value: b}}\n",
                if n == 0 {
                    "dependencies:\n  tools:\n"
                } else {
                    ""
                }
            )
        }),
        ("unknown keys", |n| format!("k{n}: v\n")),
        ("prefixes of tokens", |n| {
            if n == 0 { "? a".into() } else { "sk-a".into() }
        }),
        ("unknown nested keys", |n| {
            format!("{}  k{n}: v\n", if n == 0 { "interface:\n" } else { "" })
        }),
        ("wrong tools before a long rest", |n| match n {
            0 => "dependencies:\n  tools:\n".into(),
            1..250 => "  - {type: 1, x: y}\n".into(),
            _ => "# ...\n".into(),
        }),
        ("products", |n| {
            if n == 0 {
                "policy: {products: [a".into()
            } else {
                ",b".into()
            }
        }),
        ("paths", |n| {
            if n == 0 {
                "permissions: {macos: {a: [b".into()
            } else {
                ",\"]\"".into()
            }
        }),
    ];
    for (name, line) in kinds {
        assert_in_proportion(
            name,
            255 << 10,
            |size| join_lines(line, size),
            |text| {
                let _ = sidecar::read(text.as_bytes());
            },
        );
    }
}

#[test]
fn manifests_are_read_in_linear_time() {
    for shape in [
        "[",
        "{\"a\":",
        "[[],",
        "\"",
        "\"\\u00e9",
        "1,",
        "-",
        "{",
        ",",
        "\\",
        "\n",
        "null,",
        "9",
        ".0",
        "1e9,",
        "{},",
        "\"a\",",
    ] {
        for before in ["", "[", "[\"", "{\"name\":\""] {
            let make = |size| format!("{before}{}", repeated(shape, size));
            assert_in_proportion(&format!("{before:?} {shape:?}"), 255 << 10, make, |text| {
                let _ = manifest::read(text.as_bytes(), Some(text.as_bytes()));
            });
        }
    }
    for prefix in ["ask-", "xAKIA"] {
        let make = |size| format!("{{\"description\":\"{}\"}}", repeated(prefix, size));
        assert_in_proportion(prefix, 255 << 10, make, |text| {
            let _ = manifest::read(text.as_bytes(), None);
        });
    }
    let keys = |size| {
        format!(
            "{{{}\"k\":1}}",
            join_lines(|n| format!("\"k{n}\":[1],\n"), size)
        )
    };
    assert_in_proportion("keys", 255 << 10, keys, |text| {
        drop(json::parse(text.as_bytes()));
    });
}

#[test]
fn config_files_are_read_in_linear_time() {
    let env = ProcessEnv::default();
    let read = |text: &String| {
        drop(Config::from_bytes(
            ServeFlags::default(),
            Path::new("c"),
            text.clone().into(),
            &env,
        ));
    };
    for shape in shapes() {
        assert_in_proportion(
            &format!("{shape:?}"),
            256 << 10,
            |size| repeated(shape, size),
            read,
        );
    }
    let kinds: [(&str, Line); 4] = [
        ("keys", |n| format!("max_dept{n}: 1\n")),
        ("roots", |n| {
            format!(
                "{}  - {{id: r{n}, path: /r{n}}}\n",
                if n == 0 { "roots:\n" } else { "" }
            )
        }),
        ("allow", |n| {
            format!("{}  - /none/r{n}\n", if n == 0 { "allow:\n" } else { "" })
        }),
        ("names", |n| {
            format!(
                "{}  - {{name: r{n}}}\n",
                if n == 0 { "disabled_skills:\n" } else { "" }
            )
        }),
    ];
    for (name, line) in kinds {
        assert_in_proportion(name, 256 << 10, |size| join_lines(line, size), read);
    }
}

#[test]
fn disabled_skills_in_a_config_file_are_read_in_linear_time() {
    let env = ProcessEnv::default();
    for glob in ["{{a,b},{c,d}}*", "[!a-z]", "**/", "?*", "{a*,", "*{*}"] {
        let glob = format!("{}x", glob.repeat(255 / glob.len()));
        let rule = format!("  - {{root: user, path: '{glob}'}}\n");
        let make = |count| format!("disabled_skills:\n{}", rule.repeat(count));
        assert_in_proportion(&glob, 400, make, |text| {
            drop(Config::from_bytes(
                ServeFlags::default(),
                Path::new("c"),
                text.clone().into(),
                &env,
            ));
        });
    }
}

#[test]
fn handles_are_parsed_in_linear_time() {
    for shape in [
        "a", "/a", "%FF", "%", "%41", "/", "..", "/a%2F", "é", "%C3%A9/",
    ] {
        // The text is far longer than the limit of handles, to measure the limit as well.
        let make = |size| format!("skill://r/{}", repeated(shape, size));
        assert_in_proportion(shape, 1 << 20, make, |text| {
            drop(ResourceHandle::parse(text));
        });
        assert_in_proportion(shape, 2_000, make, |text| {
            for _ in 0..200 {
                let _ = ResourceHandle::parse(text);
            }
        });
    }
}

#[test]
fn source_excerpts_are_made_in_linear_time() {
    for shape in ["a", "é", "\u{301}", "\t", "\n", " "] {
        let make = |size| repeated(shape, size);
        assert_in_proportion(&format!("{shape:?}"), 1 << 20, make, |text| {
            for column in [1, 1_000, u32::MAX] {
                drop(SourceExcerpt::new(text.as_bytes(), 1, column));
            }
        });
    }
}
