//! Memory of a command that reads a large lock.

use std::fmt::Write as _;

use caproot_core::lock::{ApprovedFiles, ApprovedSkill, SkillDescription};
use caproot_core::wire::{ContentDigest, FileChecksum, RelPath};

use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, program, run_command};

/// Number of entries of the large lock.
const ENTRIES: usize = 40_000;
/// Private memory of the command with an empty lock, in KiB.
const OWN_KIB: u64 = 12 << 10;

/// Returns the shortest text of a lock with so many entries: most entries for each byte.
fn shortest_lock(entries: usize) -> String {
    let path = RelPath::new(b"SKILL.md").expect("a path");
    let checksum = FileChecksum {
        digest: ContentDigest([0; 32]),
        bytes: 0,
        executable: true,
    };
    let files = ApprovedFiles::new(vec![(path, checksum)]).expect("files");
    let digest = ApprovedSkill::new("a", SkillDescription::default(), files).content_digest;
    let file = checksum.digest;

    let mut text = "{\"version\":1,\"skills\":[".to_owned();
    for entry in 0..entries {
        let comma = if entry > 0 { "," } else { "" };
        // A write to a `String` does not fail.
        let _ = write!(
            text,
            "{comma}{{\"name\":\"{entry:x}\",\"description\":\"\",\"contentDigest\":\"{digest}\",\
             \"files\":{{\"SKILL.md\":{{\"digest\":\"{file}\",\"bytes\":0,\"executable\":true}}}}}}"
        );
    }
    text + "]}"
}

#[tokio::test]
async fn a_lock_takes_at_most_four_times_its_size() {
    let fixture = Fixture::new("");
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let stacks = 4 * 1_024 * (threads + 2);
    for entries in [0, ENTRIES] {
        let text = shortest_lock(entries);
        fixture.write("caproot.lock", &text);
        let limit = OWN_KIB + stacks + 4 * text.len() as u64 / 1_024;
        // The directory does not exist, so that the command ends after the lock.
        let inner = caproot(["lock", "none", "--check", "caproot.lock"]);
        let mut command = program("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -d {limit} && exec \"$0\" \"$@\""))
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(fixture.top());
        run_command(command)
            .await
            .exited_with(78, "none is no directory");
    }
}
