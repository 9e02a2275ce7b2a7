//! Failures on their way to Python, as data: a thread of the runtime makes no Python object.

use caproot_client::session::dispatch::{DispatchError, DrainError, TurnError};
use caproot_client::session::{
    ForkError, PersistError, RestoreError, SavedError, SelectionError, StoreError, ToolError,
    ToolRegistryError,
};
use caproot_client::{CallError, ConfigErrors, ConnectError, FleetError};
use pyo3::PyErr;
use pyo3::prelude::*;

/// Codes of gRPC for a caller whose identity the daemon does not accept.
const PERMISSION_DENIED: i32 = 7;
const UNAUTHENTICATED: i32 = 16;

/// Class of the Python exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Error,
    Config,
    Refused,
    Sealed,
    Forked,
    Store,
    Dispatch,
    Value,
    Key,
}

/// Failure of an operation.
#[derive(Debug, Clone)]
pub struct Failure {
    kind: FailureKind,
    /// Sentences: all mistakes of a `ConfigError`, one sentence otherwise.
    sentences: Vec<String>,
    /// Code and next step of a refusal.
    code: String,
    next: String,
}

impl Failure {
    fn new(kind: FailureKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentences: vec![sentence.into()],
            code: String::new(),
            next: String::new(),
        }
    }

    /// Returns a failure without a class of its own.
    pub fn error(sentence: impl Into<String>) -> Self {
        Self::new(FailureKind::Error, sentence)
    }

    /// Returns the failure of an invalid argument.
    pub fn value(sentence: impl Into<String>) -> Self {
        Self::new(FailureKind::Value, sentence)
    }

    /// Returns the failure of a name that is not there.
    pub fn key(sentence: impl Into<String>) -> Self {
        Self::new(FailureKind::Key, sentence)
    }

    /// Returns the failure of a store.
    pub fn store(sentence: impl Into<String>) -> Self {
        Self::new(FailureKind::Store, sentence)
    }

    /// Returns the failure with all mistakes of a configuration.
    pub fn config(mistakes: Vec<String>) -> Self {
        Self {
            sentences: mistakes,
            ..Self::new(FailureKind::Config, "")
        }
    }

    /// Returns the failure of a refused call, with a code and the next step.
    pub fn refused(code: &str, sentence: impl Into<String>, next: &str) -> Self {
        Self {
            code: code.to_owned(),
            next: next.to_owned(),
            ..Self::new(FailureKind::Refused, sentence)
        }
    }

    /// Returns the failure of a list or a read.
    pub fn from_tool_error(error: &ToolError) -> Self {
        Self::refused(error.code().name(), error.message(), error.program_step())
    }

    /// Returns the failure of an executor that does not answer.
    pub fn unavailable(sentence: impl Into<String>) -> Self {
        Self::refused(
            "EXECUTOR_UNAVAILABLE",
            sentence,
            "Start the daemon, such as by `caproot serve --root DIR`, or pass its address.",
        )
    }

    /// Returns the failure of a closed session.
    pub fn closed() -> Self {
        Self::refused(
            "SESSION_CLOSED",
            "the session is closed",
            "Begin another session.",
        )
    }

    /// Returns the failure of an object that another process created.
    pub fn forked() -> Self {
        Self::new(
            FailureKind::Forked,
            "the object belongs to the parent of this process: begin a new session after the fork",
        )
    }

    /// Returns the failure of a panic.
    pub fn panicked() -> Self {
        Self::error("internal error: the extension module panicked; the log has the place")
    }

    /// Returns the sentences.
    pub fn sentences(&self) -> &[String] {
        &self.sentences
    }

    /// Returns the Python exception.
    pub fn to_exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = match self.kind {
            FailureKind::Error => "Error",
            FailureKind::Config => "ConfigError",
            FailureKind::Refused => "Refused",
            FailureKind::Sealed => "SealedError",
            FailureKind::Forked => "ForkedError",
            FailureKind::Store => "StoreError",
            FailureKind::Dispatch => "DispatchError",
            FailureKind::Value | FailureKind::Key => {
                let class = if self.kind == FailureKind::Value {
                    "ValueError"
                } else {
                    "KeyError"
                };
                let builtins = py.import("builtins")?;
                return builtins.getattr(class)?.call1((self.sentences.join("; "),));
            }
        };

        let class = py.import("caproot._errors")?.getattr(name)?;
        match self.kind {
            FailureKind::Config => class.call1((self.sentences.clone(),)),
            FailureKind::Refused => class.call1((&self.sentences[0], &self.code, &self.next)),
            _ => class.call1((self.sentences.join("; "),)),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure.to_exception(py) {
            Ok(exception) => Self::from_value(exception),
            Err(error) => error,
        })
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::config(errors.iter().map(ToString::to_string).collect())
    }
}

impl From<SelectionError> for Failure {
    fn from(error: SelectionError) -> Self {
        Self::config(error.sentences().to_vec())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let is_rejected = matches!(&error, CallError::Status(status)
            if matches!(status.code() as i32, PERMISSION_DENIED | UNAUTHENTICATED));
        if is_rejected {
            let next = "Pass a token or a certificate that the daemon accepts.";
            return Self::refused("NOT_ALLOWED", error.to_string(), next);
        }
        Self::unavailable(error.to_string())
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        Self::new(FailureKind::Dispatch, error.to_string())
    }
}

impl From<DrainError> for Failure {
    fn from(error: DrainError) -> Self {
        error.error.into()
    }
}

impl From<TurnError> for Failure {
    fn from(error: TurnError) -> Self {
        Self::new(FailureKind::Dispatch, error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::error(error.to_string())
    }
}

impl From<SavedError> for Failure {
    fn from(error: SavedError) -> Self {
        Self::config(vec![error.to_string()])
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::store(error.0)
    }
}

impl From<PersistError> for Failure {
    fn from(error: PersistError) -> Self {
        match error {
            PersistError::Closed => Self::closed(),
            PersistError::NoStore => Self::store("the session has no store: pass `store=`"),
            PersistError::Saved(error) => error.into(),
            PersistError::Store(error) => error.into(),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Saved(error) => error.into(),
            RestoreError::Selection(error) => error.into(),
            RestoreError::Store(error) => error.into(),
            RestoreError::NotStored(_) => Self::key(error.to_string()),
        }
    }
}

impl From<ForkError> for Failure {
    fn from(error: ForkError) -> Self {
        match error {
            ForkError::Closed => Self::closed(),
            ForkError::NotSelected(_) => Self::config(vec![error.to_string()]),
            ForkError::Selection(error) => error.into(),
        }
    }
}

impl From<ToolRegistryError> for Failure {
    fn from(error: ToolRegistryError) -> Self {
        match error {
            ToolRegistryError::Sealed => Self::new(FailureKind::Sealed, error.to_string()),
            ToolRegistryError::NoSuchTool(_) => Self::key(error.to_string()),
            _ => Self::config(vec![error.to_string()]),
        }
    }
}
