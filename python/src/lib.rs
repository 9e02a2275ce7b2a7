//! Extension module `caproot._caproot`: sessions of the client package for Python programs.
//!
//! No thread of the runtime touches Python. Results and calls of Python functions go into the queue
//! of a [`mailbox::Mailbox`], and the thread of an event loop takes them from there.

mod callback;
mod dispatch;
mod failure;
mod fleet;
mod logs;
mod mailbox;
mod origin;
mod process_bound;
mod reply;
mod results;
mod runtime;
mod selection;
mod session;
mod sources;
mod start;
mod store;
mod tools;

use pyo3::prelude::*;

/// Sessions of the client package. Use the package `caproot`, which has the documented interface.
#[pymodule(gil_used = true)]
mod _caproot {
    #[pymodule_export]
    use crate::dispatch::Dispatcher;
    #[pymodule_export]
    use crate::fleet::Fleet;
    #[pymodule_export]
    use crate::mailbox::Mailbox;
    #[pymodule_export]
    use crate::results::{Authority, ResultImage, Skill, ToolResult};
    #[pymodule_export]
    use crate::session::{ChangeWatch, PluginChangeWatch, Session, UsageEventWatch};
    #[pymodule_export]
    use crate::start::start_session;
    #[pymodule_export]
    use crate::tools::ToolRegistry;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::logs::install();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
