//! What several targets hold against what a parser gave.

use caproot::domain::limits::{MAX_NESTING, MAX_WIRE_NESTING};
use caproot::domain::{FileProblem, DynamicValue};

/// Bytes of a message, as `domain::diagnostic` bounds them.
const MAX_MESSAGE_BYTES: usize = 512;

/// Problems of one file: at most so many, each short, on one line, and at a place that the file has.
pub fn check_problems(problems: &[FileProblem], most: usize, file: &[u8]) {
    assert!(problems.len() <= most, "{} problems", problems.len());
    for problem in problems {
        assert!(problem.message.len() <= MAX_MESSAGE_BYTES, "{problem:?}");
        check_message(&problem.message);
        check_place(problem.line, problem.column, file);
    }
}

/// What is said of a foreign text is not empty and commands no terminal.
pub fn check_message(message: &str) {
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
}

/// A line and a column that a text has, or its end; 0 for the whole.
pub fn check_place(line: u32, column: u32, text: &[u8]) {
    assert!(has_place(line, column, text), "there is no {line}:{column}");
}

/// Whether it has.
pub fn has_place(line: u32, column: u32, text: &[u8]) -> bool {
    let Some(before) = (line as usize).checked_sub(1) else { return column == 0 };
    let found = text.split(|b| *b == b'\n').nth(before);
    let characters = found.map(|line| String::from_utf8_lossy(line).chars().count());
    characters.is_some_and(|most| (1..=most + 1).contains(&(column as usize)))
}

/// A value within the bounds of every parser.
pub fn check_value(value: &DynamicValue) {
    assert!(value.depth() <= MAX_NESTING);
}

/// A value that goes on the wire, in so many bytes.
pub fn check_sent(value: &DynamicValue, bytes: usize) {
    assert!(value.depth() <= MAX_WIRE_NESTING && value.wire_size() <= bytes);
}

/// Whether two values are the same, but for the last digit of a number.
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
