//! Measures the whole process over a real socket and compares it with the minimum that could do the
//! same work. Prints one table of ratios, each from one run on one machine. `cargo bench --bench
//! whole -- --help` lists the options. `docs/design/performance.md` explains each row.
//!
//! Each measurement is a file that gives rows of the table and sometimes lines of a plot. Both
//! sides of a measurement alternate, A B A B, so that a slower machine affects both sides.

mod bare;
mod change;
mod client;
mod cold_start;
mod context;
mod distant;
mod growth;
mod idle;
mod list;
mod losses;
mod machine;
mod memory;
mod options;
mod page;
mod paging;
mod parallel_walk;
mod plots;
#[path = "../common/process_memory.rs"]
mod process_memory;
mod read;
mod removal;
mod report;
mod server;
mod stats;
mod streams;
mod table;
#[path = "../common/trees.rs"]
mod trees;
mod unread_streams;

use clap::Parser as _;
use context::{Context, Outcome, print_progress};
use losses::CommittedResults;
use options::{MeasurementName, Options};
use report::Report;
use std::fs;
use std::io::{self, Write as _};
use std::time::Instant;

fn main() -> Outcome<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if let Some(dir) = &options.bare {
        return runtime.block_on(bare::serve(dir));
    }
    if let Some(dir) = &options.generate {
        return Ok(trees::create_tree(dir, &options.plan())?);
    }
    runtime.block_on(measure(&options))
}

async fn measure(options: &Options) -> Outcome<()> {
    let context = Context::new(options)?;
    let committed = CommittedResults::read()?;
    let mut report = Report::new(options);
    for name in options.measurements() {
        print_progress(format_args!("{name:?}"));
        let began = Instant::now();
        let found = match name {
            MeasurementName::Cold => cold_start::measure(&context).await?,
            MeasurementName::List => list::measure(&context).await?,
            MeasurementName::Distant => distant::measure(&context).await?,
            MeasurementName::Read => read::measure(&context).await?,
            MeasurementName::Change => change::measure(&context).await?,
            MeasurementName::Removal => removal::measure(&context).await?,
            MeasurementName::Idle => idle::measure(&context).await?,
            MeasurementName::Streams => streams::measure(&context).await?,
            MeasurementName::Unread => unread_streams::measure(&context).await?,
            MeasurementName::Memory => memory::measure(&context).await?,
            MeasurementName::Paging => paging::measure(&context).await?,
            MeasurementName::Growth => growth::measure(&context).await?,
        };
        report.add(found);
        print_progress(format_args!("{name:?} took {:.0?}", began.elapsed()));
    }
    let mut out = io::stdout();
    if options.markdown {
        writeln!(out, "{}", table::markdown(&report))?;
    } else {
        writeln!(out, "{}", table::text(&report))?;
    }
    if !options.quick {
        print_progress(format_args!("{}", committed.describe_losses(&report)));
    }
    if let Some(dir) = &options.plots {
        fs::create_dir_all(dir)?;
        plots::draw(&report, dir)?;
        fs::write(dir.join("results.json"), report.json()?)?;
    }
    if let Some(file) = &options.write_page {
        page::update_page(file, &report)?;
    }
    Ok(())
}
