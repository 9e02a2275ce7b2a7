//! Reads the events of the inotify instance and tells them to whoever is interested.

use super::{Shared, State};
use futures_util::StreamExt as _;
use inotify::{Event, EventMask, Inotify};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of events that are read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// What makes an entry another.
const REPLACED: EventMask = EventMask::CREATE
    .union(EventMask::DELETE)
    .union(EventMask::MOVED_FROM)
    .union(EventMask::MOVED_TO);

impl Shared {
    /// Reads until the instance dies.
    pub(super) async fn read(self: Arc<Self>, instance: Inotify) {
        let mut buffer = vec![0; BUFFER_BYTES];
        match instance.into_event_stream(&mut buffer) {
            Err(error) => tracing::error!(%error, "the watcher cannot be read"),
            Ok(mut events) => loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = self.faults.death() => None,
                };
                let Some(event) = event else { break };
                match event {
                    Ok(event) => self.tell(&event),
                    Err(error) => {
                        tracing::error!(%error, "the watcher died; a new one takes its place");
                        break;
                    }
                }
            },
        }
        let state = {
            let _none_adding = self.none_adding();
            let mut state = self.lock();
            State {
                watches: state.watches.take(),
                instance: state.instance.take(),
                mounts: state.mounts.take(),
                registry: state.registry.begin_anew(),
                barriers: std::mem::take(&mut state.barriers),
            }
        };
        // Dropping the barriers tells those who wait that they cannot be met.
        state.registry.everybody().for_each(|listener| listener.lost());
    }

    fn tell(&self, event: &Event<OsString>) {
        let none_adding = self.none_adding();
        let mut state = self.lock();
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            // A barrier's own event may be among the lost; all is dirty, so it is met.
            let barriers = std::mem::take(&mut state.barriers);
            let everybody: Vec<_> = state.registry.everybody().collect();
            drop((state, none_adding));
            for listener in &everybody {
                listener.lost();
            }
            for (_, tell) in barriers {
                // Whoever waited may have gone.
                let _ = tell.send(());
            }
            return;
        }
        let id = event.wd.get_watch_descriptor_id();
        let is_ignored = event.mask.contains(EventMask::IGNORED);
        let barrier = state.barriers.iter().position(|(barrier, _)| is_ignored && *barrier == id);
        if let Some(at) = barrier {
            let (_, tell) = state.barriers.swap_remove(at);
            // Whoever waited may have gone.
            let _ = tell.send(());
            return;
        }
        let name = event.name.as_deref().map(OsStrExt::as_bytes);
        let interested: Vec<_> = state.registry.interested(id, name).collect();
        if is_ignored {
            state.registry.forget(id);
        }
        drop((state, none_adding));
        if self.faults.drops() {
            return;
        }
        for (listener, token, is_for_entry) in interested {
            let moved = if is_for_entry { REPLACED } else { EventMask::MOVE_SELF };
            listener.dirty(token, name, event.mask.intersects(moved));
        }
    }
}
