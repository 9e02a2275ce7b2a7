//! The one integration binary: a real client and the real daemon, in one process over TCP loopback,
//! or the real binary where the process itself is what is tested.

// What was skipped, and how much a real tree held, is said on stdout.
#![allow(clippy::print_stdout)]

mod abuse;
mod binary;
mod bombs;
mod callers;
mod check;
mod commands;
mod compression;
mod config;
mod corpus;
mod diff;
mod errors;
mod exhausted;
mod fixture;
mod fresh;
mod fuse;
mod growth;
mod handles;
mod hang;
mod harness;
mod history;
mod hour;
mod huge;
mod idle;
mod kill;
mod listing;
mod live;
#[cfg(feature = "mcp")]
mod mcp;
mod mounts;
mod no_openat2;
mod no_paths;
mod paging;
mod permission;
mod polled;
mod private;
mod race;
mod readers;
mod readme;
mod reads;
mod reads_live;
mod replica;
mod resolution;
mod resources;
mod resources_law;
mod rooms;
mod roots;
mod roots_live;
mod sandbox;
mod stock;
mod streams;
mod supervisor;
mod syscalls;
mod terminal;
mod tls;
mod traced;
mod trees;
mod unsized_files;
mod usage;
mod vanished;
mod walk;
mod watch_command;
mod watch_degraded;
mod watch_links;
mod watch_root;
mod watching;
