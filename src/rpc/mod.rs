//! The door: the only daemon room that knows tonic and the generated types.

mod answers;
mod changes;
mod compression;
mod errors;
mod files;
mod limits;
mod pages;
mod requests;
mod service;
mod skills;
mod stream;

pub use compression::ListsCompressed;
pub use service::Service;
