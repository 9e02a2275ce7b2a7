//! Stores of saved sessions.

use caproot_core::sync::Mutex;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::ready;

/// Error of a store; a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("session store: {0}")]
pub struct StoreError(pub String);

/// Store of saved sessions by their ids, such as a database table or a directory.
pub trait SessionStore: Debug + Send + Sync + 'static {
    /// Stores a state, in place of the state before. `Ok` means that the state is stored.
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns the latest state, or `None`.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>>;

    /// Deletes a state. `Ok` means that the store has no state with this id, whether there was one
    /// or not. If the store is not sure, it returns an error.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Store in memory, for tests and short-lived programs.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<HashMap<String, String>>);

impl SessionStore for MemoryStore {
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.lock().insert(id.to_owned(), saved.to_owned());
        Box::pin(ready(Ok(())))
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(ready(Ok(self.0.lock().get(id).cloned())))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.lock().remove(id);
        Box::pin(ready(Ok(())))
    }
}
