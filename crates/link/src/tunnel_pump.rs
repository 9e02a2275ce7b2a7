//! Carries the frames of one tunnel between its driver and the broker.

use super::broker::{Broker, BrokerSubscription};
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
            let published = broker.publish(&subjects.other, &subjects.own, frame);
            if published.await.is_err() {
                return;
            }
        }
    };

    let receive = async {
        while let Some(message) = incoming.next().await {
            if message.is_no_responders {
                return TunnelResetReason::PeerGone;
            }
            driver.receive(message.payload);
        }
        TunnelResetReason::BrokerLost
    };

    let receive_until_reset = async {
        let reason = tokio::select! {
            reason = reset => reason,
            reason = receive => reason,
            () = broker.wait_for_change(|state| state.losses) => TunnelResetReason::BrokerLost,
        };
        driver.reset(reason);
        // `send` sends the frame of the reset, and then ends the tunnel.
        std::future::pending::<()>().await;
    };

    tokio::select! {
        () = send => {}
        () = receive_until_reset => {}
    }
}
