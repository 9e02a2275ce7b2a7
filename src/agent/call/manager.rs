//! Calls and turns of a manager over HTTP, for the first session of `caproot call`.

use super::answer::{DrainCounts, ListenEnd, PromptAnswer, RequestError, SubmittedAnswer};
use super::event::CallEvent;
use super::request::SendRequest;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use caproot_client::ClientToken;
use caproot_session::dispatch::{
    CallListener, DispatchOptions, DispatchRecord, HttpManager, HttpManagerConfig, SessionThread,
    TerminalStatuses,
};
use caproot_session::{Session, UserPrompt};
use clap::Args;
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
    /// Returns the thread of the manager, if the flags name one. Each dispatch is an event.
    pub async fn connect(
        &self,
        session: &Arc<Session>,
        events: UnboundedSender<CallEvent>,
    ) -> Result<Option<ManagedThread>, CommandFailure> {
        let (Some(base_url), Some(id)) = (&self.manager, &self.manager_session) else {
            return Ok(None);
        };

        let config = HttpManagerConfig {
            token: self.manager_token_file.clone().map(ClientToken::File),
            ..HttpManagerConfig::new(base_url, id)
        };
        let connected = HttpManager::new(config).await.or_exit(exit::BAD_CONFIG)?;
        let manager = Arc::new(connected.with_observer(move |record: &DispatchRecord| {
            // The receiver ends with the process.
            let answer = SubmittedAnswer::from(record);
            drop(events.send(CallEvent::Dispatched { answer }));
        }));

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
    pub async fn drain(&self) -> Result<DrainCounts, RequestError> {
        Ok(DrainCounts::from(&self.thread.dispatcher().drain().await?))
    }

    /// Answers the calls of the event stream, until the stream or stdin ends.
    pub async fn listen(
        &self,
        mut stdin_ended: watch::Receiver<bool>,
    ) -> Result<ListenEnd, RequestError> {
        let Ok(mut listener) = self.listener.try_lock() else {
            return Err(RequestError::failed(&"another request listens already"));
        };

        let ended = tokio::select! {
            ended = listener.listen(self.thread.dispatcher()) => ended,
            _ = stdin_ended.wait_for(|ended| *ended) => Ok(()),
        };

        // The process may end after this answer, and the calls in flight with the process.
        self.thread.dispatcher().wait_idle().await;

        ended?;
        Ok(ListenEnd {
            last_event_id: listener.last_event_id().map(str::to_owned),
        })
    }

    /// Sends a prompt. With statuses, answers calls until the thread has one of them.
    pub async fn send(&self, request: SendRequest) -> Result<PromptAnswer, RequestError> {
        let prompt = UserPrompt {
            text: request.text,
            mentions: request.mentions,
            connectors: request.connectors,
            caller_skills: request.caller_skills,
            arguments: request.arguments,
        };
        if request.until.is_empty() {
            return Ok(PromptAnswer {
                injected: self.thread.send(prompt, request.inject).await?,
                status: None,
                drained: None,
            });
        }

        let sent = self
            .thread
            .send_and_handle(
                prompt,
                request.inject,
                TerminalStatuses::from(request.until),
            )
            .await?;
        Ok(PromptAnswer {
            injected: sent.injected,
            status: Some(sent.turn.status),
            drained: Some(DrainCounts::from(&sent.turn.drained)),
        })
    }
}
