//! Requests in flight, which the request `cancel` can end.

use caproot_core::sync::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

/// Requests of the process that have no answer yet.
#[derive(Default)]
pub struct RequestsInFlight(Mutex<InFlightState>);

#[derive(Default)]
struct InFlightState {
    last_number: u64,
    by_number: HashMap<u64, InFlightEntry>,
}

struct InFlightEntry {
    /// Id of the request. Several requests may have the same id.
    id: Value,
    cancelled: CancellationToken,
}

/// Request in flight until it is dropped.
pub struct InFlightRequest<'a> {
    requests: &'a RequestsInFlight,
    number: u64,
    pub cancelled: CancellationToken,
}

impl RequestsInFlight {
    /// Adds a request.
    pub fn add(&self, id: &Value) -> InFlightRequest<'_> {
        let cancelled = CancellationToken::new();
        let entry = InFlightEntry {
            id: id.clone(),
            cancelled: cancelled.clone(),
        };

        let mut state = self.0.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.by_number.insert(number, entry);

        InFlightRequest {
            requests: self,
            number,
            cancelled,
        }
    }

    /// Cancels the requests with an id. Returns their number.
    pub fn cancel(&self, id: &Value) -> usize {
        let state = self.0.lock();
        state
            .by_number
            .values()
            .filter(|entry| entry.id == *id)
            .inspect(|entry| entry.cancelled.cancel())
            .count()
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().by_number.remove(&self.number);
    }
}
