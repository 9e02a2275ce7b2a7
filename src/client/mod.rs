//! The gRPC surface from the orchestrator's side: a [`Client`] of one daemon connects, calls, joins pages
//! and watches; a [`Mirror`] is a live copy of its catalog; a [`Fleet`] finds the daemon of an
//! environment. Talks gRPC only and imports no room of the daemon. Leaves printing and exit codes to
//! whoever calls, and what a model is shown to `session`.

mod call;
mod connect;
mod credentials;
mod fault;
mod first;
pub mod fleet;
mod handle;
pub mod json;
mod line;
mod list;
mod mirror;
mod pages;
mod read;
mod resolve;
mod resources;
mod retry;
mod selected;
mod watch;

pub use crate::document::At;
pub use crate::endpoint::{Endpoint, EndpointError};
pub use call::{CallError, Client, reason};
pub use connect::{ConnectError, candidates, channel, connect, first_that_answers};
pub use credentials::Credentials;
pub use fault::TlsFault;
pub use fleet::{Executor, Fleet, FleetError, FleetMistake, FleetMistakes, Registry};
pub use handle::{package_of, root_id};
pub use line::SpeaksTls;
pub use mirror::{Catalog, Mirror, MirrorState, ResumePoint, Selection, Since, Snapshot};
pub use read::MAX_CURSOR_BYTES;
pub use retry::Retries;
pub use selected::{SelectedError, parse_selected};
pub use watch::{Heard, SkillWatch};
