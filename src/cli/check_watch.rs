//! `caproot check --watch`: checks again whenever a file below the directories changes.

use super::check::{self, CheckArgs, CheckFormat};
use super::exit;
use super::failure::{CommandFailure, report_outcome};
use super::output::{print_stderr, write_stdout};
use super::signals::stop_signal;
use super::watch::stdout_closed;
use crate::config::{Config, ServeFlags};
use crate::endpoint::ProcessEnv;
use crate::file_watch::{self, COMPARE_INTERVAL, TreeLimits, TreeState, WatchedDirs, watch_tree};
use jiff::Zoned;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

/// Moves to the top and clears the screen and its history: ECMA-48, and `ED 3` of xterm.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Checks until a signal comes or the reader of stdout is gone.
pub(super) async fn run(args: CheckArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
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
            match check::run(&args, &env).await {
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
