//! The integration test binary: a real client and the real daemon in one process over TCP loopback,
//! or the real binary as a process.

// Tests print skipped cases and statistics to stdout.
#![allow(clippy::print_stdout)]

mod abuse;
mod callers;
mod calls;
mod commands;
mod config;
mod daemon;
mod faults;
mod files;
mod harness;
mod mcp;
mod orchestrator;
mod pages;
mod plugins;
mod soak;
mod tls;
mod trust;
mod watching;
