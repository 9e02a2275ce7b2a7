//! Faults around the daemon: kills, filesystems that hang, and system calls, threads and descriptors that are
//! denied.

mod fd_exhaustion;
mod hang;
mod kill_during_scan;
mod no_openat2;
mod restart_cycles;
mod starvation;
mod thread_limit;
mod unread_log;
