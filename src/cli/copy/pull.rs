//! `caproot pull`: packages of a daemon as files in directories.

mod dir_check;
mod dir_mirror;
mod pass_report;
mod skill_list;
mod sources;

use crate::cli::agents::mcp_servers::McpServersArgs;
use crate::cli::agents::sites_args::SitesArgs;
use crate::cli::args::{ConnectionArgs, SelectionArgs, read_lock};
use crate::cli::ask::report::{count_with_noun, diagnostic_line, withheld_lines};
use crate::cli::copy::print_lines;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::handle_arg::{PackageArg, find_root, find_skill, join_candidates, list_plugins};
use crate::cli::output::{OutputFormat, print_json, print_stderr};
use crate::cli::signals::run_until_signal_or_closed_stdout;
use crate::cli::spinner::DelayedSpinner;
use caproot_client::pull::{
    DirDifference, PullError, PullLimits, PullProgress, PullReport, PullRequest, pull_package,
};
use caproot_client::{ApprovedVersions, CallError, Client, LockView, Mirror, MirrorSelection};
use caproot_core::lock::Lock;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ResolveRootsRequest, SelectedCapabilityRoot, SkillView,
};
use caproot_core::text::escape_text;
use caproot_core::wire::handle::is_within;
use clap::Args;
use dir_check::{check_dir, difference_lines, differences_json};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tonic::Code;

/// Interval at which --watch compares the package: the daemon reports no change of the files in
/// directories such as `scripts`.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval as a multiple of the time of a comparison, so that a large package does not keep
/// the disk busy.
const INTERVAL_PER_COMPARISON: u32 = 20;

/// Write a skill or plugin to a directory
///
/// Reads only the files that the directory does not have, checks their digests, and then replaces
/// the directory as a whole. If the package changes in the meantime, the pull starts again. The
/// directory has the file .caproot-checksums.json with the digest of each file.
///
/// A file that is not from a pull, or that changed since, is never overwritten or removed without
/// --force: the pull lists such files and exits with 1. Prints + for each written and - for each
/// removed file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot pull pdf --into ./pdf                 # by the skill's name
  caproot pull skill://skills/pdf --into /opt/skills/pdf
  caproot pull pdf --into ./pdf --watch         # until a signal comes
  caproot pull --all --into ./skills            # every published skill
  caproot pull --all --watch --prune --into ~/.agents/skills
  caproot pull --all --into ./skills --lock caproot.lock  # every approved skill
  caproot pull pdf --site docs.example --into ./pdf
  caproot pull --check --into ./pdf             # compare with the digests")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct PullArgs {
    /// Handle of a package, or the name of a skill if no other skill has the name; `caproot list
    /// --long` shows both
    #[arg(value_name = "HANDLE_OR_NAME", value_parser = PackageArg::parse, required_unless_present_any = ["all", "check"])]
    package: Option<PackageArg>,
    /// Every skill of the roots, each to the directory in --into that has the name of the skill. If two
    /// skills have one name, the first in the order of the roots is pulled. The limits hold for each
    /// skill
    #[arg(long, conflicts_with = "package")]
    all: bool,
    /// With --all: remove the directories of skills that the roots no longer have. Only directories that a
    /// pull wrote are removed, and only if their root is ready and its list is complete
    #[arg(long, requires = "all", conflicts_with_all = ["package", "force"])]
    prune: bool,
    /// Instead of a pull: compare the directory in --into with its digests. Prints each file that changed, is
    /// missing, or is not from a pull, and exits with 1 if there is such a file. Needs no daemon
    #[arg(long, conflicts_with_all = ["package", "all", "force", "lock", "watch"])]
    check: bool,
    /// Directory of the package, or of the packages; created if it does not exist
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Replace files that are not from a pull, or that changed since
    #[arg(long)]
    force: bool,
    /// Write only packages that this lock of `caproot lock` approves
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// With --lock: require an SSH signature of the lock in FILE.sig by a key of this file
    #[arg(long, value_name = "FILE", requires = "lock")]
    signers: Option<PathBuf>,
    /// Keep the directory up to date until a signal comes
    #[arg(long)]
    watch: bool,
    /// Maximum number of files
    #[arg(long, value_name = "N", default_value_t = PullLimits::default().max_files)]
    max_files: usize,
    /// Maximum size of all files in bytes
    #[arg(long, value_name = "N", default_value_t = PullLimits::default().max_bytes)]
    max_bytes: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Sources instead of a daemon")]
    sources: PullSources,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Flags of MCP servers and sites.
#[derive(Debug, Args)]
pub struct PullSources {
    #[command(flatten)]
    mcp_servers: McpServersArgs,
    #[command(flatten)]
    sites: SitesArgs,
}

impl From<PullError> for CommandFailure {
    fn from(error: PullError) -> Self {
        let code = match error {
            PullError::Call(error) => return Self::from(error),
            PullError::InvalidResponse(_) => exit::INTERNAL,
            PullError::Source { is_temporary, .. } if is_temporary => exit::TRY_LATER,
            PullError::Source { .. }
            | PullError::NotListed { .. }
            | PullError::OtherDigest(_)
            | PullError::TooLarge(_)
            | PullError::NoFiles
            | PullError::Truncated
            | PullError::ForbiddenName(_)
            | PullError::PulledCopy
            | PullError::NoDigest(_) => exit::REJECTED,
            PullError::KeepsChanging | PullError::InUse(_) => exit::TRY_LATER,
            PullError::Conflicts(_)
            | PullError::Unapprovable(_)
            | PullError::NotDigested(_)
            | PullError::Withheld(_) => exit::PROBLEMS_FOUND,
            PullError::NotApproved(_) => {
                return Self::new(exit::PROBLEMS_FOUND, error).with_hint(
                    "review the files, then approve them with `caproot lock --update NAME`",
                );
            }
            PullError::OtherPackage(_) => {
                return Self::new(exit::BAD_CONFIG, error)
                    .with_hint("pull into another directory, or replace the package with --force");
            }
            PullError::Unusable { .. } | PullError::NoExchange(_) => exit::BAD_CONFIG,
            PullError::Io { .. } => exit::OUTPUT_FAILED,
        };

        Self::new(code, error)
    }
}

/// Pulls the package, with --watch until a signal comes or stdout is closed.
pub async fn run(args: PullArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if args.check {
        return check_dir(&args.into, args.output);
    }
    if args.sources.has_any() {
        return sources::pull_from_sources(args, env).await;
    }
    // A signal may end a single pull at any time, because the next pull removes the remains.
    if !args.watch {
        return Box::pin(pull_and_watch(args, env)).await;
    }
    run_until_signal_or_closed_stdout(pull_and_watch(args, env)).await
}

async fn pull_and_watch(args: PullArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let options = args.options()?;
    let mut executor = args.connection.connect(env).await?;
    let roots = args.selection.selected_roots(&mut executor, env).await?;
    let Some(package) = args.package.clone() else {
        return dir_mirror::pull_all(args, executor, roots, options, env).await;
    };
    let mut client = executor.client;

    let package = package
        .resolve(&mut client, &roots, Consistency::Cached)
        .await?;
    let root = find_root(&package, roots)?;
    let mut request = options.request(root, package, args.into, env)?;
    request.approved = options.approved_package(&mut client, &request).await?;

    // The mirror starts first, so that no change is lost between the pull and the watch.
    let watched = args.watch.then(|| {
        let selection = MirrorSelection {
            // Only the full view has plugins.
            view: SkillView::Full,
            ..MirrorSelection::new(vec![request.root.clone()])
        };
        Mirror::start(&client, selection)
    });
    match pull_with_progress(&client, &request).await {
        Ok(report) => print_report(&request, &report, args.output)?,
        Err(PullError::Conflicts(conflicts)) => {
            return print_conflicts(&request, &conflicts, args.output);
        }
        Err(error @ PullError::Withheld(_)) => {
            print_stderr(&package_problems(&mut client, &request).await?);
            return Err(CommandFailure::from(error)
                .with_hint("a host that reads the plugin's own directory can use such files"));
        }
        Err(error) => return Err(error.into()),
    }

    match watched {
        Some(mirror) => follow_package(&client, &request, mirror, args.output).await,
        None => Ok(exit::OK),
    }
}

impl PullArgs {
    /// Returns the options, with the lock.
    fn options(&self) -> Result<PullOptions, CommandFailure> {
        let lock = self.lock.as_ref();
        let lock = lock.map(|file| read_lock(file, self.signers.as_deref()));
        Ok(PullOptions {
            lock: lock.transpose()?,
            limits: PullLimits {
                max_files: self.max_files,
                max_bytes: self.max_bytes,
            },
            replaces_conflicts: self.force,
            output: self.output,
        })
    }
}

/// Options of each pull of a command.
struct PullOptions {
    lock: Option<Lock>,
    limits: PullLimits,
    replaces_conflicts: bool,
    output: OutputFormat,
}

impl PullOptions {
    /// Returns the approved versions of a skill by its qualified name, with `--lock`.
    fn approved_versions(&self, name: &str) -> Option<ApprovedVersions> {
        Some(LockView::new(self.lock.as_ref()?).skill_versions(name))
    }

    /// Returns the approved versions of the skill or plugin of a request, with `--lock`.
    async fn approved_package(
        &self,
        client: &mut Client,
        request: &PullRequest,
    ) -> Result<Option<ApprovedVersions>, CommandFailure> {
        let PullRequest { root, package, .. } = request;
        let Some(view) = self.lock.as_ref().map(LockView::new) else {
            return Ok(None);
        };
        let skill = find_skill(client, root, package, Consistency::Cached).await?;
        // A directory in the package of a skill has no entry.
        if let Some(skill) = skill.filter(|skill| skill.package == *package) {
            return Ok(Some(view.skill_versions(&skill.name)));
        }

        let plugins = list_plugins(client, vec![root.clone()], Consistency::Cached).await?;
        let mut plugins = plugins.iter();
        let plugin = plugins.find(|plugin| plugin.package == *package);
        let name = plugin.map_or("", |plugin| &plugin.name);
        Ok(Some(view.plugin_versions(name)))
    }

    /// Returns the request for a package, unless the pull would remove the home directory.
    fn request(
        &self,
        root: SelectedCapabilityRoot,
        package: String,
        dir: PathBuf,
        env: &ProcessEnv,
    ) -> Result<PullRequest, CommandFailure> {
        let mut request = PullRequest::new(root, package, dir);
        request.limits = self.limits;
        request.replaces_conflicts = self.replaces_conflicts;

        let home = env.home.as_ref().and_then(|home| home.canonicalize().ok());
        let contains_home = home
            .zip(request.dir.canonicalize().ok())
            .is_some_and(|(home, dir)| home.starts_with(dir));
        if request.replaces_conflicts && contains_home {
            let sentence = format!("{} contains your home directory", request.dir.display());
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence)
                .with_hint("--force would remove it; name a directory for the package alone"));
        }
        Ok(request)
    }
}

/// Returns the lines of the problems in a package, which name the values that are withheld.
async fn package_problems(
    client: &mut Client,
    request: &PullRequest,
) -> Result<Vec<String>, CommandFailure> {
    let resolve = ResolveRootsRequest {
        selected_capability_roots: vec![request.root.clone()],
        ..ResolveRootsRequest::default()
    };
    let roots = client.resolve_roots(resolve).await?.roots;
    let problems = roots.iter().flat_map(|root| &root.diagnostics);
    let problems = problems.filter(|found| is_within(&found.resource, &request.package));
    Ok(problems.filter_map(diagnostic_line).collect())
}

/// Pulls again after each change. Ends with an error that a later attempt does not mend.
async fn follow_package(
    client: &Client,
    request: &PullRequest,
    mut mirror: Mirror,
    output: OutputFormat,
) -> Result<u8, CommandFailure> {
    let mut last_problem = None;
    let mut interval = COMPARE_INTERVAL;

    loop {
        // A timeout is a reason to compare, too.
        drop(tokio::time::timeout(interval, mirror.changed()).await);

        let start = Instant::now();
        match pull_with_progress(client, request).await {
            Ok(report) => {
                last_problem = None;
                if report.is_replaced {
                    print_report(request, &report, output)?;
                } else {
                    // Only a pull that wrote nothing takes the time of a comparison.
                    interval = COMPARE_INTERVAL.max(start.elapsed() * INTERVAL_PER_COMPARISON);
                }
            }
            Err(PullError::Conflicts(conflicts)) => {
                return print_conflicts(request, &conflicts, output);
            }
            Err(error) if is_temporary(&error) => {
                let problem = escape_text(&error.to_string());
                if last_problem.as_ref() != Some(&problem) {
                    print_stderr(&[format!("caproot: {problem}; the directory stays as it is")]);
                    last_problem = Some(problem);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a later pull may succeed: the daemon is away, or the package may come back.
fn is_temporary(error: &PullError) -> bool {
    match error {
        PullError::Call(CallError::Status(_)) => !is_permission_error(error),
        PullError::Call(CallError::ChangedDuringRead | CallError::DigestMismatch)
        | PullError::KeepsChanging
        | PullError::NoDigest(_)
        | PullError::NoFiles
        | PullError::Withheld(_)
        | PullError::NotDigested(_)
        | PullError::NotApproved(_)
        | PullError::InUse(_) => true,
        _ => false,
    }
}

/// Whether the daemon rejects the caller, so that a later pull fails, too.
fn is_permission_error(error: &PullError) -> bool {
    matches!(
        error,
        PullError::Call(CallError::Status(status))
            if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
    )
}

/// Runs work that blocks on the disk on another thread.
async fn run_on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PullError> + Send + 'static,
) -> Result<T, CommandFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.or_exit(exit::INTERNAL)??)
}

/// Pulls, and shows the progress on a terminal after a second.
async fn pull_with_progress(
    client: &Client,
    request: &PullRequest,
) -> Result<PullReport, PullError> {
    let spinner = DelayedSpinner::new("listing the files");
    let mut show = |progress: PullProgress| {
        let PullProgress { files, total_files } = progress;
        spinner.set_message(format!("{files} of {total_files} files read"));
    };
    spinner.run(pull_package(client, request, &mut show)).await
}

fn print_report(
    request: &PullRequest,
    report: &PullReport,
    output: OutputFormat,
) -> Result<(), CommandFailure> {
    if output == OutputFormat::Json {
        return print_json(&report_json(request, report));
    }
    print_stderr(&withheld_lines(report.withheld.iter().map(String::as_str)));

    let PullLimits {
        max_files,
        max_bytes,
    } = request.limits;
    let outcome = if report.is_replaced {
        "pulled"
    } else {
        "unchanged"
    };
    let files = count_with_noun(report.files, "file");
    let read = count_with_noun(report.read_files, "file");
    let bytes = report.bytes;

    let mut lines = changed_files("", report);
    lines.push(format!(
        "{outcome}: {files} of at most {max_files}, {bytes} of at most {max_bytes} bytes, {read} read"
    ));
    print_lines(&lines)
}

/// Returns the lines of the changed files, below a prefix. Without a change, there is no line.
fn changed_files(prefix: &str, report: &PullReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (mark, files) in [('+', &report.written), ('-', &report.removed)] {
        let files = files.iter();
        lines.extend(files.map(|file| format!("{mark} {prefix}{}", escape_text(file))));
    }
    lines
}

fn report_json(request: &PullRequest, report: &PullReport) -> Value {
    json!({
        "package": request.package,
        "directory": request.dir.to_string_lossy(),
        "files": report.files,
        "bytes": report.bytes,
        "limits": { "files": request.limits.max_files, "bytes": request.limits.max_bytes },
        "written": report.written,
        "removed": report.removed,
        "withheld": report.withheld,
        "readFiles": report.read_files,
        "conflicts": [],
    })
}

fn conflicts_json(request: &PullRequest, conflicts: &[DirDifference]) -> Value {
    json!({
        "package": request.package,
        "directory": request.dir.to_string_lossy(),
        "conflicts": differences_json(conflicts),
    })
}

/// Prints the files that the pull would replace.
fn print_conflicts(
    request: &PullRequest,
    conflicts: &[DirDifference],
    output: OutputFormat,
) -> Result<u8, CommandFailure> {
    match output {
        OutputFormat::Json => print_json(&conflicts_json(request, conflicts))?,
        OutputFormat::Text => print_lines(&difference_lines(conflicts))?,
    }

    let files = count_with_noun(conflicts.len(), "file");
    print_stderr(&[
        format!("caproot: nothing is written: {files} not from a pull, or changed since"),
        "hint: move the files away, or replace them with --force".to_owned(),
    ]);
    Ok(exit::PROBLEMS_FOUND)
}
