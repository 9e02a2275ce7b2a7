//! What a command says when it cannot do its work: sentences, a hint, an exit code.

use super::exit;
use super::output::print_stderr;
use super::text::escape_text;
use crate::client::{CallError, ConnectError, TlsError, TlsRequired};
use crate::domain::escape::is_misleading;
use std::error::Error as _;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use tonic::{Code, Status};

/// Why a command failed. What it says is safe to show, whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    exit_code: u8,
    /// Empty where there is nobody to tell.
    messages: Vec<String>,
    with_hint: Option<&'static str>,
}

impl CommandFailure {
    /// A failure in one sentence.
    #[must_use]
    pub fn new(exit: u8, sentence: impl Display) -> Self {
        Self {
            exit_code: exit,
            messages: vec![escape_text(&sentence.to_string())],
            with_hint: None,
        }
    }

    /// Several failures at once.
    #[must_use]
    pub fn from_messages(exit: u8, sentences: &[String]) -> Self {
        Self {
            exit_code: exit,
            messages: sentences.iter().map(|text| escape_text(text)).collect(),
            with_hint: None,
        }
    }

    /// The same with what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.with_hint = Some(hint);
        self
    }

    /// stdout could not be written. That its reader left early, as `head` does, is no failure.
    #[must_use]
    pub fn from_write_error(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit_code: exit::OK, messages: Vec::new(), with_hint: None };
        }
        Self::new(exit::OUTPUT_FAILED, format!("the output cannot be written: {error}"))
    }

    /// Whether the command did its work, and its answer says that something is wrong.
    #[must_use]
    pub fn is_negative_answer(&self) -> bool {
        self.exit_code == exit::PROBLEMS_FOUND
    }

    /// Whether there is nobody to tell: the reader of stdout left.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.messages.is_empty()
    }

    /// The daemon's answer cannot be used.
    #[must_use]
    pub fn invalid_response(why: &impl Display) -> Self {
        Self::new(exit::INTERNAL, format!("the daemon's answer makes no sense: {why}"))
    }
}

impl From<ConnectError> for CommandFailure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoDaemon { .. } | ConnectError::NoDefault { .. } => {
                Self::new(exit::NO_DAEMON, error)
                    .with_hint("start one with `caproot serve`, or name its endpoint with --endpoint")
            }
            ConnectError::NotPermitted { .. } => Self::new(exit::NOT_PERMITTED, error)
                .with_hint("its socket is for the user that runs it, and for a group if its config says so; run this as one of them"),
            ConnectError::Tls { ref fault, .. } => {
                let (exit, hint) = tls_exit_code_and_hint(fault);
                let failure = Self::new(exit, &error);
                if let Some(hint) = hint { failure.with_hint(hint) } else { failure }
            }
            ConnectError::Credentials(_) => Self::new(exit::BAD_CONFIG, error),
            ConnectError::TokenInCleartext { .. } => Self::new(exit::BAD_CONFIG, error)
                .with_hint("use tls:HOST:PORT, a Unix socket or a loopback address"),
        }
    }
}

/// The exit code for a fault of TLS, and what to do.
fn tls_exit_code_and_hint(fault: &TlsError) -> (u8, Option<&'static str>) {
    match fault {
        TlsError::NotTls => (
            exit::NO_DAEMON,
            Some("without TLS, its endpoint is tcp:HOST:PORT; everybody on the way can read that"),
        ),
        TlsError::UnknownAuthority => (
            exit::NO_DAEMON,
            Some(
                "name the file with its authority with --ca, if that is known to be the right one",
            ),
        ),
        TlsError::WrongName { .. } => (
            exit::NO_DAEMON,
            Some("name the daemon as its certificate does, in --endpoint or with --server-name"),
        ),
        TlsError::Expired => {
            (exit::NO_DAEMON, Some("have the executor's operator renew it; check this clock, too"))
        }
        TlsError::NotYetValid => (exit::NO_DAEMON, Some("check both clocks")),
        TlsError::CertificateRequired => (
            exit::NOT_PERMITTED,
            Some("name one with --cert and --key; the executor's operator knows which it takes"),
        ),
        TlsError::CertificateRejected(_) => (
            exit::NOT_PERMITTED,
            Some("the executor's operator knows which certificates the daemon takes"),
        ),
        TlsError::NotHttp2
        | TlsError::ConnectionClosed
        | TlsError::Untrusted(_)
        | TlsError::Other(_) => (exit::NO_DAEMON, Some("check --endpoint and the daemon's log")),
    }
}

impl From<CallError> for CommandFailure {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Status(status) => match local_call_failure(status) {
                Some(LocalCallFailure::TlsRequired) => Self::new(exit::NO_DAEMON, TlsRequired)
                    .with_hint(
                        "write the endpoint as tls:HOST:PORT, and see --ca, --cert and --key",
                    ),
                Some(LocalCallFailure::ConnectionLost) => {
                    let sentence = "the connection was lost before the daemon answered";
                    Self::new(exit::TRY_LATER, sentence).with_hint(
                        "try again; if it stays so, check --endpoint and the daemon's log",
                    )
                }
                Some(LocalCallFailure::NotGrpc) => {
                    let sentence = format!("what answers is no caproot daemon: {error}");
                    Self::new(exit::NO_DAEMON, sentence)
                        .with_hint("check --endpoint and CAPROOT_ENDPOINT")
                }
                None if status.code() == Code::Unimplemented => {
                    let sentence = "the daemon does not know this call: it is of another version";
                    Self::new(exit::VERSION_MISMATCH, sentence).with_hint(
                        "compare `caproot status` with `caproot --version`, and update the older",
                    )
                }
                None => Self::new(exit::code_for_status(status.code()), &error),
            },
            CallError::InvalidResponse(why) => Self::invalid_response(why),
            CallError::ChangedDuringRead => {
                Self::new(exit::REJECTED, &error).with_hint("read it again")
            }
            CallError::Output(io) => Self::from_write_error(io),
        }
    }
}

/// What ended a call on this side of the wire.
#[derive(Debug, PartialEq, Eq)]
enum LocalCallFailure {
    /// The connection went away.
    ConnectionLost,
    /// The other side's bytes are no HTTP/2.
    NotGrpc,
    /// The other side wants TLS.
    TlsRequired,
}

/// Whether a status was made on this side, and of what: one that the peer sent has no source.
fn local_call_failure(status: &Status) -> Option<LocalCallFailure> {
    status.source()?;
    if TlsRequired::is_cause_of(status) {
        return Some(LocalCallFailure::TlsRequired);
    }
    match status.code() {
        Code::Unknown | Code::Cancelled | Code::Unavailable => {
            Some(LocalCallFailure::ConnectionLost)
        }
        Code::Internal => Some(LocalCallFailure::NotGrpc),
        _ => None,
    }
}

/// Says how it went, and gives the process's exit code.
#[must_use]
pub fn report_outcome(outcome: Result<u8, CommandFailure>) -> ExitCode {
    let failure = match outcome {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    let mut lines: Vec<String> =
        failure.messages.iter().map(|sentence| format!("caproot: {sentence}")).collect();
    lines.extend(failure.with_hint.map(|hint| format!("hint: {hint}")));
    print_stderr(&lines);
    ExitCode::from(failure.exit_code)
}

/// Prints clap's answer, be it help or a complaint, and gives its exit code.
#[must_use]
pub fn report_usage_error(usage: &clap::Error) -> ExitCode {
    let text = usage.render().to_string();
    if usage.use_stderr() && text.lines().any(|line| line.contains(is_misleading)) {
        // What was typed may come from elsewhere.
        print_stderr(&text.lines().map(escape_text).collect::<Vec<_>>());
    } else {
        // Nobody is left to tell when even this cannot be printed.
        let _ = usage.print();
    }
    if usage.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::from(exit::OK) }
}

#[cfg(test)]
mod tests {
    use super::{CommandFailure, exit};
    use crate::client::CallError;
    use std::io;
    use tonic::Status;

    #[test]
    fn closed_pipe_is_silent() {
        let quiet = CommandFailure::from_write_error(&io::ErrorKind::BrokenPipe.into());
        assert_eq!((quiet.exit_code, quiet.messages.len()), (exit::OK, 0));
        assert_eq!(
            CommandFailure::from_write_error(&io::ErrorKind::StorageFull.into()).exit_code,
            exit::OUTPUT_FAILED
        );
    }

    #[test]
    fn untrusted_message_is_escaped() {
        let failure = CommandFailure::from(CallError::from(Status::not_found("\x1b[2Jgone")));
        assert_eq!(failure.messages, [r"NOT_FOUND: \u{1b}[2Jgone"]);
        assert_eq!(failure.exit_code, exit::REJECTED);
        let older = CommandFailure::from(CallError::from(Status::unimplemented("")));
        assert_eq!(older.exit_code, exit::VERSION_MISMATCH);
        assert!(older.messages[0].contains("another version") && older.with_hint.is_some());
        let peer = CommandFailure::from(CallError::from(Status::internal("it broke")));
        assert_eq!(peer.exit_code, exit::INTERNAL);
    }
}
