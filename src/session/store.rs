//! Where saved sessions are kept. Leaves what is in them to `saved`, and when they are kept to
//! `lifecycle`.

use super::lock;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Mutex;

/// Why a store did not do what it was asked: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store of sessions: {0}")]
pub struct StoreError(pub String);

/// A place for saved sessions, by their ids: a table in a database, files, whatever the program has.
pub trait SessionStore: Debug + Send + Sync + 'static {
    /// Keeps a state, in place of the one before. `Ok`: it is kept.
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The state that was kept last; `None`: none is.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>>;

    /// Deletes a state. `Ok`: from now on none is kept by this id, whether one was or not. Whoever is
    /// not sure of that says an error.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A store that lasts as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<HashMap<String, String>>);

impl SessionStore for MemoryStore {
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        lock(&self.0).insert(id.to_owned(), saved.to_owned());
        Box::pin(std::future::ready(Ok(())))
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(std::future::ready(Ok(lock(&self.0).get(id).cloned())))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        lock(&self.0).remove(id);
        Box::pin(std::future::ready(Ok(())))
    }
}
