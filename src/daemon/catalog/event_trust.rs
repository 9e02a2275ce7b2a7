//! Trust in the events of one root, from the changes that full scans found and no event announced. Some
//! filesystems report no changes of other machines, and no list has all of them.

/// Unannounced changes after which a root is polled.
const MAX_UNANNOUNCED: u32 = 2;
/// Scans without an unannounced change after which a polled root returns to events.
const QUIET_SCANS: u32 = 6;

/// Trust in the events of one root.
#[derive(Debug, Default)]
pub struct EventTrust {
    /// Full scans that found an unannounced change while the root was trusted.
    unannounced: u32,
    /// Full scans without one since the last unannounced change, while the root is not trusted.
    quiet_scans: u32,
}

impl EventTrust {
    /// Whether changes may come without an event.
    pub fn is_lost(&self) -> bool {
        self.unannounced >= MAX_UNANNOUNCED
    }

    /// Records a periodic full scan, and whether the scan found an unannounced change.
    pub fn record_full_scan(&mut self, has_unannounced_change: bool) {
        if has_unannounced_change {
            self.unannounced = (self.unannounced + 1).min(MAX_UNANNOUNCED);
            self.quiet_scans = 0;
        } else if self.is_lost() {
            self.quiet_scans += 1;
            if self.quiet_scans == QUIET_SCANS {
                *self = Self::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EventTrust;

    #[test]
    fn two_unannounced_changes_lose_the_trust_and_six_quiet_scans_restore_it() {
        let mut trust = EventTrust::default();
        let mut record = |scans: &str| {
            let outcomes = scans.chars().map(|scan| {
                trust.record_full_scan(scan == '!');
                trust.is_lost()
            });
            outcomes.collect::<Vec<_>>()
        };
        assert_eq!(record("..!.."), [false; 5]);
        assert_eq!(record("!....!"), [true; 6]);
        assert_eq!(record("....."), [true; 5]);
        assert_eq!(record(".!"), [false; 2]);
        assert_eq!(record("!"), [true]);
    }
}
