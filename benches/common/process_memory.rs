//! Memory of a process.

use std::error::Error;
use std::fs;

/// Returns the resident memory in KiB of a process, which may be `self`.
pub(crate) fn resident_kib(process: &str) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.split_whitespace().next());
    Ok(resident.ok_or("VmRSS")?.parse()?)
}
