//! `caproot exec`: runs a listed script of a skill, or a declared MCP server of a plugin, from a verified copy
//! of its package, as the user of the caller, or prints the path in the copy. The daemon only lists and sends
//! the files.

mod exec_rules;
mod plugin_server;
mod prepared_script;

use crate::cli::args::TargetArgs;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::handle_arg::{PackageArg, find_root, list_request};
use crate::cli::output::print_stderr;
use crate::cli::spinner::DelayedSpinner;
use caproot_client::pull::{
    CopyRequest, PackageCopy, PackageLocation, PackageStore, PullError, PullLimits, copy_package,
};
use caproot_client::{
    ApprovedVersions, CallError, Client, LockView, enclosing_package, error_reason, root_id,
};
use caproot_core::lock::Lock;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{Consistency, ErrorReason, SelectedCapabilityRoot, Skill};
use caproot_core::text::variables::PLUGIN_DIR_VARIABLES;
use caproot_core::wire::handle::{HANDLE_SCHEME, encode_path};
use caproot_core::wire::{ContentDigest, RelPath, parse_file_name};
use clap::Args;
use exec_rules::ExecRules;
use percent_encoding::percent_decode_str;
use prepared_script::{PreparedScript, Surroundings};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Message about an argument that names no file.
const EXPECTED_TARGET: &str = "expected skill://ROOT/SKILL/scripts/run.py or SKILL/scripts/run.py";
/// Run a listed script of a skill on this machine
///
/// For use on the executor, in the shell of an agent. Copies the files of the skill from the daemon to
/// a directory that only this user can write, compares each file with the digest that the daemon
/// listed, and runs the script there. So the script finds the files next to itself, and an edit of the
/// skill cannot change a script that runs. The script has the user, the environment, the working
/// directory and the sandbox of this command.
///
/// An executable file with a shebang runs by the shebang. Otherwise the extension decides: .py runs
/// by python3, .sh by bash or sh, .js and .mjs by node, .rb by ruby.
///
/// With --print, the command runs nothing: it prints the path of the file or of the whole skill in the
/// copy, which stays for at least an hour.
///
/// With --server, the command starts an MCP server that a plugin declares, from a verified copy of the
/// plugin that the server cannot write, with the variables of the declaration. The server speaks over
/// stdin and stdout.
///
/// Without --lock, only a trusted daemon sends scripts: over a Unix socket of root, of this user or of the
/// service's user, or over TLS with an authority of this machine.
///
/// The exit code is that of the script or server. If it cannot run, the code is 125, 126 or 127, and
/// stderr has a line that begins with `caproot:`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot exec pdf/scripts/fill.py -- form.pdf --out filled.pdf
  caproot exec skill://team/build/run.sh --lock approved.lock
  ls \"$(caproot exec --print pdf)\"
  ssh build-1 caproot exec --server 'skill://team/kit#db'")]
pub struct ExecArgs {
    /// File of a skill: its handle, or the name of the skill, a slash and the path. With --print also a
    /// whole skill. `caproot resources SKILL` lists the files
    #[arg(value_name = "FILE", value_parser = parse_target, required_unless_present = "server")]
    target: Option<ScriptTarget>,
    /// Instead of a file: start this stdio MCP server, by the handle of its plugin, `#` and its name, as
    /// `caproot resolve` lists it
    #[arg(long, value_name = "HANDLE", conflicts_with_all = ["target", "print"])]
    server: Option<String>,
    /// With --server: also start a server whose program is no file of the plugin, such as npx, or whose
    /// variables name code outside the plugin
    #[arg(long, requires = "server")]
    allow_program: bool,
    /// Print the path in the copy instead of running the file
    #[arg(long, conflicts_with = "script_args")]
    print: bool,
    /// Run only if the skill or plugin has this digest over all its files, as read before; `caproot
    /// resources PACKAGE --digests` shows the digest. Repeat for more versions
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    digest: Vec<ContentDigest>,
    /// Run only if this lock of `caproot lock` approves all files of the skill, or all files and declarations of the
    /// plugin
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// With --lock: require an SSH signature of the lock in FILE.sig by a key of this file
    #[arg(long, value_name = "FILE", requires = "lock")]
    signers: Option<PathBuf>,
    /// Directory of the copies, which only this user may write; at most 32 copies are kept [default:
    /// `$XDG_CACHE_HOME/caproot/packages`]
    #[arg(long, value_name = "DIR", env = "CAPROOT_COPIES")]
    copies: Option<PathBuf>,
    /// Maximum number of files of the skill
    #[arg(long, value_name = "N", default_value_t = PullLimits::default().max_files)]
    max_files: usize,
    /// Maximum size of all files of the skill in bytes
    #[arg(long, value_name = "N", default_value_t = PullLimits::default().max_bytes)]
    max_bytes: u64,
    /// Arguments of the script, or further arguments of the server
    #[arg(last = true, value_name = "ARGS")]
    script_args: Vec<OsString>,
    #[command(flatten)]
    daemon: TargetArgs,
}

/// File or package on the command line.
#[derive(Debug, Clone)]
struct ScriptTarget {
    package: PackageArg,
    /// Path of the file as a part of a handle. Empty for the package, and if the handle is that of the file.
    path: String,
}

fn parse_target(text: &str) -> Result<ScriptTarget, &'static str> {
    if root_id(text).is_some() {
        return Ok(ScriptTarget {
            package: PackageArg::Handle(text.to_owned()),
            path: String::new(),
        });
    }
    if text.starts_with("skill:") {
        return Err(EXPECTED_TARGET);
    }
    let (name, path) = text.split_once('/').unwrap_or((text, ""));
    let path = match path {
        "" => Some(String::new()),
        path => RelPath::new(path.as_bytes()).map(|path| format!("/{}", encode_path(&path))),
    };
    match path {
        Some(path) if !name.is_empty() => Ok(ScriptTarget {
            package: PackageArg::Name(name.to_owned()),
            path,
        }),
        _ => Err(EXPECTED_TARGET),
    }
}

fn parse_digest(text: &str) -> Result<ContentDigest, &'static str> {
    ContentDigest::parse(text).ok_or("expected sha256: and 64 hex digits")
}

/// Replaces this process by the script, or prints the path. Returns only after a print, or if the script
/// cannot run.
pub async fn run(args: ExecArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let done = match (&args.server, &args.target) {
        (Some(server), _) => plugin_server::start(server, &args, env).await,
        (None, Some(target)) => match prepare_script(target, &args, env).await {
            Ok(script) if args.print => script.print_path(),
            Ok(script) => Err(script.replace_process(&args.script_args)),
            Err(failure) => Err(failure),
        },
        (None, None) => Err(CommandFailure::new(exit::USAGE, EXPECTED_TARGET)),
    };
    done.map(|()| exit::OK).map_err(with_exec_code)
}

/// Changes the exit code of a failure to 125, unless the code is one of `exec` already.
fn with_exec_code(failure: CommandFailure) -> CommandFailure {
    match failure.exit_code() {
        exit::SCRIPT_CHANGED | exit::NOT_RUNNABLE => failure,
        // The reader of the printed path is gone.
        _ if failure.is_silent() => failure,
        _ => failure.with_exit_code(exit::NOT_STARTED),
    }
}

async fn prepare_script(
    target: &ScriptTarget,
    args: &ExecArgs,
    env: &ProcessEnv,
) -> Result<PreparedScript, CommandFailure> {
    let rules = ExecRules::load(args.lock.as_deref(), args.signers.as_deref(), env)?;
    let mut executor = rules.connect(&args.daemon.connection, env).await?;
    let selection = &args.daemon.selection;
    let roots = selection.selected_roots(&mut executor, env).await?;
    let mut client = executor.client;
    let handle = target
        .package
        .clone()
        .resolve(&mut client, &roots, Consistency::Cached)
        .await?
        + &target.path;
    let root = find_root(&handle, roots)?;
    let mut files = find_target_files(&mut client, &root, &handle).await?;

    // Without a digest, nothing decides between a path and an equal name, and the path is first.
    if args.digest.is_empty() {
        files.truncate(1);
    }
    let source = CopySource {
        args,
        client: &client,
        store: open_store(args, env)?,
        root: &root,
        lock: rules.lock.as_ref(),
    };

    let mut first_failure = None;
    for target in &files {
        match target.copy(&source).await {
            Ok(script) => return Ok(script),
            Err(failure) => first_failure = first_failure.or(Some(failure)),
        }
    }
    Err(first_failure.unwrap_or_else(|| no_listed_file(&handle)))
}

/// Daemon, store and rules of the copies.
struct CopySource<'a> {
    args: &'a ExecArgs,
    client: &'a Client,
    store: Arc<PackageStore>,
    root: &'a SelectedCapabilityRoot,
    lock: Option<&'a Lock>,
}

impl CopySource<'_> {
    /// Copies a package, of which a file is needed or none in particular.
    async fn copy(
        &self,
        package: &str,
        file: Option<&str>,
        approved: Option<ApprovedVersions>,
    ) -> Result<PackageCopy, PullError> {
        let request = CopyRequest {
            location: PackageLocation {
                root: self.root,
                package,
            },
            file,
            digests: &self.args.digest,
            limits: PullLimits {
                max_files: self.args.max_files,
                max_bytes: self.args.max_bytes,
            },
            approved,
        };
        let spinner = DelayedSpinner::new("copying the files");
        let copied = copy_package(self.client, &self.store, &request);
        spinner.run(copied).await
    }

    /// Copies the plugin of a skill, for the variables with its directory. Returns `None` for a plugin that the
    /// lock or `--digest` does not approve: its files must not run.
    async fn copy_plugin(&self, skill: &Skill, package: &str) -> Option<PackageCopy> {
        let approved = self
            .lock
            .map(|lock| LockView::new(lock).plugin_versions(&skill.plugin));
        let copied = self.copy(package, None, approved).await;

        // A running server of the plugin may share the copy. A script may write next to itself.
        let copied = copied.and_then(|copy| {
            if package != skill.package {
                copy.make_read_only()?;
            }
            Ok(copy)
        });

        match copied {
            Ok(copy) => Some(copy),
            Err(PullError::OtherDigest(_) | PullError::NotApproved(_)) => None,
            Err(error) => {
                let [variable, ..] = PLUGIN_DIR_VARIABLES;
                print_stderr(&[format!("note: the script runs without {variable}: {error}")]);
                None
            }
        }
    }
}

/// File or package that a handle may mean, with its skill.
struct TargetFile {
    handle: String,
    skill: Option<Skill>,
}

impl TargetFile {
    /// Copies the package, and returns the file in the copy.
    async fn copy(&self, source: &CopySource<'_>) -> Result<PreparedScript, CommandFailure> {
        let skill = self.skill.as_ref();
        let package = skill.map_or(&self.handle, |skill| &skill.package);
        let only_prints = source.args.print;
        let file = if only_prints && self.handle == *package {
            None
        } else {
            Some(file_name(&self.handle, package)?)
        };

        let name = skill.map_or("", |skill| &skill.name);
        let approved = source
            .lock
            .map(|lock| LockView::new(lock).skill_versions(name));
        let copy = source
            .copy(package, file, approved)
            .await
            .map_err(|error| copy_failure(error, skill.is_some()))?;

        // The plugin is only for the variables of a script that runs.
        let mut plugin = None;
        if let Some(skill) = skill.filter(|_| !only_prints)
            && let Some(package) = skill.plugin_package()
        {
            plugin = source.copy_plugin(skill, package).await;
        }

        let mut path = copy.dir().to_owned();
        if let Some(file) = file {
            let file = parse_file_name(file).map_err(|reason| format!("the file {reason}"));
            path.push(OsStr::from_bytes(file.or_invalid_response()?.as_bytes()));
        }
        Ok(PreparedScript {
            path,
            copy,
            store: source.store.clone(),
            surroundings: Surroundings::Skill { plugin },
        })
    }
}

/// Returns the files that a handle may mean; not empty. A session with a lock shows the name of a skill in
/// place of its path, and `--digest` decides if a path and a name are equal.
async fn find_target_files(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
) -> Result<Vec<TargetFile>, CommandFailure> {
    let request = list_request(vec![root.clone()], Consistency::Cached);
    let skills = client.list_skills(&request).await?.skills;
    let packages = skills.iter().map(|skill| skill.package.as_str());
    let enclosing = enclosing_package(handle, packages).map(str::to_owned);

    let (named, below) = split_name_handle(handle);
    let mut files = Vec::new();
    for skill in skills {
        let (at, handle) = if Some(&skill.package) == enclosing.as_ref() {
            (0, handle.to_owned())
        } else if skill.name == named || is_version_of(&named, &skill.name) {
            (files.len(), format!("{}{below}", skill.package))
        } else {
            continue;
        };
        let skill = Some(skill);
        files.insert(at, TargetFile { handle, skill });
    }

    // The daemon reports the problem of a handle without a skill.
    if files.is_empty() {
        files.push(TargetFile {
            handle: handle.to_owned(),
            skill: None,
        });
    }
    Ok(files)
}

/// Returns the decoded first segment below the root of a handle of a file or a server, and the rest.
fn split_name_handle(handle: &str) -> (String, &str) {
    let path = handle.strip_prefix(HANDLE_SCHEME).unwrap_or_default();
    let path = path.split_once('/').map_or("", |(_, path)| path);
    let end = path.find(['/', '#']).unwrap_or(path.len());
    let named = percent_decode_str(&path[..end]).decode_utf8_lossy();
    (named.into_owned(), &path[end..])
}

/// Whether a text is the name with `@` and eight digits of a digest.
fn is_version_of(text: &str, name: &str) -> bool {
    let version = text.strip_prefix(name).unwrap_or_default();
    version.starts_with('@') && version.len() == 9
}

/// Returns the name of the file in its package.
fn file_name<'a>(handle: &'a str, package: &str) -> Result<&'a str, CommandFailure> {
    handle
        .strip_prefix(package)
        .and_then(|rest| rest.strip_prefix('/'))
        .filter(|name| !name.is_empty())
        .ok_or_else(|| no_listed_file(handle))
}

fn no_listed_file(handle: &str) -> CommandFailure {
    CommandFailure::new(
        exit::NOT_RUNNABLE,
        format!("{handle} is no file of a listed skill"),
    )
    .with_hint("`caproot list` lists the skills, `caproot resources PACKAGE` the files")
}

fn open_store(args: &ExecArgs, env: &ProcessEnv) -> Result<Arc<PackageStore>, CommandFailure> {
    let dir = args.copies.clone().unwrap_or_else(|| default_store(env));
    PackageStore::open(&dir).map(Arc::new).map_err(|error| {
        CommandFailure::new(exit::NOT_STARTED, error)
            .with_hint("name another directory with --copies DIR or CAPROOT_COPIES")
    })
}

/// Returns the default directory of the copies.
fn default_store(env: &ProcessEnv) -> PathBuf {
    match env
        .xdg_cache_home
        .clone()
        .or(env.home.as_ref().map(|home| home.join(".cache")))
    {
        Some(cache) => cache.join("caproot/packages"),
        None => env.temp_dir.join(format!("caproot-packages-{}", env.uid)),
    }
}

/// Returns the failure of a copy. A file that changed or that is not listed has its own exit code. A skill
/// that was listed and is gone was hidden, because a file is not approved, or removed.
fn copy_failure(error: PullError, was_listed: bool) -> CommandFailure {
    let reason = match &error {
        PullError::Call(CallError::Status(status)) => error_reason(status),
        _ => None,
    };
    match (&error, reason) {
        (PullError::NotListed { .. }, _) => CommandFailure::new(exit::NOT_RUNNABLE, error)
            .with_hint("`caproot resources PACKAGE` lists the files"),
        (_, Some(ErrorReason::PackageNotFound)) if !was_listed => {
            CommandFailure::new(exit::NOT_RUNNABLE, error)
        }
        (PullError::OtherDigest(_), _) => CommandFailure::new(exit::SCRIPT_CHANGED, error)
            .with_hint("read the skill again before you run it with the new --digest"),
        (PullError::KeepsChanging | PullError::NotApproved(_) | PullError::NotDigested(_), _)
        | (_, Some(ErrorReason::NotApproved | ErrorReason::PackageNotFound)) => {
            CommandFailure::from(error).with_exit_code(exit::SCRIPT_CHANGED)
        }
        _ => error.into(),
    }
}
