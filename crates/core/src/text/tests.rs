use super::{
    EscapedBytes, collapse_whitespace, escape_json, escape_text, exceeds_chars, is_misleading,
    quote_value, quote_word, quote_words, single_line, truncate_chars, truncate_escaped,
    truncate_with_ellipsis, wrap_words,
};
use proptest::prelude::*;

#[test]
fn misleading_characters_are_escaped() {
    for (text, safe) in [
        ("plain é 漢字 👩\u{200d}🚀", "plain é 漢字 👩\u{200d}🚀"),
        ("a\u{202e}b", r"a\u{202e}b"),
        ("\x1b[31mred", r"\u{1b}[31mred"),
        ("two\nlines\r\t", r"two\u{a}lines\u{d}\u{9}"),
        ("\u{9b}c1", r"\u{9b}c1"),
        ("\u{2066}x\u{2069}", r"\u{2066}x\u{2069}"),
        ("\u{e0041}\u{feff}\u{200b}", r"\u{e0041}\u{feff}\u{200b}"),
    ] {
        assert_eq!(escape_text(text), safe);
        assert_eq!(EscapedBytes(text.as_bytes()).to_string(), safe);
    }
    assert_eq!(EscapedBytes(b"a\xff\n\xc3").to_string(), r"a\xff\u{a}\xc3");
}

#[test]
fn escaped_text_is_truncated_between_characters() {
    assert_eq!(
        (&*truncate_escaped("äb\n", 8), &*truncate_escaped("äb\n", 7)),
        (r"äb\u{a}", "äb…")
    );
    assert_eq!(&*truncate_escaped("äb", 1), "…");
    assert_eq!(
        (&*truncate_escaped("", 0), &*truncate_escaped("a", 0)),
        ("", "…")
    );
}

#[test]
fn escaped_json_has_the_same_value() {
    let value = serde_json::json!({ "a\u{202e}": "\u{9b}\u{e0041}\n漢", "b": [1, 2] });
    let plain = serde_json::to_string_pretty(&value).expect("JSON");
    let safe = escape_json(&plain);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"),
        value
    );
    assert!(
        safe.contains(r"a\u202e") && safe.contains(r"\u009b\udb40\udc41\n漢"),
        "{safe}"
    );
}

#[test]
fn white_space_is_collapsed() {
    assert_eq!(&*collapse_whitespace(" a \r\n\tb\u{a0}c "), "a b c");
    for text in [
        "a b c", " a", "a ", "a  b", "a\tb", "a\u{b}b", "ä  b", "ä b", "", " ",
    ] {
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(*collapse_whitespace(text), words.join(" "), "{text:?}");
    }
    assert_eq!(single_line(" a\n\u{b}b\u{2028}\0c\t"), "a b c");
    assert_eq!(single_line("\r\n"), "");
    assert_eq!(single_line("a\u{202e}\nb\u{200b}"), r"a\u{202e} b\u{200b}");
}

#[test]
fn long_text_is_truncated() {
    assert_eq!(truncate_chars("äöü", 2), "äö");
    assert_eq!(truncate_chars("äö", 2), "äö");
    assert!(exceeds_chars("äöü", 2) && !exceeds_chars("äöü", 3));
    assert_eq!(truncate_with_ellipsis("äbc", 4), "äbc");
    assert_eq!(truncate_with_ellipsis("äbcd", 4), "…");
    assert_eq!(truncate_with_ellipsis("äbcd", 5), "äbcd");
    assert_eq!(truncate_with_ellipsis("äbcde", 5), "ä…");
    assert_eq!(truncate_with_ellipsis("abc", 2), "");
}

#[test]
fn words_are_wrapped() {
    assert_eq!(
        wrap_words("# ", "ä bb  ccc\ndddddddd e", 7),
        "# ä bb\n# ccc\n# dddddddd\n# e\n"
    );
    assert_eq!(wrap_words("", "a b", 3), "a b\n");
}

#[test]
fn untrusted_text_is_quoted() {
    assert_eq!(quote_word("a\u{1b}[2J"), r"`a\u{1b}[2J`");
    assert_eq!(quote_word("a\u{202e}b"), r"`a\u{202e}b`");
    assert_eq!(
        quote_word(&"ä".repeat(65)),
        format!("`{}…`", "ä".repeat(64))
    );
    assert_eq!(quote_words(["a"; 10].into_iter()).matches("`a`").count(), 8);
    assert!(quote_words(["a"; 10].into_iter()).ends_with(" and 2 more"));
    assert_eq!(quote_value("a\"\\\u{3164}"), r#""a\"\\\u{3164}""#);
    assert_eq!(
        quote_value(&"ä".repeat(65)),
        format!("\"{}\"…", "ä".repeat(64))
    );
}

proptest! {
    #[test]
    fn escaped_text_has_no_misleading_character(text: String, odd in "[a\\PC\\p{Cc}\\p{Cf}]{0,20}") {
        for text in [text, odd] {
            let safe = escape_text(&text);
            prop_assert!(!safe.chars().any(is_misleading));
            // The longest escape is `\u{e0041}` for four bytes.
            prop_assert!(safe.len() <= 9 * text.len());
            for quoted in [quote_word(&text), quote_value(&text)] {
                prop_assert!(!quoted.chars().any(is_misleading), "{quoted}");
            }
        }
    }
}
