//! Makes the socket files of the daemon again if they were removed, for example by a script that
//! cleans a directory. Without its file, a socket accepts no new connection.

use super::listen::{OwnedSocket, SocketPathState};
use caproot_core::file_watch::{COMPARE_INTERVAL, FileChanges, stamp_files};
use caproot_core::sync::run_blocking;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// Last problem of a socket that was logged.
type LoggedProblem = Option<String>;

/// Watches the socket files. Never returns.
pub async fn keep_socket_files(sockets: &[OwnedSocket]) {
    if sockets.is_empty() {
        return std::future::pending().await;
    }
    let mut changes = FileChanges::start(|sentence| tracing::warn!("{sentence}"));
    let paths: Vec<PathBuf> = sockets
        .iter()
        .map(|socket| socket.lock.lock().path().to_owned())
        .collect();
    let mut problems: Vec<LoggedProblem> = vec![None; sockets.len()];

    loop {
        // Before the check, so that a removal after the check is a change.
        let stamped = paths.clone();
        let known = run_blocking(move || stamp_files(&stamped))
            .await
            .unwrap_or_else(|_| vec![None; sockets.len()]);
        let mut has_new_file = false;
        for (socket, problem) in sockets.iter().zip(&mut problems) {
            has_new_file |= check_socket(socket, problem).await;
        }
        if has_new_file {
            continue;
        }

        // A socket file that could not be made is tried again without a change, too.
        let wait = if problems.iter().any(Option::is_some) {
            COMPARE_INTERVAL
        } else {
            Duration::MAX
        };
        let change = changes.wait_for_change(|| (paths.clone(), known.clone()));
        drop(timeout(wait, change).await);
    }
}

/// Makes a missing socket file again, and logs what happened. Returns whether the file was made.
async fn check_socket(socket: &OwnedSocket, logged: &mut LoggedProblem) -> bool {
    let lock = socket.lock.clone();
    // On a blocking thread, because a disk may hang.
    let checked = run_blocking(move || {
        let mut lock = lock.lock();
        (lock.restore_file(), lock.path().to_owned())
    });
    let (state, path) = match checked.await {
        Ok(checked) => checked,
        Err(error) => {
            tracing::warn!(%error, "a socket file could not be checked");
            return false;
        }
    };

    let has_new_file = matches!(state, SocketPathState::Bound(_));
    let socket_name = format!("unix:{}", path.display());

    let problem = match state {
        SocketPathState::Own => None,
        SocketPathState::Bound(fd) => match socket.replace_listener(fd) {
            Ok(()) => {
                tracing::warn!(
                    socket_name,
                    "the socket file was removed, and was made again"
                );
                None
            }
            Err(error) => Some(format!("the new socket cannot be used: {error}")),
        },
        SocketPathState::Foreign => Some(
            "the path has a file of another process; stop that process, or remove the file"
                .to_owned(),
        ),
        SocketPathState::Failed(error) => Some(format!("{error}; restart the daemon")),
    };

    if let Some(problem) = &problem
        && logged.as_ref() != Some(problem)
    {
        tracing::error!(
            socket_name,
            "no client can connect to this socket: {problem}"
        );
    }
    *logged = problem;
    has_new_file
}
