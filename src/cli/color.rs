//! Colors and line breaks of messages and tables on a terminal.

use super::table::shown_width;
use anstyle::{AnsiColor, Style};

/// Indentation of the further lines of a message.
pub const INDENT: &str = "  ";

/// Style of the head of a table.
pub const HEAD: Style = Style::new().bold();
/// Style of an error, and of the word that begins an error of a command.
pub const FAILURE: Style = AnsiColor::BrightRed.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();
const GOOD: Style = AnsiColor::Green.on_default();

/// Returns the style of a state, such as `READY` or `UNAVAILABLE NOT_FOUND`.
pub fn state_style(state: &str) -> Style {
    match state.split_whitespace().next() {
        Some("READY" | "SERVING") => GOOD,
        Some("PENDING" | "REMOVED") => WARNING,
        _ => FAILURE,
    }
}

/// Returns a text in a style.
pub fn paint(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// Colors the head of a message: `error[CODE]`, `warning[CODE]`, `warning:`, `hint:` or `caproot:`.
/// `program` is the style of `caproot:`.
pub fn paint_message(line: &str, program: Style) -> String {
    let heads = [
        ("caproot:", ":", program),
        ("hint:", ":", HINT),
        ("warning:", ":", WARNING),
        ("error[", "]", FAILURE),
        ("warning[", "]", WARNING),
    ];
    for (head, end, style) in heads {
        // In the report of a fleet, the environment comes before the head.
        let start = line.find(head);
        if let Some(start) = start.filter(|at| *at == 0 || line[..*at].ends_with(": "))
            && let Some(len) = line[start..].find(end)
        {
            let stop = start + len + end.len();
            let painted = paint(&line[start..stop], style);
            return format!("{}{painted}{}", &line[..start], &line[stop..]);
        }
    }
    line.to_owned()
}

/// Breaks a line between words, so that no line is wider than the terminal, except for a longer word. The
/// further lines are indented. Styles have no width.
pub fn wrap_line(line: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    let mut has_word = false;

    for word in line.split(' ') {
        let used = shown_width(&current) + usize::from(has_word) + shown_width(word);
        if has_word && used > width {
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        } else if has_word {
            current.push(' ');
        }
        current.push_str(word);
        has_word = true;
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::{FAILURE, INDENT, paint_message, state_style, wrap_line};
    use crate::cli::table::shown_width;
    use proptest::prelude::*;

    #[test]
    fn heads_of_messages_are_painted() {
        for (line, expected) in [
            ("caproot: no", "\x1b[1m\x1b[91mcaproot:\x1b[0m no"),
            ("hint: do", "\x1b[36mhint:\x1b[0m do"),
            ("error[X] a: b", "\x1b[1m\x1b[91merror[X]\x1b[0m a: b"),
            (
                "farm: warning[Y] a",
                "farm: \x1b[1m\x1b[33mwarning[Y]\x1b[0m a",
            ),
            ("2 skills in 1 root", "2 skills in 1 root"),
            ("no error[ here", "no error[ here"),
        ] {
            assert_eq!(paint_message(line, FAILURE), expected);
        }
        assert_ne!(state_style("READY"), state_style("UNAVAILABLE NOT_FOUND"));
        assert_ne!(state_style("PENDING"), state_style("NOT_SERVING"));
    }

    #[test]
    fn lines_break_between_words() {
        for (line, width, expected) in [
            ("a bc def", 20, vec!["a bc def"]),
            ("a bc def", 5, vec!["a bc", "  def"]),
            ("a verylongword b", 6, vec!["a", "  verylongword", "  b"]),
            ("\x1b[1ma\x1b[0m bc", 4, vec!["\x1b[1ma\x1b[0m bc"]),
            ("漢字 漢字", 8, vec!["漢字", "  漢字"]),
            ("", 5, vec![""]),
        ] {
            assert_eq!(wrap_line(line, width, INDENT), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_word_is_lost(line in "[a-z漢 ]{0,60}", width in 1_usize..40) {
            let lines = wrap_line(&line, width, "  ");
            let words: Vec<_> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            prop_assert_eq!(words, line.split_whitespace().collect::<Vec<_>>());
            for line in &lines {
                let is_one_word = line.split_whitespace().count() <= 1;
                prop_assert!(shown_width(line) <= width || is_one_word, "{line:?}");
            }
        }
    }
}
