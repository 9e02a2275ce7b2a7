//! The one integration binary: a real client and the real daemon, in one process over TCP loopback,
//! or the real binary where the process itself is what is tested.

// What was skipped, and how much a real tree held, is said on stdout.
#![allow(clippy::print_stdout)]

mod binary;
mod check;
mod commands;
mod config;
mod corpus;
mod diff;
mod errors;
mod fixture;
mod fresh;
mod fuse;
mod hang;
mod harness;
mod history;
mod hour;
mod huge;
mod idle;
mod kill;
mod listing;
mod live;
mod looks;
mod mounts;
mod no_paths;
mod paging;
mod polled;
mod private;
mod readers;
mod readme;
mod reads;
mod reads_live;
mod replica;
mod resources;
mod resources_law;
mod rooms;
mod roots;
mod roots_live;
mod streams;
mod terminal;
mod trees;
mod usage;
mod vanished;
mod walk;
mod watch_command;
mod watch_degraded;
mod watch_links;
mod watch_root;
mod watching;
