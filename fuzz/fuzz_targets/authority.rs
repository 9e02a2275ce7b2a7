//! The rewriter of `:authority` on Unix sockets: the result does not depend on the boundaries of the
//! reads, and a second rewrite changes nothing.

#![no_main]

use caproot::daemon::server::authority_compat::AuthorityRewriter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u16, &[u8])| {
    let (cuts, sent) = data;
    let rewritten = |sent: &[u8], cuts: u16| {
        let mut bytes = sent.to_vec();
        let (mut rewriter, mut rest, mut state) = (
            AuthorityRewriter::default(),
            &mut bytes[..],
            u32::from(cuts),
        );
        while !rest.is_empty() {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let max = if cuts == 0 {
                rest.len()
            } else {
                1 + (state >> 16) as usize % 64
            };
            let (part, after) = rest.split_at_mut(max.min(rest.len()));
            rewriter.rewrite(part);
            rest = after;
        }
        bytes
    };
    let whole = rewritten(sent, 0);
    assert_eq!(whole, rewritten(sent, cuts | 1), "other read boundaries");
    assert_eq!(whole, rewritten(&whole, 0), "rewritten again");
});
