//! What a command says when it cannot do its work: sentences, a hint, an exit code.

use super::exit;
use super::output::say;
use super::text::shown;
use crate::client::{CallError, ConnectError, SpeaksTls, TlsFault};
use crate::domain::shown::misleads;
use std::error::Error as _;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use tonic::{Code, Status};

/// Why a command failed. What it says is safe to show, whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    exit: u8,
    /// Empty where there is nobody to tell.
    sentences: Vec<String>,
    hint: Option<&'static str>,
}

impl Failure {
    /// A failure in one sentence.
    #[must_use]
    pub fn new(exit: u8, sentence: impl Display) -> Self {
        Self { exit, sentences: vec![shown(&sentence.to_string())], hint: None }
    }

    /// Several failures at once.
    #[must_use]
    pub fn all(exit: u8, sentences: &[String]) -> Self {
        Self { exit, sentences: sentences.iter().map(|text| shown(text)).collect(), hint: None }
    }

    /// The same with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// stdout could not be written. That its reader left early, as `head` does, is no failure.
    #[must_use]
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: exit::OK, sentences: Vec::new(), hint: None };
        }
        Self::new(exit::OUTPUT, format!("the output cannot be written: {error}"))
    }

    /// Whether the command did its work, and its answer says that something is wrong.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        self.exit == exit::WRONG
    }

    /// Whether there is nobody to tell: the reader of stdout left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.sentences.is_empty()
    }

    /// The daemon's answer cannot be used.
    #[must_use]
    pub fn nonsense(why: &impl Display) -> Self {
        Self::new(exit::INTERNAL, format!("the daemon's answer makes no sense: {why}"))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoDaemon { .. } | ConnectError::NoDefault { .. } => {
                Self::new(exit::NO_DAEMON, error)
                    .hint("start one with `caproot serve`, or name its endpoint with --endpoint")
            }
            ConnectError::NotPermitted { .. } => Self::new(exit::NOT_PERMITTED, error)
                .hint("its socket is for the user that runs it, and for a group if its config says so; run this as one of them"),
            ConnectError::Tls { ref fault, .. } => {
                let (exit, hint) = tls(fault);
                let failure = Self::new(exit, &error);
                if let Some(hint) = hint { failure.hint(hint) } else { failure }
            }
            ConnectError::Credentials(_) => Self::new(exit::CONFIG, error),
            ConnectError::TokenInClear { .. } => Self::new(exit::CONFIG, error)
                .hint("use tls:HOST:PORT, a Unix socket or a loopback address"),
        }
    }
}

/// The exit code for a fault of TLS, and what to do.
fn tls(fault: &TlsFault) -> (u8, Option<&'static str>) {
    match fault {
        TlsFault::NotTls => (
            exit::NO_DAEMON,
            Some("without TLS, its endpoint is tcp:HOST:PORT; everybody on the way can read that"),
        ),
        TlsFault::UnknownAuthority => (
            exit::NO_DAEMON,
            Some(
                "name the file with its authority with --ca, if that is known to be the right one",
            ),
        ),
        TlsFault::WrongName { .. } => (
            exit::NO_DAEMON,
            Some("name the daemon as its certificate does, in --endpoint or with --server-name"),
        ),
        TlsFault::Expired => {
            (exit::NO_DAEMON, Some("have the executor's operator renew it; check this clock, too"))
        }
        TlsFault::NotYetValid => (exit::NO_DAEMON, Some("check both clocks")),
        TlsFault::CertificateRequired => (
            exit::NOT_PERMITTED,
            Some("name one with --cert and --key; the executor's operator knows which it takes"),
        ),
        TlsFault::CertificateRefused(_) => (
            exit::NOT_PERMITTED,
            Some("the executor's operator knows which certificates the daemon takes"),
        ),
        TlsFault::NotHttp2 | TlsFault::Ended | TlsFault::Untrusted(_) | TlsFault::Other(_) => {
            (exit::NO_DAEMON, Some("check --endpoint and the daemon's log"))
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Status(status) => match broken(status) {
                Some(Broken::SpeaksTls) => Self::new(exit::NO_DAEMON, SpeaksTls)
                    .hint("write the endpoint as tls:HOST:PORT, and see --ca, --cert and --key"),
                Some(Broken::Lost) => {
                    let sentence = "the connection was lost before the daemon answered";
                    Self::new(exit::TRY_LATER, sentence)
                        .hint("try again; if it stays so, check --endpoint and the daemon's log")
                }
                Some(Broken::Foreign) => {
                    let sentence = format!("what answers is no caproot daemon: {error}");
                    Self::new(exit::NO_DAEMON, sentence)
                        .hint("check --endpoint and CAPROOT_ENDPOINT")
                }
                None if status.code() == Code::Unimplemented => {
                    let sentence = "the daemon does not know this call: it is of another version";
                    Self::new(exit::OTHER_VERSION, sentence).hint(
                        "compare `caproot status` with `caproot --version`, and update the older",
                    )
                }
                None => Self::new(exit::of(status.code()), &error),
            },
            CallError::Nonsense(why) => Self::nonsense(why),
            CallError::ChangedMidway => Self::new(exit::REFUSED, &error).hint("read it again"),
            CallError::Output(io) => Self::output(io),
        }
    }
}

/// What ended a call on this side of the wire.
#[derive(Debug, PartialEq, Eq)]
enum Broken {
    /// The connection went away.
    Lost,
    /// The other side's bytes are no HTTP/2.
    Foreign,
    /// The other side wants TLS.
    SpeaksTls,
}

/// Whether a status was made on this side, and of what: one that the peer sent has no source.
fn broken(status: &Status) -> Option<Broken> {
    status.source()?;
    if SpeaksTls::ended(status) {
        return Some(Broken::SpeaksTls);
    }
    match status.code() {
        Code::Unknown | Code::Cancelled | Code::Unavailable => Some(Broken::Lost),
        Code::Internal => Some(Broken::Foreign),
        _ => None,
    }
}

/// Says how it went, and gives the process's exit code.
#[must_use]
pub fn report(outcome: Result<u8, Failure>) -> ExitCode {
    let failure = match outcome {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    let mut lines: Vec<String> =
        failure.sentences.iter().map(|sentence| format!("caproot: {sentence}")).collect();
    lines.extend(failure.hint.map(|hint| format!("hint: {hint}")));
    say(&lines);
    ExitCode::from(failure.exit)
}

/// Prints clap's answer, be it help or a complaint, and gives its exit code.
#[must_use]
pub fn explain(usage: &clap::Error) -> ExitCode {
    let text = usage.render().to_string();
    if usage.use_stderr() && text.lines().any(|line| line.contains(misleads)) {
        // What was typed may come from elsewhere.
        say(&text.lines().map(shown).collect::<Vec<_>>());
    } else {
        // Nobody is left to tell when even this cannot be printed.
        let _ = usage.print();
    }
    if usage.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::from(exit::OK) }
}

#[cfg(test)]
mod tests {
    use super::{Failure, exit};
    use crate::client::CallError;
    use std::io;
    use tonic::Status;

    #[test]
    fn a_closed_pipe_is_quiet() {
        let quiet = Failure::output(&io::ErrorKind::BrokenPipe.into());
        assert_eq!((quiet.exit, quiet.sentences.len()), (exit::OK, 0));
        assert_eq!(Failure::output(&io::ErrorKind::StorageFull.into()).exit, exit::OUTPUT);
    }

    #[test]
    fn a_strangers_message_is_escaped() {
        let failure = Failure::from(CallError::from(Status::not_found("\x1b[2Jgone")));
        assert_eq!(failure.sentences, [r"NOT_FOUND: \u{1b}[2Jgone"]);
        assert_eq!(failure.exit, exit::REFUSED);
        let older = Failure::from(CallError::from(Status::unimplemented("")));
        assert_eq!(older.exit, exit::OTHER_VERSION);
        assert!(older.sentences[0].contains("another version") && older.hint.is_some());
        let peer = Failure::from(CallError::from(Status::internal("it broke")));
        assert_eq!(peer.exit, exit::INTERNAL);
    }
}
