//! The door: the only daemon room that knows tonic and the generated types.

mod answers;
mod audit;
mod audited;
mod callers;
mod changes;
mod errors;
mod files;
mod limits;
mod pages;
mod requests;
mod service;
mod skills;
mod stream;

pub use audit::Audit;
pub use audited::Audited;
pub use callers::{Door, Guarded};
pub use service::Service;
