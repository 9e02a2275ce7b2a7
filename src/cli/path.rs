//! `caproot path`: the native path of a package or file, on the executor. The daemon only says
//! whether the file is listed. The path is resolved here with the permissions of this user.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::CommandFailure;
use super::handle_arg::{PackageArg, find_root, find_skill};
use super::locate::{LocateError, RootLocation, locate_handle};
use super::output::{OutputFormat, print_json, write_stdout};
use super::root_arg::{RootArg, file_uri, select_roots};
use crate::config::{Config, ServeFlags};
use crate::model::PublishedRoot;
use caproot_client::Client;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ListResourcesRequest, SelectedCapabilityRoot, Skill,
};
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Print the path of a listed skill or of its file on this machine
///
/// For use on the executor, so that a shell can run a skill's scripts. The daemon says whether the
/// file is listed, but never its path. This command resolves the path below the root's directory.
/// The path has no symbolic links. The daemon's config file names the directory of a published
/// root. If this user may not read the config file, the root must be a default directory of this
/// user, or be set with --root ID=DIR.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot path skill://skills/pdf --root skills=./skills
  python3 \"$(caproot path skill://user/pdf/scripts/fill.py)\" form.pdf
  caproot path deploy-kit:deploy --config /srv/caproot.yaml
  caproot path skill://team/a --root team=/srv/skills --allow /srv/shared")]
pub struct PathArgs {
    /// Handle of a package or file, or the name of a skill if no other skill has the name
    #[arg(value_name = "HANDLE_OR_NAME", value_parser = PackageArg::parse)]
    package: PackageArg,
    /// Config file of the daemon, which has the directories of published roots [default:
    /// /etc/caproot/caproot.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Follow links out of the root's directory into this directory; repeat for more
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Prints the path.
pub async fn run(args: PathArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut executor = args.connection.connect(env).await?;
    let roots = args.selection.selected_roots(&mut executor, env).await?;
    let mut client = executor.client;
    let handle = args
        .package
        .resolve(&mut client, &roots, Consistency::Cached)
        .await?;
    let root = find_root(&handle, roots)?;
    let (root, dir) =
        root_directory(&mut client, root, &handle, args.config.as_deref(), env).await?;
    let package = listed_package(&mut client, &root, &handle).await?;
    let current = env.current_dir.clone().unwrap_or_default();
    let allow = args.allow.iter().map(|dir| current.join(dir));
    let path =
        locate_handle(&handle, &package, &dir, allow).map_err(|why| locate_failure(why, &dir))?;
    print_path(&handle, &path, args.output)?;
    Ok(exit::OK)
}

/// Checks that the daemon lists the file of the handle, and returns its package.
async fn listed_package(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
) -> Result<String, CommandFailure> {
    let skill = find_skill(client, root, handle, Consistency::Cached).await?;
    let package = skill.map_or_else(|| handle.to_owned(), |skill| skill.package);

    let request = ListResourcesRequest {
        root: Some(root.clone()),
        package: package.clone(),
        ..ListResourcesRequest::default()
    };

    // If the handle is in no package, the daemon reports the problem.
    let list = client.list_resources(&request).await?;
    if package == handle || list.resources.iter().any(|file| file.resource == handle) {
        return Ok(package);
    }

    let sentence = "the package has no such file in the daemon's list";
    Err(CommandFailure::new(exit::REJECTED, sentence)
        .with_hint("`caproot resources PACKAGE` lists the files"))
}

/// Returns the root with a directory of this machine: the directory by which the root is selected.
/// For a published root: the directory in the config file, or the default directory of that id, if
/// the daemon finds the same skill there.
async fn root_directory(
    client: &mut Client,
    root: SelectedCapabilityRoot,
    handle: &str,
    config: Option<&Path>,
    env: &ProcessEnv,
) -> Result<(SelectedCapabilityRoot, PathBuf), CommandFailure> {
    let location = root.location.clone().unwrap_or_default();
    let published = match RootLocation::parse(&location.path) {
        Some(RootLocation::Directory(dir)) => return Ok((root, dir)),
        Some(RootLocation::Published(id)) => id,
        None => {
            let sentence = format!("the path of the root `{}` is not a directory", root.id);
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence));
        }
    };

    // The daemon may have another config file or another user with other default directories.
    let candidates = published_dirs(&published, config, env);
    let listed = find_skill(client, &root, handle, Consistency::Cached).await?;
    let there = listed.as_ref().map(SkillContent::of);
    for dir in &candidates.dirs {
        let arg = RootArg {
            id: Some(root.id.clone()),
            dir: dir.clone().into_os_string(),
        };
        let selected = select_roots(&[arg], &location.environment_id, None);
        let Some(same) = selected.ok().and_then(|mut roots| roots.pop()) else {
            continue;
        };

        let here = find_skill(client, &same, handle, Consistency::Cached).await?;
        if there.is_none() || there == here.as_ref().map(SkillContent::of) {
            return Ok((same, dir.clone()));
        }
    }

    let why = candidates.why_none_fits();
    let sentence = format!("unknown directory of the published root `{published}`: {why}");
    Err(CommandFailure::new(exit::BAD_CONFIG, sentence).with_hint(
        "name the daemon's config file with --config FILE, or the directory with --root ID=DIR",
    ))
}

/// Fields of a skill that are equal in every directory with the same skill.
#[derive(PartialEq, Eq)]
struct SkillContent<'a> {
    package: &'a str,
    digest: &'a str,
    size_bytes: u64,
}

impl<'a> SkillContent<'a> {
    fn of(skill: &'a Skill) -> Self {
        Self {
            package: &skill.package,
            digest: &skill.digest,
            size_bytes: skill.size_bytes,
        }
    }
}

/// Directories that a published root can have.
struct DirCandidates {
    dirs: Vec<PathBuf>,
    /// Reason why the config file could not be read.
    config_error: Option<String>,
}

impl DirCandidates {
    fn why_none_fits(&self) -> String {
        match (&self.config_error, &self.dirs[..]) {
            (Some(why), _) => why.clone(),
            (None, [dir, ..]) => format!("the daemon finds another skill in {}", dir.display()),
            (None, []) => "the config file does not publish the root".to_owned(),
        }
    }
}

/// Returns the possible directories of a published root, and the error of the config file.
fn published_dirs(published: &str, config: Option<&Path>, env: &ProcessEnv) -> DirCandidates {
    let mut candidates = DirCandidates {
        dirs: Vec::new(),
        config_error: None,
    };

    let usual_file = env.etc.join("caproot/caproot.yaml");
    match read_published(config.unwrap_or(&usual_file), env) {
        Ok(roots) => candidates.dirs.extend(find_directory(roots, published)),
        Err(why) => candidates.config_error = Some(why),
    }

    if config.is_none()
        && let Ok(defaults) = Config::from_flags(ServeFlags::default(), env)
    {
        let roots = defaults.published_roots;
        candidates.dirs.extend(find_directory(roots, published));
    }
    candidates
}

fn find_directory(roots: Vec<PublishedRoot>, published: &str) -> Option<PathBuf> {
    let root = roots
        .into_iter()
        .find(|root| root.id.as_str() == published)?;
    Some(OsStr::from_bytes(&root.path).into())
}

fn read_published(file: &Path, env: &ProcessEnv) -> Result<Vec<PublishedRoot>, String> {
    if let Err(error) = File::open(file) {
        return Err(format!("cannot read {}: {error}", file.display()));
    }
    Config::read_published_roots(file, env).map_err(|errors| {
        errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    })
}

/// Explains why this user cannot find a listed file.
fn locate_failure(why: LocateError, dir: &Path) -> CommandFailure {
    const HERE: &str = "run this command on the executor, as a user who may read the root";
    let below = dir.display();

    match why {
        LocateError::InvalidHandle(problem) => {
            CommandFailure::invalid_response(&format!("handle: {problem}"))
        }
        LocateError::RootUnavailable => {
            let sentence = format!("this user cannot open the root's directory {below}");
            CommandFailure::new(exit::PROBLEMS_FOUND, sentence).with_hint(HERE)
        }
        LocateError::NotFound => {
            let sentence = format!("the daemon lists the file, but the file is not below {below}");
            CommandFailure::new(exit::PROBLEMS_FOUND, sentence).with_hint(HERE)
        }

        LocateError::Outside => {
            let sentence =
                format!("a link leads out of {below} and out of every --allow directory");
            CommandFailure::new(exit::BAD_CONFIG, sentence)
                .with_hint("allow the directory of its target with --allow DIR")
        }
        LocateError::Denied => {
            let sentence = format!("this user may not read the file below {below}");
            CommandFailure::new(exit::NOT_PERMITTED, sentence)
        }
        LocateError::Failed => {
            let sentence = format!("cannot read the filesystem below {below}");
            CommandFailure::new(exit::PROBLEMS_FOUND, sentence)
        }
    }
}

fn print_path(handle: &str, path: &Path, output: OutputFormat) -> Result<(), CommandFailure> {
    let bytes = path.as_os_str().as_bytes();

    match output {
        OutputFormat::Text if io::stdout().is_terminal() => {
            let text = escape_text(&path.to_string_lossy());
            write_stdout(|stdout| writeln!(stdout, "{text}"))
        }
        OutputFormat::Text => {
            write_stdout(|stdout| stdout.write_all(bytes).and_then(|()| writeln!(stdout)))
        }
        OutputFormat::Json => {
            let mut answer = json!({
                "handle": handle,
                "uri": file_uri(bytes),
            });
            // JSON cannot represent a path that is not UTF-8. The URI can.
            if let Some(text) = path.to_str() {
                answer["path"] = text.into();
            }
            print_json(&answer)
        }
    }
}
