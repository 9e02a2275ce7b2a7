//! Store of saved sessions in Python.

use crate::callback::CallbackTarget;
use caproot_client::session::{SessionStore, StoreError};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;

/// Time limit of a call of the store.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Store whose methods are Python functions.
#[derive(Debug)]
pub struct CallbackStore(pub CallbackTarget);

impl CallbackStore {
    async fn call(&self, request: Value) -> Result<Option<String>, StoreError> {
        let answer = self.0.call_within(TIME_LIMIT, request.to_string()).await?;
        serde_json::from_str(&answer).map_err(|error| StoreError(error.to_string()))
    }
}

impl SessionStore for CallbackStore {
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let request = json!({ "method": "put", "id": id, "saved": saved });
            self.call(request).await.map(drop)
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(self.call(json!({ "method": "get", "id": id })))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let request = json!({ "method": "delete", "id": id });
            self.call(request).await.map(drop)
        })
    }
}
