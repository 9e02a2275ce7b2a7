//! An orchestrator that speaks the messages of `proto/caproot/link/v1` by itself: floods, and links
//! under them.

use caproot_client::RetryPolicy;
use caproot_core::proto::link::caproot::link::v1::dial_response::Outcome;
use caproot_core::proto::link::caproot::link::v1::tunnel_frame::Content;
use caproot_core::proto::link::caproot::link::v1::{
    DialRefusal, DialRequest, DialResponse, TunnelFrame, TunnelReset, TunnelResetReason,
};
use prost::Message as _;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{LinkedExecutor, call_executor};
use crate::harness::in_time;
use crate::harness::process_usage::{descriptors, resident};

/// Token of an orchestrator or of a tunnel.
fn token(number: usize) -> String {
    let letter =
        |at: u32| char::from(b'a' + u8::try_from((number >> (4 * at)) % 16).expect("a letter"));
    (0..26)
        .map(|at| if at < 8 { letter(at) } else { 'a' })
        .collect()
}

/// Orchestrator with a connection of its own to the broker.
pub(super) struct RawOrchestrator {
    stream: BufReader<TcpStream>,
    tunnels: usize,
}

impl RawOrchestrator {
    pub(super) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server");
        stream.set_nodelay(true).expect("an open stream");
        let mut stream = BufReader::new(stream);
        let hello = b"CONNECT {\"verbose\":false}\r\nSUB caproot.v1.out.> 1\r\n";
        stream.write_all(hello).await.expect("a server");
        Self { stream, tunnels: 0 }
    }

    async fn publish(&mut self, subject: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {}\r\n", payload.len());
        let message = [head.as_bytes(), payload, b"\r\n"].concat();
        self.stream.write_all(&message).await.expect("a server");
    }

    /// Returns the subject and the content of the next message.
    async fn next_message(&mut self) -> (String, Vec<u8>) {
        in_time(async {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).await.expect("a server");
                let words: Vec<_> = line.split_whitespace().collect();
                match words.first() {
                    Some(&"MSG") => {
                        let size: usize = words[words.len() - 1].parse().expect("a size");
                        let mut payload = vec![0; size + 2];
                        self.stream
                            .read_exact(&mut payload)
                            .await
                            .expect("a server");
                        payload.truncate(size);
                        return (words[1].to_owned(), payload);
                    }
                    Some(&"PING") => {
                        self.stream.write_all(b"PONG\r\n").await.expect("a server");
                    }
                    Some(_) => {}
                    None => panic!("the broker closed the connection"),
                }
            }
        })
        .await
    }

    /// Opens a tunnel to the environment `one`, once the link has room for another. Returns the
    /// subject of its frames.
    async fn dial(&mut self) -> String {
        in_time(async {
            loop {
                if let Some(subject) = self.try_dial().await {
                    return subject;
                }
            }
        })
        .await
    }

    /// Returns `None` if the link has its maximum number of tunnels.
    async fn try_dial(&mut self) -> Option<String> {
        self.tunnels += 1;
        let (orchestrator, tunnel) = (token(1), token(self.tunnels));
        let own = format!("caproot.v1.out.one.{orchestrator}.{tunnel}");
        let request = DialRequest {
            orchestrator,
            tunnel: tunnel.clone(),
        };
        self.publish("caproot.v1.in.one.dial", &request.encode_to_vec())
            .await;
        loop {
            let (subject, payload) = self.next_message().await;
            if subject != own {
                // A reset of an earlier tunnel.
                continue;
            }
            let response = DialResponse::decode(&payload[..]).expect("an answer");
            return match response.outcome {
                Some(Outcome::Accepted(accepted)) => {
                    Some(format!("caproot.v1.in.one.{}.{tunnel}", accepted.instance))
                }
                Some(Outcome::Refused(refused))
                    if refused.reason() == DialRefusal::TooManyTunnels =>
                {
                    None
                }
                outcome => panic!("{outcome:?}"),
            };
        }
    }

    async fn reset(&mut self, tunnel: &str) {
        let reset = TunnelReset {
            reason: TunnelResetReason::Closed.into(),
        };
        let frame = TunnelFrame {
            seq: 1,
            content: Some(Content::Reset(reset)),
        };
        self.publish(tunnel, &frame.encode_to_vec()).await;
    }
}

/// A thousand tunnels that were opened and reset leave no descriptor, no tunnel and little memory.
#[tokio::test]
async fn a_thousand_dials_leave_nothing_behind() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor
        .start_link("one", "max_dials_per_second: 100000\nmax_tunnels: 8\n")
        .await;
    let mut orchestrator = RawOrchestrator::connect(executor.broker.address()).await;
    let mut usage = Vec::new();
    for dials in [100, 900] {
        for _ in 0..dials {
            let tunnel = orchestrator.dial().await;
            orchestrator.reset(&tunnel).await;
        }
        usage.push((descriptors(link.pid()), resident(link.pid())));
    }
    // With 8 tunnels at most, the thousandth dial shows that the others have ended.
    let ((descriptors_before, before), (descriptors_after, after)) = (usage[0], usage[1]);
    assert!(descriptors_after <= descriptors_before + 8, "{usage:?}");
    assert!(after <= before + (16 << 10), "{usage:?}");
    let output = link.exit_on(Signal::TERM).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

/// Floods of messages that are no frames, no dials and no claims change nothing for others.
#[tokio::test]
async fn floods_do_not_disturb_another_tunnel() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor.start_link("one", "max_tunnels: 512\n").await;
    let fleet = executor.open_fleet().await;
    let client = fleet.client("one").await.expect("a client");
    call_executor(&fleet, "one").await.expect("an answer");
    let mut hostile = RawOrchestrator::connect(executor.broker.address()).await;
    let tunnel = hostile.dial().await;
    for number in 0..2_000_usize {
        let garbage: Vec<u8> = (0..number % 700)
            .map(|n| u8::try_from(n * number % 256).expect("a byte"))
            .collect();
        let subjects = [
            &*tunnel,
            "caproot.v1.in.one.dial",
            "caproot.v1.in.one.claim",
            "caproot.v1.in.two.dial",
        ];
        hostile.publish(subjects[number % 4], &garbage).await;
    }
    for number in 0..200 {
        let (orchestrator, tunnel) = (token(2), token(number));
        let request = DialRequest {
            orchestrator,
            tunnel,
        };
        hostile
            .publish("caproot.v1.in.one.dial", &request.encode_to_vec())
            .await;
    }
    // The dials above the limit of a second are refused; the tunnel that is open carries calls.
    let mut client = client.with_retry_policy(RetryPolicy::NONE);
    for _ in 0..20 {
        in_time(client.get_executor()).await.expect("an answer");
    }
    assert_eq!(fleet.stats().dials, 1);
    drop(link);
}

/// An orchestrator that has used up its dials of a second leaves dials for another orchestrator.
#[tokio::test]
async fn a_flood_of_dials_leaves_a_share_for_others() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor.start_link("one", "max_tunnels: 512\n").await;
    let mut hostile = RawOrchestrator::connect(executor.broker.address()).await;
    let (mut dials, mut refused) = (0, 0);
    while refused < 20 {
        dials += 1;
        let request = DialRequest {
            orchestrator: token(2),
            tunnel: token(dials),
        };
        let request = request.encode_to_vec();
        hostile.publish("caproot.v1.in.one.dial", &request).await;
        let (_, payload) = hostile.next_message().await;
        let outcome = DialResponse::decode(&payload[..]).map(|response| response.outcome);
        if let Ok(Some(Outcome::Refused(why))) = outcome {
            assert_eq!(why.reason(), DialRefusal::TooManyDials);
            refused += 1;
        }
    }
    let fleet = executor.open_fleet().await;
    let client = fleet.client("one").await.expect("a client");
    let mut client = client.with_retry_policy(RetryPolicy::NONE);
    in_time(client.get_executor()).await.expect("an answer");
    drop(link);
}
