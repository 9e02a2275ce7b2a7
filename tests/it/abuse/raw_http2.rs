//! HTTP/2 frames by hand, which no library would send.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::harness::HANG_TIMEOUT;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// GOAWAY error code of a connection that is under attack.
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;
/// `RST_STREAM` error code of a call beyond the limit.
const REFUSED_STREAM: u8 = 7;

/// HTTP/2 connection after the preface. A thread reads the daemon's frames.
pub(super) struct RawConnection {
    stream: TcpStream,
    reader: JoinHandle<ReceivedFrames>,
}

/// Frames that the daemon sent until either side closed the connection.
#[derive(Debug, Default, Clone)]
pub(super) struct ReceivedFrames {
    /// Error code of the last GOAWAY.
    pub goaway: Option<u32>,
    /// Number of acknowledged pings.
    pub pongs: usize,
    /// Number of calls refused because the connection has too many.
    pub refused: usize,
}

/// Encodes a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len())
        .expect("a short payload")
        .to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes the header block of a call in HPACK's plainest form, literals without indexing.
pub(super) fn encode_call_headers(path: &str) -> Vec<u8> {
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "caproot.test"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    headers
        .iter()
        .flat_map(|(name, value)| header(name, value))
        .collect()
}

/// Encodes one header that does not enter the dynamic table.
pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(
            u8::try_from(text.len())
                .ok()
                .filter(|len| *len < 127)
                .expect("a short text"),
        );
        bytes.extend(text.as_bytes());
    }
    bytes
}

impl RawConnection {
    /// Connects and sends the preface and empty settings.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(HANG_TIMEOUT))?;
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
        let reader = stream.try_clone()?;
        let reader = thread::spawn(move || read_frames(reader));
        Ok(Self { stream, reader })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the client's side, and returns the frames received until the daemon closed its side.
    pub(super) fn finish(self) -> ReceivedFrames {
        // The daemon may have closed the connection already.
        drop(self.stream.shutdown(Shutdown::Write));
        self.reader.join().expect("no panic")
    }
}

fn read_frames(mut stream: TcpStream) -> ReceivedFrames {
    let mut received = ReceivedFrames::default();
    stream
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a timeout");
    let mut frame_head = [0; 9];
    // A close and a reset both end the loop.
    while stream.read_exact(&mut frame_head).is_ok() {
        let len = u32::from_be_bytes([0, frame_head[0], frame_head[1], frame_head[2]]) as usize;
        let mut payload = vec![0; len];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        match frame_head[3] {
            GOAWAY => received.goaway = payload[4..8].try_into().ok().map(u32::from_be_bytes),
            PING if frame_head[4] & ACK != 0 => received.pongs += 1,
            RST_STREAM if payload == [0, 0, 0, REFUSED_STREAM] => received.refused += 1,
            _ => {}
        }
    }
    received
}

/// Writes to a connection without reading, until its buffers are full.
pub(super) fn fill_unread(address: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
    while stream.write_all(bytes).is_ok() {}
    Ok(stream)
}
