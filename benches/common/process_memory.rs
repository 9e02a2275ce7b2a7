//! Memory of a process.

use std::error::Error;
use std::fs;

/// Returns the resident memory in KiB of a process, which may be `self`.
pub(crate) fn resident_kib(process: &str) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let [anonymous, mapped] = resident_parts_kib(process)?;
    Ok(anonymous + mapped)
}

/// Returns the anonymous memory of a process in KiB, and its resident pages of files, such as those of its program.
pub(crate) fn resident_parts_kib(process: &str) -> Result<[f64; 2], Box<dyn Error + Send + Sync>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let find = |name| -> Result<f64, Box<dyn Error + Send + Sync>> {
        let part = status.lines().find_map(|line| line.strip_prefix(name));
        let part = part.and_then(|rest| rest.split_whitespace().next());
        Ok(part.ok_or(name)?.parse()?)
    };
    Ok([find("RssAnon:")?, find("RssFile:")? + find("RssShmem:")?])
}
