//! `caproot check`: lints directories as the daemon would see them. Leaves what is found and how it
//! is worded to the `check` room.

use super::exit;
use super::failure::{CommandFailure, report_outcome};
use super::output::{print_json, print_stderr, stdout_supports_color, write_stdout};
use super::signals::stop_signal;
use super::watch::stdout_closed;
use crate::check::text::{ColorMode, render_finding};
use crate::check::{self, CheckRequest, CheckResult, CheckSummary, MAX_FINDINGS, json, sarif};
use crate::config::{Config, ConfigError, RootFlag, ServeFlags};
use crate::disk::{ScanProgress, ScanTarget};
use crate::domain::{RootReason, Severity};
use crate::endpoint::ProcessEnv;
use crate::file_watch::{self, COMPARE_INTERVAL, TreeLimits, TreeState, WatchedDirs, watch_tree};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Zoned;
use std::io::{self, IsTerminal as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a search runs before its progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Moves to the top and clears the screen and its history: ECMA-48, and `ED 3` of xterm.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Check skills and plugins for problems
///
/// Finds and reads skills exactly as a daemon does that publishes the directory, and says what it
/// makes of them; needs no daemon. Exits with 1 when there is an error: something that a daemon
/// would leave out. Also exits with 1 when a directory has neither a skill nor a plugin.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caproot check .                               every skill below this directory
  caproot check skills/pdf --notes              also what is only worth knowing
  caproot check skills --deny-warnings          for CI: warnings fail, too
  caproot check skills --watch                  again whenever a file is saved
  caproot check skills --output sarif > skills.sarif
  caproot explain YAML_SYNTAX                   more about one kind of problem")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub(super) struct CheckArgs {
    /// A skill, a plugin or a directory of them; several are checked one after the other
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Exit with 1 when there is a warning, too
    #[arg(long)]
    deny_warnings: bool,
    /// Exit with 0 when a directory has neither a skill nor a plugin
    #[arg(long)]
    allow_empty: bool,
    /// Also show notes, which are only worth knowing; json and sarif always hold them
    #[arg(long)]
    notes: bool,
    /// Check again whenever a file below changes, until SIGINT or SIGTERM; with json, one object per run
    #[arg(long)]
    watch: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    output: CheckFormat,
}

/// In which form the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// For people.
    Text,
    /// For programs: one object with skills, diagnostics and summary.
    Json,
    /// For systems for continuous integration: SARIF 2.1.0.
    Sarif,
}

/// Checks the directories once, or with `--watch` after each change.
pub(super) async fn run(args: CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if args.watch { run_on_changes(args, env).await } else { run_once(&args, env).await }
}

/// Checks every directory, then prints.
async fn run_once(args: &CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut all: Vec<CheckResult> = Vec::new();
    let mut unchecked: Vec<(String, String)> = Vec::new();
    let mut empty: Vec<String> = Vec::new();
    for dir in &args.dirs {
        match check_one_dir(dir, env).await {
            Ok(checked) => {
                if checked.is_empty() && !args.allow_empty {
                    empty.push(format!("{} has neither a skill nor a plugin", dir.display()));
                }
                all.push(checked);
            }
            Err(why) => unchecked.push((dir.to_string_lossy().into_owned(), why)),
        }
    }
    match args.output {
        CheckFormat::Json => print_json(&json::check_json(&all, &unchecked))?,
        CheckFormat::Sarif => {
            print_json(&sarif::sarif_log(&all, &unchecked, env.current_dir.as_deref()))?;
        }
        CheckFormat::Text => print_text(&all, args.notes)?,
    }
    if !unchecked.is_empty() {
        let sentence = |(dir, why): &(String, String)| format!("{dir} cannot be checked: {why}");
        return Err(CommandFailure::from_messages(
            exit::BAD_CONFIG,
            &unchecked.iter().map(sentence).collect::<Vec<_>>(),
        ));
    }
    let CheckSummary { errors, warnings, .. } = CheckSummary::from_results(&all);
    if !empty.is_empty() {
        return Err(CommandFailure::from_messages(exit::PROBLEMS_FOUND, &empty)
            .with_hint("a skill is a directory with a SKILL.md; see --allow-empty"));
    }
    let is_wrong = errors > 0 || args.deny_warnings && warnings > 0;
    Ok(if is_wrong { exit::PROBLEMS_FOUND } else { exit::OK })
}

fn print_text(all: &[CheckResult], notes: bool) -> Result<(), CommandFailure> {
    if all.is_empty() {
        return Ok(());
    }
    let colour = if stdout_supports_color() { ColorMode::Always } else { ColorMode::Never };
    let summary = CheckSummary::from_results(all);
    let findings = all.iter().flat_map(|checked| &checked.findings);
    let mut shown = findings.filter(|f| notes || f.severity() != Severity::Note).peekable();
    write_stdout(|stdout| {
        let is_clean = shown.peek().is_none();
        for finding in shown {
            write!(stdout, "{}", render_finding(finding, colour))?;
        }
        if !is_clean {
            writeln!(stdout, "run `caproot explain CODE` for details")?;
        }
        let hint = if summary.notes > 0 && !notes { " (--notes shows the notes)" } else { "" };
        writeln!(stdout, "{summary}{hint}")
    })
}

/// Checks one directory as a daemon would see it that was started with `--root` for it alone.
async fn check_one_dir(dir: &Path, env: &ProcessEnv) -> Result<CheckResult, String> {
    if dir.exists() && !dir.is_dir() {
        return Err(reason_sentence(RootReason::NotADirectory, dir).to_owned());
    }
    let subject = check_request(dir, env)?;
    let progress = Arc::new(ScanProgress::new());
    let seen = progress.clone();
    let mut work = tokio::task::spawn_blocking(move || check::check_dir(&subject, &seen));
    let mut bar: Option<ProgressBar> = None;
    let done = loop {
        if let Ok(done) = tokio::time::timeout(PROGRESS_INTERVAL, &mut work).await {
            break done;
        }
        if progress.age() >= PROGRESS_DELAY && io::stderr().is_terminal() {
            let bar = bar.get_or_insert_with(spinner);
            bar.set_message(format!("{} directories searched", progress.dirs_visited()));
            bar.tick();
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let checked = done.map_err(|defect| format!("a defect of caproot: {defect}"))?;
    checked.map_err(|reason| reason_sentence(reason, dir).to_owned())
}

fn check_request(dir: &Path, env: &ProcessEnv) -> Result<CheckRequest, String> {
    // The last segment names a skill that has no name of its own, and `..` is none.
    let named = match dir.components().next_back() {
        Some(Component::ParentDir) => dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
        _ => dir.to_owned(),
    };
    let root = RootFlag { id: None, dir: named };
    let flags = ServeFlags { roots: vec![root], ..ServeFlags::default() };
    let config =
        Config::from_flags(flags, env).map_err(|mistakes| join_config_errors(&mistakes))?;
    let mut rules = config.search_rules();
    rules.limits.max_diagnostics = MAX_FINDINGS;
    let [root] = &config.published_roots[..] else {
        return Err("it is not one directory".to_owned());
    };
    Ok(CheckRequest {
        display_dir: dir.to_owned(),
        id: root.id.clone(),
        target: ScanTarget {
            path: root.path.clone(),
            rules,
            published: config.published_roots.into(),
        },
        allowed_dirs: config.allowed_dirs,
    })
}

fn join_config_errors(mistakes: &[ConfigError]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn reason_sentence(reason: RootReason, dir: &Path) -> &'static str {
    match reason {
        RootReason::NotFound | RootReason::NotAllowed => "there is no such directory",
        RootReason::NotADirectory if dir.file_name().is_some_and(|name| name == "SKILL.md") => {
            "it is a file; give the directory that holds it"
        }
        RootReason::NotADirectory => "it is not a directory",
        RootReason::PermissionDenied | RootReason::SandboxDenied => {
            "you may not read it; it needs read and search permission"
        }
        RootReason::Timeout | RootReason::IoError => {
            "the filesystem failed, or its links go in circles"
        }
        RootReason::WrongEnvironment
        | RootReason::MissingEnvironment
        | RootReason::InvalidPath
        | RootReason::PathTooLong
        | RootReason::UnsupportedLocation => "it is no path of this machine",
    }
}

/// Checks until a signal comes or the reader of stdout is gone.
async fn run_on_changes(args: CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let stopped = stop_signal().map_err(|error| {
        CommandFailure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    // A task of its own: a reader of stdout that stops for a while must stop no signal.
    let checks = tokio::spawn(check_on_change(args, env.clone()));
    tokio::select! {
        ended = checks => {
            ended.unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
        }
        () = stopped => Ok(exit::OK),
        () = stdout_closed() => Ok(exit::OK),
    }
}

async fn check_on_change(args: CheckArgs, env: ProcessEnv) -> Result<u8, CommandFailure> {
    let (watched, mut hints) =
        file_watch::start_file_watcher(|sentence| print_stderr(&[format!("caproot: {sentence}")]));
    let bounds = tree_bounds(&env);
    let clears = args.output == CheckFormat::Text && io::stdout().is_terminal();
    let mut checked: Option<TreeState> = None;
    loop {
        let state = tree_state(watched.clone(), args.dirs.clone(), bounds.clone()).await;
        if checked != state {
            if clears {
                write_stdout(|stdout| write!(stdout, "{CLEAR_SCREEN}"))?;
            }
            match run_once(&args, &env).await {
                Err(failure) if failure.is_silent() => return Err(failure),
                Err(failure) if checked.is_none() && !failure.is_negative_answer() => {
                    return Err(failure);
                }
                // A first skill may be written, or the directory may come back.
                Err(failure) => {
                    let _ = report_outcome(Err(failure));
                }
                Ok(_) if clears => {
                    let time = Zoned::now().strftime("%H:%M:%S");
                    print_stderr(&[format!("checked at {time}; waiting for changes, Ctrl-C ends")]);
                }
                Ok(_) => {}
            }
            checked = state;
        }
        hints.wait_for_hint(COMPARE_INTERVAL).await;
    }
}

/// The state of the trees, which are watched from then on.
async fn tree_state(
    watched: WatchedDirs,
    dirs: Vec<PathBuf>,
    bounds: TreeLimits,
) -> Option<TreeState> {
    let walk = tokio::task::spawn_blocking(move || watch_tree(&watched, &dirs, &bounds));
    walk.await.ok()
}

/// The bounds of a search, so that every directory that a check reads is watched.
fn tree_bounds(env: &ProcessEnv) -> TreeLimits {
    let Ok(config) = Config::from_flags(ServeFlags::default(), env) else {
        return TreeLimits::default();
    };
    let rules = config.search_rules();
    TreeLimits {
        directories: rules.limits.max_directories,
        entries: rules.limits.max_entries,
        excluded_dir_names: rules.skipped_dirs,
    }
}
