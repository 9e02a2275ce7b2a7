//! How deep the brackets of a YAML text may be nested, at most, told in one pass and before anything
//! is built. Leaves reading the text to the library.
//!
//! Inside brackets it is plain what each character does, but where a text is inside brackets only a
//! whole reader can say: a `[` may as well stand in prose. So each one is taken for the first of a
//! nest, and all the ways of reading that this gives are followed at once: of those that are in the
//! same place, the deepest. Where a rule is not worth telling apart, both ways are followed. What
//! comes out is never less than the truth.

/// Where in a token a way of reading is.
#[derive(Clone, Copy)]
enum LexerState {
    /// Between two, or in punctuation.
    BetweenTokens,
    /// In text without quotes.
    PlainScalar,
    SingleQuoted,
    DoubleQuoted,
    /// Behind a backslash between double quotes.
    DoubleQuotedEscape,
    Comment,
    /// In an alias or an anchor.
    Anchor,
    Tag,
}

const LEXER_STATES: [LexerState; 8] = [
    LexerState::BetweenTokens,
    LexerState::PlainScalar,
    LexerState::SingleQuoted,
    LexerState::DoubleQuoted,
    LexerState::DoubleQuotedEscape,
    LexerState::Comment,
    LexerState::Anchor,
    LexerState::Tag,
];

/// The deepest way of reading for each place; 0 for none.
#[derive(Clone, Copy, Default)]
struct StateDepths([usize; LEXER_STATES.len()]);

impl StateDepths {
    fn raise_depth(&mut self, place: LexerState, depth: usize) {
        let deepest = &mut self.0[place as usize];
        *deepest = depth.max(*deepest);
    }
}

/// The first bracket that may be inside of more than `max` others; `None` where surely none is.
pub(super) fn find_bracket_deeper_than(max: usize, text: &str) -> Option<usize> {
    let opens = |b: &u8| matches!(b, b'[' | b'{');
    // Nearly every text: there is nothing to follow.
    if text.bytes().filter(opens).count() <= max {
        return None;
    }
    let mut ways = StateDepths::default();
    let mut before = b'\n';
    for (at, byte) in text.bytes().enumerate() {
        let mut next = StateDepths::default();
        if opens(&byte) {
            next.raise_depth(LexerState::BetweenTokens, 1);
        }
        for place in LEXER_STATES {
            let depth = ways.0[place as usize];
            if depth > 0 {
                advance_state(place, depth, before, byte, &mut next);
            }
        }
        if next.0[LexerState::BetweenTokens as usize] > max {
            return Some(at);
        }
        (ways, before) = (next, byte);
    }
    None
}

/// Adds where a way of reading may be behind the next byte.
fn advance_state(place: LexerState, depth: usize, before: u8, byte: u8, next: &mut StateDepths) {
    let (places, depth) = match place {
        LexerState::BetweenTokens | LexerState::Anchor | LexerState::PlainScalar
            if matches!(byte, b'[' | b'{') =>
        {
            (&[LexerState::BetweenTokens][..], depth + 1)
        }
        LexerState::BetweenTokens | LexerState::Anchor | LexerState::PlainScalar
            if matches!(byte, b']' | b'}') =>
        {
            (&[LexerState::BetweenTokens][..], depth - 1)
        }
        _ => (next_states(place, before, byte), depth),
    };
    for place in places {
        next.raise_depth(*place, depth);
    }
}

/// Where one may be behind a byte that is no bracket, or stands where it means none.
fn next_states(place: LexerState, before: u8, byte: u8) -> &'static [LexerState] {
    use LexerState::{
        Anchor, BetweenTokens, Comment, DoubleQuoted, DoubleQuotedEscape, PlainScalar,
        SingleQuoted, Tag,
    };
    match place {
        SingleQuoted if byte == b'\'' => &[BetweenTokens],
        SingleQuoted => &[SingleQuoted],
        DoubleQuoted if byte == b'"' => &[BetweenTokens],
        DoubleQuoted if byte == b'\\' => &[DoubleQuotedEscape],
        DoubleQuoted | DoubleQuotedEscape => &[DoubleQuoted],
        Comment => match byte {
            b'\n' | b'\r' => &[BetweenTokens],
            // Some line ends are of more than one byte.
            0x80.. => &[Comment, BetweenTokens],
            _ => &[Comment],
        },
        Tag => match byte {
            b' ' | b'\t' | b'\n' | b'\r' => &[BetweenTokens],
            // A tag in `<>` may hold commas.
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
