//! Upper bound of the bracket depth of a YAML text, computed in one pass before parsing.
//!
//! Only a full parser knows whether a `[` opens a list or is part of prose. This module therefore
//! treats each bracket as a possible start of a list and follows all possible readings at once. For
//! each lexer state it keeps only the deepest reading. If a rule of YAML is not worth an exact
//! check, both outcomes are followed. The result is never less than the real depth.

use LexerState::{
    Anchor, BetweenTokens, Comment, DoubleQuoted, DoubleQuotedEscape, PlainScalar, SingleQuoted,
    Tag,
};

/// State of a possible reading.
#[derive(Clone, Copy)]
enum LexerState {
    /// Between two tokens, or in punctuation.
    BetweenTokens,
    /// In a scalar without quotes.
    PlainScalar,
    SingleQuoted,
    DoubleQuoted,
    /// After a backslash in double quotes.
    DoubleQuotedEscape,
    Comment,
    /// In an alias or anchor.
    Anchor,
    Tag,
}

const LEXER_STATES: [LexerState; 8] = [
    BetweenTokens,
    PlainScalar,
    SingleQuoted,
    DoubleQuoted,
    DoubleQuotedEscape,
    Comment,
    Anchor,
    Tag,
];

/// Depth of the deepest reading in each state; 0 for no reading.
type StateDepths = [usize; LEXER_STATES.len()];

/// Returns the offset of the first bracket that may be inside more than `max` others, or `None` if
/// there is certainly no such bracket.
pub fn find_bracket_deeper_than(max: usize, text: &str) -> Option<usize> {
    // Nearly every text ends here.
    if text.bytes().filter(|byte| is_opening(*byte)).count() <= max {
        return None;
    }

    let mut depths = StateDepths::default();
    let mut before = b'\n';
    for (at, byte) in text.bytes().enumerate() {
        let mut next = StateDepths::default();
        if is_opening(byte) {
            next[BetweenTokens as usize] = 1;
        }

        for (state, depth) in LEXER_STATES.into_iter().zip(depths) {
            if depth > 0 {
                advance_state(state, depth, before, byte, &mut next);
            }
        }

        if next[BetweenTokens as usize] > max {
            return Some(at);
        }
        depths = next;
        before = byte;
    }

    None
}

/// Adds the states that a reading may have after the next byte.
fn advance_state(state: LexerState, depth: usize, before: u8, byte: u8, next: &mut StateDepths) {
    let may_be_bracket = matches!(state, BetweenTokens | Anchor | PlainScalar);
    let (states, depth) = match byte {
        b'[' | b'{' if may_be_bracket => (&[BetweenTokens][..], depth + 1),
        b']' | b'}' if may_be_bracket => (&[BetweenTokens][..], depth - 1),
        _ => (next_states(state, before, byte), depth),
    };
    for state in states {
        let deepest = &mut next[*state as usize];
        *deepest = depth.max(*deepest);
    }
}

fn is_opening(byte: u8) -> bool {
    matches!(byte, b'[' | b'{')
}

/// Returns the possible states after a byte that is not a bracket, or has no meaning as a bracket.
fn next_states(state: LexerState, before: u8, byte: u8) -> &'static [LexerState] {
    match state {
        SingleQuoted if byte == b'\'' => &[BetweenTokens],
        SingleQuoted => &[SingleQuoted],
        DoubleQuoted if byte == b'"' => &[BetweenTokens],
        DoubleQuoted if byte == b'\\' => &[DoubleQuotedEscape],
        DoubleQuoted | DoubleQuotedEscape => &[DoubleQuoted],
        Comment => match byte {
            b'\n' | b'\r' => &[BetweenTokens],
            // Some line breaks have more than one byte.
            0x80.. => &[Comment, BetweenTokens],
            _ => &[Comment],
        },
        Tag => match byte {
            b' ' | b'\t' | b'\n' | b'\r' => &[BetweenTokens],
            // A tag in `<>` may contain commas.
            b',' | 0x80.. => &[Tag, BetweenTokens],
            _ => &[Tag],
        },
        PlainScalar => match (byte, before) {
            (b',', _) => &[BetweenTokens],
            (b':', _) => &[PlainScalar, BetweenTokens],
            (b'#', b' ' | b'\t' | b'\n' | b'\r' | 0x80..) => &[PlainScalar, Comment],
            _ => &[PlainScalar],
        },
        Anchor if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') => &[Anchor],
        BetweenTokens | Anchor => match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b'?' | b':' => &[BetweenTokens],
            b'\'' => &[SingleQuoted],
            b'"' => &[DoubleQuoted],
            b'#' => &[Comment],
            b'&' | b'*' => &[Anchor],
            b'!' => &[Tag],
            b'-' | 0x80.. => &[PlainScalar, BetweenTokens],
            _ => &[PlainScalar],
        },
    }
}

#[cfg(test)]
mod tests;
