//! Processor time in proportion to the size of untrusted input. Each test reads a text or a tree in
//! two sizes, and compares the processor time. Other processes do not count, and only quadratic
//! growth fails.

mod texts;
mod trees;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::harness::short_or_long;

/// Allowed growth of the cost for four times the size: linear growth is 4, quadratic growth is 16.
const MAX_GROWTH: u32 = 10;

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("a time since the thread began")
}

fn measure_cost<T>(input: &T, read: impl Fn(&T)) -> Duration {
    let start = thread_time();
    read(input);
    thread_time().saturating_sub(start)
}

/// Reads inputs of a quarter of `size` and of `size`. The short form takes a quarter of both sizes.
///
/// Fails if three pairs in a row are out of proportion. Costs below `min_cost` are not compared,
/// because they vary too much.
fn assert_in_proportion<T>(name: &str, size: usize, make: impl Fn(usize) -> T, read: impl Fn(&T)) {
    let (size, min_cost) = short_or_long((size / 4, 15), (size, 50));
    let min_cost = Duration::from_millis(min_cost);
    let (quarter, whole) = (make(size / 4), make(size));
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let pair = (measure_cost(&quarter, &read), measure_cost(&whole, &read));
        println!("{name}: {pair:?}");
        if pair.1 < min_cost || pair.1 <= pair.0 * MAX_GROWTH {
            return;
        }
        pairs.push(pair);
    }
    panic!("{name}: a quarter and the whole cost {pairs:?}");
}
