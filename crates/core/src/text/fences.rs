//! Finds the frontmatter of a Markdown file between its fences.

use std::ops::Range;

/// Bytes that a file in UTF-8 may begin with.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a file is in UTF-16. Editors save such files with a byte order mark. Without a mark, the
/// first characters of a text file are ASCII, and each has a byte of zero.
#[must_use]
pub fn is_utf16(file: &[u8]) -> bool {
    match file {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [first, 0, second, 0, ..] | [0, first, 0, second, ..] => *first != 0 && *second != 0,
        _ => false,
    }
}

/// Text between two lines `---`, the fences, at the start of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct FencedText<'a> {
    /// Text from line 2 of the file, with the line break before the closing fence. If there is no
    /// closing fence, the rest of the file.
    pub text: &'a [u8],
    /// Whether there is a closing fence.
    pub is_closed: bool,
}

/// Returns the text after the opening fence, or `None` if the file does not begin with a fence. A
/// byte order mark may precede the fence.
#[must_use]
pub fn find_fenced_text(file: &[u8]) -> Option<FencedText<'_>> {
    let file = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
    let mut lines = file.split_inclusive(|b| *b == b'\n');
    let rest = &file[lines.next().filter(|line| is_fence(line))?.len()..];
    let mut end = 0;
    let is_closed = lines.any(|line| {
        let closes = is_fence(line);
        end += if closes { 0 } else { line.len() };
        closes
    });
    Some(FencedText {
        text: &rest[..end],
        is_closed,
    })
}

/// Splits a whole file. Returns the range of the text between the fences, and the offset of the body
/// after the closing fence. Returns `None` if the file has no closed frontmatter.
#[must_use]
pub fn split_file(file: &[u8]) -> Option<(Range<usize>, usize)> {
    let fenced = find_fenced_text(file).filter(|fenced| fenced.is_closed)?;
    let line_len = |text: &[u8]| {
        text.split_inclusive(|b| *b == b'\n')
            .next()
            .map_or(0, <[u8]>::len)
    };
    // The opening fence is ASCII, so that a byte order mark is a part of the first line.
    let start = line_len(file);
    let end = start + fenced.text.len();
    Some((start..end, end + line_len(&file[end..])))
}

fn is_fence(line: &[u8]) -> bool {
    line.strip_prefix(b"---")
        .is_some_and(|rest| rest.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{FencedText, find_fenced_text, is_utf16, split_file};

    #[test]
    fn utf_16_is_noticed_in_both_byte_orders() {
        let units = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(bytes).collect()
        };
        for text in ["---\nname: a\n", "\u{feff}---\n", "\u{feff}漢"] {
            assert!(is_utf16(&units(text, u16::to_le_bytes)), "{text:?}");
            assert!(is_utf16(&units(text, u16::to_be_bytes)), "{text:?}");
            assert!(!is_utf16(text.as_bytes()), "{text:?}");
        }
        for other in [&b""[..], b"\0\0\0\0", b"-", b"--\0\0"] {
            assert!(!is_utf16(other), "{other:?}");
        }
    }

    #[test]
    fn fences_are_lines_of_three_dashes() {
        for (file, expected) in [
            ("---\na: 1\n---\nb", Some(("a: 1\n", true))),
            ("\u{feff}---\r\na: 1\r\n--- \r\nb", Some(("a: 1\r\n", true))),
            ("---\n---", Some(("", true))),
            (
                "---\na: 1\n ---\n----\n",
                Some(("a: 1\n ---\n----\n", false)),
            ),
            ("---", Some(("", false))),
            ("", None),
            ("----\na: 1\n---\n", None),
            ("\n---\na: 1\n---\n", None),
        ] {
            let expected = expected.map(|(text, is_closed)| FencedText {
                text: str::as_bytes(text),
                is_closed,
            });
            assert_eq!(find_fenced_text(file.as_bytes()), expected, "{file:?}");
        }
    }

    #[test]
    fn the_body_begins_after_the_closing_fence() {
        for (file, expected) in [
            ("---\na: 1\n---\nb", Some(("a: 1\n", "b"))),
            (
                "\u{feff}---\r\na: 1\r\n--- \r\nb\n---\n",
                Some(("a: 1\r\n", "b\n---\n")),
            ),
            ("---\n---", Some(("", ""))),
            ("---\na: 1\n", None),
            ("b", None),
        ] {
            let split = split_file(file.as_bytes());
            let split = split.map(|(yaml, body)| (&file[yaml], &file[body..]));
            assert_eq!(split, expected, "{file:?}");
        }
    }
}
