//! An author who changes approved files in every way while callers read them: no byte that is not
//! approved is sent.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use caproot_core::proto::caproot::v1::ReadResourceRequest;
use tonic::Code;

use super::{LockedDaemon, TREE, plugins};
use crate::harness::fixture::Fixture;
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::watch_harness::BusyThread;
use crate::harness::{bytes_of, published, read_request, short_or_long};

/// Number of bytes of the file, which is larger than a block.
const LEN: usize = 100_000;

/// Approved content: each byte differs from the byte of the other content at its place.
fn good() -> Vec<u8> {
    (0..LEN)
        .map(|at| b'a' + u8::try_from(at % 13).expect("small"))
        .collect()
}

fn evil() -> Vec<u8> {
    good().iter().map(u8::to_ascii_uppercase).collect()
}

/// Directory in which the author works.
struct Author {
    file: PathBuf,
    spare: PathBuf,
}

impl Author {
    /// Changes the file in one of several ways, and restores the approved content by each other turn.
    fn change(&self, turn: u64) {
        let content = if turn.is_multiple_of(2) {
            evil()
        } else {
            good()
        };
        // The file may be missing or a link for a moment: the next turn repairs it.
        match turn / 2 % 5 {
            0 => drop(fs::write(&self.file, content)),
            1 => {
                drop(fs::write(&self.spare, content));
                drop(fs::rename(&self.spare, &self.file));
            }
            2 => {
                let file = OpenOptions::new().write(true).open(&self.file);
                if let Ok(mut file) = file {
                    drop(file.set_len(u64::try_from(LEN / 2).expect("a length")));
                    drop(file.write_all(&content));
                }
            }
            3 => {
                drop(fs::write(&self.spare, content));
                drop(fs::remove_file(&self.file));
                drop(symlink(&self.spare, &self.file));
            }
            _ => {
                drop(fs::remove_file(&self.file));
                drop(fs::write(&self.file, &content));
                let mut mapping = SharedMapping::new(&self.file);
                for _ in 0..20 {
                    mapping.write(&evil());
                    mapping.write(&content);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_of_a_skill_is_sent_that_is_not_approved() {
    read_while_an_author_writes(TREE, "r/pdf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_of_a_plugin_is_sent_that_is_not_approved() {
    read_while_an_author_writes(plugins::TREE, "r/kit").await;
}

/// Reads the file `data` in the directory of a package.
async fn read_while_an_author_writes(tree: &str, package: &str) {
    let fixture = Fixture::new(tree);
    let file = format!("{package}/data");
    let package = format!("skill://{package}");
    fixture.write(&file, good());
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    let author = Author {
        file: locked.fixture.path(&file),
        spare: locked.fixture.path("spare"),
    };
    let busy = BusyThread::new(move |turn| author.change(turn));

    let until = Instant::now() + Duration::from_secs(short_or_long(5, 60));
    let root = published("r");
    let approved = good();
    let mut sent = 0;
    let mut refused = 0;
    let mut offset = 0;
    let mut cursor = String::new();
    while Instant::now() < until {
        let request = ReadResourceRequest {
            max_bytes: 8_192,
            cursor: cursor.clone(),
            ..read_request(&root, &package, &format!("{package}/data"))
        };
        match locked.daemon.read(request).await {
            Ok(page) => {
                let bytes = bytes_of(&page);
                assert!(approved[offset..].starts_with(&bytes), "at {offset}");
                sent += 1;
                offset += bytes.len();
                cursor = page.next_cursor;
            }
            Err(status) => {
                assert!(
                    matches!(
                        status.code(),
                        Code::FailedPrecondition | Code::NotFound | Code::PermissionDenied
                    ),
                    "{status:?}"
                );
                refused += 1;
                cursor.clear();
            }
        }
        if cursor.is_empty() {
            offset = 0;
        }
    }
    drop(busy);
    assert!(refused > 0, "the author changed nothing that was read");

    // Afterwards, the approved content is readable again.
    let path = locked.fixture.path(&file);
    drop(fs::remove_file(&path));
    fs::write(&path, good()).expect("the file");
    let read = read_request(&root, &package, &format!("{package}/data"));
    let bytes = loop {
        if let Ok(bytes) = locked.daemon.read_all(read.clone()).await {
            break bytes;
        }
        tokio::task::yield_now().await;
    };
    assert!(bytes == approved);
    println!("{sent} pages sent, {refused} reads refused");
    locked.daemon.stop().await;
}
