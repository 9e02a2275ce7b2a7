//! Choice of the lines of an instruction text, and of the length of their descriptions.
//!
//! Pinned skills come first: while a skill without a pin is shown, each pinned skill is shown whole.
//! Among equals, all descriptions are truncated to one length. If the length would be below
//! [`MIN_DESCRIPTION_BYTES`], every skill is named first, and only as many skills as fit keep a description
//! of this length. If not all names fit, no description is shown. Roots take turns, so that none is left
//! out for the skills of another one. Skills with a long name or handle are omitted first.

use super::SkillLine;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Length to which descriptions are truncated before they are dropped, in bytes. With 357 skills of public
/// collections in texts of 12,000 to 24,000 bytes, keyword queries find the most skills among the lines with 30
/// to 40 bytes.
const MIN_DESCRIPTION_BYTES: usize = 40;
/// If not all skills fit, a skill whose line takes more bytes without a description is omitted first, so
/// that a few deep directories do not use up the budget of all other skills.
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

impl SkillLine {
    fn heading_id(&self) -> HeadingId {
        Rc::as_ptr(&self.heading).cast()
    }

    /// Returns the bytes of the line without a description, and of its heading unless an earlier line has it.
    fn named_len(&self, headings: &HashSet<HeadingId>) -> usize {
        let is_known = headings.contains(&self.heading_id());
        let heading_bytes = if is_known { 0 } else { self.heading.len() };
        heading_bytes + self.text.base_len()
    }

    /// Returns the bytes of the description if it is truncated to `max_len` bytes, with the separator.
    fn described_len(&self, max_len: usize) -> usize {
        match self.text.description.len().min(max_len) {
            0 => 0,
            length => length + SEPARATOR_BYTES,
        }
    }
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
    let (pinned, others): (Vec<_>, Vec<_>) =
        (0..lines.len()).partition(|index| lines[*index].is_pinned);

    let mut fit = LineFit {
        lines,
        shares: vec![LineShare::OmittedWithoutRoom; lines.len()],
        room: room.bytes,
        headings: HashSet::new(),
    };
    // Next to other lines, pinned lines are whole.
    let pinned_len = if others.is_empty() { 0 } else { usize::MAX };
    if lines_len(lines, pinned_len) > room.bytes {
        fit.room = room.bytes.saturating_sub(room.closing_bytes);
        for index in &others {
            if lines[*index].text.base_len() > MAX_LINE_BYTES {
                fit.shares[*index] = LineShare::OmittedAsTooLong;
            }
        }
    }

    fit.add_equals(&pinned);
    if pinned.iter().all(|index| fit.is_whole(*index)) {
        fit.add_equals(&others);
    }
    fit.shares
}

/// Returns the bytes of all lines with their headings, if the descriptions of pinned lines are truncated
/// to a length, and other lines have none.
fn lines_len(lines: &[SkillLine], pinned_len: usize) -> usize {
    let mut headings = HashSet::new();
    let lines = lines.iter().map(|line| {
        let named_len = line.named_len(&headings);
        headings.insert(line.heading_id());
        let max_len = if line.is_pinned { pinned_len } else { 0 };
        named_len + line.described_len(max_len)
    });
    lines.sum()
}

impl LineFit<'_> {
    /// Adds lines, and divides the rest of the room evenly among their descriptions. If the descriptions
    /// would become too short, only some lines keep one. Lines of different roots take turns.
    fn add_equals(&mut self, indexes: &[usize]) {
        let turns = self.take_turns(indexes);
        let named = self.add_names(&turns);

        // A name is worth more than a description of another skill.
        if named.len() < turns.len() {
            return;
        }

        let mut described = Vec::new();
        for index in named {
            let bytes = self.lines[index].described_len(MIN_DESCRIPTION_BYTES);
            if bytes <= self.room {
                self.room -= bytes;
                described.push(index);
            }
        }

        let max_len = self.longest_fitting_len(&described);
        self.room -= self.extra_len(&described, max_len);
        for index in described {
            self.shares[index] = LineShare::Description(max_len);
        }
    }

    /// Returns the lines that may be shown: the first of each root, then the second of each root, and so on.
    fn take_turns(&self, indexes: &[usize]) -> Vec<usize> {
        let mut counts: HashMap<HeadingId, usize> = HashMap::new();
        let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(indexes.len());
        for index in indexes {
            if self.shares[*index] == LineShare::OmittedAsTooLong {
                continue;
            }
            let count = counts.entry(self.lines[*index].heading_id()).or_default();
            ranked.push((*count, *index));
            *count += 1;
        }

        ranked.sort_unstable();
        ranked.into_iter().map(|(_, index)| index).collect()
    }

    /// Adds the lines that fit without a description, and returns them.
    fn add_names(&mut self, indexes: &[usize]) -> Vec<usize> {
        let mut named = Vec::new();
        for index in indexes {
            let line = &self.lines[*index];
            let bytes = line.named_len(&self.headings);
            if bytes <= self.room {
                self.room -= bytes;
                self.headings.insert(line.heading_id());
                self.shares[*index] = LineShare::Description(0);
                named.push(*index);
            }
        }
        named
    }

    /// Returns the greatest length to which the descriptions of these lines can be truncated.
    fn longest_fitting_len(&self, indexes: &[usize]) -> usize {
        let whole = indexes
            .iter()
            .map(|index| &self.lines[*index])
            .map(|line| line.text.description.len())
            .max()
            .unwrap_or(0);
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
        indexes
            .iter()
            .map(|index| &self.lines[*index])
            .map(|line| line.described_len(max_len) - line.described_len(MIN_DESCRIPTION_BYTES))
            .sum()
    }

    /// Returns whether a line is shown with its whole description.
    fn is_whole(&self, index: usize) -> bool {
        let length = self.lines[index].text.description.len();
        matches!(self.shares[index], LineShare::Description(max_len) if max_len >= length)
    }
}
