//! `caproot mcp` from a host's side: the real binary, over stdio and HTTP, with a real daemon.

mod agents;
mod daemon_restart;
pub(crate) mod host;
mod http;
mod invalid_requests;
mod large_files;
mod no_daemon;
mod notifications;
mod paging;
mod prompts;
mod response_limits;
mod scripts;
mod session;
mod tools;
