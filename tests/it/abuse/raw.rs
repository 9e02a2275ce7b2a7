//! HTTP/2 by hand, for what no library would send.

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

/// What GOAWAY says of an attack.
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;
/// What `RST_STREAM` says of a call too many.
const REFUSED_STREAM: u8 = 7;

/// A connection on which HTTP/2 has begun. What comes back is read elsewhere.
pub(super) struct Raw {
    stream: TcpStream,
    heard: JoinHandle<Heard>,
}

/// What came back until the daemon closed the connection, or the client did.
#[derive(Debug, Default, Clone)]
pub(super) struct Heard {
    /// The code of the last GOAWAY.
    pub goaway: Option<u32>,
    /// Frames that acknowledge pings.
    pub pongs: usize,
    /// Calls that were refused as too many on this connection.
    pub refused: usize,
}

/// A frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The header block of a call, by HPACK's plainest form.
pub(super) fn call(path: &str) -> Vec<u8> {
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "caproot.test"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    headers.iter().flat_map(|(name, value)| header(name, value)).collect()
}

/// One header that nobody is to remember.
pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).ok().filter(|len| *len < 127).expect("a short text"));
        bytes.extend(text.as_bytes());
    }
    bytes
}

impl Raw {
    /// Connects and greets.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(HANG_TIMEOUT))?;
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
        let reader = stream.try_clone()?;
        let heard = thread::spawn(move || listen(reader));
        Ok(Self { stream, heard })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that nothing more comes; gives what was heard until the daemon closed the connection.
    pub(super) fn end(self) -> Heard {
        // The daemon may have closed it already.
        drop(self.stream.shutdown(Shutdown::Write));
        self.heard.join().expect("no panic")
    }
}

fn listen(mut stream: TcpStream) -> Heard {
    let mut heard = Heard::default();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).expect("a timeout");
    let mut frame_head = [0; 9];
    // It ends with the connection, however that ends.
    while stream.read_exact(&mut frame_head).is_ok() {
        let len = u32::from_be_bytes([0, frame_head[0], frame_head[1], frame_head[2]]) as usize;
        let mut payload = vec![0; len];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        match frame_head[3] {
            GOAWAY => heard.goaway = payload[4..8].try_into().ok().map(u32::from_be_bytes),
            PING if frame_head[4] & ACK != 0 => heard.pongs += 1,
            RST_STREAM if payload == [0, 0, 0, REFUSED_STREAM] => heard.refused += 1,
            _ => {}
        }
    }
    heard
}

/// Writes to a connection that is never read, for as long as that has room.
pub(super) fn fill(address: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
    while stream.write_all(bytes).is_ok() {}
    Ok(stream)
}
