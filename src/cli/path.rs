//! `caproot path`: the native path of a package or of a file in one, on the executor. The daemon
//! only says what is listed; the path is found here, with this user's permissions.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::Failure;
use super::handle_arg::{handle, package, root_of};
use super::output::{Output, print, print_json};
use super::root_arg::{RootArg, file_uri, select};
use super::text::shown;
use crate::client::Client;
use crate::config::{Config, Flags};
use crate::endpoint::Env;
use crate::locate::{NotHere, Place, path_of};
use crate::proto::caproot::v1::{Consistency, ListResourcesRequest, SelectedCapabilityRoot, Skill};
use clap::Args;
use serde_json::json;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Print where a listed skill, or a file of it, is on this machine
///
/// For use on the executor, so that a shell can run a skill's scripts. The daemon says whether it
/// lists what is asked for, and never where it is: that is found below the root's directory by this
/// command itself. The path has no links in it. A published root must be one of the usual places of
/// this user, or be given as --root ID=DIR.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot path skill://skills/pdf --root skills=./skills
  python3 \"$(caproot path skill://user/pdf/scripts/fill.py)\" form.pdf
  caproot path skill://team/a --root team=/srv/skills --allow /srv/shared")]
pub(super) struct PathArgs {
    /// The handle of a package or of a file in one
    #[arg(value_name = "HANDLE", value_parser = handle)]
    handle: String,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Follow links out of the root's directory into this one; repeat for more
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the path.
pub(super) async fn run(args: PathArgs, env: &Env) -> Result<u8, Failure> {
    let (mut client, _) = args.connection.client(env).await?;
    let roots = args.selection.roots(&mut client, env).await?;
    let root = root_of(&args.handle, roots)?;
    let (root, dir) = directory(&mut client, root, &args.handle, env).await?;
    let package = listed(&mut client, &root, &args.handle).await?;
    let current = env.current_dir.clone().unwrap_or_default();
    let allow = args.allow.iter().map(|dir| current.join(dir));
    let path = path_of(&args.handle, &package, &dir, allow).map_err(|why| failure(why, &dir))?;
    print_path(&args.handle, &path, args.output)?;
    Ok(exit::OK)
}

/// Makes sure that the daemon lists what the handle names; gives the package that it belongs to.
async fn listed(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
) -> Result<String, Failure> {
    let skill = package(client, root, handle, Consistency::Cached).await?;
    let package = skill.map_or_else(|| handle.to_owned(), |skill| skill.package);
    let request = ListResourcesRequest {
        root: Some(root.clone()),
        package: package.clone(),
        ..ListResourcesRequest::default()
    };
    // For a handle that is in no package, the daemon says what is wrong with it.
    let list = client.list_resources(&request).await?;
    if package == handle || list.resources.iter().any(|file| file.resource == handle) {
        return Ok(package);
    }
    let sentence = "the daemon lists no such file in the package";
    Err(Failure::new(exit::REFUSED, sentence)
        .hint("`caproot resources PACKAGE` shows what it lists"))
}

/// The root as a directory of this machine: the one that it is selected by, else, for a published
/// root, the usual place of that id, if the daemon finds the same skill there.
async fn directory(
    client: &mut Client,
    root: SelectedCapabilityRoot,
    handle: &str,
    env: &Env,
) -> Result<(SelectedCapabilityRoot, PathBuf), Failure> {
    let location = root.location.clone().unwrap_or_default();
    let published = match Place::parse(&location.path) {
        Some(Place::Directory(dir)) => return Ok((root, dir)),
        Some(Place::Published(id)) => id,
        None => {
            let sentence = format!("the root `{}` has no path that names a directory", root.id);
            return Err(Failure::new(exit::CONFIG, sentence));
        }
    };
    let unknown = |why: &str| {
        let sentence = format!("where the published root `{published}` is, {why}");
        Failure::new(exit::CONFIG, sentence).hint("say where with --root ID=DIR")
    };
    let places = Config::from_flags(Flags::default(), env).map(|usual| usual.published);
    let place = places.unwrap_or_default().into_iter().find(|p| p.id.as_str() == published);
    let place = place.ok_or_else(|| unknown("the daemon does not say"))?;
    let dir = PathBuf::from(OsStr::from_bytes(&place.path));
    let arg = RootArg { id: Some(root.id.clone()), dir: dir.clone().into_os_string() };
    let same = select(&[arg], &location.environment_id, None).ok().and_then(|mut s| s.pop());
    let same = same.ok_or_else(|| unknown("the daemon does not say"))?;
    // Another user's daemon has other usual places.
    let there = package(client, &root, handle, Consistency::Cached).await?;
    let here = package(client, &same, handle, Consistency::Cached).await?;
    let content = |skill: Skill| (skill.package, skill.digest, skill.size_bytes);
    if there.is_some() && there.map(content) != here.map(content) {
        return Err(unknown("the daemon does not say, and it is not this user's usual place"));
    }
    Ok((same, dir))
}

/// Why what the daemon lists is not found by this user.
fn failure(why: NotHere, dir: &Path) -> Failure {
    const HERE: &str = "run this on the executor, as a user who may read the root";
    let below = dir.display();
    match why {
        NotHere::Handle(problem) => Failure::nonsense(&format!("a handle {problem}")),
        NotHere::Root => {
            let sentence = format!("the root's directory {below} cannot be opened by this user");
            Failure::new(exit::WRONG, sentence).hint(HERE)
        }
        NotHere::Missing => {
            Failure::new(exit::WRONG, format!("the daemon lists it, and it is not below {below}"))
                .hint(HERE)
        }
        NotHere::Outside => {
            let sentence = format!("a link leads out of {below}, and out of every --allow");
            Failure::new(exit::CONFIG, sentence).hint("allow its target's directory: --allow DIR")
        }
        NotHere::Denied => {
            Failure::new(exit::NOT_PERMITTED, format!("this user may not read it below {below}"))
        }
        NotHere::Failed => Failure::new(exit::WRONG, format!("the filesystem below {below} fails")),
    }
}

fn print_path(handle: &str, path: &Path, output: Output) -> Result<(), Failure> {
    let bytes = path.as_os_str().as_bytes();
    match output {
        Output::Text if io::stdout().is_terminal() => {
            let text = shown(&path.to_string_lossy());
            print(|stdout| writeln!(stdout, "{text}"))
        }
        Output::Text => print(|stdout| stdout.write_all(bytes).and_then(|()| writeln!(stdout))),
        Output::Json => {
            let mut answer = json!({
                "handle": handle,
                "uri": file_uri(bytes),
            });
            // JSON cannot hold one that is not UTF-8; its URI can.
            if let Some(text) = path.to_str() {
                answer["path"] = text.into();
            }
            print_json(&answer)
        }
    }
}
