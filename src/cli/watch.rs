//! `caproot watch`: every change of the skills below roots, until a signal, the reader of stdout or
//! a daemon that refuses ends it. Leaves what changes mean to `changes`.

use super::args::{ConnectionArgs, SelectionArgs};
use super::changes::Held;
use super::exit;
use super::failure::Failure;
use super::output::{Output, print, say};
use super::signals::stop_signal;
use super::text::{json_shown, shown};
use crate::client::{CallError, Heard, json};
use crate::endpoint::Env;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{ResetReason, SkillView, WatchSkillsRequest, WatchSkillsResponse};
use clap::Args;
use jiff::Zoned;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::error::Error as _;
use std::io;

/// Show every change of the skills and plugins below roots
///
/// One line a change on stdout: the time, + for added, ~ for changed or - for removed, the name and
/// handle of the skill or plugin, and what changed or why it is gone. Roots whose state changes and new problems
/// begin with !, and = says that all was shown. A lost connection is said on stderr; the watch goes
/// on by itself. SIGINT and SIGTERM end it with 0.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot watch                                  every published root
  caproot watch --root ./skills                  a directory
  caproot watch --selected thread-start.json     the roots that a platform selected
  caproot watch --output json | jq -c .delta.removed")]
pub(super) struct WatchArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Only skills for this product, or for every product
    #[arg(long, value_name = "PRODUCT", default_value = "", hide_default_value = true)]
    product: String,
    /// Show bookmarks too: that nothing changed for a while
    #[arg(long)]
    bookmarks: bool,
    /// How to print what changes
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints changes until something ends it.
pub(super) async fn run(args: WatchArgs, env: &Env) -> Result<u8, Failure> {
    // Before the first line, so that whoever read one can stop it well.
    let stop = stop_signal().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    tokio::select! {
        () = stop => Ok(exit::OK),
        () = reader_left() => Ok(exit::OK),
        ended = watch(args, env) => ended,
    }
}

async fn watch(args: WatchArgs, env: &Env) -> Result<u8, Failure> {
    let (mut client, _) = args.connection.client(env).await?;
    let roots = args.selection.roots(&mut client, env).await?;
    let mut watch = client.watch_skills(WatchSkillsRequest {
        selected_capability_roots: roots,
        product: args.product,
        // Plugins come with it only.
        view: SkillView::Full.into(),
        ..WatchSkillsRequest::default()
    });
    let mut held = Held::default();
    let mut outage = Outage::default();
    loop {
        let event = match watch.next().await? {
            Heard::Lost { cause, .. } => {
                held.lose();
                outage.lost(&cause);
                continue;
            }
            Heard::Event(event) => *event,
        };
        outage.over(&event);
        if matches!(event.event, Some(Event::Bookmark(_))) && !args.bookmarks {
            continue;
        }
        let lines = match args.output {
            Output::Text => {
                let now = Zoned::now().strftime("%H:%M:%S").to_string();
                held.hear(event).into_iter().map(|line| format!("{now} {line}")).collect()
            }
            Output::Json => vec![json_line(&event)?],
        };
        write(lines).await?;
    }
}

fn json_line(event: &WatchSkillsResponse) -> Result<String, Failure> {
    let event = json::dynamic(event).map_err(|error| Failure::nonsense(&error))?;
    let line = serde_json::to_string(&event).map_err(|error| Failure::nonsense(&error))?;
    Ok(json_shown(&line))
}

/// Writes lines where a reader that stops for a while stops no signal.
async fn write(lines: Vec<String>) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    let written = tokio::task::spawn_blocking(move || {
        print(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
    });
    written.await.unwrap_or_else(|error| Err(Failure::new(exit::INTERNAL, error)))
}

/// Ends when nobody can read stdout any more; never where that cannot be known, as of a file. Without
/// it, only the next change would tell.
pub(super) async fn reader_left() {
    let asked = tokio::task::spawn_blocking(|| {
        let stdout = io::stdout();
        // Asks for nothing: that the other end is gone is told unasked.
        let mut waits = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut waits, None) == Err(Errno::INTR) {}
        waits[0].revents()
    });
    match asked.await {
        Ok(told) if told.intersects(PollFlags::ERR | PollFlags::HUP) => {}
        _ => std::future::pending().await,
    }
}

/// What was said of a connection that is lost.
#[derive(Default)]
struct Outage {
    said: Option<String>,
}

impl Outage {
    /// Says why it is lost, once for each reason.
    fn lost(&mut self, cause: &CallError) {
        let sentence = match cause {
            CallError::Status(status) if status.source().is_some() => {
                "the connection was lost; connecting again".to_owned()
            }
            cause => format!("{}; connecting again", shown(&cause.to_string())),
        };
        if self.said.as_ref() != Some(&sentence) {
            say(&[format!("caproot: {sentence}")]);
            self.said = Some(sentence);
        }
    }

    /// Says how it goes on, if it was lost.
    fn over(&mut self, event: &WatchSkillsResponse) {
        if self.said.take().is_none() {
            return;
        }
        let how = match &event.event {
            Some(Event::Reset(reset)) => {
                let reason = ResetReason::try_from(reset.reason).map_or_else(
                    |number| number.0.to_string(),
                    |reason| reason.as_str_name().trim_start_matches("RESET_REASON_").to_owned(),
                );
                format!("all is sent anew ({reason})")
            }
            _ => "resumed where it was".to_owned(),
        };
        say(&[format!("caproot: connected again; {how}")]);
    }
}
