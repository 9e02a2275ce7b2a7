//! Turn of a large file. A response has the whole file, so one large file at a time is in memory, until the
//! host has read the response.

use bytes::Bytes;
use caproot_core::sync::Mutex;
use http::request::Parts;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Place for the turn of one request. The transport adds the place to the request, and drops its clone after the
/// response was written.
#[derive(Debug, Clone, Default)]
pub struct ResponseTurn(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl ResponseTurn {
    /// Keeps the turn until the response was written, or until the request ends without a response.
    pub fn hold(context: &RequestContext<RoleServer>, turn: OwnedSemaphorePermit) {
        let own = context.extensions.get::<Self>();
        // Over HTTP, the SDK passes the head of the request on.
        let of_head = || context.extensions.get::<Parts>()?.extensions.get::<Self>();
        if let Some(place) = own.or_else(of_head) {
            *place.0.lock() = Some(turn);
        }
    }

    /// Returns the bytes of a response, which keep the turn as long as they are in memory.
    pub fn hold_with(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ResponseBytes {
            bytes,
            _turn: self.clone(),
        })
    }
}

struct ResponseBytes {
    bytes: Bytes,
    _turn: ResponseTurn,
}

impl AsRef<[u8]> for ResponseBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
