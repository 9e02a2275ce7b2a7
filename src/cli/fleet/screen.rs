//! Lines of `caproot watch --fleet` on a terminal, one for each executor. A new line replaces the last one.

use crate::cli::output::{supports_cursor, terminal_size};
use crate::cli::table::truncate_to_width;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Interval at which changed lines are drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Lines on the terminal. They stay there when the screen is dropped.
pub struct StateScreen {
    /// Lines by the environment ids.
    lines: BTreeMap<String, String>,
    bar: ProgressBar,
}

impl StateScreen {
    /// Opens the screen if stdout is a terminal whose cursor can be moved.
    pub fn open() -> Option<Self> {
        if !supports_cursor(&io::stdout()) {
            return None;
        }

        let target = ProgressDrawTarget::stdout();
        let bar = ProgressBar::with_draw_target(None, target).with_finish(ProgressFinish::Abandon);
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        // Draws a change also if many changes came at once.
        bar.enable_steady_tick(DRAW_INTERVAL);
        Some(Self {
            lines: BTreeMap::new(),
            bar,
        })
    }

    /// Replaces the line of an executor, or removes it.
    pub fn show_line(&mut self, environment_id: String, line: Option<String>) {
        match line {
            Some(line) => self.lines.insert(environment_id, line),
            None => self.lines.remove(&environment_id),
        };

        let size = terminal_size(&io::stdout());
        let lines: Vec<&str> = self.lines.values().map(String::as_str).collect();
        self.bar
            .set_message(fit_lines(&lines, size.columns, size.rows));
    }
}

/// Joins the lines that fit the terminal, and counts the others. The last row is for the cursor.
fn fit_lines(lines: &[&str], columns: usize, rows: usize) -> String {
    let room = rows.saturating_sub(1).max(2);
    let mut fitting: Vec<_> = lines
        .iter()
        .map(|line| truncate_to_width(line, columns))
        .collect();
    if lines.len() > room {
        fitting.truncate(room - 1);
        let more = lines.len() - fitting.len();
        fitting.push(format!("and {more} more; `caproot fleet list` shows all"));
    }
    fitting.join("\n")
}

#[cfg(test)]
mod tests {
    use super::fit_lines;

    #[test]
    fn lines_fit_the_terminal() {
        let lines = ["one long line", "two", "three", "four"];
        assert_eq!(fit_lines(&lines, 80, 24), lines.join("\n"));
        assert_eq!(fit_lines(&lines, 4, 24), "one…\ntwo\nthr…\nfour");
        let more = "one long line\ntwo\nand 2 more; `caproot fleet list` shows all";
        assert_eq!(fit_lines(&lines, 80, 4), more);
        assert_eq!(fit_lines(&lines, 80, 5), lines.join("\n"));
        assert_eq!(fit_lines(&[], 80, 24), "");
        assert!(fit_lines(&lines, 80, 0).starts_with("one long line\nand 3 more"));
    }
}
