//! Table of short texts in one allocation, and the search for texts with few edits.

use strsim::osa_distance;

/// Texts by index.
#[derive(Debug, Default)]
pub struct TextTable {
    bytes: String,
    /// End of each text in `bytes`.
    ends: Vec<u32>,
    /// Characters of each text, as [`char_set`] has them.
    char_sets: Vec<u64>,
}

/// Text that others are compared with, and the most edits that they may have.
#[derive(Debug)]
pub struct MisspelledText<'a> {
    text: &'a str,
    chars: usize,
    char_set: u64,
    max_edits: usize,
}

impl TextTable {
    /// Returns an empty table with room for the texts of another.
    pub fn with_room_of(other: &Self) -> Self {
        Self {
            bytes: String::with_capacity(other.bytes.len()),
            ends: Vec::with_capacity(other.len()),
            char_sets: Vec::with_capacity(other.len()),
        }
    }

    pub fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.ends.push(to_u32(self.bytes.len()));
        self.char_sets.push(char_set(text));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// Returns the index of a text. The texts must be sorted.
    pub fn find_sorted(&self, text: &str) -> Option<usize> {
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle) < text {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.len() && self.get(low) == text).then_some(low)
    }

    /// Returns the number of edits between a misspelled text and the text at an index, if the number
    /// is within its limit.
    pub fn edits(&self, misspelled: &MisspelledText<'_>, index: usize) -> Option<usize> {
        if !misspelled.may_have_char_set(self.char_sets[index]) {
            return None;
        }
        misspelled.edits_to(self.get(index))
    }

    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity() + 8 * self.char_sets.capacity()
    }

    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.char_sets.shrink_to_fit();
    }
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
        // A character has at most four bytes, so most texts are rejected without a count.
        if text.len() + self.max_edits < self.chars {
            return None;
        }
        if text.chars().count().abs_diff(self.chars) > self.max_edits {
            return None;
        }
        Some(osa_distance(self.text, text)).filter(|edits| *edits <= self.max_edits)
    }

    /// Returns whether a text with these characters may be within the limit. An edit replaces at most
    /// one character by another, so it changes at most two bits.
    fn may_have_char_set(&self, char_set: u64) -> bool {
        let changed = (self.char_set ^ char_set).count_ones() as usize;
        changed <= 2 * self.max_edits
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

/// Returns a number as 32 bits. A catalog with more than 2^32 words does not fit into memory.
pub fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{MisspelledText, TextTable};
    use proptest::prelude::*;
    use strsim::osa_distance;

    proptest! {
        #[test]
        fn edits_are_those_of_all_pairs(
            texts in prop::collection::vec("[a-c表é0-1]{0,6}", 0..12), typed in "[a-c表é0-1]{0,6}", max in 0_usize..3,
        ) {
            let mut table = TextTable::default();
            for text in &texts {
                table.push(text);
            }
            let misspelled = MisspelledText::new(&typed, max);
            for (index, text) in texts.iter().enumerate() {
                let distance = osa_distance(&typed, text);
                prop_assert_eq!(table.edits(&misspelled, index), Some(distance).filter(|d| *d <= max));
                prop_assert_eq!(table.get(index), text);
            }
        }

        #[test]
        fn sorted_texts_are_found(texts in prop::collection::btree_set("[a-d]{0,3}", 0..20), other in "[a-d]{0,3}") {
            let mut table = TextTable::default();
            for text in &texts {
                table.push(text);
            }
            let expected = texts.iter().position(|text| *text == other);
            prop_assert_eq!(table.find_sorted(&other), expected);
        }
    }
}
