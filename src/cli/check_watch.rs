//! `caproot check --watch`: checks again whenever a file below the directories changes.

use super::check::{self, CheckArgs, Form};
use super::exit;
use super::failure::{Failure, report};
use super::output::{print, say};
use super::signals::stop_signal;
use super::watch::reader_left;
use crate::config::{Config, Flags};
use crate::endpoint::Env;
use crate::file_watch::{self, COMPARE_INTERVAL, TreeBounds, TreeState, WatchedDirs, watch_tree};
use jiff::Zoned;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

/// Moves to the top and clears the screen and its history: ECMA-48, and `ED 3` of xterm.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Checks until a signal comes or the reader of stdout is gone.
pub(super) async fn run(args: CheckArgs, env: &Env) -> Result<u8, Failure> {
    let stopped = stop_signal().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    // A task of its own: a reader of stdout that stops for a while must stop no signal.
    let checks = tokio::spawn(check_on_change(args, env.clone()));
    tokio::select! {
        ended = checks => {
            ended.unwrap_or_else(|error| Err(Failure::new(exit::INTERNAL, error)))
        }
        () = stopped => Ok(exit::OK),
        () = reader_left() => Ok(exit::OK),
    }
}

async fn check_on_change(args: CheckArgs, env: Env) -> Result<u8, Failure> {
    let (watched, mut hints) = file_watch::start(|sentence| say(&[format!("caproot: {sentence}")]));
    let bounds = bounds(&env);
    let clears = args.output == Form::Text && io::stdout().is_terminal();
    let mut checked: Option<TreeState> = None;
    loop {
        let state = tree_state(watched.clone(), args.dirs.clone(), bounds.clone()).await;
        if checked != state {
            if clears {
                print(|stdout| write!(stdout, "{CLEAR_SCREEN}"))?;
            }
            match check::run(&args, &env).await {
                Err(failure) if failure.is_quiet() => return Err(failure),
                Err(failure) if checked.is_none() && !failure.is_answer() => return Err(failure),
                // A first skill may be written, or the directory may come back.
                Err(failure) => {
                    let _ = report(Err(failure));
                }
                Ok(_) if clears => {
                    let time = Zoned::now().strftime("%H:%M:%S");
                    say(&[format!("checked at {time}; waiting for changes, Ctrl-C ends")]);
                }
                Ok(_) => {}
            }
            checked = state;
        }
        hints.wait(COMPARE_INTERVAL).await;
    }
}

/// The state of the trees, which are watched from then on.
async fn tree_state(
    watched: WatchedDirs,
    dirs: Vec<PathBuf>,
    bounds: TreeBounds,
) -> Option<TreeState> {
    let walk = tokio::task::spawn_blocking(move || watch_tree(&watched, &dirs, &bounds));
    walk.await.ok()
}

/// The bounds of a search, so that every directory that a check reads is watched.
fn bounds(env: &Env) -> TreeBounds {
    let Ok(config) = Config::from_flags(Flags::default(), env) else {
        return TreeBounds::default();
    };
    let rules = config.rules();
    TreeBounds {
        directories: rules.limits.max_directories,
        entries: rules.limits.max_entries,
        passed_over: rules.passed_over,
    }
}
