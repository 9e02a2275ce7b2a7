//! Positions of keys in YAML.

/// Returns the line and column of a key in block-style YAML. The first key of `path` must begin a
/// line. Each next key is searched in the lines below, up to the next line that is not indented.
/// Returns (0, 0) if the key is not found, for example in flow style.
pub fn position_of_key(yaml: &str, path: &[&str]) -> (u32, u32) {
    let mut lines = yaml.lines().zip(1..).peekable();
    let mut found = (0, 0);
    for (level, key) in path.iter().enumerate() {
        loop {
            let Some((line, number)) = lines.next() else {
                return (0, 0);
            };

            let key_text = line.trim_start_matches([' ', '-']);
            let is_blank = line.trim().is_empty() || line.trim().starts_with('#');
            if level > 0 && line.len() == key_text.len() && !is_blank {
                return (0, 0);
            }
            if (level > 0 || line.len() == key_text.len()) && is_key(key_text, key) {
                let column = u32::try_from(line.len() - key_text.len() + 1);
                found = (number, column.unwrap_or(u32::MAX));
                break;
            }
        }
    }
    found
}

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

#[cfg(test)]
mod tests {
    use super::position_of_key;
    use proptest::prelude::*;

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
        fn positions_of_keys_are_in_the_text(text in "[ab:é\r\n -]{0,40}") {
            let lines: Vec<&str> = text.split('\n').collect();
            for path in [&["a"][..], &["b", "a"], &["a", "b", "a"]] {
                let (line, column) = position_of_key(&text, path);
                let key = (line as usize).checked_sub(1).map(|line| &lines[line][column as usize - 1..]);
                prop_assert!(key.is_none_or(|key| key.starts_with(path[path.len() - 1])));
            }
        }
    }
}
