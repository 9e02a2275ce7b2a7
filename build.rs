//! Sets `CAPROOT_BUILD`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    emit_build_info();
}

/// Sets `CAPROOT_BUILD` for the code: commit and date if known, profile, and target. A build of a
/// package can set `CAPROOT_COMMIT` and `SOURCE_DATE_EPOCH`. A debug build does not ask git:
/// otherwise each commit would cause a rebuild.
fn emit_build_info() {
    for name in ["CAPROOT_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let profile = env::var("PROFILE").unwrap_or_default();
    let is_release = profile == "release";
    let variable = |name| env::var(name).ok().filter(|text| !text.trim().is_empty());
    let ask = |arguments: &[&str]| {
        if is_release {
            git_output(arguments)
        } else {
            None
        }
    };
    let packed = || if is_release { package_commit() } else { None };
    let asked = || ask(&["rev-parse", "HEAD"]);
    let commit = variable("CAPROOT_COMMIT").or_else(packed).or_else(asked);
    let commit: Option<String> = commit.map(|commit| commit.chars().take(12).collect());
    let seconds = variable("SOURCE_DATE_EPOCH").and_then(|text| text.trim().parse().ok());
    let asked = || ask(&["show", "--no-patch", "--format=%cs", "HEAD"]);
    let date = seconds.map(format_date).or_else(asked);
    let target = env::var("TARGET").unwrap_or_default();
    let parts = [
        commit.map(|commit| format!("commit {commit}")),
        date,
        Some(profile),
        Some(target),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    println!("cargo:rustc-env=CAPROOT_BUILD={}", parts.join(", "));
}

/// Returns the commit from which `cargo package` created this crate.
fn package_commit() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// Returns the output of a git command; `None` if this directory is not the root of a checkout.
fn git_output(arguments: &[&str]) -> Option<String> {
    let run = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let top = PathBuf::from(run(&["rev-parse", "--show-toplevel"])?)
        .canonicalize()
        .ok()?;
    if top != env::current_dir().ok()?.canonicalize().ok()? {
        return None;
    }
    let log = run(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    run(arguments)
}

/// Formats a Unix time as a date. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms".
fn format_date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
