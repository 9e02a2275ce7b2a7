//! The real binary as a process of a machine: its start, sockets, log, sandbox, idle time and shutdown.

mod binary;
mod drain;
mod idle;
mod inherited_sockets;
mod removed_socket;
mod root_log;
mod sandbox;
mod service_manager;
