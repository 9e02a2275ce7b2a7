//! Replays the bytes that grpcio clients send on a Unix socket. grpcio sends the percent-encoded
//! path of the socket as the `:authority` of its requests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::harness::HANG_TIMEOUT;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, serve};

/// Preface, settings and window update that grpcio sends before its first request.
const GREETING: &[&[u8]] = &[
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\0\0\x24\x04\0\0\0\0\0",
    b"\0\x02\0\0\0\0\0\x03\0\0\0\0\0\x04\0@\0\0\0\x05\0@\0\0\0\x06\0\0@\0\xfe\x03\0\0\0\x01",
    b"\0\0\x04\x08\0\0\0\0\0\0?\0\x01",
    b"\0\0\0\x04\x01\0\0\0\0",
];

/// First request, whose header fields are literals that enter the HPACK table, then a window update
/// and an empty message.
const FIRST: &[&[u8]] = &[
    b"\0\x01\x05\x01\x04\0\0\0\x01",
    b"@\x05:path)/caproot.v1.CapabilityService/GetExecutor",
    b"@\x0a:authority\x1crun%2Fcaproot%2Fcaproot.sock",
    b"\x83\x86@\x0ccontent-type\x10application/grpc@\x02te\x08trailers",
    b"@\x14grpc-accept-encoding\x17identity, deflate, gzip@\x0cgrpc-timeout\x0315M",
    b"@\nuser-agent0grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)",
    b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\x05",
    b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0",
];

/// Two later requests. All fields except a new deadline are in the HPACK table.
const LATER: &[&[u8]] = &[
    b"\0\0\x1b\x01\x04\0\0\0\x03\xc4\xc3\x83\x86\xc2\xc1\xc0@\x0cgrpc-timeout\x04901S\xbf",
    b"\0\0\x05\0\x01\0\0\0\x03\0\0\0\0\0",
    b"\0\0\x09\x01\x04\0\0\0\x05\xc5\xc4\x83\x86\xc3\xc2\xc1\xbe\xbf",
    b"\0\0\x05\0\x01\0\0\0\x05\0\0\0\0\0",
];

/// Request of another client: the authority is `%2Frun%2Fs.sock` in Huffman code, its name comes
/// from the static table, and the header block continues in a second frame in the middle of the
/// authority.
const HUFFMAN: &[&[u8]] = &[
    b"\0\0\x32\x01\0\0\0\0\x01\x83\x86",
    b"\x44)/caproot.v1.CapabilityService/GetExecutor",
    b"\x41\x8b\x54\x58\x6c",
    b"\0\0\x27\x09\x04\0\0\0\x01",
    b"\xb6\xa5\x45\x85\x0b\xa0\xe4\xeb",
    b"\x5f\x10application/grpc",
    b"\x40\x02te\x08trailers",
    b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0",
];

/// Response on one stream.
#[derive(Debug, Default)]
struct StreamResponse {
    data: Vec<u8>,
    reset: bool,
    ended: bool,
}

/// Reads frames until this many streams have ended.
fn answers(mut from: impl Read, streams: usize) -> BTreeMap<u32, StreamResponse> {
    let mut answers: BTreeMap<u32, StreamResponse> = BTreeMap::new();
    while answers.values().filter(|answer| answer.ended).count() < streams {
        let mut head = [0; 9];
        from.read_exact(&mut head)
            .unwrap_or_else(|e| panic!("{e} after {answers:?}"));
        let [l0, l1, l2, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        from.read_exact(&mut payload).expect("a payload");
        let stream = u32::from_be_bytes(stream);
        assert_ne!(kind, 7, "no GOAWAY: {payload:?}");
        if stream == 0 {
            continue;
        }
        let answer = answers.entry(stream).or_default();
        match kind {
            0 => answer.data.extend(payload),
            3 => answer.reset = true,
            _ => {}
        }
        answer.ended |= kind == 3 || flags & 1 != 0 && kind <= 1;
    }
    answers
}

fn serve_on_socket() -> (Fixture, Process, String) {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill root/a");
    let socket = fixture.path("run/c.sock").display().to_string();
    let listen = format!("unix:{socket}");
    let mut command = caproot(["serve", "--listen", &listen, "--root"]);
    let serving = Process::start(command.arg(fixture.path("root")));
    (fixture, serving, socket)
}

fn connect(socket: impl AsRef<Path>) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("connect");
    stream
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a timeout");
    stream
}

/// Asserts that each stream got a message that names the environment.
fn assert_answered(answers: &BTreeMap<u32, StreamResponse>, streams: &[u32]) {
    assert_eq!(
        answers.keys().copied().collect::<Vec<_>>(),
        streams,
        "{answers:?}"
    );
    for answer in answers.values() {
        assert!(
            !answer.reset && answer.data.windows(5).any(|w| w == b"local"),
            "{answers:?}"
        );
    }
}

#[tokio::test]
async fn the_socket_path_is_accepted_as_authority() {
    let (_fixture, serving, socket) = serve_on_socket();
    let mut stream = connect(&socket);
    stream
        .write_all(&[GREETING.concat(), FIRST.concat()].concat())
        .expect("write");
    assert_answered(&answers(&stream, 1), &[1]);
    stream.write_all(&LATER.concat()).expect("write");
    assert_answered(&answers(&stream, 2), &[3, 5]);
    drop(stream);
    serving.stop().await;
}

#[tokio::test]
async fn the_socket_path_is_accepted_byte_by_byte() {
    let (_fixture, serving, socket) = serve_on_socket();
    let mut stream = connect(&socket);
    for byte in [GREETING.concat(), FIRST.concat(), LATER.concat()].concat() {
        stream.write_all(&[byte]).expect("write");
    }
    assert_answered(&answers(&stream, 3), &[1, 3, 5]);
    drop(stream);
    serving.stop().await;
}

#[tokio::test]
async fn the_socket_path_is_accepted_in_huffman_code_and_two_frames() {
    let (_fixture, serving, socket) = serve_on_socket();
    let mut stream = connect(&socket);
    stream
        .write_all(&[GREETING.concat(), HUFFMAN.concat()].concat())
        .expect("write");
    assert_answered(&answers(&stream, 1), &[1]);
    drop(stream);
    serving.stop().await;
}

#[tokio::test]
async fn the_socket_path_is_rejected_over_tcp() {
    let fixture = Fixture::new("skill root/a");
    let serving = Process::start(serve(["--root"]).arg(fixture.path("root")));
    let address = serving.address();
    let mut stream = TcpStream::connect(address).expect("connect");
    stream
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a timeout");
    stream
        .write_all(&[GREETING.concat(), FIRST.concat()].concat())
        .expect("write");
    let answers = answers(&stream, 1);
    assert!(
        answers[&1].reset && answers[&1].data.is_empty(),
        "{answers:?}"
    );
    drop(stream);
    serving.stop().await;
}
