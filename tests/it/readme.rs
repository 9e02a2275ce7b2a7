//! Checks README.md against the code: its command lines parse, and its tables of limits, timings,
//! exit codes, diagnostics and root reasons match the daemon.

use std::collections::BTreeSet;

use caproot::catalog::WatchTiming;
use caproot::cli::CommandLine;
use caproot::client::json;
use caproot::proto::caproot::v1::{DiagnosticCode, GetExecutorRequest, RootReason};
use clap::Parser as _;
use prost_reflect::ReflectMessage as _;

use crate::harness::{Daemon, Setup};

const README: &str = include_str!("../../README.md");
const EXIT: &str = include_str!("../../src/cli/exit.rs");

/// Cells of the rows of the one table whose head begins with `head`.
pub(crate) fn table(head: &str) -> Vec<Vec<String>> {
    let line = format!("\n{head}");
    let mut heads = README.match_indices(&line);
    let (Some((at, _)), None) = (heads.next(), heads.next()) else {
        panic!("README has one table {head}")
    };
    let rows = README[at + 1..].lines().take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    rows.map(|row| cells(row.trim_matches('|'))).collect()
}

/// Words between backticks in a cell.
pub(crate) fn ticked(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Commands after `$ ` in a part of README.
fn commands(part: &str) -> impl Iterator<Item = &str> {
    part.lines().filter_map(|line| line.strip_prefix("$ "))
}

fn parse(arguments: &str) {
    let line = std::iter::once("caproot").chain(arguments.split_whitespace());
    if let Err(error) = CommandLine::try_parse_from(line) {
        panic!("README: caproot {arguments}: {error}");
    }
}

#[test]
fn two_commands_are_enough_to_start() {
    let (_, start) = README.split_once("\n## Start\n").expect("a section Start");
    let (start, _) = start.split_once("\n## ").expect("a section after Start");
    let start: Vec<_> = commands(start).collect();
    let [serve, "cargo test"] = start.as_slice() else { panic!("two commands: {start:?}") };
    parse(serve.strip_prefix("cargo run -- ").expect("the daemon, built and run"));
    let root = serve.split_whitespace().skip_while(|word| *word != "--root").nth(1);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(root.expect("a --root"));
    assert!(root.is_dir(), "{} is no directory", root.display());
}

#[test]
fn every_caproot_command_parses() {
    let shown: Vec<_> = commands(README).filter_map(|c| c.strip_prefix("caproot ")).collect();
    assert!(!shown.is_empty());
    shown.into_iter().for_each(parse);
}

#[tokio::test]
async fn the_table_of_limits_matches_the_daemon() {
    let daemon = Daemon::start(Setup::default()).await;
    let answer = daemon.client.clone().get_executor(GetExecutorRequest {}).await;
    let answer =
        json::to_dynamic(&answer.expect("an answer").into_inner()).expect("its descriptor");
    let limits = answer.get_field_by_name("limits").expect("the field `limits`").into_owned();
    let limits = limits.as_message().expect("a message");
    let real: Vec<(String, u64)> = limits
        .descriptor()
        .fields()
        .map(|field| {
            let value = limits.get_field(&field);
            let number = value.as_u64().or_else(|| value.as_u32().map(u64::from));
            (field.name().to_owned(), number.expect("a number"))
        })
        .collect();
    let number = |cell: &str| cell.replace(',', "").parse::<u64>().expect("a number");
    let documented = table("| name | default | beyond |").into_iter();
    let documented: Vec<_> =
        documented.map(|row| (ticked(&row[0]).concat(), number(&row[1]))).collect();
    assert_eq!(documented, real);
}

#[test]
fn the_table_of_timings_matches_the_defaults() {
    let WatchTiming {
        debounce,
        max_debounce,
        recheck_interval,
        poll_interval,
        full_scan_interval,
        overlay_scan_interval,
        idle_timeout,
        stuck_timeout,
        stalled_reader_timeout,
    } = WatchTiming::default();
    let real = [
        ("debounce", debounce),
        ("max_debounce", max_debounce),
        ("recheck_interval", recheck_interval),
        ("poll_interval", poll_interval),
        ("full_scan_interval", full_scan_interval),
        ("overlay_scan_interval", overlay_scan_interval),
        ("idle_timeout", idle_timeout),
        ("stuck_timeout", stuck_timeout),
        ("stalled_reader_timeout", stalled_reader_timeout),
        ("drain_timeout", caproot::server::DRAIN_TIMEOUT),
    ];
    let span = |cell: &str| humantime::parse_duration(cell).expect("a duration");
    let documented = table("| timing | default | is |").into_iter();
    let documented: Vec<_> =
        documented.map(|row| (ticked(&row[0]).concat(), span(&row[1]))).collect();
    assert_eq!(documented, real.map(|(name, span)| (name.to_owned(), span)));
}

#[test]
fn the_table_of_exit_codes_matches_the_code() {
    let real: BTreeSet<(String, String)> = EXIT
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'))
        .filter_map(|line| line.split_once(": u8 = "))
        .map(|(name, code)| (code.to_owned(), name.to_owned()))
        .collect();
    let documented = table("| code | name | means |").into_iter();
    let documented: BTreeSet<_> =
        documented.map(|row| (row[0].clone(), ticked(&row[1]).concat())).collect();
    assert_eq!(documented, real);
    assert!(real.contains(&(caproot::cli::exit::BAD_CONFIG.to_string(), "BAD_CONFIG".into())));
}

#[test]
fn the_tables_of_diagnostics_and_root_reasons_match_the_proto() {
    // Both enums have contiguous numbers.
    let codes = (1..).map_while(|n| DiagnosticCode::try_from(n).ok());
    let codes = codes.map(|code| code.as_str_name().replace("DIAGNOSTIC_CODE_", ""));
    let documented = table("| code | severity |").into_iter().map(|row| ticked(&row[0]).concat());
    assert_eq!(documented.collect::<Vec<_>>(), codes.collect::<Vec<_>>());
    let reasons = (1..).map_while(|n| RootReason::try_from(n).ok());
    let reasons = reasons.map(|reason| reason.as_str_name().replace("ROOT_REASON_", ""));
    let documented = table("| state | reason |").into_iter().flat_map(|row| ticked(&row[1]));
    assert_eq!(documented.collect::<Vec<_>>(), reasons.collect::<Vec<_>>());
}
