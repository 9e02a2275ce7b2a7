//! The whole process over a real socket, beside the least that could do the same work: prints one
//! table of ratios, each from one run on one machine. `cargo bench --bench whole -- --help` says how
//! to choose; README, "Results", says what each row means.
//!
//! Each measurement is a file that gives rows of the table and, some, lines of a plot. Whatever has
//! two sides is measured in turn, A B A B, so that a machine that slows down slows both.

mod bare;
mod change;
mod client;
mod cold;
mod context;
mod floor;
mod growth;
mod list;
mod machine;
mod many;
mod memory;
mod options;
mod paging;
mod plots;
mod read;
mod readme;
mod report;
mod server;
mod stats;
mod table;
#[path = "../common/trees.rs"]
mod trees;
mod unread;

use clap::Parser as _;
use context::{Context, Outcome, say};
use options::{Name, Options};
use report::Report;
use std::fs;
use std::io::{self, Write as _};
use std::time::Instant;

fn main() -> Outcome<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(dir) = &options.bare {
        return runtime.block_on(bare::serve(dir));
    }
    if let Some(dir) = &options.generate {
        return Ok(trees::make(dir, &options.plan())?);
    }
    runtime.block_on(measure(&options))
}

async fn measure(options: &Options) -> Outcome<()> {
    let context = Context::new(options)?;
    let mut report = Report::new(options);
    for name in options.wanted() {
        say(format_args!("{name:?}"));
        let began = Instant::now();
        let found = match name {
            Name::Cold => cold::measure(&context).await?,
            Name::List => list::measure(&context).await?,
            Name::Read => read::measure(&context).await?,
            Name::Change => change::measure(&context).await?,
            Name::Streams => many::measure(&context).await?,
            Name::Unread => unread::measure(&context).await?,
            Name::Memory => memory::measure(&context).await?,
            Name::Paging => paging::measure(&context).await?,
            Name::Growth => growth::measure(&context).await?,
        };
        report.add(found);
        say(format_args!("{name:?} took {:.0?}", began.elapsed()));
    }
    let mut out = io::stdout();
    if options.markdown {
        writeln!(out, "{}", table::markdown(&report))?;
    } else {
        writeln!(out, "{}", table::text(&report))?;
    }
    if let Some(dir) = &options.plots {
        fs::create_dir_all(dir)?;
        plots::draw(&report, dir)?;
        fs::write(dir.join("results.json"), report.json()?)?;
    }
    if let Some(file) = &options.readme {
        readme::fill(file, &report)?;
    }
    Ok(())
}
