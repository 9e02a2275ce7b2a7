//! Budget of the work for one file. Parsers charge the texts that they examine, so that a file whose
//! parsing costs more than its size explains is given up instead of keeping a processor busy.
//!
//! The budget belongs to the thread that parses, because each parser runs from its start to its end
//! on one thread. The work is counted in bytes and not in time: a file has the same result on a slow
//! executor as on a fast one.

use std::cell::RefCell;

/// Maximum work for one file in bytes of examined text. The largest file has 256 KiB, and readers
/// examine each text a few times.
const MAX_FILE_WORK: usize = 64 << 20;

/// Reason why a file was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseAborted {
    /// The file costs more than the budget of a file.
    TooCostly,
    /// The caller stopped the parser.
    Stopped,
}

/// Budget of the file that a thread parses.
struct FileBudget {
    remaining: usize,
    /// Whether the caller wants the parser to stop.
    is_stopped: Box<dyn Fn() -> bool>,
    aborted: Option<ParseAborted>,
}

thread_local! {
    static CURRENT_FILE: RefCell<Option<FileBudget>> = const { RefCell::new(None) };
}

/// Restores the budget of the outer file when the inner file ends, also by a panic.
struct OuterBudget(Option<FileBudget>);

impl Drop for OuterBudget {
    fn drop(&mut self) {
        CURRENT_FILE.set(self.0.take());
    }
}

/// Parses one file within the budget of a file. The parser asks `is_stopped` again and again whether
/// to stop.
pub fn parse_within_budget<T>(
    is_stopped: impl Fn() -> bool + 'static,
    parse: impl FnOnce() -> T,
) -> Result<T, ParseAborted> {
    let _outer = OuterBudget(CURRENT_FILE.replace(Some(FileBudget {
        remaining: MAX_FILE_WORK,
        is_stopped: Box::new(is_stopped),
        aborted: None,
    })));
    let parsed = parse();
    let aborted = CURRENT_FILE.with_borrow(|file| file.as_ref().and_then(|file| file.aborted));
    aborted.map_or(Ok(parsed), Err)
}

/// Charges the work of examining `bytes` of text. Returns `false` if the file is to be given up; its
/// result is discarded then. Outside of [`parse_within_budget`] the work is not limited.
pub(super) fn charge_work(bytes: usize) -> bool {
    CURRENT_FILE.with_borrow_mut(|file| {
        let Some(file) = file else {
            return true;
        };
        if file.aborted.is_none() {
            if (file.is_stopped)() {
                file.aborted = Some(ParseAborted::Stopped);
            }
            match file.remaining.checked_sub(bytes) {
                Some(remaining) => file.remaining = remaining,
                None => file.aborted = Some(ParseAborted::TooCostly),
            }
        }
        file.aborted.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_FILE_WORK, ParseAborted, charge_work, parse_within_budget};
    use crate::daemon::parse::yaml;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_file_over_its_budget_is_given_up() {
        let stop = || false;
        let half = MAX_FILE_WORK / 2;
        assert_eq!(parse_within_budget(stop, || charge_work(half)), Ok(true));
        let nested = parse_within_budget(stop, || {
            assert!(charge_work(half));
            let inner = parse_within_budget(stop, || charge_work(MAX_FILE_WORK + 1));
            assert_eq!(inner, Err(ParseAborted::TooCostly));
            charge_work(half)
        });
        assert_eq!(nested, Ok(true));
        let over = parse_within_budget(stop, || (0..3).all(|_| charge_work(half)));
        assert_eq!(over, Err(ParseAborted::TooCostly));
        assert!(charge_work(usize::MAX), "no file is being parsed");
    }

    #[test]
    fn a_parser_is_stopped_in_the_middle_of_a_file() {
        let stop = Rc::new(Cell::new(false));
        let is_stopped = stop.clone();
        let parsed = parse_within_budget(
            move || is_stopped.get(),
            || {
                let first = yaml::parse("a: [b]").is_ok();
                stop.set(true);
                (first, yaml::parse("a: [b]").is_ok())
            },
        );
        assert_eq!(parsed, Err(ParseAborted::Stopped));
    }
}
