//! Checks of parser results that several targets share.

use caproot::daemon::model::limits::{MAX_NESTING, MAX_WIRE_NESTING};
use caproot::daemon::model::{DynamicValue, FileProblem};

/// Maximum size of a message in `domain::diagnostic`, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

/// Checks that the problems of a file are at most `max`, have one short line each, and positions
/// within the file.
pub fn check_problems(problems: &[FileProblem], max: usize, file: &[u8]) {
    assert!(problems.len() <= max, "{} problems", problems.len());
    for problem in problems {
        assert!(problem.message.len() <= MAX_MESSAGE_BYTES, "{problem:?}");
        check_message(&problem.message);
        check_position(problem.line, problem.column, file);
    }
}

/// Checks that a message about untrusted text is not empty and has no control characters.
pub fn check_message(message: &str) {
    assert!(
        !message.is_empty() && !message.chars().any(char::is_control),
        "{message:?}"
    );
}

/// Checks that a line and a column are within a text or at its end. Line 0 is the whole text.
pub fn check_position(line: u32, column: u32, text: &[u8]) {
    assert!(
        has_position(line, column, text),
        "{line}:{column} is outside the text"
    );
}

/// Whether a line and a column are within a text or at its end.
pub fn has_position(line: u32, column: u32, text: &[u8]) -> bool {
    let Some(before) = (line as usize).checked_sub(1) else {
        return column == 0;
    };
    let found = text.split(|b| *b == b'\n').nth(before);
    let characters = found.map(|line| String::from_utf8_lossy(line).chars().count());
    characters.is_some_and(|length| (1..=length + 1).contains(&(column as usize)))
}

/// Checks that a value is within the limits of every parser.
pub fn check_value(value: &DynamicValue) {
    assert!(value.depth() <= MAX_NESTING);
}

/// Checks that a value fits the nesting limit of the wire and `bytes`.
pub fn check_wire_value(value: &DynamicValue, bytes: usize) {
    assert!(value.depth() <= MAX_WIRE_NESTING && value.wire_size() <= bytes);
}

/// Whether two values are equal except for the last digit of a number.
pub fn are_alike(a: &DynamicValue, b: &DynamicValue) -> bool {
    match (a, b) {
        (DynamicValue::Float(a), DynamicValue::Float(b)) => (a - b).abs() <= a.abs() * 1e-15,
        (DynamicValue::List(a), DynamicValue::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_alike(a, b))
        }
        (DynamicValue::Map(a), DynamicValue::Map(b)) => {
            let same = |((k, v), (l, w)): (&(_, _), &(_, _))| k == l && are_alike(v, w);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (a, b) => a == b,
    }
}
