//! Machine and date of the measurements.

use jiff::{Timestamp, Unit};
use serde::Serialize;
use std::thread::available_parallelism;
use std::{env, fs};

/// Data without which a measurement cannot be compared.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) date: String,
    pub(crate) version: &'static str,
    pub(crate) command: String,
}

impl Machine {
    pub(crate) fn detect() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value);
            value.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        let now = Timestamp::now();
        let arguments = env::args().skip(1).filter(|argument| argument != "--bench");
        let arguments: Vec<_> = std::iter::once("--".to_owned()).chain(arguments).collect();
        let command = format!("cargo bench --bench whole {}", arguments.join(" "));
        Self {
            cpu: after(&read("/proc/cpuinfo"), "model name"),
            cores: available_parallelism().map_or(1, usize::from),
            memory_gib: kib.unwrap_or_default().div_ceil(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: now.round(Unit::Minute).unwrap_or(now).to_string(),
            version: env!("CARGO_PKG_VERSION"),
            command: command.trim_end_matches(" --").to_owned(),
        }
    }
}
