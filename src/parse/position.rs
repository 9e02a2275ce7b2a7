//! Positions in a text as lines and characters from 1, as editors count.

/// Returns the line and column of the byte at `index`, or of the end of the text if `index` is
/// beyond the end.
pub fn position_of_byte(text: &[u8], index: usize) -> (u32, u32) {
    let before = &text[..index.min(text.len())];
    let start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |i| i + 1);
    let line = before[..start].split(|b| *b == b'\n').count();
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    (saturating_u32(line), saturating_u32(column))
}

/// Returns the line and column of a key in block-style YAML. The first key of `path` must begin a
/// line. Each next key is searched in the lines below, up to the next line that is not indented.
/// Returns (0, 0) if the key is not found, for example in flow style.
#[cfg(feature = "daemon")]
pub fn position_of_key(yaml: &str, path: &[&str]) -> (u32, u32) {
    let mut lines = yaml.lines().zip(1..).peekable();
    let mut found = (0, 0);
    for (level, key) in path.iter().enumerate() {
        loop {
            let Some((line, number)) = lines.next() else {
                return (0, 0);
            };
            let key_text = line.trim_start_matches([' ', '-']);
            if level > 0 && line.len() == key_text.len() && !is_blank(line) {
                return (0, 0);
            }
            if (level > 0 || line.len() == key_text.len()) && is_key(key_text, key) {
                found = (number, saturating_u32(line.len() - key_text.len() + 1));
                break;
            }
        }
    }
    found
}

#[cfg(feature = "daemon")]
fn is_blank(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

#[cfg(feature = "daemon")]
fn is_key(line: &str, key: &str) -> bool {
    let quote = line.chars().next().filter(|c| matches!(c, '"' | '\''));
    let rest = match quote {
        Some(quote) => line[1..]
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix(quote)),
        None => line.strip_prefix(key),
    };
    rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
}

fn saturating_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(all(test, feature = "daemon"))]
mod tests {
    use super::{position_of_byte, position_of_key};
    use proptest::prelude::*;

    #[test]
    fn lines_and_characters_count_from_one() {
        for (text, index, expected) in [
            ("", 0, (1, 1)),
            ("ab", 1, (1, 2)),
            ("ä:b", 2, (1, 2)),
            ("a\nb", 2, (2, 1)),
            ("a\r\nbc", 4, (2, 2)),
            ("a\n", 99, (2, 1)),
        ] {
            assert_eq!(
                position_of_byte(text.as_bytes(), index),
                expected,
                "{text:?} {index}"
            );
        }
    }

    #[test]
    fn keys_are_found_by_their_path() {
        let yaml = "a: 1\n\"b\" :\n  # x\n  c: 2\n\n  - d: 3\ne: 4\n";
        for (path, expected) in [
            (vec!["a"], (1, 1)),
            (vec!["b"], (2, 1)),
            (vec!["b", "c"], (4, 3)),
            (vec!["b", "d"], (6, 5)),
            (vec!["b", "e"], (0, 0)),
            (vec!["c"], (0, 0)),
            (vec!["e"], (7, 1)),
        ] {
            assert_eq!(position_of_key(yaml, &path), expected, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn positions_are_in_the_text(text in "[ab:é\r\n -]{0,40}", index in 0_usize..90) {
            let lines: Vec<&str> = text.split('\n').collect();
            let (line, column) = position_of_byte(text.as_bytes(), index);
            let found = lines[line as usize - 1].chars().count();
            prop_assert!((1..=found + 1).contains(&(column as usize)));
            for path in [&["a"][..], &["b", "a"], &["a", "b", "a"]] {
                let (line, column) = position_of_key(&text, path);
                let key = (line as usize).checked_sub(1).map(|line| &lines[line][column as usize - 1..]);
                prop_assert!(key.is_none_or(|key| key.starts_with(path[path.len() - 1])));
            }
        }
    }
}
