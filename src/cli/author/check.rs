//! `caproot check`: lints directories as the daemon would see them.

use crate::cli::ask::report::count_with_noun;
use crate::cli::color::wrap_line;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, report_outcome};
use crate::cli::output::{print_json, print_stderr, supports_color, terminal_width, write_stdout};
use crate::cli::signals::run_until_signal_or_closed_stdout;
use crate::cli::spinner::DelayedSpinner;
use crate::daemon::config::{Config, RootFlag, ServeFlags};
use crate::daemon::model::{LoadedLock, RootReason, Severity, TrustMode, TrustPolicy};
use crate::daemon::readiness::missing_in_process;
use crate::daemon::scan::{ScanProgress, ScanTarget};
use crate::lint::fix::{FileFix, FixMode, FixResult, fix_dir};
use crate::lint::text::render_finding;
use crate::lint::{
    self, CheckExclusions, CheckFinding, CheckRequest, CheckResult, CheckSummary, MAX_FINDINGS,
    github, json, sarif,
};
use caproot_core::file_watch::{self, COMPARE_INTERVAL, TreeLimits, TreeState, watch_tree};
use caproot_core::lock::LockFile;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::text::escape_text;
use clap::{Args, ValueEnum};
use jiff::Zoned;
use std::io::{self, IsTerminal as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Moves the cursor to the top and clears the screen and its history (ECMA-48, and `ED 3` of
/// xterm).
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Check skills and plugins for problems
///
/// Finds and reads skills exactly like a daemon that publishes the directory, and reports the
/// problems, also those of links, scripts and lengths, which a daemon does not examine. Needs no
/// daemon. Exits with 1 if there is an error, which means that a daemon would
/// omit something, or if a directory has neither a skill nor a plugin.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caproot check .                               # this directory
  caproot check skills/pdf --notes              # with notes
  caproot check skills --deny-warnings          # for CI: warnings fail, too
  caproot check skills --strict                 # what skills-ref rejects, too
  caproot check . --exclude tests               # without these directories
  caproot check skills --watch                  # after each change of a file
  caproot check skills --fix --dry-run          # differences that --fix makes
  caproot check skills --output sarif > skills.sarif
  caproot explain YAML_SYNTAX                   # explanation of a code")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct CheckArgs {
    /// Skill, plugin or directory of skills and plugins; repeat for more
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Exit with 1 if there is a warning, too
    #[arg(long)]
    deny_warnings: bool,
    /// Report as an error what the format's validator, skills-ref, rejects: unknown fields, names
    /// that break a rule, YAML that other programs cannot read
    #[arg(long)]
    strict: bool,
    /// Exit with 0 if a directory has neither a skill nor a plugin
    #[arg(long)]
    allow_empty: bool,
    /// Leave out files and directories: a name in any directory, or a path below DIR; repeat for more.
    /// A file .caprootignore in DIR has one glob a line
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Also show notes, which have no effect; json and sarif always have them
    #[arg(long)]
    notes: bool,
    /// Check again after each change of a file, until SIGINT or SIGTERM; with json, one object per
    /// run
    #[arg(long)]
    watch: bool,
    /// Fix problems that have one safe answer: quotes, white space, letter case, file modes; print
    /// the differences
    #[arg(long, conflicts_with = "watch")]
    fix: bool,
    /// With --fix: print the differences and change nothing
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Also warn about skills whose files this lock of `caproot lock` does not approve
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    output: CheckFormat,
}

/// Output format of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// For people
    Text,
    /// For programs: one object with skills, diagnostics, fixes and summary
    Json,
    /// For CI systems: SARIF 2.1.0
    Sarif,
    /// For GitHub Actions: one workflow command a problem
    Github,
}

/// Checks the directories once, or with `--watch` after each change.
pub async fn run(args: CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if !args.watch {
        return run_once(&args, env).await;
    }
    run_until_signal_or_closed_stdout(async {
        // A separate task: a reader of stdout that blocks must not delay signals.
        tokio::spawn(check_on_change(args, env.clone()))
            .await
            .unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
    })
    .await
}

/// Checks every directory, then prints the results.
async fn run_once(args: &CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let report = check_dirs(args, env).await;
    let CheckReport { results, fixes, .. } = &report;
    let current_dir = env.current_dir.as_deref();

    match args.output {
        CheckFormat::Json => print_json(&json::check_json(results, fixes, &report.unchecked))?,
        CheckFormat::Sarif => {
            print_json(&sarif::sarif_log(results, &report.unchecked, current_dir))?;
        }
        CheckFormat::Github => write_stdout(|stdout| {
            for finding in shown_findings(results, args) {
                let command = github::annotation_command(finding, current_dir);
                writeln!(stdout, "{command}")?;
            }
            writeln!(stdout, "{}", summary_line(results, args))
        })?,
        CheckFormat::Text => print_text(results, fixes, args)?,
    }

    if let Some(failure) = report.failure(args) {
        return Err(failure);
    }
    let summary = CheckSummary::from_results(results);
    let is_wrong = summary.errors > 0 || args.deny_warnings && summary.warnings > 0;
    Ok(exit::code_for_result(!is_wrong))
}

/// Results of all directories of the command line.
#[derive(Default)]
struct CheckReport {
    results: Vec<CheckResult>,
    fixes: Vec<FileFix>,
    /// Files that could not be fixed, one sentence each.
    unfixed: Vec<String>,
    /// Directories that could not be checked, and the reasons.
    unchecked: Vec<(String, String)>,
    /// Directories without a skill and without a plugin, one sentence each.
    empty: Vec<String>,
}

async fn check_dirs(args: &CheckArgs, env: &ProcessEnv) -> CheckReport {
    let mut report = CheckReport::default();
    for dir in &args.dirs {
        let FixResult {
            checked,
            fixes,
            failures,
        } = match check_one_dir(dir, env, args).await {
            Ok(result) => result,
            Err(why) => {
                report
                    .unchecked
                    .push((dir.to_string_lossy().into_owned(), why));
                continue;
            }
        };

        if checked.is_empty() && !args.allow_empty {
            report.empty.push(format!(
                "{} has neither a skill nor a plugin",
                dir.display()
            ));
        }
        for (path, why) in failures {
            report.unfixed.push(format!("cannot change {path}: {why}"));
        }
        report.fixes.extend(fixes);
        report.results.push(checked);
    }
    report
}

impl CheckReport {
    /// Returns the failure that takes precedence over the findings.
    fn failure(&self, args: &CheckArgs) -> Option<CommandFailure> {
        if !self.unchecked.is_empty() {
            let sentences: Vec<_> = self
                .unchecked
                .iter()
                .map(|(dir, why)| format!("cannot check {dir}: {why}"))
                .collect();
            return Some(CommandFailure::from_messages(exit::BAD_CONFIG, &sentences));
        }

        if !self.unfixed.is_empty() {
            let failure = CommandFailure::from_messages(exit::OUTPUT_FAILED, &self.unfixed);
            let hint = "--fix needs write permission for the directory of the file";
            return Some(failure.with_hint(hint));
        }

        if !self.empty.is_empty() {
            return Some(
                CommandFailure::from_messages(exit::PROBLEMS_FOUND, &self.empty)
                    .with_hint(self.emptiness_hint(args.fix_mode())),
            );
        }
        None
    }

    fn emptiness_hint(&self, mode: Option<FixMode>) -> &'static str {
        let mut results = self.results.iter();
        match mode {
            _ if !results.any(CheckResult::is_empty_by_letter_case) => {
                "a skill is a directory with a SKILL.md; see --allow-empty"
            }
            None => {
                "only the exact name SKILL.md makes a skill; rename the file, or run this with --fix"
            }
            Some(FixMode::DryRun) => {
                "only the exact name SKILL.md makes a skill; rename the file, or run this without \
                 --dry-run"
            }
            Some(FixMode::Write) => "only the exact name SKILL.md makes a skill; rename the file",
        }
    }
}

impl CheckArgs {
    fn fix_mode(&self) -> Option<FixMode> {
        let mode = if self.dry_run {
            FixMode::DryRun
        } else {
            FixMode::Write
        };
        self.fix.then_some(mode)
    }
}

fn print_text(
    all: &[CheckResult],
    fixes: &[FileFix],
    args: &CheckArgs,
) -> Result<(), CommandFailure> {
    // The failure then names each directory with the reason.
    if all.is_empty() {
        return Ok(());
    }

    let is_colored = supports_color(&io::stdout());
    let width = terminal_width(&io::stdout());
    let shown = shown_findings(all, args);

    write_stdout(|stdout| {
        for fix in fixes {
            write!(stdout, "{}", fix.diff)?;
        }
        let fixed_files = count_with_noun(fixes.len(), "file");
        match args.fix_mode() {
            None => {}
            Some(_) if fixes.is_empty() => writeln!(stdout, "nothing to fix\n")?,
            Some(FixMode::Write) => writeln!(stdout, "\nfixed {fixed_files}\n")?,
            Some(FixMode::DryRun) => writeln!(stdout, "\n{fixed_files} would change\n")?,
        }

        for finding in &shown {
            let mut text = render_finding(finding, is_colored);
            if let Some(width) = width {
                text = wrap_finding(&text, width);
            }
            write!(stdout, "{text}")?;
        }
        if !shown.is_empty() {
            writeln!(stdout, "run `caproot explain CODE` for details")?;
        }
        for line in missing_lines(all) {
            writeln!(stdout, "{line}")?;
        }
        writeln!(stdout, "{}", summary_line(all, args))
    })
}

/// Returns a line for each skill that needs something that this machine does not have. Such a skill is
/// correct, so the lines are no findings.
fn missing_lines(all: &[CheckResult]) -> Vec<String> {
    let lines = all
        .iter()
        .flat_map(|result| &result.skills)
        .filter_map(|checked| {
            let names: Vec<_> = missing_in_process(checked.skill.requirements()?)
                .iter()
                .map(ToString::to_string)
                .collect();
            (!names.is_empty()).then(|| {
                let name = escape_text(checked.skill.name());
                let names = escape_text(&names.join(", "));
                format!("note: {name} needs more than this machine has: {names}")
            })
        });
    lines.collect()
}

/// Breaks the message and the help of a finding between words.
fn wrap_finding(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for (at, line) in text.lines().enumerate() {
        let indent = if at == 0 { "  " } else { "          " };
        let has_text = at == 0 || line.contains("help: ") && !line.contains(" | ");
        // Source lines stay whole.
        let width = if has_text { width } else { usize::MAX };
        for part in wrap_line(line, width, indent) {
            wrapped += &part;
            wrapped.push('\n');
        }
    }
    wrapped
}

fn summary_line(all: &[CheckResult], args: &CheckArgs) -> String {
    let summary = CheckSummary::from_results(all);
    let mut line = summary.to_string();
    if summary.notes > 0 && !args.notes {
        line += " (--notes shows the notes)";
    }
    line
}

/// Returns the findings that the flags show.
fn shown_findings<'a>(all: &'a [CheckResult], args: &CheckArgs) -> Vec<&'a CheckFinding> {
    all.iter()
        .flat_map(|checked| &checked.findings)
        .filter(|finding| args.notes || finding.problem.severity != Severity::Note)
        .collect()
}

/// Checks one directory like a daemon with `--root` for this directory only, and fixes its problems.
async fn check_one_dir(
    dir: &Path,
    env: &ProcessEnv,
    args: &CheckArgs,
) -> Result<FixResult, String> {
    if dir.exists() && !dir.is_dir() {
        return Err(reason_sentence(RootReason::NotADirectory, dir).to_owned());
    }

    let mut request = check_request(dir, env)?;
    request.is_strict = args.strict;
    request.exclusions = CheckExclusions::read(&args.exclude, dir)?;
    if let Some(file) = &args.lock {
        request.target.rules.trust = Some(read_trust(file)?);
    }
    let fix = args.fix_mode();
    let progress = Arc::new(ScanProgress::new());
    let seen = progress.clone();
    let mut work = tokio::task::spawn_blocking(move || match fix {
        Some(mode) => fix_dir(&request, mode, &seen),
        None => lint::check_dir(&request, &seen).map(|checked| FixResult {
            checked,
            ..FixResult::default()
        }),
    });

    let spinner = DelayedSpinner::new("");
    let done = spinner.run(async {
        loop {
            if let Ok(done) = tokio::time::timeout(PROGRESS_INTERVAL, &mut work).await {
                break done;
            }
            spinner.set_message(format!("{} directories scanned", progress.dirs_visited()));
        }
    });

    done.await
        .map_err(|error| format!("internal error: {error}"))?
        .map_err(|reason| reason_sentence(reason, dir).to_owned())
}

/// Reads a lock whose differences are warnings.
fn read_trust(file: &Path) -> Result<TrustPolicy, String> {
    let LockFile {
        lock,
        digest,
        signer,
    } = LockFile::read(file, None).map_err(|error| error.to_string())?;
    Ok(TrustPolicy {
        mode: TrustMode::Warn,
        roots: None,
        lock: Arc::new(LoadedLock {
            lock,
            path: file.to_owned(),
            signers: None,
            digest,
            signer,
            loaded_at: Duration::ZERO,
        }),
    })
}

fn check_request(dir: &Path, env: &ProcessEnv) -> Result<CheckRequest, String> {
    // A skill without a name is named after the last segment, and `..` is no name.
    let named = match dir.components().next_back() {
        Some(Component::ParentDir) => dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
        _ => dir.to_owned(),
    };

    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: None,
            dir: named,
        }],
        ..ServeFlags::default()
    };

    let config = Config::from_flags(flags, env).map_err(|errors| {
        let sentences: Vec<_> = errors.iter().map(ToString::to_string).collect();
        sentences.join(" ")
    })?;
    let mut rules = config.search_rules();
    rules.limits.max_diagnostics = MAX_FINDINGS;

    let [root] = &config.published_roots[..] else {
        return Err("not a single directory".to_owned());
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
        is_strict: false,
        exclusions: CheckExclusions::default(),
    })
}

fn reason_sentence(reason: RootReason, dir: &Path) -> &'static str {
    match reason {
        RootReason::NotFound | RootReason::MountRemoved | RootReason::NotAllowed => {
            "no such directory"
        }
        RootReason::NotADirectory if dir.file_name().is_some_and(|name| name == "SKILL.md") => {
            "not a directory; name the directory that contains the file"
        }
        RootReason::NotADirectory => "not a directory",
        RootReason::PermissionDenied | RootReason::SandboxDenied => {
            "permission denied: the directory needs read and search permission"
        }

        RootReason::Timeout
        | RootReason::ParseTimeout
        | RootReason::IoError
        | RootReason::NoThread
        | RootReason::ScanFailed => "the filesystem failed, or its links form a loop",

        RootReason::WrongEnvironment
        | RootReason::MissingEnvironment
        | RootReason::InvalidPath
        | RootReason::UnknownPublished
        | RootReason::PathTooLong
        | RootReason::UnsupportedLocation => "not a path of this machine",
    }
}

async fn check_on_change(args: CheckArgs, env: ProcessEnv) -> Result<u8, CommandFailure> {
    let (watched, mut hints) =
        file_watch::start_file_watcher(|sentence| print_stderr(&[format!("caproot: {sentence}")]));

    let bounds = tree_bounds(&env);
    let clears = args.output == CheckFormat::Text && io::stdout().is_terminal();

    let mut checked: Option<TreeState> = None;
    loop {
        // The state is read before the check, so that a change during the check is noticed.
        let (watched, dirs, bounds) = (watched.clone(), args.dirs.clone(), bounds.clone());
        let state = tokio::task::spawn_blocking(move || watch_tree(&watched, &dirs, &bounds))
            .await
            .ok();
        if checked != state {
            if clears {
                write_stdout(|stdout| write!(stdout, "{CLEAR_SCREEN}"))?;
            }

            match run_once(&args, &env).await {
                Err(failure) if failure.is_silent() => return Err(failure),
                Err(failure)
                    if checked.is_none() && failure.exit_code() != exit::PROBLEMS_FOUND =>
                {
                    return Err(failure);
                }
                // The first skill may be written later, or the directory may come back.
                Err(failure) => {
                    let _ = report_outcome(Err(failure));
                }
                Ok(_) if clears => {
                    let time = Zoned::now().strftime("%H:%M:%S");
                    print_stderr(&[format!(
                        "checked at {time}; waiting for changes, Ctrl-C ends"
                    )]);
                }
                Ok(_) => {}
            }

            checked = state;
        }

        hints.wait_for_hint(COMPARE_INTERVAL).await;
    }
}

/// Returns the limits of a scan, so that every scanned directory is watched.
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
