//! Figures of a storm, and their table.

use crate::Outcome;
use crate::equal_catalogs::as_float;
use crate::options::Options;
use std::collections::BTreeMap;
use std::io::{self, Write as _};

/// Goals of the design.
const GOAL_SECONDS: f64 = 5.0;
const GOAL_START_SECONDS: f64 = 25.0;
const GOAL_MIRROR_KIB: f64 = 80.0;
const GOAL_EXECUTOR_KIB: f64 = 50.0;

/// Figures of a storm.
pub(crate) struct StormFigures {
    pub(crate) seconds: f64,
    pub(crate) start_seconds: f64,
    pub(crate) executor_kib: f64,
    pub(crate) mirror_kib: f64,
    /// Memory of all brokers for one executor, and for one mirror.
    pub(crate) broker_kib: [f64; 2],
    pub(crate) states: u64,
    pub(crate) mirrors: usize,
    pub(crate) dials: u64,
    pub(crate) most_dials_a_second: u64,
    /// Times from the last fault until each mirror was right, in order.
    pub(crate) convergence: Vec<f64>,
    pub(crate) rounds: u64,
    /// Number of the faults of each kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
}

impl StormFigures {
    /// Prints the table.
    pub(crate) fn print(&self, options: &Options) -> Outcome<()> {
        let quantile = |share: usize| {
            let times = &self.convergence;
            times[(times.len() * share / 100).min(times.len() - 1)]
        };
        let is_met = |value: f64, most: f64| if value <= most { "met" } else { "not met" };
        let faults: Vec<_> = self
            .faults
            .iter()
            .map(|(name, count)| format!("{count} × {name}"))
            .collect();
        let rows = [
            (
                "executors with a link each, of them real daemons".to_owned(),
                format!("{}, {}", options.executors, options.storm_size().real()),
                String::new(),
            ),
            (
                "orchestrators, mirrors".to_owned(),
                format!("{}, {}", options.fleets, self.mirrors),
                String::new(),
            ),
            (
                "time until all mirrors are live at the start".to_owned(),
                format!("{:.1} s", self.start_seconds),
                format!(
                    "at most {GOAL_START_SECONDS} s: {}",
                    is_met(self.start_seconds, GOAL_START_SECONDS)
                ),
            ),
            (
                format!("faults in {} rounds", self.rounds),
                faults.join(", "),
                String::new(),
            ),
            (
                "checked states, all right".to_owned(),
                self.states.to_string(),
                String::new(),
            ),
            (
                "from the last fault until a mirror is right, p50".to_owned(),
                format!("{:.1} s", quantile(50)),
                String::new(),
            ),
            (
                "from the last fault until a mirror is right, p99".to_owned(),
                format!("{:.1} s", quantile(99)),
                format!(
                    "at most {GOAL_SECONDS} s: {}",
                    is_met(quantile(99), GOAL_SECONDS)
                ),
            ),
            (
                "from the last fault until all mirrors are right".to_owned(),
                format!("{:.1} s", quantile(100)),
                String::new(),
            ),
            (
                "dials of all orchestrators a second, on average and at most".to_owned(),
                format!(
                    "{:.0}, {}",
                    as_float(self.dials) / self.seconds,
                    self.most_dials_a_second
                ),
                String::new(),
            ),
            (
                "memory of a mirror with its connection and tunnel".to_owned(),
                format!("{:.0} KiB", self.mirror_kib),
                format!(
                    "at most {GOAL_MIRROR_KIB} KiB: {}",
                    is_met(self.mirror_kib, GOAL_MIRROR_KIB)
                ),
            ),
            (
                "memory of a link with its connection, and a daemon without files".to_owned(),
                format!("{:.0} KiB", self.executor_kib),
                format!(
                    "at most {GOAL_EXECUTOR_KIB} KiB: {}",
                    is_met(self.executor_kib, GOAL_EXECUTOR_KIB)
                ),
            ),
            (
                "memory of all brokers for an executor, and for a mirror".to_owned(),
                format!(
                    "{:.0} KiB, {:.0} KiB",
                    self.broker_kib[0], self.broker_kib[1]
                ),
                String::new(),
            ),
        ];
        let mut out = io::stdout();
        writeln!(out, "| measured | value | target |\n| --- | --- | --- |")?;
        for (what, value, target) in rows {
            writeln!(out, "| {what} | {value} | {target} |")?;
        }
        Ok(())
    }
}
