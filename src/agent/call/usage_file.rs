//! File of `--usage`: one line of JSON for each use of a skill.

use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use caproot_core::sync::run_blocking;
use caproot_core::text::SentenceResult as _;
use caproot_session::{Session, UsageEvent};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Events of all sessions that wait for the disk. Further events wait in the sessions, which count the
/// lost ones.
const MAX_WAITING_EVENTS: usize = 1_024;
/// How long the end of the command waits for the disk.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Open file, with the task that writes to it.
pub struct UsageFile {
    queue: Sender<UsageEvent>,
    writer: JoinHandle<()>,
}

impl UsageFile {
    /// Opens a file to append lines, or creates it for its owner alone.
    pub fn open(path: &Path) -> Result<Self, CommandFailure> {
        let file = open_regular_file(path)
            .context(format_args!("cannot open {} of --usage", path.display()))
            .or_exit(exit::BAD_CONFIG)?;

        let (queue, events) = channel(MAX_WAITING_EVENTS);
        let path = path.to_owned();
        let writer = tokio::spawn(async move {
            if let Err(error) = run_blocking(move || write_events(&file, &path, events)).await {
                tracing::error!(%error, "cannot write the file of --usage");
            }
        });
        Ok(Self { queue, writer })
    }

    /// Writes the uses of a session from now on, until the session is closed.
    pub fn follow(&self, session: &Session) {
        let mut usage = session.watch_usage();
        let queue = self.queue.clone();
        tokio::spawn(async move {
            while let Some(event) = usage.next().await {
                if queue.send(event).await.is_err() {
                    break;
                }
            }
        });
    }

    /// Waits until the events of the closed sessions are written, for at most [`FINISH_TIMEOUT`].
    pub async fn finish(self) {
        drop(self.queue);
        if timeout(FINISH_TIMEOUT, self.writer).await.is_err() {
            tracing::error!("the disk does not take the file of --usage; its last lines are lost");
        }
    }
}

fn open_regular_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    // The open of a pipe must not wait for its reader.
    #[cfg(unix)]
    options
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());

    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Writes a line for each event. Reports the first of several failures in a row.
fn write_events(mut file: &File, path: &Path, mut events: Receiver<UsageEvent>) {
    let mut has_failed = false;
    while let Some(event) = events.blocking_recv() {
        // One write for each line: the lines of several processes do not mix.
        let line = serde_json::to_string(&event).map_err(io::Error::from);
        let written = line.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = &written
            && !has_failed
        {
            let path = path.display();
            tracing::error!(%path, %error, "cannot write the uses of skills; they are lost");
        }
        has_failed = written.is_err();
    }
}
