//! Finds the frontmatter of a Markdown file between its fences.

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
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let mut lines = file.split_inclusive(|b| *b == b'\n');
    let rest = &file[lines.next().filter(|line| is_fence(line))?.len()..];
    let mut end = 0;
    let is_closed = lines.any(|line| {
        let closes = is_fence(line);
        end += if closes { 0 } else { line.len() };
        closes
    });
    Some(FencedText { text: &rest[..end], is_closed })
}

fn is_fence(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| rest.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{FencedText, find_fenced_text};

    #[test]
    fn fences_are_lines_of_three_dashes() {
        for (file, expected) in [
            ("---\na: 1\n---\nb", Some(("a: 1\n", true))),
            ("\u{feff}---\r\na: 1\r\n--- \r\nb", Some(("a: 1\r\n", true))),
            ("---\n---", Some(("", true))),
            ("---\na: 1\n ---\n----\n", Some(("a: 1\n ---\n----\n", false))),
            ("---", Some(("", false))),
            ("", None),
            ("----\na: 1\n---\n", None),
            ("\n---\na: 1\n---\n", None),
        ] {
            let expected = expected
                .map(|(text, is_closed)| FencedText { text: str::as_bytes(text), is_closed });
            assert_eq!(find_fenced_text(file.as_bytes()), expected, "{file:?}");
        }
    }
}
