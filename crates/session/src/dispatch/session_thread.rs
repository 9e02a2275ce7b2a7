//! Thread of a manager together with the session whose skills and tools it has.

use super::manager::{AgentThread, CallManager};
use super::turn::run_turn;
use super::{CallDispatcher, DispatchOptions, FinishedTurn, TerminalStatuses, TurnError};
use crate::{InjectedSkills, Session, UserPrompt};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Thread of a manager with a session: sends prompts with the mentioned skills, and answers the
/// calls of the thread's model.
///
/// ```no_run
/// use caproot_session::Session;
/// use caproot_session::dispatch::{AgentThread, CallManager, DispatchOptions, SessionThread};
/// use std::error::Error;
/// use std::sync::Arc;
///
/// async fn ask<M: CallManager + AgentThread + 'static>(
///     manager: Arc<M>,
///     session: Arc<Session>,
/// ) -> Result<String, Box<dyn Error>> {
///     let thread = SessionThread::new("thread-1", manager, session, DispatchOptions::default());
///     let sent = thread
///         .send_and_handle("Read this log with $triage-logs.", true, ["completed", "failed"])
///         .await?;
///     println!("{} skills", sent.injected.fragments.len());
///     Ok(sent.turn.status)
/// }
/// ```
pub struct SessionThread {
    session: Arc<Session>,
    thread: Arc<dyn AgentThread>,
    dispatcher: CallDispatcher,
}

/// Prompt that was sent, and the end of its turn.
#[derive(Debug, Clone, PartialEq)]
pub struct SentPrompt {
    /// Skills that were injected.
    pub injected: InjectedSkills,
    /// End of the turn.
    pub turn: FinishedTurn,
}

impl SessionThread {
    /// Returns the thread that the manager has under this id.
    #[must_use]
    pub fn new<M: CallManager + AgentThread + 'static>(
        session_id: impl Into<String>,
        manager: Arc<M>,
        session: Arc<Session>,
        options: DispatchOptions,
    ) -> Self {
        let thread = manager.clone();
        let dispatcher = CallDispatcher::new(session_id, manager, session.clone(), options);
        Self {
            session,
            thread,
            dispatcher,
        }
    }

    /// Returns the dispatcher of the thread's calls.
    #[must_use]
    pub fn dispatcher(&self) -> &CallDispatcher {
        &self.dispatcher
    }

    /// Injects the skills that a prompt mentions, if `inject` is set, and sends the prompt. Does
    /// not wait for the end of the turn. Returns the injected skills.
    ///
    /// The turn is `{"input":[…]}`, as in Codex's `turn/start`: a `text` item for each skill, then
    /// the text of the prompt. All items are a message of the user, never the system prompt: the
    /// authors of skills are third parties.
    pub async fn send(
        &self,
        prompt: impl Into<UserPrompt>,
        inject: bool,
    ) -> Result<InjectedSkills, TurnError> {
        let (turn, injected) = self.prepare_turn(&prompt.into(), inject).await;
        self.dispatcher.send_turn(&*self.thread, &turn).await?;
        Ok(injected)
    }

    /// Sends a prompt as [`SessionThread::send`], and answers calls until the thread has one of the
    /// terminal statuses.
    pub async fn send_and_handle(
        &self,
        prompt: impl Into<UserPrompt>,
        inject: bool,
        until: impl Into<TerminalStatuses>,
    ) -> Result<SentPrompt, TurnError> {
        let (turn, injected) = self.prepare_turn(&prompt.into(), inject).await;
        let send = self.dispatcher.send_turn(&*self.thread, &turn);
        let turn = run_turn(&self.dispatcher, &*self.thread, send, until.into()).await?;
        Ok(SentPrompt { injected, turn })
    }

    async fn prepare_turn(&self, prompt: &UserPrompt, inject: bool) -> (Value, InjectedSkills) {
        let injected = if inject {
            self.session.inject(prompt).await
        } else {
            InjectedSkills::default()
        };
        let fragments = injected.fragments.iter().map(|fragment| &fragment.text);
        let items = fragments.chain([&prompt.text]);
        let input: Vec<Value> = items
            .map(|text| json!({ "type": "text", "text": text }))
            .collect();
        (json!({ "input": input }), injected)
    }
}

impl fmt::Debug for SessionThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionThread")
            .field("session", &self.session.id())
            .finish_non_exhaustive()
    }
}
