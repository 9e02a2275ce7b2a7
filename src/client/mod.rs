//! A plain client of the gRPC surface: connects, calls, joins pages, watches. Talks gRPC only and imports no
//! room of the daemon. Leaves printing and exit codes to whoever calls.

mod call;
mod connect;
mod credentials;
mod fault;
mod first;
mod handle;
pub mod json;
mod line;
mod list;
mod pages;
mod read;
mod resolve;
mod resources;
mod selected;
mod watch;

pub use crate::endpoint::{Endpoint, EndpointError};
pub use call::{CallError, Client, reason};
pub use connect::{ConnectError, candidates, channel, connect, first_that_answers};
pub use credentials::Credentials;
pub use fault::TlsFault;
pub use handle::{package_of, root_id};
pub use line::SpeaksTls;
pub use selected::{SelectedError, parse_selected};
pub use watch::{Heard, SkillWatch};
