//! What a client sends on a Unix socket, as its authorities are mended: however it is cut, the bytes
//! come out the same, and nothing is left to mend.

#![no_main]

use caproot::server::authority::AuthorityRewriter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u16, &[u8])| {
    let (cuts, sent) = data;
    let mended = |sent: &[u8], cuts: u16| {
        let mut bytes = sent.to_vec();
        let (mut mender, mut rest, mut state) =
            (AuthorityRewriter::default(), &mut bytes[..], u32::from(cuts));
        while !rest.is_empty() {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let most = if cuts == 0 { rest.len() } else { 1 + (state >> 16) as usize % 64 };
            let (part, after) = rest.split_at_mut(most.min(rest.len()));
            mender.mend(part);
            rest = after;
        }
        bytes
    };
    let whole = mended(sent, 0);
    assert_eq!(whole, mended(sent, cuts | 1), "cut otherwise");
    assert_eq!(whole, mended(&whole, 0), "mended again");
});
