//! Task that reads the events of an inotify instance, and calls the listeners.

use super::WatcherInner;
use super::fault_injector::FaultInjector;
use futures_util::StreamExt as _;
use inotify::{Event, EventMask, Inotify};
use std::ffi::OsString;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::Weak;
use std::sync::atomic::Ordering;

/// Size of the buffer for events.
const BUFFER_BYTES: usize = 64 << 10;

/// Dispatches events until the instance fails, then reports lost events to all listeners.
pub async fn run(watcher: Weak<WatcherInner>, inotify: Inotify, faults: FaultInjector) {
    let mut buffer = vec![0; BUFFER_BYTES];
    match inotify.into_event_stream(&mut buffer) {
        Err(error) => tracing::error!(%error, "cannot read inotify events"),
        Ok(mut events) => loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = faults.instance_killed() => None,
            };
            let Some((event, watcher)) = event.zip(watcher.upgrade()) else {
                break;
            };
            match event {
                Ok(event) => dispatch_event(&watcher, &event),
                Err(error) => {
                    tracing::error!(%error, "inotify instance failed; starting a new instance");
                    break;
                }
            }
        },
    }
    if let Some(watcher) = watcher.upgrade() {
        end_instance(&watcher);
    }
}

/// Closes the instance. The barriers fail.
fn end_instance(watcher: &WatcherInner) {
    let adds_blocked = watcher.add_lock.write();
    let instance = watcher.instance.lock().take();
    drop(adds_blocked);
    let Some(instance) = instance else {
        return;
    };

    let listeners = instance.registry.distinct_listeners();
    // Each listener may start a new instance, for which the watches of this one leave room. This task
    // is aborted at its next await, and has none.
    drop(instance);
    for listener in listeners {
        listener.on_events_lost();
    }
}

fn dispatch_event(watcher: &WatcherInner, event: &Event<OsString>) {
    let adds_blocked = watcher.add_lock.write();
    let mut instance = watcher.instance.lock();
    // Only this task takes the instance.
    let Some(running) = instance.as_mut() else {
        return;
    };

    if event.mask.contains(EventMask::Q_OVERFLOW) {
        watcher.overflows.fetch_add(1, Ordering::Relaxed);
        // The events of barriers may be lost too. All directories become dirty, so all barriers
        // are reached.
        let barriers = mem::take(&mut running.barriers);
        let listeners = running.registry.distinct_listeners();
        drop((instance, adds_blocked));
        for listener in listeners {
            listener.on_events_lost();
        }
        for (_, barrier) in barriers {
            // Fails if the call that waits was cancelled.
            let _ = barrier.send(());
        }
        return;
    }
    if let Some(barrier) = running.take_reached_barrier(event) {
        // Fails if the call that waits was cancelled.
        let _ = barrier.send(());
        return;
    }

    let calls = running.listener_calls(event);
    // Listeners may drop watches, which needs the locks.
    drop((instance, adds_blocked));
    if watcher.fault_injector.should_drop_event() {
        return;
    }
    let name = event.name.as_deref().map(OsStrExt::as_bytes);
    for call in calls {
        call.listener.on_dir_changed(call.token, name, call.moved);
    }
}
