//! Timer of a root task with the precision of the kernel.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::future::pending;
use std::io;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// Timer for the end of the debounce time. tokio rounds a deadline up to a millisecond, and waits
/// for events in whole milliseconds too, so that each change would be up to two milliseconds late.
///
/// The descriptor is readable after the end of the timer: see `timerfd_create(2)`. Without a
/// descriptor, for example at the limit of open files, the timer never ends, so that the task also
/// needs a timer of tokio.
#[derive(Debug)]
pub struct DebounceTimer(Option<Receiver>);

impl DebounceTimer {
    /// Starts a timer that ends after `wait`. Call within the tokio runtime.
    #[must_use]
    pub fn start(wait: Duration) -> Self {
        let start = || {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // Zero would stop the timer: timerfd_settime(2).
            let wait = wait
                .max(Duration::from_nanos(1))
                .try_into()
                .map_err(io::Error::other)?;
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: wait,
            };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
            // Registers any descriptor, as `AsyncFd` does, which is unsafe to create.
            Receiver::from_owned_fd_unchecked(timer)
        };
        Self(start().ok())
    }

    /// Waits until a timer ends; forever without a timer.
    pub async fn wait(timer: Option<&Self>) {
        let Some(Self(Some(timer))) = timer else {
            return pending().await;
        };
        if timer.readable().await.is_err() {
            pending::<()>().await;
        }
    }
}
