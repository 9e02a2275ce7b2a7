//! Proxy that forwards connections to a daemon, records the responses and counts the bytes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy;
use tokio::net::TcpStream;
use tokio_util::io::InspectReader;
use tokio_util::task::AbortOnDropHandle;

use super::{bind, free_port};

/// Proxy that accepts connections until it is dropped.
pub(crate) struct RecordingProxy {
    pub(crate) address: String,
    record: Arc<TrafficRecord>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct TrafficRecord {
    responses: Mutex<Vec<u8>>,
    request_bytes: AtomicUsize,
    /// Whether new connections are closed at once.
    is_paused: AtomicBool,
}

impl RecordingProxy {
    /// Starts a proxy of the server at an address.
    pub(crate) async fn start(server: &str) -> Self {
        let (listener, address) = bind(&free_port()).await;
        let record = Arc::<TrafficRecord>::default();
        let (server, shared) = (server.to_owned(), record.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.is_paused.load(Ordering::Relaxed) {
                    continue;
                }
                // If the daemon is down, the client sees a closed connection.
                let Ok(server) = TcpStream::connect(&server).await else {
                    continue;
                };
                tokio::spawn(forward(client, server, shared.clone()));
            }
        });
        Self {
            address,
            record,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Closes each new connection at once, or forwards new connections again.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.record.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Returns all bytes that the server sent.
    pub(crate) fn responses(&self) -> Vec<u8> {
        self.record.responses.lock().expect("no panic").clone()
    }

    /// Returns the number of bytes in both directions.
    pub(crate) fn byte_count(&self) -> usize {
        let responses = self.record.responses.lock().expect("no panic").len();
        responses + self.record.request_bytes.load(Ordering::Relaxed)
    }
}

/// Forwards both directions of a connection until one side closes the connection.
async fn forward(mut client: TcpStream, mut server: TcpStream, record: Arc<TrafficRecord>) {
    let (from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let mut from_client = InspectReader::new(from_client, |bytes: &[u8]| {
        record
            .request_bytes
            .fetch_add(bytes.len(), Ordering::Relaxed);
    });
    let mut from_server = InspectReader::new(from_server, |bytes: &[u8]| {
        record.responses.lock().expect("no panic").extend(bytes);
    });
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}
