//! Positions in a text as lines and characters from 1, as editors count.

/// Returns the line and column of the byte at `index`, or of the end of the text if `index` is
/// beyond the end.
#[must_use]
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

/// Converts a number of lines or characters.
pub(crate) fn saturating_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::position_of_byte;
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

    proptest! {
        #[test]
        fn positions_are_in_the_text(text in "[ab:é\r\n -]{0,40}", index in 0_usize..90) {
            let lines: Vec<&str> = text.split('\n').collect();
            let (line, column) = position_of_byte(text.as_bytes(), index);
            let found = lines[line as usize - 1].chars().count();
            prop_assert!((1..=found + 1).contains(&(column as usize)));
        }
    }
}
