//! Carries the frames of one tunnel between its driver and the broker.

use super::broker::{Broker, BrokerMessage, BrokerSubscription};
use super::tunnel_stream::TunnelDriver;
use caproot_core::proto::link::caproot::link::v1::TunnelResetReason;

/// Subjects of one side of a tunnel.
#[derive(Debug)]
pub struct TunnelSubjects {
    /// Subject of the other side.
    pub other: String,
    /// Subject of this side, to which the broker reports that the other side is gone.
    pub own: String,
}

/// Carries frames until the tunnel is over. `incoming` is the subscription of this side's subject. A
/// lost connection resets the tunnel, because the broker stores no frames. `reset` resets the tunnel,
/// too.
pub async fn run_tunnel(
    driver: TunnelDriver,
    mut incoming: BrokerSubscription,
    broker: Broker,
    subjects: TunnelSubjects,
    reset: impl Future<Output = TunnelResetReason>,
) {
    let send = async {
        while let Some(frame) = driver.next_frame().await {
            if broker
                .publish(&subjects.other, &subjects.own, frame)
                .await
                .is_err()
            {
                return;
            }
        }
    };

    // The other futures never end: `send` sends the frame of a reset, and then ends the tunnel.
    let receive = async {
        loop {
            match incoming.next().await {
                Some(BrokerMessage {
                    is_no_responders: true,
                    ..
                }) => {
                    driver.reset(TunnelResetReason::PeerGone);
                }
                Some(message) => driver.receive(message.payload),
                None => break,
            }
        }

        driver.reset(TunnelResetReason::BrokerLost);
        std::future::pending::<()>().await;
    };

    let lost = async {
        broker.lost().await;
        driver.reset(TunnelResetReason::BrokerLost);
        std::future::pending::<()>().await;
    };

    let reset = async {
        driver.reset(reset.await);
        std::future::pending::<()>().await;
    };

    tokio::select! {
        () = send => {}
        () = reset => {}
        () = receive => {}
        () = lost => {}
    }
}
