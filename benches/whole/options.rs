//! What is measured, how long, and where the results go.

use crate::trees::Plan;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Measures caproot beside the least that could do the same work.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench whole --", version, max_term_width = 100)]
pub(crate) struct Options {
    /// A smaller pass: fewer rounds, smaller trees; its numbers are no results.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measures only this; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<Name>,
    /// A directory of skills of your own, for the cold start; may be given more than once.
    #[arg(long = "tree", value_name = "DIR")]
    pub(crate) trees: Vec<PathBuf>,
    /// Writes plots (SVG) and all numbers (results.json) into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
    /// Prints the table as Markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Puts the table, with machine, date and command, between the marks in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) readme: Option<PathBuf>,
    /// Measures nothing, but makes a tree of skills in this directory, the same for the same seed.
    #[arg(long, value_name = "DIR")]
    pub(crate) generate: Option<PathBuf>,
    /// Skills that are made.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "generate")]
    skills: usize,
    /// Bytes of each SKILL.md that is made.
    #[arg(long, value_name = "N", default_value_t = 6 << 10, requires = "generate")]
    bytes: usize,
    /// Roots that the skills are divided among.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    roots: usize,
    /// What the words of the skills are drawn by.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    seed: u64,
    /// Serves the answers in a directory: the other side of a measurement.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) bare: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// From the start of the daemon to its first whole list.
    Cold,
    /// A list of skills that are held.
    List,
    /// Reads of small files, many at once.
    Read,
    /// From a change to the client's event, and what the change costs.
    Change,
    /// One change to a thousand streams, and memory of streams that are read.
    Streams,
    /// Memory of streams that nobody reads.
    Unread,
    /// Memory of skills that are held.
    Memory,
    /// A large file, page by page.
    Paging,
    /// How all of this grows with skills and roots.
    Growth,
}

impl Options {
    /// The measurements that are wanted, in the order of the table.
    pub(crate) fn wanted(&self) -> Vec<Name> {
        let all = Name::value_variants().iter().copied();
        all.filter(|name| self.only.is_empty() || self.only.contains(name)).collect()
    }

    /// The tree to make.
    pub(crate) fn plan(&self) -> Plan {
        Plan { skills: self.skills, bytes: self.bytes, roots: self.roots, seed: self.seed }
    }
}
