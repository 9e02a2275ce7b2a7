//! Nothing that strangers write costs more than in proportion to its size: a text or a tree of any
//! shape is read in two sizes, and the processor time of both is compared. No clock decides: what
//! other processes do does not count, and only growth with the square fails.

mod texts;
mod trees;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::harness::short_or_long;

/// Four times the size may cost this much more: it is 4 in proportion, 16 with the square.
const MAX_GROWTH: u32 = 10;

/// The processor time that this thread has had.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("a time since the thread began")
}

fn cost<T>(input: &T, read: impl Fn(&T)) -> Duration {
    let start = spent();
    read(input);
    spent().saturating_sub(start)
}

/// Reads inputs of a quarter of `size` and of `size`, in the short form of a quarter of both. Fails if
/// three pairs in a row are out of proportion. Costs below `least` are not compared: they vary too much.
fn assert_in_proportion<T>(name: &str, size: usize, make: impl Fn(usize) -> T, read: impl Fn(&T)) {
    let (size, least) = short_or_long((size / 4, 15), (size, 50));
    let least = Duration::from_millis(least);
    let (quarter, whole) = (make(size / 4), make(size));
    let mut found = Vec::new();
    for _ in 0..3 {
        let pair = (cost(&quarter, &read), cost(&whole, &read));
        println!("{name}: {pair:?}");
        if pair.1 < least || pair.1 <= pair.0 * MAX_GROWTH {
            return;
        }
        found.push(pair);
    }
    panic!("{name}: a quarter and the whole cost {found:?}");
}
