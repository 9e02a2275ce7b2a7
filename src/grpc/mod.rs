//! The door: the only daemon room that knows tonic and the generated types.

mod answers;
mod audit;
mod audited;
mod callers;
mod changes;
mod compression;
mod door;
mod errors;
mod files;
mod kept;
mod limits;
mod offer;
mod pages;
mod parts;
mod places;
mod plugin_changes;
mod plugins;
mod requests;
mod resolved;
mod service;
mod shared;
mod skills;
mod state;
mod stream;
mod wire;

pub use audit::Audit;
pub use audited::Audited;
pub use callers::{Admission, Admitted, Entry, Pass};
pub use compression::ListsCompressed;
pub use door::{Door, Guarded};
pub use places::{Bound, Full, Place, Places};
pub use service::{Facts, Service};
