//! `caproot check`: lints directories as the daemon would see them. Leaves what is found and how it
//! is worded to the `check` room.

use super::exit;
use super::failure::Failure;
use super::output::{has_colours, print, print_json};
use crate::check::text::{Colour, block};
use crate::check::{self, Checked, MAX_FINDINGS, Subject, Summary, json, sarif};
use crate::config::{Config, Flags, Mistake, RootFlag};
use crate::disk::{Progress, Target};
use crate::domain::{Reason, Severity};
use crate::endpoint::Env;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a search runs before its progress is shown.
const SHORT: Duration = Duration::from_secs(1);
/// How often progress is shown.
const FRAME: Duration = Duration::from_millis(100);

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
    pub(super) dirs: Vec<PathBuf>,
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
    pub(super) watch: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub(super) output: Form,
}

/// In which form the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people.
    Text,
    /// For programs: one object with skills, diagnostics and summary.
    Json,
    /// For systems for continuous integration: SARIF 2.1.0.
    Sarif,
}

/// Checks every directory, then prints.
pub(super) async fn run(args: &CheckArgs, env: &Env) -> Result<u8, Failure> {
    let mut all: Vec<Checked> = Vec::new();
    let mut unchecked: Vec<(String, String)> = Vec::new();
    let mut empty: Vec<String> = Vec::new();
    for dir in &args.dirs {
        match check_one(dir, env).await {
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
        Form::Json => print_json(&json::document(&all, &unchecked))?,
        Form::Sarif => {
            print_json(&sarif::document(&all, &unchecked, env.current_dir.as_deref()))?;
        }
        Form::Text => print_text(&all, args.notes)?,
    }
    if !unchecked.is_empty() {
        let sentence = |(dir, why): &(String, String)| format!("{dir} cannot be checked: {why}");
        return Err(Failure::all(
            exit::CONFIG,
            &unchecked.iter().map(sentence).collect::<Vec<_>>(),
        ));
    }
    let Summary { errors, warnings, .. } = Summary::of(&all);
    if !empty.is_empty() {
        return Err(Failure::all(exit::WRONG, &empty)
            .hint("a skill is a directory with a SKILL.md; see --allow-empty"));
    }
    let is_wrong = errors > 0 || args.deny_warnings && warnings > 0;
    Ok(if is_wrong { exit::WRONG } else { exit::OK })
}

fn print_text(all: &[Checked], notes: bool) -> Result<(), Failure> {
    if all.is_empty() {
        return Ok(());
    }
    let colour = if has_colours() { Colour::Always } else { Colour::Never };
    let summary = Summary::of(all);
    let findings = all.iter().flat_map(|checked| &checked.findings);
    let mut shown = findings.filter(|f| notes || f.severity() != Severity::Note).peekable();
    print(|stdout| {
        let is_clean = shown.peek().is_none();
        for finding in shown {
            write!(stdout, "{}", block(finding, colour))?;
        }
        if !is_clean {
            writeln!(stdout, "`caproot explain CODE` says more about each kind of problem")?;
        }
        let hint = if summary.notes > 0 && !notes { " (--notes shows the notes)" } else { "" };
        writeln!(stdout, "{summary}{hint}")
    })
}

/// Checks one directory as a daemon would see it that was started with `--root` for it alone.
async fn check_one(dir: &Path, env: &Env) -> Result<Checked, String> {
    if dir.exists() && !dir.is_dir() {
        return Err(sentence(Reason::NotADirectory, dir).to_owned());
    }
    let subject = subject(dir, env)?;
    let progress = Arc::new(Progress::new());
    let seen = progress.clone();
    let mut work = tokio::task::spawn_blocking(move || check::check(&subject, &seen));
    let mut bar: Option<ProgressBar> = None;
    let done = loop {
        if let Ok(done) = tokio::time::timeout(FRAME, &mut work).await {
            break done;
        }
        if progress.age() >= SHORT && io::stderr().is_terminal() {
            let bar = bar.get_or_insert_with(spinner);
            bar.set_message(format!("{} directories searched", progress.directories()));
            bar.tick();
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let checked = done.map_err(|defect| format!("a defect of caproot: {defect}"))?;
    checked.map_err(|reason| sentence(reason, dir).to_owned())
}

fn subject(dir: &Path, env: &Env) -> Result<Subject, String> {
    // The last segment names a skill that has no name of its own, and `..` is none.
    let named = match dir.components().next_back() {
        Some(Component::ParentDir) => dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
        _ => dir.to_owned(),
    };
    let root = RootFlag { id: None, dir: named };
    let flags = Flags { roots: vec![root], ..Flags::default() };
    let config = Config::from_flags(flags, env).map_err(|mistakes| sentences(&mistakes))?;
    let mut rules = config.rules();
    rules.limits.max_diagnostics = MAX_FINDINGS;
    let [root] = &config.published[..] else {
        return Err("it is not one directory".to_owned());
    };
    Ok(Subject {
        given: dir.to_owned(),
        id: root.id.clone(),
        target: Target { path: root.path.clone(), rules, published: config.published.into() },
        allowed: config.allowed,
    })
}

fn sentences(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn sentence(reason: Reason, dir: &Path) -> &'static str {
    match reason {
        Reason::NotFound | Reason::NotAllowed => "there is no such directory",
        Reason::NotADirectory if dir.file_name().is_some_and(|name| name == "SKILL.md") => {
            "it is a file; give the directory that holds it"
        }
        Reason::NotADirectory => "it is not a directory",
        Reason::PermissionDenied | Reason::WalledOff => {
            "you may not read it; it needs read and search permission"
        }
        Reason::Timeout | Reason::IoError => "the filesystem failed, or its links go in circles",
        Reason::WrongEnvironment
        | Reason::MissingEnvironment
        | Reason::InvalidPath
        | Reason::PathTooLong
        | Reason::UnsupportedLocation => "it is no path of this machine",
    }
}
