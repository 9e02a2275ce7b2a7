//! Calls and turns of a manager over HTTP, for the first session of `caproot call`.

use super::server::RequestError;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use caproot_client::ClientToken;
use caproot_client::session::dispatch::{
    CallListener, DispatchOptions, DispatchRecord, DrainSummary, FinishedTurn, HttpManager,
    HttpManagerConfig, SessionThread, SubmitOutcome, TerminalStatuses,
};
use caproot_client::session::{Session, UserPrompt};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, watch};

/// Flags of the manager.
#[derive(Debug, Args)]
pub struct ManagerArgs {
    /// URL of a manager that keeps the calls of a model, for the requests drain, listen and send
    #[arg(long, value_name = "URL", requires = "manager_session")]
    manager: Option<String>,
    /// Id that the manager has for the session
    #[arg(long, value_name = "ID", requires = "manager")]
    manager_session: Option<String>,
    /// File with a token that is sent to the manager, only over TLS or to a loopback address
    #[arg(long, value_name = "FILE", requires = "manager")]
    manager_token_file: Option<PathBuf>,
}

/// Manager of the first session.
pub struct ManagedThread {
    thread: SessionThread,
    /// Locked while a request listens.
    listener: Mutex<CallListener>,
}

impl ManagerArgs {
    /// Returns the thread of the manager, if the flags name one. Each dispatch is a line.
    pub async fn connect(
        &self,
        session: &Arc<Session>,
        lines: UnboundedSender<Value>,
    ) -> Result<Option<ManagedThread>, CommandFailure> {
        let (Some(base_url), Some(id)) = (&self.manager, &self.manager_session) else {
            return Ok(None);
        };
        let token = self.manager_token_file.clone().map(ClientToken::File);
        let config = HttpManagerConfig {
            token,
            ..HttpManagerConfig::new(base_url, id)
        };
        let manager = HttpManager::new(config).await;
        let manager = manager.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
        // The receiver ends with the process.
        let observer = move |record: &DispatchRecord| drop(lines.send(record_json(record)));
        let manager = Arc::new(manager.with_observer(observer));
        let options = DispatchOptions::default();
        let thread = SessionThread::new(id, manager.clone(), session.clone(), options);
        Ok(Some(ManagedThread {
            thread,
            listener: Mutex::new(CallListener::new(manager)),
        }))
    }
}

impl ManagedThread {
    /// Answers everything that is pending.
    pub async fn drain(&self) -> Result<Value, RequestError> {
        let drained = self.thread.dispatcher().drain().await;
        drained
            .map(|drained| drain_json(&drained))
            .map_err(|error| RequestError::failed(&error))
    }

    /// Answers the calls of the event stream, until the stream or stdin ends.
    pub async fn listen(
        &self,
        mut stdin_ended: watch::Receiver<bool>,
    ) -> Result<Value, RequestError> {
        let Ok(mut listener) = self.listener.try_lock() else {
            return Err(RequestError::failed(&"another request listens already"));
        };
        let ended = tokio::select! {
            ended = listener.listen(self.thread.dispatcher()) => ended,
            _ = stdin_ended.wait_for(|ended| *ended) => Ok(()),
        };
        self.thread.dispatcher().wait_idle().await;
        ended.map_err(|error| RequestError::failed(&error))?;
        Ok(json!({ "lastEventId": listener.last_event_id() }))
    }

    /// Sends a prompt. With statuses, answers calls until the thread has one of them.
    pub async fn send(
        &self,
        prompt: UserPrompt,
        inject: bool,
        until: Vec<String>,
    ) -> Result<Value, RequestError> {
        if until.is_empty() {
            let injected = self.thread.send(prompt, inject).await;
            return injected
                .map(|injected| json!({ "injected": injected }))
                .map_err(|error| RequestError::failed(&error));
        }
        let until = TerminalStatuses::from(until);
        let sent = self.thread.send_and_handle(prompt, inject, until).await;
        let sent = sent.map_err(|error| RequestError::failed(&error))?;
        let FinishedTurn { status, drained } = &sent.turn;
        let drained = drain_json(drained);
        Ok(json!({ "injected": sent.injected, "status": status, "drained": drained }))
    }
}

fn record_json(record: &DispatchRecord) -> Value {
    let (outcome, reason) = match &record.outcome {
        SubmitOutcome::Accepted => ("accepted", None),
        SubmitOutcome::NotFound => ("notFound", None),
        SubmitOutcome::AlreadyAnswered => ("alreadyAnswered", None),
        SubmitOutcome::Failed(reason) => ("failed", Some(reason)),
    };
    json!({
        "event": "dispatched",
        "requestId": record.request_id.as_str(),
        "tool": record.tool,
        "success": record.success,
        "outcome": outcome,
        "reason": reason,
        "attempts": record.attempts,
    })
}

fn drain_json(drained: &DrainSummary) -> Value {
    json!({
        "accepted": drained.accepted,
        "notFound": drained.not_found,
        "alreadyAnswered": drained.already_answered,
        "failed": drained.failed,
        "complete": drained.complete,
    })
}
