//! Filesystems that are mounted in the directory of a pull. Their files survive.

use std::fs;

use super::{TREE, publish_tree, pull};
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::watch_harness::skill_text;

#[tokio::test]
async fn files_of_a_mounted_filesystem_are_never_deleted() {
    run_in_namespaces!("--mount");
    let (mut fixture, daemon) = publish_tree(TREE).await;
    pull(&fixture, &daemon, "pdf").await.succeeded();
    let mounted = Mount::new("tmpfs", &fixture.path("out/dir/references"), "").expect("tmpfs");
    fixture.write("out/dir/references/mine.txt", "Mine.");
    fixture.write("r/pdf/SKILL.md", skill_text("pdf", "Changed."));
    let output = pull(&fixture, &daemon, "pdf --force").await;
    let output = output.exited_with(
        78,
        "/out/dir/references is a mount point, and the pull would",
    );
    assert!(
        output
            .stderr
            .contains("; unmount it, or pull into another directory")
    );
    drop(mounted);
    pull(&fixture, &daemon, "pdf").await.succeeded();

    // The mounted files are those of the last pull, so the comparison finds no difference.
    let files = "file copy/fill.py\n| #!\nmode 0755 copy/fill.py";
    fixture.add(files);
    let mounted = Mount::bind(&fixture.path("copy"), &fixture.path("out/dir/scripts"));
    fixture.write("r/pdf/SKILL.md", skill_text("pdf", "Changed again."));
    pull(&fixture, &daemon, "pdf")
        .await
        .exited_with(78, "/out/dir/scripts is a mount point");
    assert!(fixture.path("copy/fill.py").exists());
    drop(mounted);

    // Files that a killed pull left behind.
    fixture.write("out/..caproot-pull-0/mounted/file", "");
    let left = fixture.path("out/..caproot-pull-0");
    let mounted = Mount::bind(&fixture.path("copy"), &left.join("mounted"));
    pull(&fixture, &daemon, "pdf").await.succeeded();
    assert!(fixture.path("copy/fill.py").exists() && left.exists());
    drop(mounted);
    pull(&fixture, &daemon, "pdf").await.succeeded();
    assert!(!left.exists());
    assert!(
        fs::read_to_string(fixture.path("out/dir/SKILL.md"))
            .expect("a file")
            .contains("again")
    );
    daemon.stop().await;
}
