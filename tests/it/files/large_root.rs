//! Root with many files that are not skills.

use std::fs;

use caproot_core::proto::caproot::v1::{DiagnosticCode, RootState};

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve};
use crate::harness::process_usage::{most_resident, resident};
use crate::harness::replica::Replica;
use crate::harness::selected;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};

const DIRECTORIES: usize = 100;
const FILES: usize = 1_000;

/// Ten skills, a hundred directories with a thousand files each, and one skill in the last
/// directory.
fn tree() -> Fixture {
    let fixture = Fixture::new("repeat 10 skill r/s{}\nskill r/data/d99/deep");
    for dir in 0..DIRECTORIES {
        let dir = fixture.path(&format!("r/data/d{dir:02}"));
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(dir.join("f000"), "no skill").expect("write");
        for file in 1..FILES {
            // A hard link is cheaper to create than a file and costs the same to scan.
            fs::hard_link(dir.join("f000"), dir.join(format!("f{file:03}"))).expect("link");
        }
    }
    fixture
}

#[tokio::test]
async fn a_scan_of_a_hundred_thousand_other_files_uses_little_memory() {
    let fixture = tree();
    fixture.write("default.yaml", "limits: {}\n");
    fixture.write("limited.yaml", "limits:\n  max_entries: 50000\n");
    let root = selected("r", fixture.path("r"));
    for (config, skills) in [("default.yaml", 11), ("limited.yaml", 10)] {
        let mut command = serve(["--config"]);
        command
            .arg(fixture.path(config))
            .arg("--allow")
            .arg(fixture.top());
        let serving = Process::start(command);
        let daemon = serving.connect().await;
        let before = resident(serving.pid());
        let mut replica = Replica::open(&daemon, watch_request(vec![root.clone()])).await;
        while replica
            .roots
            .get("r")
            .is_none_or(|root| root.state() != RootState::Ready)
        {
            replica.next_batch().await;
        }
        let (now, most) = (resident(serving.pid()), most_resident(serving.pid()));
        println!("{config}: {before} KiB before the scan, {now} KiB after, {most} KiB at most");
        // The scan holds the names of one level of directories at a time, and no names of files.
        assert!(most - before < 48 << 10, "{} KiB more", most - before);
        assert_eq!(replica.skills.len(), skills, "{config}");
        let cut = skills < 11;
        assert_eq!(replica.roots["r"].truncated, cut);
        let limit = replica.diagnostics.get("r").into_iter().flatten();
        let limit = limit.filter(|d| d.code() == DiagnosticCode::LimitReached);
        let limit: Vec<_> = limit.map(|d| &d.message).collect();
        assert_eq!(limit.len(), usize::from(cut), "{limit:?}");
        assert!(
            limit.iter().all(|says| says.contains("max_entries")),
            "{limit:?}"
        );
        let entries = replica.roots["r"].counts.expect("counts").entries;
        let wanted = if cut {
            49_000..=50_000
        } else {
            100_000..=100_300
        };
        assert!(wanted.contains(&entries), "{entries}");
        // Changes of skills are seen as in a small root.
        fixture.write("r/s3/SKILL.md", skill_text("s3", config));
        replica
            .wait_while(|replica| replica.skills["skill://r/s3"].description != config)
            .await;
        let revision = fresh_list(&daemon, std::slice::from_ref(&root))
            .await
            .revision;
        fixture.write("r/data/d00/f000", "changed");
        assert_eq!(
            fresh_list(&daemon, std::slice::from_ref(&root))
                .await
                .revision,
            revision
        );
        replica.catch_up(&daemon).await;
        serving.stop().await;
    }
}
