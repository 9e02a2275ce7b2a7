//! Lists by a client that is far away: a proxy delays the bytes of both directions. Counts the round
//! trips of a page, which the network would add on any machine.

use crate::client::{LIST, RawClient, read_list};
use crate::cold_start;
use crate::context::{Context, Outcome};
use crate::list::time_lists;
use crate::report::{MeasurementResult, Row, Target};
use crate::server::connect_to;
use crate::stats::{float, ms, quantile_pairs};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

const SKILLS: usize = 2_000;
/// Time from one end of the proxy to the other.
const ONE_WAY: Duration = Duration::from_millis(25);

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let daemon = cold_start::start(&tree.roots).await?;
    let mut near = daemon.server.raw_client().await?;
    let (pages, _) = read_list(&mut near, &daemon.roots).await?;
    let address = start_proxy(daemon.server.address().to_owned()).await?;
    let mut far = RawClient::new(connect_to(&address).await?);
    let paths: Vec<_> = pages.iter().map(|_| LIST.to_owned()).collect();
    let times = context.count(10, 3);
    time_lists(&mut far, &pages, &paths, times).await?;
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        let ours = time_lists(&mut far, &pages, &paths, times).await?;
        rounds.push((ours, vec![ms(2 * ONE_WAY) * float(pages.len())]));
    }
    let what = format!(
        "list of all {SKILLS} skills in {} pages, 50 ms away",
        pages.len()
    );
    let row = |name: &str, part, target| {
        let pairs = quantile_pairs(&rounds, part);
        let beside = "one round trip of 50 ms for each page";
        Row::ratio(format!("{what}, {name}"), beside, "ms", &pairs, target)
    };
    Ok(vec![
        row("p50", 0.5, Target::AtMost(1.2)),
        row("p99", 0.99, Target::None),
    ]
    .into())
}

/// Starts a proxy to an address. Returns the address of the proxy.
async fn start_proxy(target: String) -> Outcome<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&target).await else {
                return;
            };
            // Small parts of a message must not wait for an acknowledgement.
            if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
                return;
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(delay_bytes(from_client, to_server));
            tokio::spawn(delay_bytes(from_server, to_client));
        }
    });
    Ok(address.to_string())
}

/// Copies bytes, each read [`ONE_WAY`] after its arrival, until one side closes.
async fn delay_bytes(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
) {
    // Holds all bytes that are on the way, as a long line does.
    let (send, mut on_the_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if send
                .send((Instant::now() + ONE_WAY, buffer[..count].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    while let Some((due, bytes)) = on_the_way.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
