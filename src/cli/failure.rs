//! Failures of commands: messages, a hint and an exit code.

use super::exit;
use super::output::{print_failure, print_stderr};
#[cfg(target_os = "linux")]
use crate::daemon::telemetry::logs::flush_log;
use caproot_client::json::MessageJsonError;
use caproot_client::{CallError, ConnectError, TlsError, TlsRequired, error_reason};
use caproot_core::document::{ConfigError, ConfigErrors};
use caproot_core::proto::caproot::v1::ErrorReason;
use caproot_core::text::{escape_text, is_misleading};
use caproot_session::SelectionError;
use std::borrow::Cow;
use std::error::Error as _;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use tonic::Code;

/// Hint for a path that the daemon does not allow.
pub const ALLOW_HINT: &str = "the daemon's operator allows a directory with `caproot serve --allow \
     DIR`, or with `allow` in the config file";

/// Failure of a command. The messages are escaped, so that untrusted text can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    exit_code: u8,
    /// Empty if the reader of stdout is gone.
    messages: Vec<String>,
    hint: Option<Cow<'static, str>>,
}

impl CommandFailure {
    /// Creates a failure with one message.
    #[must_use]
    pub fn new(exit: u8, sentence: impl Display) -> Self {
        Self::from_messages(exit, &[sentence.to_string()])
    }

    /// Creates a failure with several messages.
    #[must_use]
    pub fn from_messages(exit: u8, sentences: &[String]) -> Self {
        Self {
            exit_code: exit,
            messages: sentences.iter().map(|text| escape_text(text)).collect(),
            hint: None,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Converts a write error of stdout. A reader that closes the pipe early, as `head` does, is no
    /// failure.
    #[must_use]
    pub fn from_write_error(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::from_messages(exit::OK, &[]);
        }
        Self::new(
            exit::OUTPUT_FAILED,
            format!("cannot write the output: {error}"),
        )
    }

    /// Converts the failure of a first call, which also connects. The message has the cause of a failed
    /// connection.
    #[must_use]
    pub fn from_first_call(error: CallError) -> Self {
        match &error {
            CallError::Status(status)
                if status.code() == Code::Unavailable && status.source().is_some() =>
            {
                Self::new(exit::NO_DAEMON, &error)
            }
            _ => error.into(),
        }
    }

    /// Whether there is no message, because the reader of stdout is gone.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.messages.is_empty()
    }

    /// Exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Returns the messages as one sentence, escaped.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.messages.join("; ")
    }

    /// Returns the messages and the hint as one sentence, escaped.
    #[must_use]
    pub fn sentence_with_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.sentence()),
            None => self.sentence(),
        }
    }

    /// Replaces the exit code.
    #[must_use]
    pub fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }

    /// Replaces a hint about flags of the connection, whose values a fleet file has.
    #[must_use]
    pub fn with_fleet_hint(self) -> Self {
        match &self.hint {
            Some(hint) if hint.contains("--") => self.with_hint(
                "correct the keys of the executor in the fleet file; `caproot fleet list` shows \
                 which executors answer",
            ),
            _ => self,
        }
    }

    /// Creates the failure for an invalid response of the daemon.
    #[must_use]
    pub fn invalid_response(why: &impl Display) -> Self {
        Self::new(
            exit::INTERNAL,
            format!("invalid response from the daemon: {why}"),
        )
    }
}

/// Result of a step of a command.
pub trait CommandResult<T> {
    /// Ends the command with an exit code if the step failed. The message is the error.
    fn or_exit(self, exit: u8) -> Result<T, CommandFailure>;

    /// Ends the command if the step found an invalid response of the daemon.
    fn or_invalid_response(self) -> Result<T, CommandFailure>;
}

impl<T, E: Display> CommandResult<T> for Result<T, E> {
    fn or_exit(self, exit: u8) -> Result<T, CommandFailure> {
        self.map_err(|error| CommandFailure::new(exit, error))
    }

    fn or_invalid_response(self) -> Result<T, CommandFailure> {
        self.map_err(|why| CommandFailure::invalid_response(&why))
    }
}

impl From<ConnectError> for CommandFailure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoDaemon { .. } | ConnectError::NoDefault { .. } => {
                Self::new(exit::NO_DAEMON, error)
                    .with_hint("start a daemon with `caproot serve`, or set --endpoint")
            }
            ConnectError::NotPermitted { .. } => Self::new(exit::NOT_PERMITTED, error)
                .with_hint("only the daemon's user and the group in its config may use the socket; run this as one of them"),
            ConnectError::Tls { error: ref tls_error, .. } => {
                let code = match tls_error {
                    TlsError::CertificateRequired | TlsError::CertificateRejected(_) => exit::NOT_PERMITTED,
                    _ => exit::NO_DAEMON,
                };
                Self::new(code, &error).with_hint(tls_hint(tls_error))
            }
            ConnectError::SocketUser { .. } => Self::new(exit::NOT_PERMITTED, error).with_hint(
                "use the socket of a daemon of root, of this user or of the service's user",
            ),
            ConnectError::Credentials(_) => Self::new(exit::BAD_CONFIG, error),
            ConnectError::TokenInCleartext { .. } => Self::new(exit::BAD_CONFIG, error)
                .with_hint("use tls:HOST:PORT, a Unix socket or a loopback address"),
        }
    }
}

/// Returns the hint for a TLS failure.
fn tls_hint(error: &TlsError) -> &'static str {
    match error {
        TlsError::NotTls => {
            "without TLS, use tcp:HOST:PORT; an attacker on the network can then read everything"
        }
        TlsError::UnknownAuthority => {
            "if you trust its authority, name the authority's file with --ca"
        }
        TlsError::WrongName { .. } => {
            "use a name of the certificate in --endpoint or --server-name"
        }
        TlsError::Expired => {
            "ask the executor's operator to renew it; check the clock of this machine, too"
        }
        TlsError::NotYetValid => "check both clocks",

        TlsError::CertificateRequired => {
            "set --cert and --key; ask the executor's operator for a certificate"
        }
        TlsError::CertificateRejected(_) => {
            "ask the executor's operator which certificates the daemon accepts"
        }

        TlsError::NotHttp2
        | TlsError::ConnectionClosed
        | TlsError::Untrusted(_)
        | TlsError::Other(_) => "check --endpoint and the daemon's log",
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        Self::new(exit::BAD_CONFIG, error)
    }
}

impl From<ConfigErrors> for CommandFailure {
    fn from(errors: ConfigErrors) -> Self {
        let sentences: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Self::from_messages(exit::BAD_CONFIG, &sentences)
    }
}

impl From<SelectionError> for CommandFailure {
    fn from(error: SelectionError) -> Self {
        Self::new(exit::BAD_CONFIG, error)
    }
}

impl From<MessageJsonError> for CommandFailure {
    fn from(error: MessageJsonError) -> Self {
        Self::invalid_response(&error)
    }
}

/// Failure to write a message of the daemon as JSON.
impl From<serde_json::Error> for CommandFailure {
    fn from(error: serde_json::Error) -> Self {
        Self::invalid_response(&error)
    }
}

impl From<CallError> for CommandFailure {
    fn from(error: CallError) -> Self {
        match &error {
            // A status that the server sent has no source. Others were made on this side.
            CallError::Status(status) => match (status.source(), status.code()) {
                (Some(_), _) if TlsRequired::is_cause_of(status) => {
                    Self::new(exit::NO_DAEMON, TlsRequired).with_hint(
                        "use tls:HOST:PORT as the endpoint, and see --ca, --cert and --key",
                    )
                }
                (Some(_), Code::Unknown | Code::Cancelled | Code::Unavailable) => {
                    let sentence = "the connection was lost before the daemon responded";
                    let hint = "try again; if this repeats, check --endpoint and the daemon's log";
                    Self::new(exit::TRY_LATER, sentence).with_hint(hint)
                }
                // The server does not speak HTTP/2.
                (Some(_), Code::Internal) => {
                    let sentence = format!("the server is not a caproot daemon: {error}");
                    Self::new(exit::NO_DAEMON, sentence)
                        .with_hint("check --endpoint and CAPROOT_ENDPOINT")
                }

                (_, Code::Unimplemented) => {
                    let sentence =
                        "the daemon does not know this call: the daemon has another version";
                    let hint = "compare `caproot status` with `caproot --version`, and update the \
                                older version";
                    Self::new(exit::VERSION_MISMATCH, sentence).with_hint(hint)
                }
                (_, code) => {
                    let failure = Self::new(exit::code_for_status(code), &error);
                    match (code, error_reason(status)) {
                        (Code::Unauthenticated, _) => failure.with_hint(
                            "present a token with --token-file, or a client certificate with --cert \
                             and --key",
                        ),
                        (_, Some(ErrorReason::RootNotAllowed | ErrorReason::OutsideRoot)) => {
                            failure.with_hint(ALLOW_HINT)
                        }
                        _ => failure,
                    }
                }
            },

            CallError::InvalidResponse(why) => Self::invalid_response(why),
            CallError::ChangedDuringRead | CallError::DigestMismatch => {
                Self::new(exit::REJECTED, &error).with_hint("repeat the command")
            }
            CallError::Output(io) => Self::from_write_error(io),
        }
    }
}

/// Reports the outcome on stderr, after the log, and returns the exit code of the process.
#[must_use]
pub fn report_outcome(outcome: Result<u8, CommandFailure>) -> ExitCode {
    #[cfg(target_os = "linux")]
    let is_log_written = flush_log();
    #[cfg(not(target_os = "linux"))]
    let is_log_written = true;

    let failure = match outcome {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    // If the log is not read, a write to stderr blocks.
    if is_log_written {
        let lines = failure
            .messages
            .iter()
            .map(|sentence| format!("caproot: {sentence}"));
        let hint = failure.hint.map(|hint| format!("hint: {hint}"));
        print_failure(&lines.chain(hint).collect::<Vec<_>>());
    }
    ExitCode::from(failure.exit_code)
}

/// Prints the help or the usage error of clap, and returns its exit code.
#[must_use]
pub fn report_usage_error(usage: &clap::Error) -> ExitCode {
    let text = usage.render().to_string();
    if usage.use_stderr() && text.lines().any(|line| line.contains(is_misleading)) {
        // The arguments may be untrusted text.
        print_stderr(&text.lines().map(escape_text).collect::<Vec<_>>());
    } else {
        // A write error of the last output cannot be reported.
        let _ = usage.print();
    }

    // The other exit codes of `exec` may be those of the script.
    let command = std::env::args_os().nth(1);
    ExitCode::from(if !usage.use_stderr() {
        exit::OK
    } else if command.is_some_and(|name| name == "exec") {
        exit::NOT_STARTED
    } else {
        exit::USAGE
    })
}

#[cfg(test)]
mod tests {
    use super::{CommandFailure, exit};
    use caproot_client::CallError;
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
        assert!(older.messages[0].contains("another version") && older.hint.is_some());
        let peer = CommandFailure::from(CallError::from(Status::internal("it broke")));
        assert_eq!(peer.exit_code, exit::INTERNAL);
    }
}
