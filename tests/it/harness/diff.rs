//! Shows the differences of two texts, line by line.

/// Returns the lines of both texts. Lines only in `expected` begin with `-`, lines only in `actual`
/// with `+`.
pub(crate) fn diff(expected: &str, actual: &str) -> String {
    let (left, right): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    // common[i][j]: the longest common subsequence of left[i..] and right[j..].
    let mut common = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            common[i][j] = if left[i] == right[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    while i < left.len() || j < right.len() {
        let (mark, line) = if i < left.len() && j < right.len() && left[i] == right[j] {
            (i, j) = (i + 1, j + 1);
            (' ', left[i - 1])
        } else if j == right.len() || (i < left.len() && common[i + 1][j] >= common[i][j + 1]) {
            i += 1;
            ('-', left[i - 1])
        } else {
            j += 1;
            ('+', right[j - 1])
        };
        out.extend([mark, ' ']);
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[test]
fn lines_of_one_side_are_marked() {
    assert_eq!(diff("a\nb\nc", "a\nx\nc\nd"), "  a\n- b\n+ x\n  c\n+ d\n");
    assert_eq!(diff("same", "same"), "  same\n");
}
