//! Route between two servers of a cluster that a test or a bench cuts and heals.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Proxy of the route between two servers. The route ends with it.
pub(crate) struct CuttableRoute {
    pair: (usize, usize),
    is_cut: watch::Sender<bool>,
    _task: AbortOnDropHandle<()>,
}

impl CuttableRoute {
    /// Forwards the connections of a listener to the address `to`, which may change.
    pub(crate) fn start(
        listener: TcpListener,
        pair: (usize, usize),
        to: Arc<Mutex<String>>,
    ) -> Self {
        let is_cut = watch::Sender::new(false);
        let cut = is_cut.subscribe();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let to = to.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let mut cut = cut.clone();
                connections.spawn(async move {
                    let carry = async {
                        let mut server = TcpStream::connect(to).await?;
                        copy_bidirectional(&mut client, &mut server).await
                    };
                    tokio::select! {
                        biased;
                        _ = cut.wait_for(|is_cut| *is_cut) => {}
                        _ = carry => {}
                    }
                });
            }
        });
        Self {
            pair,
            is_cut,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Whether the server is at one end of the route.
    pub(crate) fn ends_at(&self, server: usize) -> bool {
        [self.pair.0, self.pair.1].contains(&server)
    }

    /// Ends the connections and refuses others, or lets them through again.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}
