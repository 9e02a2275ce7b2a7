//! Excerpt of the source line of a diagnostic: escaped, truncated, with the span to mark.

use caproot_core::text::EscapedBytes;
use caproot_core::text::fences::BYTE_ORDER_MARK;
use std::ops::Range;
use unicode_width::UnicodeWidthStr as _;

/// Maximum width of an excerpt in columns.
const MAX_COLUMNS: usize = 100;
/// Columns before the span, if a long line is truncated.
const LEAD_COLUMNS: usize = 40;
/// Maximum length of a key that is marked as a whole.
const MAX_KEY: usize = 64;
/// Characters before and after the column that are examined: more than are ever shown.
const CONTEXT_CHARS: usize = 2 * MAX_COLUMNS;

/// Source line that is ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceExcerpt {
    /// Text of the line. If the line is truncated, the part around the column with `…`.
    pub text: String,
    /// Bytes of `text` to mark. Empty at the end of the line.
    pub span: Range<usize>,
}

impl SourceExcerpt {
    /// Extracts a line from a file. Line and column count as in diagnostics. Returns `None` if the
    /// file has no such line, for example because the file changed.
    #[must_use]
    pub fn new(file: &[u8], line: u32, column: u32) -> Option<Self> {
        let without_mark = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let raw = without_mark.split(|b| *b == b'\n').nth(index)?;
        let line = raw.strip_suffix(b"\r").unwrap_or(raw);

        let count = line_pieces(line).count();
        let at_in_line = (column.max(1) as usize - 1).min(count);
        let skipped = at_in_line.saturating_sub(CONTEXT_CHARS);
        let near: Vec<String> = line_pieces(line)
            .skip(skipped)
            .take(2 * CONTEXT_CHARS)
            .map(|piece| EscapedBytes(piece).to_string())
            .collect();
        let at = at_in_line - skipped;
        let end = at + key_len(&near[at..]);

        // Characters without width count as one column, so that their number is limited.
        let widths: Vec<usize> = near.iter().map(|piece| piece.width().max(1)).collect();
        let is_whole = near.len() == count && widths.iter().sum::<usize>() <= MAX_COLUMNS;
        let (from, to) = if is_whole {
            (0, count)
        } else {
            partial_range(&widths, at)
        };

        let mut text = String::from(if skipped + from > 0 { "…" } else { "" });
        let mut span = text.len()..text.len();
        for (n, piece) in near.iter().enumerate().take(to).skip(from) {
            if n == at {
                span = text.len()..text.len();
            }
            text.push_str(piece);
            if n < end {
                span.end = text.len();
            }
        }
        if at >= to {
            span = text.len()..text.len();
        }
        span.start = span.start.min(span.end);

        if skipped + to < count {
            text.push('…');
        }
        Some(Self { text, span })
    }
}

/// Splits a line into characters and runs of invalid bytes.
fn line_pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid();
        valid
            .char_indices()
            .map(|(at, c)| &valid.as_bytes()[at..at + c.len_utf8()])
            .chain(Some(chunk.invalid()).filter(|bytes| !bytes.is_empty()))
    })
}

/// Length of the span: a whole key if a key starts here, otherwise one character.
fn key_len(rest: &[String]) -> usize {
    let len = rest
        .iter()
        .take(MAX_KEY + 1)
        .take_while(|piece| {
            let mut characters = piece.chars();
            characters.all(|c| c.is_alphanumeric() || "-_\"'.".contains(c))
        })
        .count();
    let mut following = rest[len..].iter().skip_while(|piece| *piece == " ");
    if len > 0 && following.next().is_some_and(|piece| piece == ":") {
        len
    } else {
        rest.len().min(1)
    }
}

/// Range of the pieces that are shown, if the line is truncated.
fn partial_range(widths: &[usize], at: usize) -> (usize, usize) {
    let before = count_fitting(widths[..at].iter().rev(), LEAD_COLUMNS);
    // If only a few columns before the span would be truncated, the line starts at its beginning.
    let all_before = count_fitting(widths[..at].iter().rev(), 2 * LEAD_COLUMNS);
    let from = if all_before == at { 0 } else { at - before };
    (
        from,
        from + count_fitting(widths[from..].iter(), MAX_COLUMNS),
    )
}

/// Counts the first widths that fit into a number of columns.
fn count_fitting<'a>(widths: impl Iterator<Item = &'a usize>, mut room: usize) -> usize {
    let mut count = 0;
    for width in widths {
        if *width > room {
            break;
        }
        room -= width;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::SourceExcerpt;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr as _;

    fn marked(file: &[u8], line: u32, column: u32) -> Option<String> {
        let SourceExcerpt { text, span } = SourceExcerpt::new(file, line, column)?;
        let (before, rest) = text.split_at(span.start);
        let (inside, after) = rest.split_at(span.len());
        Some(format!("{before}<{inside}>{after}"))
    }

    #[test]
    fn span_marks_the_column() {
        for (file, line, column, expected) in [
            (b"---\nname: x\n".as_slice(), 2, 1, Some("<name>: x")),
            (
                b"a\n  \"allowed-tools\" : x\r\n",
                2,
                3,
                Some("  <\"allowed-tools\"> : x"),
            ),
            (b"a: b: c", 1, 5, Some("a: b<:> c")),
            (b"---", 1, 1, Some("<->--")),
            (b"\xef\xbb\xbf---", 1, 1, Some("<->--")),
            (b"ab", 1, 3, Some("ab<>")),
            (b"ab", 1, 99, Some("ab<>")),
            (b"", 1, 1, Some("<>")),
            (b"a\tb", 1, 2, Some(r"a<\u{9}>b")),
            ("\u{202e}é: x".as_bytes(), 1, 2, Some(r"\u{202e}<é>: x")),
            (b"caf\xe9 au lait", 1, 4, Some(r"caf<\xe9> au lait")),
            (b"a", 2, 1, None),
            (b"a", 0, 0, None),
        ] {
            assert_eq!(marked(file, line, column).as_deref(), expected);
        }
    }

    #[test]
    fn long_lines_are_cut_around_the_column() {
        let line = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        let at = marked(line.as_bytes(), 1, 501).expect("a line");
        assert_eq!(at, format!("…{}<!>{}…", "a".repeat(40), "b".repeat(59)));
        let start = marked(line.as_bytes(), 1, 1).expect("a line");
        assert_eq!(start, format!("<a>{}…", "a".repeat(99)));
        let end = marked(line.as_bytes(), 1, 9_999).expect("a line");
        assert_eq!(end, format!("…{}<>", "b".repeat(40)));
        let invisible = format!("a: {}", "\u{301}".repeat(9_999));
        let cut = SourceExcerpt::new(invisible.as_bytes(), 1, 1).expect("a line");
        assert_eq!(cut.text.chars().count(), 101);
    }

    proptest! {
        #[test]
        fn any_line_can_be_shown(file: Vec<u8>, line in 0u32..9, column in 0u32..300) {
            if let Some(SourceExcerpt { text, span }) = SourceExcerpt::new(&file, line, column) {
                prop_assert!(text.get(span).is_some());
                prop_assert!(text.width() <= super::MAX_COLUMNS + 2);
            }
        }
    }
}
