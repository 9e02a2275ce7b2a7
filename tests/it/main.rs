//! The one integration binary: a real client and the real daemon, in one process over TCP loopback,
//! or the real binary where the process itself is what is tested.

mod binary;
mod config;
mod corpus;
mod diff;
mod errors;
mod fixture;
mod harness;
mod listing;
mod no_paths;
mod paging;
mod reads;
mod reads_live;
mod roots;
mod roots_live;
mod trees;
