//! A large file, page by page, each by the cursor of the one before; beside a bare tonic stream of the
//! same file.

use crate::bare::LARGE;
use crate::client::{Caller, READ, owed, published};
use crate::context::{Context, Outcome, say};
use crate::report::{Found, Row, Target};
use crate::server::Server;
use crate::stats::float;
use bytes::Bytes;
use caproot::proto::caproot::v1 as pb;
use prost::Message as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

/// Bytes of a page: the most that a caller may ask for.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
const LINE: &str = "Read the file first, change one thing at a time, and run all checks.\n";

/// What is looked at of an answer: the content counts for neither side.
#[derive(Clone, PartialEq, prost::Message)]
struct Next {
    #[prost(string, tag = "6")]
    next_cursor: String,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let size = context.count(1 << 30, 128 << 20);
    let root = context.dir("paging")?;
    let package = root.join("large");
    fs::create_dir_all(&package)?;
    fs::write(package.join("SKILL.md"), "---\nname: large\ndescription: Has a large file.\n---\n")?;
    let file = package.join("large.txt");
    say(format_args!("making a file of {} MiB", size >> 20));
    write(&file, size)?;
    let config = context.dir("paging-config")?.join("caproot.yaml");
    fs::write(&config, "limits:\n  max_file_bytes: 2GiB\n")?;
    let config = config.to_str().ok_or("the directory for temporary files is UTF-8")?;
    let daemon = Server::caproot_with(&[root], &["--config", config])?;
    let request = pb::ReadResourceRequest {
        root: published(&mut daemon.client().await?).await?.pop(),
        package: "skill://root-0/large".to_owned(),
        resource: "skill://root-0/large/large.txt".to_owned(),
        max_bytes: i64::try_from(PAGE_BYTES)?,
        ..pb::ReadResourceRequest::default()
    };
    let mut caller = daemon.caller().await?;
    let answers = context.dir("paging-bare")?;
    symlink(&file, answers.join("large"))?;
    let bare = Server::bare(&answers)?;
    let mut other = bare.caller().await?;
    // Warms both; has the daemon digest the file, once.
    paged(&mut caller, &request, size).await?;
    streamed(&mut other, size).await?;
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let ours = paged(&mut caller, &request, size).await?;
        pairs.push((ours, streamed(&mut other, size).await?));
    }
    let row = Row::ratio(
        format!("paging through a file of {} MiB, by pages of 1 MiB", size >> 20),
        "the file by a bare tonic stream of the same pieces",
        "MiB a second",
        &pairs,
        Target::AtLeast(0.5),
    );
    fs::remove_file(&file)?;
    Ok(vec![row].into())
}

fn write(file: &Path, size: usize) -> Outcome<()> {
    let mut file = BufWriter::with_capacity(PAGE_BYTES, File::create(file)?);
    let lines = LINE.repeat(PAGE_BYTES / LINE.len() + 1);
    for _ in 0..size / PAGE_BYTES {
        file.write_all(&lines.as_bytes()[..PAGE_BYTES])?;
    }
    Ok(file.flush()?)
}

/// MiB a second.
async fn paged(
    caller: &mut Caller,
    request: &pb::ReadResourceRequest,
    size: usize,
) -> Outcome<f64> {
    let mut request = request.clone();
    let (began, mut bytes) = (Instant::now(), 0);
    loop {
        let page = caller.ask(READ, request.encode_to_vec().into()).await?;
        bytes += page.len();
        request.cursor = Next::decode(page)?.next_cursor;
        if request.cursor.is_empty() {
            return rate(began, bytes, size);
        }
    }
}

async fn streamed(caller: &mut Caller, size: usize) -> Outcome<f64> {
    let (began, mut bytes) = (Instant::now(), 0);
    let mut pages = caller.stream(LARGE, Bytes::new()).await?;
    while let Some(page) = owed(LARGE, async { Ok(pages.message().await?) }).await? {
        bytes += page.len();
    }
    rate(began, bytes, size)
}

fn rate(began: Instant, bytes: usize, size: usize) -> Outcome<f64> {
    if bytes < size {
        return Err("the whole file came".into());
    }
    Ok(float(size >> 20) / began.elapsed().as_secs_f64())
}
