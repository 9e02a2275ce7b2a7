//! Reads the events of the inotify instance and tells them to whoever is interested.

use super::{WatcherInner, WatcherState};
use futures_util::StreamExt as _;
use inotify::{Event, EventMask, Inotify};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of events that are read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// What makes an entry another.
const ENTRY_REPLACED: EventMask = EventMask::CREATE
    .union(EventMask::DELETE)
    .union(EventMask::MOVED_FROM)
    .union(EventMask::MOVED_TO);

impl WatcherInner {
    /// Reads until the instance dies.
    pub(super) async fn run_event_loop(self: Arc<Self>, instance: Inotify) {
        let mut buffer = vec![0; BUFFER_BYTES];
        match instance.into_event_stream(&mut buffer) {
            Err(error) => tracing::error!(%error, "the watcher cannot be read"),
            Ok(mut events) => loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = self.fault_injector.instance_killed() => None,
                };
                let Some(event) = event else { break };
                match event {
                    Ok(event) => self.dispatch_event(&event),
                    Err(error) => {
                        tracing::error!(%error, "the watcher died; a new one takes its place");
                        break;
                    }
                }
            },
        }
        let state = {
            let _none_adding = self.block_adds();
            let mut state = self.lock_state();
            WatcherState {
                watches: state.watches.take(),
                instance: state.instance.take(),
                mount_table: state.mount_table.take(),
                registry: state.registry.take_all(),
                barriers: std::mem::take(&mut state.barriers),
            }
        };
        // Dropping the barriers tells those who wait that they cannot be met.
        state.registry.distinct_listeners().for_each(|listener| listener.on_events_lost());
    }

    fn dispatch_event(&self, event: &Event<OsString>) {
        let none_adding = self.block_adds();
        let mut state = self.lock_state();
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            // A barrier's own event may be among the lost; all is dirty, so it is met.
            let barriers = std::mem::take(&mut state.barriers);
            let everybody: Vec<_> = state.registry.distinct_listeners().collect();
            drop((state, none_adding));
            for listener in &everybody {
                listener.on_events_lost();
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
        let interested: Vec<_> = state.registry.matching_listeners(id, name).collect();
        if is_ignored {
            state.registry.remove_descriptor(id);
        }
        drop((state, none_adding));
        if self.fault_injector.should_drop_event() {
            return;
        }
        for (listener, token, is_for_entry) in interested {
            let moved = if is_for_entry { ENTRY_REPLACED } else { EventMask::MOVE_SELF };
            listener.on_dir_changed(token, name, event.mask.intersects(moved));
        }
    }
}
