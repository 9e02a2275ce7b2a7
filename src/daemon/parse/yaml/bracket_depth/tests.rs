use std::cell::Cell;
use std::fmt;

use proptest::prelude::*;
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::find_bracket_deeper_than;

/// Records the bracket depth that the library certainly reaches, even if parsing ends in an error.
#[derive(Clone, Copy)]
struct DepthProbe<'a> {
    depth: usize,
    deepest: &'a Cell<usize>,
    position: ProbePosition,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ProbePosition {
    /// A document that begins with a bracket. If the document turns out to be a mapping, the
    /// bracket is its first key.
    Whole,
    /// A list in which only the item at this index begins with a bracket.
    List(usize),
    /// A part that is not measured.
    Other,
    Inside,
    /// Directly in a list. A mapping here may have no brackets, but then has only one entry.
    Item,
}

impl<'de> DeserializeSeed<'de> for DepthProbe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deepest.set(self.deepest.get().max(self.depth));
        deserializer.deserialize_any(self)
    }
}

impl DepthProbe<'_> {
    fn inside(self, position: ProbePosition) -> Self {
        Self {
            depth: self.depth + 1,
            position,
            ..self
        }
    }
}

impl<'de> Visitor<'de> for DepthProbe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let other = Self {
            position: ProbePosition::Other,
            ..self
        };
        let mut index = 0;
        loop {
            let item = match self.position {
                ProbePosition::List(at) if at == index => Self {
                    position: ProbePosition::Whole,
                    ..self
                },
                ProbePosition::Other | ProbePosition::List(_) => other,
                ProbePosition::Whole | ProbePosition::Inside | ProbePosition::Item => {
                    self.inside(ProbePosition::Item)
                }
            };
            index += 1;
            if items.next_element_seed(item)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut inside = match self.position {
            ProbePosition::Whole | ProbePosition::List(_) | ProbePosition::Other => Self {
                position: ProbePosition::Other,
                ..self
            },
            ProbePosition::Inside => self.inside(ProbePosition::Inside),
            ProbePosition::Item => Self {
                position: ProbePosition::Inside,
                ..self
            },
        };
        while entries.next_key_seed(inside)?.is_some() {
            entries.next_value_seed(inside)?;
            if self.position == ProbePosition::Item && inside.depth == self.depth {
                inside = self.inside(ProbePosition::Inside);
            }
        }
        Ok(())
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        use serde::de::VariantAccess as _;
        let (serde::de::IgnoredAny, content) = tagged.variant()?;
        content.newtype_variant_seed(self)
    }
}

fn library_depth(yaml: &str, position: ProbePosition) -> usize {
    let deepest = Cell::new(0);
    let probe = DepthProbe {
        depth: 0,
        deepest: &deepest,
        position,
    };
    let _ = probe.deserialize(serde_yaml::Deserializer::from_str(yaml));
    deepest.get()
}

#[test]
fn deep_nests_are_found_even_if_their_ends_are_hidden() {
    for unit in [
        "[",
        "{",
        "[{",
        "{a: ",
        "[\"]\",",
        "['}',{a: ",
        "{\"}\":",
        "[']',",
        "{? [",
        "[\"\\\"]\",",
        "['it''s]',",
        "[a #]\n,",
        "[a,#]\n",
        "[!<]> a,",
        "[!<,]> a,",
        "[!x ']',",
        "[&a \"]\",",
        "[*a ,[\"]\",",
        "[a: \"]\",",
        "[a:\u{85}\"]\",",
        "[#]\u{2028}",
        "[a #]\u{85},",
        "[\u{feff}\"]\",",
        "[- \"]\",",
        "[-a\"[",
        "[\n']',",
        "[a\"[\",",
        "['[', ",
        "[it's, [",
    ] {
        let text = unit.repeat(400);
        let found = find_bracket_deeper_than(256, &text);
        assert!(found.is_some(), "{unit:?}");
        assert!(text.is_char_boundary(found.unwrap_or(1)), "{unit:?}");
    }
}

#[test]
fn shallow_texts_are_not_reported() {
    for unit in [
        "[]",
        "[a], ",
        "{a: [b]}, ",
        "- [ ] a task\n",
        "[a](http://b/c) and ",
        "[\"]\"] ",
        "{ \"a\": [\"b\", 'c'] }\n",
        "it's [a \"b] c\n",
        "if [[ $a ]]; then b; fi\n",
        "a[\"b\"] ",
        "[\"']",
        "['\"], ",
        "don't [click here](x) \"now\"\n",
        "# [ ] and { }\n",
        "[a, b): (c, d] ",
        "${a}/{b} ",
        "[^\"]+ ",
        "[0-9'] ",
    ] {
        assert_eq!(
            find_bracket_deeper_than(64, &unit.repeat(3_000)),
            None,
            "{unit:?}"
        );
    }
}

#[test]
fn the_maximum_depth_is_allowed() {
    let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(find_bracket_deeper_than(9, &nest(9)), None);
    assert_eq!(find_bracket_deeper_than(9, &nest(10)), Some(9));
    assert_eq!(
        find_bracket_deeper_than(9, &format!("a: {}", nest(10))),
        Some(12)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_depth_is_never_below_the_depth_in_the_library(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "[", "]", "{", "}", ",", ":", ": ", "- ", "-", "\"", "'", "''", "\\", "\\\"",
                "#", " #", " ", "\n", "\r", "\t", "&a", "*s", "&a ", "!a ", "!<", "> ", "a", "1",
                "\u{85}", "\u{2028}", "\u{feff}", "ä", "~", "|", "%", "@", "[\"", "\"]", "['", "']",
                "{a: ", "a, ", "\", ", "', ",
            ]),
            1..24,
        ),
        times in 1_usize..6,
        (before, part) in prop::sample::select(vec![
            ("[", ProbePosition::Whole),
            ("- |\n  \"\n- [", ProbePosition::List(1)),
            ("- &s it's '\n- [", ProbePosition::List(1)),
            ("- &s a [\"\n- \"[\"\n- [", ProbePosition::List(2)),
        ]),
    ) {
        let text = format!("{before}{}", parts.concat().repeat(times));
        if let Some(less) = library_depth(&text, part).checked_sub(1) {
            prop_assert!(find_bracket_deeper_than(less, &text).is_some(), "{less} {text:?}");
        }
    }
}
