//! Tables with aligned columns, by the display width of each character. The cells must be escaped.

use super::color::paint;
use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

/// Space between columns.
const GAP: &str = "  ";

/// Line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLine {
    /// Text without trailing blanks.
    pub text: String,
    /// Offset in bytes at which each column begins. The text may be shorter.
    starts: Vec<usize>,
}

impl TableLine {
    /// Returns the line with one cell in the style of its text.
    pub fn paint_cell(&self, column: usize, style: fn(&str) -> Style) -> String {
        let (before, rest) = self
            .text
            .split_at_checked(self.starts[column].min(self.text.len()))
            .unwrap_or((&self.text, ""));
        let (cell, after) = rest.split_at(rest.find(GAP).unwrap_or(rest.len()));
        if cell.is_empty() {
            return self.text.clone();
        }
        format!("{before}{}{after}", paint(cell, style(cell)))
    }
}

/// Formats rows as aligned columns without trailing blanks. With a width, no line is wider: the
/// first column takes at most half of the width, the last column takes the rest, and each other
/// column takes at most a quarter. Truncated text ends with `…`. Without a width, nothing is
/// truncated.
pub fn table_lines(rows: &[impl AsRef<[String]>], width: Option<usize>) -> Vec<TableLine> {
    let widths = column_widths(rows, width);
    let mut lines = Vec::new();
    for row in rows {
        let mut line = String::new();
        let mut starts = Vec::new();
        for (column, cell) in row.as_ref().iter().enumerate() {
            starts.push(line.len());
            if column + 1 == widths.len() {
                line.push_str(cell);
            } else {
                let cell = truncate_to_width(cell, widths[column]);
                let missing = widths[column].saturating_sub(cell.width());
                line += &cell;
                line.extend(std::iter::repeat_n(' ', missing));
                line += GAP;
            }
        }
        let text = truncate_to_width(line.trim_end(), width.unwrap_or(usize::MAX));
        lines.push(TableLine { text, starts });
    }
    lines
}

/// Returns the width of each column. The last column has no limit of its own.
fn column_widths(rows: &[impl AsRef<[String]>], width: Option<usize>) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        let cells = row.as_ref();
        widths.resize(widths.len().max(cells.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(cells) {
            *widest = cell.width().max(*widest);
        }
    }

    if let Some(width) = width {
        for (column, widest) in widths.iter_mut().enumerate() {
            let most = if column == 0 { width / 2 } else { width / 4 };
            *widest = most.min(*widest);
        }
    }
    widths
}

/// Returns the number of columns of a text on a terminal. Escape sequences of styles have none.
pub fn shown_width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, shown)| shown));
    first + rest.map(UnicodeWidthStr::width).sum::<usize>()
}

/// Truncates a text to a number of columns of a terminal, with `…` at the end.
pub fn truncate_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }

    let mut left = width.saturating_sub(1);
    let mut short = String::new();
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::table_lines;
    use unicode_width::UnicodeWidthStr as _;

    fn laid_out(width: Option<usize>) -> Vec<String> {
        let rows = [
            ["NAME", "ROOT", "DESCRIPTION"],
            [
                "tools:write-a-report",
                "team-skills",
                "Writes a report of the work of this week",
            ],
            [
                "漢字",
                "r",
                "Explains 漢字 and everything else that there is to know about writing them",
            ],
            ["bare", "r", ""],
        ];
        let lines = table_lines(&rows.map(|row| row.map(String::from)), width);
        let lines: Vec<_> = lines.into_iter().map(|line| line.text).collect();
        assert!(
            lines
                .iter()
                .all(|line| line.width() <= width.unwrap_or(usize::MAX)),
            "{lines:#?}"
        );
        lines
    }

    #[test]
    fn lines_without_a_width_are_not_truncated() {
        assert_eq!(
            laid_out(None),
            [
                "NAME                  ROOT         DESCRIPTION",
                "tools:write-a-report  team-skills  Writes a report of the work of this week",
                "漢字                  r            Explains 漢字 and everything else that there is to know about writing them",
                "bare                  r",
            ]
        );
    }

    #[test]
    fn lines_fit_eighty_columns() {
        assert_eq!(
            laid_out(Some(80)),
            [
                "NAME                  ROOT         DESCRIPTION",
                "tools:write-a-report  team-skills  Writes a report of the work of this week",
                "漢字                  r            Explains 漢字 and everything else that there…",
                "bare                  r",
            ]
        );
    }

    #[test]
    fn lines_fit_twenty_columns() {
        assert_eq!(
            laid_out(Some(20)),
            [
                "NAME        ROOT   …",
                "tools:wri…  team…  …",
                "漢字        r      …",
                "bare        r",
            ]
        );
    }
}
