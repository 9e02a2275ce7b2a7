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
enum Place {
    /// Between two, or in punctuation.
    Between,
    /// In text without quotes.
    Plain,
    Single,
    Double,
    /// Behind a backslash between double quotes.
    Escaped,
    Comment,
    /// In an alias or an anchor.
    Anchor,
    Tag,
}

const PLACES: [Place; 8] = [
    Place::Between,
    Place::Plain,
    Place::Single,
    Place::Double,
    Place::Escaped,
    Place::Comment,
    Place::Anchor,
    Place::Tag,
];

/// The deepest way of reading for each place; 0 for none.
#[derive(Clone, Copy, Default)]
struct Ways([usize; PLACES.len()]);

impl Ways {
    fn join(&mut self, place: Place, depth: usize) {
        let deepest = &mut self.0[place as usize];
        *deepest = depth.max(*deepest);
    }
}

/// The first bracket that may be inside of more than `max` others; `None` where surely none is.
pub(super) fn deeper_than(max: usize, text: &str) -> Option<usize> {
    let opens = |b: &u8| matches!(b, b'[' | b'{');
    // Nearly every text: there is nothing to follow.
    if text.bytes().filter(opens).count() <= max {
        return None;
    }
    let mut ways = Ways::default();
    let mut before = b'\n';
    for (at, byte) in text.bytes().enumerate() {
        let mut next = Ways::default();
        if opens(&byte) {
            next.join(Place::Between, 1);
        }
        for place in PLACES {
            let depth = ways.0[place as usize];
            if depth > 0 {
                step(place, depth, before, byte, &mut next);
            }
        }
        if next.0[Place::Between as usize] > max {
            return Some(at);
        }
        (ways, before) = (next, byte);
    }
    None
}

/// Adds where a way of reading may be behind the next byte.
fn step(place: Place, depth: usize, before: u8, byte: u8, next: &mut Ways) {
    let (places, depth) = match place {
        Place::Between | Place::Anchor | Place::Plain if matches!(byte, b'[' | b'{') => {
            (&[Place::Between][..], depth + 1)
        }
        Place::Between | Place::Anchor | Place::Plain if matches!(byte, b']' | b'}') => {
            (&[Place::Between][..], depth - 1)
        }
        _ => (behind(place, before, byte), depth),
    };
    for place in places {
        next.join(*place, depth);
    }
}

/// Where one may be behind a byte that is no bracket, or stands where it means none.
fn behind(place: Place, before: u8, byte: u8) -> &'static [Place] {
    use Place::{Anchor, Between, Comment, Double, Escaped, Plain, Single, Tag};
    match place {
        Single if byte == b'\'' => &[Between],
        Single => &[Single],
        Double if byte == b'"' => &[Between],
        Double if byte == b'\\' => &[Escaped],
        Double | Escaped => &[Double],
        Comment => match byte {
            b'\n' | b'\r' => &[Between],
            // Some line ends are of more than one byte.
            0x80.. => &[Comment, Between],
            _ => &[Comment],
        },
        Tag => match byte {
            b' ' | b'\t' | b'\n' | b'\r' => &[Between],
            // A tag in `<>` may hold commas.
            b',' | 0x80.. => &[Tag, Between],
            _ => &[Tag],
        },
        Plain => match (byte, before) {
            (b',', _) => &[Between],
            (b':', _) => &[Plain, Between],
            (b'#', b' ' | b'\t' | b'\n' | b'\r' | 0x80..) => &[Plain, Comment],
            _ => &[Plain],
        },
        Anchor if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') => &[Anchor],
        Between | Anchor => match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b'?' | b':' => &[Between],
            b'\'' => &[Single],
            b'"' => &[Double],
            b'#' => &[Comment],
            b'&' | b'*' => &[Anchor],
            b'!' => &[Tag],
            b'-' | 0x80.. => &[Plain, Between],
            _ => &[Plain],
        },
    }
}

#[cfg(test)]
mod tests;
