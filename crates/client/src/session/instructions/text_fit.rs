//! Choice of the lines of an instruction text, and of the length of their descriptions.
//!
//! Pinned skills come first: while a skill without a pin is shown, each pinned skill is shown whole.
//! Among equals, all descriptions are truncated to one length. If the length would be below
//! [`MIN_DESCRIPTION_BYTES`], skills are omitted instead: a few skills that a model can choose by their
//! descriptions are worth more than many bare names. Skills with a long name and handle are omitted
//! first, then skills from the end.

use super::SkillLine;
use std::collections::HashSet;
use std::rc::Rc;

/// Length to which descriptions are truncated before skills are omitted, in bytes. With 357 skills of
/// public collections in 8,000 bytes, this length shows the most skills of which a line has two words
/// of a keyword query: 5.9 % of the queries, and 3.9 % with bare names.
const MIN_DESCRIPTION_BYTES: usize = 100;
/// If not all skills fit, a skill whose name and handle take more bytes is omitted first, so that a
/// few deep directories do not use up the budget of all other skills.
const MAX_LINE_BYTES: usize = 512;
/// Text between a name and a description.
const SEPARATOR_BYTES: usize = ": ".len();

/// Room for the lines of a text.
#[derive(Debug, Clone, Copy)]
pub struct TextRoom {
    /// Bytes of the lines and of the closing line.
    pub bytes: usize,
    /// Bytes of the longest closing line, which the text has if a skill is omitted.
    pub closing_bytes: usize,
}

/// Part of the text that a line gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineShare {
    /// The line with at most this number of bytes of its description.
    Description(usize),
    OmittedWithoutRoom,
    OmittedAsTooLong,
}

/// Identity of the heading of adjacent lines.
type HeadingId = *const u8;

fn heading_id(line: &SkillLine) -> HeadingId {
    Rc::as_ptr(&line.heading).cast()
}

/// Distribution of the room among the lines.
struct LineFit<'a> {
    lines: &'a [SkillLine],
    shares: Vec<LineShare>,
    /// Bytes that are left.
    room: usize,
    /// Headings of the lines that are shown. Lines with one heading share it.
    headings: HashSet<HeadingId>,
}

/// Returns the share of each line.
pub fn fit_lines(lines: &[SkillLine], room: TextRoom) -> Vec<LineShare> {
    let pinned: Vec<_> = (0..lines.len()).filter(|n| lines[*n].is_pinned).collect();
    let others: Vec<_> = (0..lines.len()).filter(|n| !lines[*n].is_pinned).collect();

    let mut fit = LineFit {
        lines,
        shares: vec![LineShare::OmittedWithoutRoom; lines.len()],
        room: room.bytes,
        headings: HashSet::new(),
    };
    // Next to other lines, pinned lines are whole.
    let pinned_len = if others.is_empty() {
        MIN_DESCRIPTION_BYTES
    } else {
        usize::MAX
    };
    if lines_len(lines, pinned_len, MIN_DESCRIPTION_BYTES) > room.bytes {
        fit.room = room.bytes.saturating_sub(room.closing_bytes);
        fit.omit_long_lines(&others);
    }

    fit.add_equals(&pinned);
    if pinned.iter().all(|index| fit.is_whole(*index)) {
        fit.add_equals(&others);
    }
    fit.shares
}

/// Returns the bytes of all lines with their headings, if the descriptions of pinned and of other lines
/// are truncated to these lengths.
fn lines_len(lines: &[SkillLine], pinned_len: usize, other_len: usize) -> usize {
    let mut headings = HashSet::new();
    let lines = lines.iter().map(|line| {
        let is_new = headings.insert(heading_id(line));
        let heading_bytes = if is_new { line.heading.len() } else { 0 };
        let max_len = if line.is_pinned {
            pinned_len
        } else {
            other_len
        };
        heading_bytes + line.base_len() + described_len(line, max_len)
    });
    lines.sum()
}

/// Returns the bytes of a description that is truncated to `max_len` bytes, with the separator.
fn described_len(line: &SkillLine, max_len: usize) -> usize {
    match line.description.len().min(max_len) {
        0 => 0,
        length => length + SEPARATOR_BYTES,
    }
}

impl LineFit<'_> {
    fn omit_long_lines(&mut self, indexes: &[usize]) {
        for index in indexes {
            if self.lines[*index].base_len() > MAX_LINE_BYTES {
                self.shares[*index] = LineShare::OmittedAsTooLong;
            }
        }
    }

    /// Adds lines in their order until one does not fit, and divides the rest of the room evenly among
    /// their descriptions.
    fn add_equals(&mut self, indexes: &[usize]) {
        let mut added = Vec::new();
        for index in indexes {
            if self.shares[*index] == LineShare::OmittedAsTooLong {
                continue;
            }

            let line = &self.lines[*index];
            let is_new = !self.headings.contains(&heading_id(line));
            let heading_bytes = if is_new { line.heading.len() } else { 0 };
            let fixed_bytes = heading_bytes + line.base_len();
            let least_bytes = fixed_bytes + described_len(line, MIN_DESCRIPTION_BYTES);
            if least_bytes > self.room {
                break;
            }

            self.room -= least_bytes;
            self.headings.insert(heading_id(line));
            added.push(*index);
        }

        let max_len = self.longest_fitting_len(&added);
        self.room -= self.extra_len(&added, max_len);
        for index in added {
            self.shares[index] = LineShare::Description(max_len);
        }
    }

    /// Returns the greatest length to which the descriptions of these lines can be truncated.
    fn longest_fitting_len(&self, indexes: &[usize]) -> usize {
        let lengths = indexes
            .iter()
            .map(|index| self.lines[*index].description.len());
        let whole = lengths.max().unwrap_or(0);
        if self.extra_len(indexes, whole) <= self.room {
            return whole.max(MIN_DESCRIPTION_BYTES);
        }

        let mut fits = MIN_DESCRIPTION_BYTES;
        let mut over = whole;
        while over - fits > 1 {
            let middle = fits.midpoint(over);
            if self.extra_len(indexes, middle) <= self.room {
                fits = middle;
            } else {
                over = middle;
            }
        }
        fits
    }

    /// Returns the bytes that descriptions of this length take more than the shortest ones.
    fn extra_len(&self, indexes: &[usize], max_len: usize) -> usize {
        let lines = indexes.iter().map(|index| &self.lines[*index]);
        lines
            .map(|line| described_len(line, max_len) - described_len(line, MIN_DESCRIPTION_BYTES))
            .sum()
    }

    /// Returns whether a line is shown with its whole description.
    fn is_whole(&self, index: usize) -> bool {
        let length = self.lines[index].description.len();
        matches!(self.shares[index], LineShare::Description(max_len) if max_len >= length)
    }
}
