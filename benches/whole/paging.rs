//! Reads a large file page by page, each page by the cursor of the page before, compared with a
//! bare tonic stream of the same file.

use crate::bare::LARGE;
use crate::client::{READ, RawClient, published_roots, with_timeout};
use crate::context::{Context, Outcome, print_progress};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::float;
use bytes::Bytes;
use caproot_core::proto::caproot::v1 as pb;
use prost::Message as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

/// Size of a page in bytes: the maximum of a request.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
const LINE: &str = "Read the file first, change one thing at a time, and run all checks.\n";

/// Part of a response that the client decodes. The content is not decoded, as on the other side.
#[derive(Clone, PartialEq, prost::Message)]
struct CursorOnly {
    #[prost(string, tag = "6")]
    next_cursor: String,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let size = context.count(1 << 30, 128 << 20);
    let root = context.dir("paging")?;
    let package = root.join("large");
    fs::create_dir_all(&package)?;
    fs::write(
        package.join("SKILL.md"),
        "---\nname: large\ndescription: Has a large file.\n---\n",
    )?;
    let file = package.join("large.txt");
    print_progress(format_args!("making a file of {} MiB", size >> 20));
    write_file(&file, size)?;
    let config = context.dir("paging-config")?.join("caproot.yaml");
    fs::write(&config, "limits:\n  max_file_bytes: 2GiB\n")?;
    let config = config
        .to_str()
        .ok_or("the path of the temporary directory is not UTF-8")?;
    let daemon = Server::start_caproot_with(&[root], &["--config", config])?;
    let request = pb::ReadResourceRequest {
        root: published_roots(&mut daemon.client().await?).await?.pop(),
        package: "skill://root-0/large".to_owned(),
        resource: "skill://root-0/large/large.txt".to_owned(),
        max_bytes: i64::try_from(PAGE_BYTES)?,
        ..pb::ReadResourceRequest::default()
    };
    let mut caller = daemon.raw_client().await?;
    let answers = context.dir("paging-bare")?;
    symlink(&file, answers.join("large"))?;
    let bare = Server::start_bare(&answers)?;
    let mut other = bare.raw_client().await?;
    // Warms both servers. The daemon computes the digest of the file once.
    page_rate(&mut caller, &request, size).await?;
    stream_rate(&mut other, size).await?;
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let ours = page_rate(&mut caller, &request, size).await?;
        pairs.push((ours, stream_rate(&mut other, size).await?));
    }
    let row = Row::ratio(
        format!(
            "paging through a file of {} MiB, by pages of 1 MiB",
            size >> 20
        ),
        "the file by a bare tonic stream of the same pieces",
        "MiB a second",
        &pairs,
        Target::AtLeast(0.5),
    );
    fs::remove_file(&file)?;
    Ok(vec![row].into())
}

fn write_file(file: &Path, size: usize) -> Outcome<()> {
    let mut file = BufWriter::with_capacity(PAGE_BYTES, File::create(file)?);
    let lines = LINE.repeat(PAGE_BYTES / LINE.len() + 1);
    for _ in 0..size / PAGE_BYTES {
        file.write_all(&lines.as_bytes()[..PAGE_BYTES])?;
    }
    Ok(file.flush()?)
}

/// MiB per second.
async fn page_rate(
    caller: &mut RawClient,
    request: &pb::ReadResourceRequest,
    size: usize,
) -> Outcome<f64> {
    let mut request = request.clone();
    let (began, mut bytes) = (Instant::now(), 0);
    loop {
        let page = caller.call(READ, request.encode_to_vec().into()).await?;
        bytes += page.len();
        request.cursor = CursorOnly::decode(page)?.next_cursor;
        if request.cursor.is_empty() {
            return rate(began, bytes, size);
        }
    }
}

async fn stream_rate(caller: &mut RawClient, size: usize) -> Outcome<f64> {
    let (began, mut bytes) = (Instant::now(), 0);
    let mut pages = caller.stream(LARGE, Bytes::new()).await?;
    while let Some(page) = with_timeout(LARGE, async { Ok(pages.message().await?) }).await? {
        bytes += page.len();
    }
    rate(began, bytes, size)
}

fn rate(began: Instant, bytes: usize, size: usize) -> Outcome<f64> {
    if bytes < size {
        return Err("the file is incomplete".into());
    }
    Ok(float(size >> 20) / began.elapsed().as_secs_f64())
}
