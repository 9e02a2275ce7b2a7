//! Executors of `caproot call`, and the roots of its sessions.

use super::answer::RequestError;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::session_args::{OpenedFleet, SessionArgs, SessionRoots};
use caproot_client::{Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use serde_json::Value;
use std::time::Duration;

/// Executors of the command line, which all sessions share.
pub struct SessionExecutors<'a> {
    pub fleet: Fleet,
    pub args: &'a SessionArgs,
    pub env: &'a ProcessEnv,
    /// Whether the program finds the executors.
    pub is_program_fleet: bool,
}

impl SessionExecutors<'_> {
    /// Returns the roots of a session: those of a request, otherwise those of the command line.
    pub async fn select_roots(
        &self,
        given: Option<&Value>,
        has_other_source: bool,
        timeout: Duration,
    ) -> Result<SessionRoots, RequestError> {
        if let Some(given) = given {
            let roots = parse_selected_roots(&given.to_string())
                .map_err(|error| RequestError::bad_config(vec![format!("roots: {error}")]))?;
            return Ok(SessionRoots {
                roots,
                messages: Vec::new(),
            });
        }

        let selected = if self.is_program_fleet || self.args.has_whole_fleet() {
            self.args.select_fleet_roots(&self.fleet, timeout).await
        } else {
            let opened = self.args.open_executor_if_needed(self.env).await;
            opened.map(|OpenedFleet { selected, .. }| selected)
        };

        let selected = selected.map_err(|failure| request_error(&failure))?;
        let is_lost = selected.roots.is_empty() && !selected.messages.is_empty();
        if is_lost && !has_other_source {
            let message = selected.messages.join("; ");
            return Err(RequestError::new("NO_DAEMON", message));
        }
        Ok(selected)
    }
}

fn request_error(failure: &CommandFailure) -> RequestError {
    if failure.exit_code() == exit::NO_DAEMON {
        RequestError::new("NO_DAEMON", failure.sentence())
    } else {
        RequestError::failed(&failure.sentence())
    }
}
