//! Lays rows out in aligned columns, by the width that a terminal gives to each character. Leaves
//! making the cells safe to whoever fills them.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between columns.
const GAP: &str = "  ";

/// Lines of three columns, without trailing blanks. With a width, no line is wider: the first
/// column then takes at most half of it, the second a quarter, the third the rest, and what is cut
/// ends with `…`. Without one, nothing is cut.
pub(super) fn lines(rows: &[[String; 3]], width: Option<usize>) -> Vec<String> {
    let (most_first, most_second) =
        width.map_or((usize::MAX, usize::MAX), |width| (width / 2, width / 4));
    let widest = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let first = widest(0).min(most_first);
    let second = widest(1).min(most_second);
    let line = |row: &[String; 3]| {
        let mut line = padded(&row[0], first);
        line.push_str(GAP);
        line.push_str(&padded(&row[1], second));
        line.push_str(GAP);
        line.push_str(&row[2]);
        cut(line.trim_end(), width.unwrap_or(usize::MAX))
    };
    rows.iter().map(line).collect()
}

fn padded(cell: &str, width: usize) -> String {
    let mut cell = cut(cell, width);
    let missing = width.saturating_sub(cell.width());
    cell.extend(std::iter::repeat_n(' ', missing));
    cell
}

/// The text if it fits, else as much of it as fits before a `…`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let taken = c.width().unwrap_or(0);
        let fits = taken <= left;
        left = left.saturating_sub(taken);
        fits
    };
    let mut short: String = text.chars().take_while(fits).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::lines;
    use unicode_width::UnicodeWidthStr as _;

    fn laid_out(width: Option<usize>) -> Vec<String> {
        let rows = [
            ["NAME", "ROOT", "DESCRIPTION"],
            [
                "tools:write-a-report",
                "team-skills",
                "Writes a report of whatever you did this week",
            ],
            [
                "漢字",
                "r",
                "Explains 漢字 and everything else that there is to know about writing them",
            ],
            ["bare", "r", ""],
        ];
        let lines = lines(&rows.map(|row| row.map(String::from)), width);
        assert!(lines.iter().all(|line| line.width() <= width.unwrap_or(usize::MAX)), "{lines:#?}");
        lines
    }

    #[test]
    fn not_cut_without_a_width() {
        assert_eq!(
            laid_out(None),
            [
                "NAME                  ROOT         DESCRIPTION",
                "tools:write-a-report  team-skills  Writes a report of whatever you did this week",
                "漢字                  r            Explains 漢字 and everything else that there is to know about writing them",
                "bare                  r",
            ]
        );
    }

    #[test]
    fn eighty_columns() {
        assert_eq!(
            laid_out(Some(80)),
            [
                "NAME                  ROOT         DESCRIPTION",
                "tools:write-a-report  team-skills  Writes a report of whatever you did this week",
                "漢字                  r            Explains 漢字 and everything else that there…",
                "bare                  r",
            ]
        );
    }

    #[test]
    fn twenty_columns() {
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
