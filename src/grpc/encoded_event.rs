//! Encoded events. Streams that send the same event share its bytes.

use super::encoded_body::encode_message;
use crate::proto::caproot::v1 as pb;
use bytes::Bytes;
use pb::watch_skills_response::Event;
use std::sync::Arc;
use tonic::Status;

/// Encoded event.
#[derive(Debug)]
pub struct EncodedEvent {
    /// Message with its prefix.
    bytes: Bytes,
    /// Root in the event that the caller may not use.
    pub denied_root: Option<String>,
    /// Whether the event ends a state.
    pub is_synced: bool,
}

/// Owner of the bytes. An event is cached as long as a part of its bytes is not sent.
struct SharedBytes(Arc<EncodedEvent>);

impl EncodedEvent {
    pub fn new(event: &pb::WatchSkillsResponse) -> Result<Self, Status> {
        let denied_root = match &event.event {
            Some(Event::RootStatus(root)) if root.reason() == pb::RootReason::NotAllowed => {
                Some(root.id.clone())
            }
            _ => None,
        };
        let is_synced = matches!(event.event, Some(Event::Synced(_)));
        Ok(Self { bytes: encode_message(event)?, denied_root, is_synced })
    }

    /// Returns the message with its prefix.
    pub fn into_bytes(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedBytes(self))
    }
}

impl AsRef<[u8]> for EncodedEvent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{EncodedEvent, Event, pb};

    #[test]
    fn denied_root_is_recorded() {
        let status = |reason: pb::RootReason| {
            let status =
                pb::RootStatus { id: "r".into(), reason: reason.into(), ..Default::default() };
            let event = Some(Event::RootStatus(status));
            let event = pb::WatchSkillsResponse { event, ..Default::default() };
            EncodedEvent::new(&event).expect("message below the size limit").denied_root
        };
        assert_eq!(status(pb::RootReason::NotAllowed).as_deref(), Some("r"));
        assert_eq!(status(pb::RootReason::NotFound), None);
    }
}
