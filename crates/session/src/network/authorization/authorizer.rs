//! `Authorization` of one server: the latest value, and the question to the program after a 401.

use super::challenge::Challenge;
use super::{AuthorizationFunction, AuthorizationRequest, ServerAuthorization};
use caproot_core::sync::Mutex;
use futures_util::FutureExt as _;
use http::HeaderValue;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Time limit of an answer: a person may have to log in.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(15);
/// How long a request waits for the answer after a value expired, so that the renewal of a token is no
/// error of a call.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Values refused at once, one after the other, after which the program is not asked.
const MAX_REFUSALS: usize = 2;
/// Bytes of a value. Servers reject larger headers.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// `Authorization` of one server, which the program gives after a 401.
pub struct Authorizer {
    function: ServerAuthorization,
    /// Request without the parts of a challenge.
    request: AuthorizationRequest,
    private_origins: Vec<String>,
    state: Mutex<AuthorizationState>,
    /// Notified after each answer, and if the program may be asked again.
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct AuthorizationState {
    value: Option<HeaderValue>,
    /// Whether the server accepted the value.
    is_accepted: bool,
    /// Values refused at once, one after the other.
    refusals: usize,
    /// Question that waits for its answer.
    question: Option<AbortOnDropHandle<()>>,
    /// Whether the server accepted the value before the question.
    is_renewal: bool,
    /// Reason why the program is not asked; the end of a sentence.
    stop_reason: Option<String>,
    /// Parts of the latest challenge that are not passed on.
    omitted: Option<String>,
}

impl AuthorizationState {
    fn has_other_value(&self, sent: Option<&HeaderValue>) -> bool {
        self.value.is_some() && self.value.as_ref() != sent
    }

    fn is_renewing(&self) -> bool {
        self.question.is_some() && self.is_renewal
    }
}

impl Authorizer {
    /// Returns the authorizer of a server without a value. The challenge of the request is empty.
    pub fn new(
        function: ServerAuthorization,
        request: AuthorizationRequest,
        private_origins: Vec<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            function,
            request,
            private_origins,
            state: Mutex::default(),
            changes: watch::Sender::default(),
        })
    }

    /// Returns the latest value.
    pub fn value(&self) -> Option<HeaderValue> {
        self.state.lock().value.clone()
    }

    /// Returns a watch for answers.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the reason why there is no value although the server answered 401; the end of a sentence.
    pub fn missing_reason(&self) -> Option<String> {
        let state = self.state.lock();
        let reason = match (&state.question, &state.stop_reason) {
            (_, Some(reason)) => reason,
            (Some(_), None) => {
                "it answers 401, and the program was asked for `Authorization` and has not answered yet"
            }
            (None, None) => return None,
        };
        Some(match &state.omitted {
            Some(omitted) => format!("{reason}; {omitted}"),
            None => reason.to_owned(),
        })
    }

    /// Records that the server accepted a request with the latest value, or without one.
    pub fn accept_value(&self) {
        let mut state = self.state.lock();
        state.is_accepted = state.value.is_some();
        state.refusals = 0;
        state.stop_reason = None;
    }

    /// Lets the program be asked again after the next 401.
    pub fn allow_question(&self) {
        let mut state = self.state.lock();
        state.stop_reason = None;
        state.refusals = 0;
        drop(state);
        self.changes.send_replace(());
    }

    /// Records that the server answered 401 to a value, and asks the program for another one. If the
    /// server had accepted the value, waits for the answer for a short time. Returns whether there is
    /// another value now.
    pub async fn replace_refused(
        self: &Arc<Self>,
        sent: Option<&HeaderValue>,
        challenge: &str,
    ) -> bool {
        let mut changes = self.watch();
        {
            let mut state = self.state.lock();
            if state.has_other_value(sent) {
                return true;
            }
            self.refuse_value(&mut state, challenge);
        }

        let renewed =
            async { while self.state.lock().is_renewing() && changes.changed().await.is_ok() {} };
        // Without an answer, the request fails, and a later request has the value.
        let _ = timeout(RENEWAL_TIMEOUT, renewed).await;
        self.state.lock().has_other_value(sent)
    }

    /// Removes the value, and asks the program unless a question waits or the program must not be asked.
    fn refuse_value(self: &Arc<Self>, state: &mut AuthorizationState, challenge: &str) {
        let was_accepted = std::mem::take(&mut state.is_accepted);
        let refused = state.value.take();
        if state.question.is_some() || state.stop_reason.is_some() {
            return;
        }

        let challenge = Challenge::parse(challenge, &self.private_origins);
        state.omitted.clone_from(&challenge.omitted);
        if refused.is_some() && !was_accepted {
            state.refusals += 1;
        }
        if state.refusals >= MAX_REFUSALS {
            state.stop_reason = Some(after_retry("it refused two values of `Authorization`"));
            return;
        }
        let Some(function) = self.function.0.clone() else {
            let origin = &self.request.origin;
            state.stop_reason = Some(format!(
                "it answers 401, and its declaration has no credential: set `authorize`, which returns the \
                 value of `Authorization` for {origin}"
            ));
            return;
        };
        state.is_renewal = was_accepted;
        state.question = Some(self.ask(function, challenge));
    }

    /// Asks the program for a value on a task.
    fn ask(
        self: &Arc<Self>,
        function: AuthorizationFunction,
        challenge: Challenge,
    ) -> AbortOnDropHandle<()> {
        let request = AuthorizationRequest {
            resource_metadata: challenge.resource_metadata,
            scopes: challenge.scopes,
            error: challenge.error,
            ..self.request.clone()
        };

        // The question ends with its server.
        let authorizer = Arc::downgrade(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let asked = AssertUnwindSafe(async { function(request).await });
            let answer = match timeout(ANSWER_TIMEOUT, asked.catch_unwind()).await {
                Ok(Ok(Ok(Some(text)))) => parse_value(&text),
                Ok(Ok(Ok(None))) => Err("the program gave no value of `Authorization`".to_owned()),
                Ok(Ok(Err(_)) | Err(_)) => {
                    Err("the function `authorize` of the program failed; see its log".to_owned())
                }
                Err(_) => {
                    let limit = humantime::format_duration(ANSWER_TIMEOUT);
                    Err(format!(
                        "the program gave no value of `Authorization` within {limit}"
                    ))
                }
            };

            if let Some(authorizer) = authorizer.upgrade() {
                authorizer.store_answer(answer);
            }
        }))
    }

    fn store_answer(&self, answer: Result<HeaderValue, String>) {
        let question = {
            let mut state = self.state.lock();
            match answer {
                Ok(value) => state.value = Some(value),
                Err(reason) => state.stop_reason = Some(after_retry(&reason)),
            }
            state.question.take()
        };
        self.changes.send_replace(());
        // The task of the question runs this function, and ends now.
        drop(question);
    }
}

fn after_retry(reason: &str) -> String {
    format!("{reason}; `retry_servers` asks again")
}

/// Returns the header of an answer. Errors never have the text.
fn parse_value(text: &str) -> Result<HeaderValue, String> {
    let text = text.trim_ascii();
    let is_valid = text.len() <= MAX_VALUE_BYTES
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.contains(' ');
    let mut value = HeaderValue::from_str(text)
        .ok()
        .filter(|_| is_valid)
        .ok_or(
            "the answer of the program is no value of `Authorization`: expected at most 8 KiB of a scheme and a \
             credential, such as `Bearer …`",
        )?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer")
            .field("origin", &self.request.origin)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWER_TIMEOUT, Authorizer, ServerAuthorization, parse_value};
    use crate::network::authorization::AuthorizationRequest;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_function_that_never_answers_is_given_up() {
        let request = AuthorizationRequest {
            source_kind: "mcp".to_owned(),
            source_id: "docs".to_owned(),
            package: None,
            plugin: None,
            server: "docs".to_owned(),
            url: "https://a.example/mcp".to_owned(),
            origin: "https://a.example".to_owned(),
            resource_metadata: None,
            scopes: Vec::new(),
            error: None,
        };
        let never = ServerAuthorization::new(|_| std::future::pending());
        let authorizer = Authorizer::new(never, request, Vec::new());
        let started_at = Instant::now();
        for _ in 0..3 {
            assert!(!authorizer.replace_refused(None, "Bearer").await);
        }
        assert!(started_at.elapsed() < Duration::from_secs(1));
        let reason = authorizer.missing_reason().expect("a reason");
        assert!(reason.contains("has not answered yet"), "{reason}");

        sleep(ANSWER_TIMEOUT + Duration::from_secs(1)).await;
        let reason = authorizer.missing_reason().expect("a reason");
        assert!(reason.contains("within 15m"), "{reason}");
        assert!(!authorizer.replace_refused(None, "Bearer").await);
        assert_eq!(authorizer.missing_reason(), Some(reason));
        authorizer.allow_question();
        assert_eq!(authorizer.missing_reason(), None);
    }

    #[test]
    fn only_values_of_the_header_are_sent() {
        let value = parse_value(" Bearer a.b-c \n").expect("a value");
        assert_eq!(value, "Bearer a.b-c");
        assert_eq!(format!("{value:?}"), "Sensitive");
        let long = format!("Bearer {}", "x".repeat(9_000));
        for text in ["", "secret", "Bearer a\nb", "Bearer \u{e9}", &long] {
            let error = parse_value(text).expect_err(text);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
