//! Command line of the bench.

use crate::trees::Plan;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Measures caproot and compares it with the minimum that could do the same work.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench whole --", version, max_term_width = 100)]
pub(crate) struct Options {
    /// Runs a smaller pass with fewer rounds and smaller trees. Do not publish its numbers.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs only this measurement. Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<MeasurementName>,
    /// Adds a directory of your own skills to the cold start. Repeatable.
    #[arg(long = "tree", value_name = "DIR")]
    pub(crate) trees: Vec<PathBuf>,
    /// Writes plots (SVG) and all numbers (results.json) to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
    /// Prints the table as Markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Writes the table, with machine, date and command, between the marks in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) write_page: Option<PathBuf>,
    /// Generates a tree of skills in this directory instead of measuring. The same seed gives the
    /// same tree.
    #[arg(long, value_name = "DIR")]
    pub(crate) generate: Option<PathBuf>,
    /// Number of generated skills.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        requires = "generate"
    )]
    skills: usize,
    /// Size of each generated SKILL.md in bytes.
    #[arg(long, value_name = "N", default_value_t = 6 << 10, requires = "generate")]
    bytes: usize,
    /// Number of roots that the skills are divided among.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    roots: usize,
    /// Seed of the words in the skills.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    seed: u64,
    /// Serves the responses in a directory as the baseline server.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) bare: Option<PathBuf>,
    /// Flag that `cargo bench` sets.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MeasurementName {
    /// Time from the start of the daemon to its first complete list.
    Cold,
    /// List of skills from the catalog.
    List,
    /// List by a client that is 50 ms away.
    Distant,
    /// Concurrent reads of small files.
    Read,
    /// Time from a change to the client's event, and the cost of the change.
    Change,
    /// Time from an edit of an approved file to the removal of its skill at the client.
    Removal,
    /// Processor time of an idle daemon with approved skills whose files have hard links.
    Idle,
    /// One change to a thousand streams, and the memory per stream.
    Streams,
    /// Memory of streams whose clients do not read.
    Unread,
    /// Memory of skills in the catalog.
    Memory,
    /// A large file, page by page.
    Paging,
    /// Growth of these values with skills and roots.
    Growth,
}

impl Options {
    /// Measurements to run, in the order of the table.
    pub(crate) fn measurements(&self) -> Vec<MeasurementName> {
        let all = MeasurementName::value_variants().iter().copied();
        all.filter(|name| self.only.is_empty() || self.only.contains(name))
            .collect()
    }

    /// Tree to generate.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            skills: self.skills,
            bytes: self.bytes,
            roots: self.roots,
            seed: self.seed,
        }
    }
}
