//! Executors of `caproot call`, and the roots of its sessions.

use super::answer::RequestError;
use crate::cli::agents::session_args::{SessionArgs, SessionRoots};
use crate::cli::exit;
use caproot_client::Fleet;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use std::time::Duration;

/// Executors of the command line, which all sessions share.
pub struct SessionExecutors<'a> {
    pub fleet: Fleet,
    pub args: &'a SessionArgs,
    pub env: &'a ProcessEnv,
}

impl SessionExecutors<'_> {
    /// Returns the roots of a session: those of a request, otherwise those of the command line.
    pub async fn select_roots(
        &self,
        given: Option<Vec<SelectedCapabilityRoot>>,
        has_other_source: bool,
        timeout: Duration,
    ) -> Result<SessionRoots, RequestError> {
        if let Some(roots) = given {
            return Ok(SessionRoots::given(roots));
        }

        let selected = if self.args.has_whole_fleet() {
            self.args.select_fleet_roots(&self.fleet, timeout).await
        } else {
            let opened = self.args.open_executor_if_needed(self.env).await;
            opened.map(|opened| opened.selected)
        };

        let selected = selected.map_err(|failure| {
            let code = match failure.exit_code() {
                exit::NO_DAEMON => "NO_DAEMON",
                _ => "FAILED",
            };
            RequestError::new(code, failure.sentence())
        })?;
        if selected.is_lost() && !has_other_source {
            let message = selected.messages.join("; ");
            return Err(RequestError::new("NO_DAEMON", message));
        }
        Ok(selected)
    }
}
