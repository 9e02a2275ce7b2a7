//! Shape of tokens: words that a program generated.

/// Maximum number of digits of a number, which may have a unit.
const MAX_NUMBER_DIGITS: usize = 15;
/// Length from which a word without signs is a token.
const MIN_LONG_BYTES: usize = 32;
/// Most consonants of one case in a row, as in `wkhtmltopdf`.
const MAX_CONSONANTS: u32 = 7;

/// Whether a part of a text has the shape of a token.
pub fn has_token_shape(text: &str) -> bool {
    let mut runs = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    runs.any(|run| {
        let mut words = run.split(['-', '_']).map(WordCounts::new);
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        let has_upper = run.bytes().any(|byte| byte.is_ascii_uppercase());
        let has_lower = run.bytes().any(|byte| byte.is_ascii_lowercase());
        // A token may have hyphens: `glpat-Ab1_cd2ef3gh4ij5kl6m`.
        let is_joined =
            has_upper && (digits >= 3 || (has_lower && words.any(|word| word.has_inner_digits)));
        (run.len() >= 20 && (is_joined || digits >= 20)) || run.split(['-', '_']).any(is_generated)
    })
}

/// Counts of the letters and digits of a word.
#[derive(Default)]
struct WordCounts {
    digits: usize,
    /// Changes between upper case, lower case and digits, apart from those of `CamelCase`.
    breaks: usize,
    /// Whether digits are between letters.
    has_inner_digits: bool,
    /// Most consonants of one case in a row.
    consonants: u32,
}

/// Kind of a letter or digit.
#[derive(Clone, Copy, PartialEq)]
enum LetterKind {
    Upper,
    Lower,
    Digit,
}

impl WordCounts {
    fn new(word: &str) -> Self {
        let mut counts = Self::default();
        let mut last = None;
        let mut kind_len = 0;
        let mut consonants = 0;
        let mut has_letter = false;

        for byte in word.bytes() {
            let kind = match byte {
                b'A'..=b'Z' => LetterKind::Upper,
                b'a'..=b'z' => LetterKind::Lower,
                _ => LetterKind::Digit,
            };
            if last != Some(kind) {
                let is_capital =
                    last == Some(LetterKind::Upper) && kind == LetterKind::Lower && kind_len == 1;
                counts.breaks += usize::from(last.is_some() && !is_capital);
                counts.has_inner_digits |= last == Some(LetterKind::Digit) && has_letter;
                (kind_len, consonants, last) = (0, 0, Some(kind));
            }
            kind_len += 1;
            counts.digits += usize::from(kind == LetterKind::Digit);
            has_letter |= kind != LetterKind::Digit;

            let is_consonant = kind != LetterKind::Digit && !b"aeiouyAEIOUY".contains(&byte);
            consonants = if is_consonant { consonants + 1 } else { 0 };
            counts.consonants = counts.consonants.max(consonants);
        }
        counts
    }
}

/// Whether a word of letters and digits looks generated.
fn is_generated(word: &str) -> bool {
    let counts = WordCounts::new(word);
    let len = word.len();
    let letters = len - counts.digits;

    // `8080`, `3600000ms`, `1920x1080`
    if letters <= 1 || (letters == 2 && counts.breaks == 1) {
        return counts.digits > MAX_NUMBER_DIGITS;
    }
    // `server2024`
    let is_numbered = counts.breaks == 1 && counts.digits <= 4;

    (len >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || (len >= 8 && counts.digits >= 3 && counts.breaks >= 4)
        || (len >= 12 && counts.digits >= 3 && !is_numbered)
        || (len >= 16 && counts.has_inner_digits)
        || (len >= 10 && counts.breaks >= 4 && counts.breaks * 10 >= len * 3)
        || (len >= 20 && word.bytes().all(|byte| byte.is_ascii_uppercase()))
        || len >= MIN_LONG_BYTES
        || counts.consonants > MAX_CONSONANTS
}
