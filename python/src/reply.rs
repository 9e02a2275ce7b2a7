//! Replies of operations, as data until Python takes them.

use crate::failure::Failure;
use crate::fleet::{Fleet, OpenFleet};
use crate::process_bound::ProcessBound;
use crate::results::{Skill, ToolResult};
use crate::session::{Session, SessionState};
use pyo3::prelude::*;

/// Reply of an operation.
#[derive(Debug)]
pub enum Reply {
    /// The operation has no result.
    Done,
    /// Text, or `None` at an end.
    Text(Option<String>),
    Result(ToolResult),
    Skills(Vec<Skill>),
    Fleet(OpenFleet),
    Session(Box<SessionState>),
}

impl Reply {
    /// Returns the Python object: `True` for [`Reply::Done`], as `None` means that an operation goes
    /// on, and `False` for the end of texts.
    pub fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Done => true.into_pyobject(py)?.to_owned().into_any(),
            Self::Text(None) => false.into_pyobject(py)?.to_owned().into_any(),
            Self::Text(Some(text)) => text.into_pyobject(py)?.into_any(),
            Self::Result(result) => result.into_pyobject(py)?.into_any(),
            Self::Skills(skills) => skills.into_pyobject(py)?.into_any(),
            Self::Fleet(fleet) => {
                let inner = ProcessBound::new(fleet);
                Fleet { inner }.into_pyobject(py)?.into_any()
            }
            Self::Session(state) => Session::new(*state).into_pyobject(py)?.into_any(),
        })
    }
}

/// Returns the object of a reply, or `None` if the operation goes on.
pub fn to_object(
    py: Python<'_>,
    reply: Result<Option<Reply>, Failure>,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    reply?.map(|reply| reply.into_object(py)).transpose()
}
