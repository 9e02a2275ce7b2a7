//! Rate limit of lines about denied calls: for each caller, and in total. A flood of one caller does
//! not hide the denied calls of another caller.

use crate::daemon::model::QuotaKey;
use caproot_core::sync::Mutex;
use lru::LruCache;
use std::cmp::Reverse;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time within which lines are counted.
pub const DENIAL_WINDOW: Duration = Duration::from_secs(1);

/// Most lines of one caller within the window.
const MAX_LINES_PER_CALLER: usize = 10;
/// Most lines within the window about callers with an identity: a user, a certificate, or a token
/// that matched a rule.
const MAX_LINES_OF_IDENTIFIED: usize = 40;
/// Most lines within the window about peers without an identity, of which an attacker can have any
/// number. Such peers cannot take the lines of callers with an identity.
const MAX_LINES_OF_ANONYMOUS: usize = 20;
/// Most callers that are counted apart, for each kind. The caller with the oldest denied call is
/// forgotten first.
const MAX_TRACKED: NonZero<usize> = NonZero::new(64).unwrap();
/// Most callers whose suppressed lines are reported apart, for each kind.
const MAX_REPORTED: usize = 8;

/// Caller as denied calls are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeniedCaller {
    /// User, certificate or address of the peer. `None` if the peer is unknown.
    pub peer: Option<QuotaKey>,
    /// Names of the rules that the caller matched.
    pub matched_rules: Arc<[Box<str>]>,
}

/// Number of lines about a caller that were not written.
#[derive(Debug, PartialEq, Eq)]
pub struct SuppressedDenials {
    /// `None` for all other callers together.
    pub caller: Option<DeniedCaller>,
    pub count: u64,
}

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialDecision {
    Log,
    /// The first line since the last [`DenialLimit::take_suppressed`] that is counted only.
    SuppressFirst,
    Suppress,
}

/// Rate limit of lines about denied calls.
#[derive(Debug)]
pub struct DenialLimit(Mutex<LimitState>);

#[derive(Debug)]
struct LimitState {
    identified: CallerClass,
    anonymous: CallerClass,
    has_suppressed: bool,
}

/// Callers with or without an identity.
#[derive(Debug)]
struct CallerClass {
    max_lines: usize,
    window_start: Option<Instant>,
    /// Lines within the window.
    lines: usize,
    callers: LruCache<DeniedCaller, DenialCount>,
    /// Suppressed lines of forgotten callers.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct DenialCount {
    /// Lines within the window.
    lines: usize,
    suppressed: u64,
}

impl DeniedCaller {
    fn has_identity(&self) -> bool {
        let is_known = matches!(
            self.peer,
            Some(QuotaKey::User(_) | QuotaKey::CertificateNames(_))
        );
        is_known || !self.matched_rules.is_empty()
    }
}

impl DenialLimit {
    /// Creates a limit without denied calls.
    pub fn new() -> Self {
        Self(Mutex::new(LimitState {
            identified: CallerClass::new(MAX_LINES_OF_IDENTIFIED),
            anonymous: CallerClass::new(MAX_LINES_OF_ANONYMOUS),
            has_suppressed: false,
        }))
    }

    /// Records a denied call, and decides whether it gets a line.
    pub fn record_denial(&self, caller: DeniedCaller) -> DenialDecision {
        self.record_denial_at(Instant::now(), caller)
    }

    fn record_denial_at(&self, now: Instant, caller: DeniedCaller) -> DenialDecision {
        let mut state = self.0.lock();
        let class = if caller.has_identity() {
            &mut state.identified
        } else {
            &mut state.anonymous
        };
        if class.record_denial(now, caller) {
            return DenialDecision::Log;
        }
        if std::mem::replace(&mut state.has_suppressed, true) {
            return DenialDecision::Suppress;
        }
        DenialDecision::SuppressFirst
    }

    /// Returns the numbers of suppressed lines, and counts from 0 again.
    pub fn take_suppressed(&self) -> Vec<SuppressedDenials> {
        let mut state = self.0.lock();
        state.has_suppressed = false;
        let mut suppressed = state.identified.take_suppressed();
        suppressed.extend(state.anonymous.take_suppressed());
        suppressed
    }
}

impl CallerClass {
    fn new(max_lines: usize) -> Self {
        Self {
            max_lines,
            window_start: None,
            lines: 0,
            callers: LruCache::new(MAX_TRACKED),
            forgotten: 0,
        }
    }

    /// Counts a denied call. Returns whether it gets a line.
    fn record_denial(&mut self, now: Instant, caller: DeniedCaller) -> bool {
        let is_window_over = self
            .window_start
            .is_none_or(|start| now.saturating_duration_since(start) >= DENIAL_WINDOW);
        if is_window_over {
            self.window_start = Some(now);
            self.lines = 0;
            for (_, count) in &mut self.callers {
                count.lines = 0;
            }
        }

        if !self.callers.contains(&caller)
            && let Some((_, forgotten)) = self.callers.push(caller.clone(), DenialCount::default())
        {
            self.forgotten += forgotten.suppressed;
        }
        let count = self.callers.get_or_insert_mut(caller, DenialCount::default);
        if count.lines >= MAX_LINES_PER_CALLER || self.lines >= self.max_lines {
            count.suppressed += 1;
            return false;
        }
        count.lines += 1;
        self.lines += 1;
        true
    }

    fn take_suppressed(&mut self) -> Vec<SuppressedDenials> {
        let mut suppressed: Vec<_> = self
            .callers
            .iter_mut()
            .filter(|(_, count)| count.suppressed > 0)
            .map(|(caller, count)| SuppressedDenials {
                caller: Some(caller.clone()),
                count: std::mem::take(&mut count.suppressed),
            })
            .collect();
        suppressed.sort_by_key(|denials| Reverse(denials.count));

        let others = suppressed.drain(MAX_REPORTED.min(suppressed.len())..);
        let others: u64 = others.map(|denials| denials.count).sum();
        let count = others + std::mem::take(&mut self.forgotten);
        if count > 0 {
            suppressed.push(SuppressedDenials {
                caller: None,
                count,
            });
        }
        suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DENIAL_WINDOW, DenialDecision, DenialLimit, DeniedCaller, MAX_LINES_OF_ANONYMOUS,
        MAX_LINES_OF_IDENTIFIED, MAX_LINES_PER_CALLER, MAX_REPORTED,
    };
    use crate::daemon::model::QuotaKey;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use tokio::time::Instant;

    fn user(uid: u32) -> DeniedCaller {
        DeniedCaller {
            peer: Some(QuotaKey::User(uid)),
            matched_rules: [].into(),
        }
    }

    fn peer(number: u32) -> DeniedCaller {
        DeniedCaller {
            peer: Some(QuotaKey::Address(Ipv4Addr::from_bits(number).into())),
            matched_rules: [].into(),
        }
    }

    fn token_holder(number: u32, rule: &str) -> DeniedCaller {
        DeniedCaller {
            matched_rules: [rule.into()].into(),
            ..peer(number)
        }
    }

    /// Records denied calls, and returns how many got a line.
    fn count_lines(limit: &DenialLimit, now: Instant, callers: &[DeniedCaller]) -> usize {
        callers
            .iter()
            .filter(|caller| limit.record_denial_at(now, (*caller).clone()) == DenialDecision::Log)
            .count()
    }

    #[test]
    fn a_flood_does_not_hide_the_denied_calls_of_others() {
        let (limit, start) = (DenialLimit::new(), Instant::now());
        let strangers: Vec<_> = (0..10_000).map(peer).collect();
        assert_eq!(
            count_lines(&limit, start, &strangers),
            MAX_LINES_OF_ANONYMOUS
        );
        let same = vec![user(1); 1_000];
        assert_eq!(count_lines(&limit, start, &same), MAX_LINES_PER_CALLER);
        for other in [user(2), token_holder(1, "a"), token_holder(1, "b")] {
            assert_eq!(count_lines(&limit, start, &vec![other; 5]), 5);
        }
        let suppressed = limit.take_suppressed();
        let known = suppressed.iter().find(|s| s.caller == Some(user(1)));
        assert_eq!(known.expect("counted").count, 990);
        assert_eq!(suppressed.iter().map(|s| s.count).sum::<u64>(), 990 + 9_980);
        assert!(suppressed.len() <= 2 * (MAX_REPORTED + 1));
        assert_eq!(limit.take_suppressed(), []);
    }

    #[test]
    fn one_address_does_not_hide_another_address() {
        let (limit, start) = (DenialLimit::new(), Instant::now());
        count_lines(&limit, start, &vec![peer(1); 1_000]);
        assert_eq!(count_lines(&limit, start, &vec![peer(2); 5]), 5);
    }

    proptest! {
        #[test]
        fn each_window_has_few_lines_and_each_denied_call_is_counted(
            events in prop::collection::vec((0_u64..300, 0..200_u32, any::<bool>()), 0..600),
        ) {
            let limit = DenialLimit::new();
            let (mut now, mut logged) = (Instant::now(), Vec::new());
            let mut is_pending = false;
            let total = events.len() as u64;
            for (milliseconds, number, is_user) in events {
                now += Duration::from_millis(milliseconds / 10);
                let number = number * number / 200;
                let caller = if is_user { user(number) } else { peer(number) };
                match limit.record_denial_at(now, caller.clone()) {
                    DenialDecision::Log => logged.push((now, caller)),
                    decision => {
                        prop_assert_eq!(decision == DenialDecision::SuppressFirst, !is_pending);
                        is_pending = true;
                    }
                }
            }
            let suppressed: u64 = limit.take_suppressed().iter().map(|s| s.count).sum();
            prop_assert_eq!(logged.len() as u64 + suppressed, total);
            // An interval of one window's length touches at most two windows.
            for (at, (from, _)) in logged.iter().enumerate() {
                let near = logged[at..].iter().take_while(|(time, _)| *time < *from + DENIAL_WINDOW);
                let mut by_kind = HashMap::<bool, usize>::new();
                for (_, caller) in near {
                    *by_kind.entry(caller.has_identity()).or_default() += 1;
                }
                prop_assert!(by_kind.get(&true).is_none_or(|n| *n <= 2 * MAX_LINES_OF_IDENTIFIED));
                prop_assert!(by_kind.get(&false).is_none_or(|n| *n <= 2 * MAX_LINES_OF_ANONYMOUS));
            }
        }
    }
}
