//! Comparison of texts with few edits.

use strsim::osa_distance;

/// Text that others are compared with, and the most edits that they may have.
pub struct MisspelledText<'a> {
    text: &'a str,
    chars: usize,
    char_set: u64,
    max_edits: usize,
}

impl<'a> MisspelledText<'a> {
    pub fn new(text: &'a str, max_edits: usize) -> Self {
        Self {
            text,
            chars: text.chars().count(),
            char_set: char_set(text),
            max_edits,
        }
    }

    /// Returns the number of edits to a text, if the number is within the limit. A swap of adjacent
    /// characters is one edit.
    pub fn edits_to(&self, text: &str) -> Option<usize> {
        if text.chars().count().abs_diff(self.chars) > self.max_edits {
            return None;
        }
        // An edit replaces at most one character by another, so it changes at most two bits. Most texts
        // are rejected here, as the distance takes long.
        let changed = (self.char_set ^ char_set(text)).count_ones() as usize;
        if changed > 2 * self.max_edits {
            return None;
        }
        Some(osa_distance(self.text, text)).filter(|edits| *edits <= self.max_edits)
    }
}

/// Returns a set of the characters of a text as bits. Rare characters share bits.
fn char_set(text: &str) -> u64 {
    let bits = text.chars().map(|c| match c {
        'a'..='z' => u32::from(c) - u32::from('a'),
        '0'..='9' => 26 + u32::from(c) - u32::from('0'),
        _ => 36 + u32::from(c) % 28,
    });
    bits.fold(0, |set, bit| set | 1 << bit)
}

#[cfg(test)]
mod tests {
    use super::MisspelledText;
    use proptest::prelude::*;
    use strsim::osa_distance;

    proptest! {
        #[test]
        fn edits_are_those_of_all_pairs(
            texts in prop::collection::vec("[a-c表é0-1]{0,6}", 0..12), typed in "[a-c表é0-1]{0,6}", max in 0_usize..3,
        ) {
            let misspelled = MisspelledText::new(&typed, max);
            for text in &texts {
                let distance = osa_distance(&typed, text);
                prop_assert_eq!(misspelled.edits_to(text), Some(distance).filter(|d| *d <= max));
            }
        }
    }
}
