//! Roots: states and reasons, spellings of paths, disclosure, and `GetExecutor`.

use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::{RootReason, RootState, SelectedCapabilityRoot};

use crate::harness::fixture::Fixture;
use crate::harness::listing::short_name;
use crate::harness::{Daemon, Setup, selected};

/// State and reason of a root. `ListSkills` and `ResolveRoots` must agree.
async fn state_or_reason(daemon: &Daemon, root: &SelectedCapabilityRoot) -> String {
    let listed = daemon.list(std::slice::from_ref(root)).await;
    let resolved = daemon.resolve(std::slice::from_ref(root)).await;
    let (listed, resolved) = (&listed.roots[0], &resolved.roots[0]);
    assert_eq!(
        (listed.state, listed.reason),
        (resolved.state, resolved.reason)
    );
    assert_eq!(listed.message, resolved.message);
    assert_eq!(listed.id, root.id);
    match listed.reason() {
        RootReason::Unspecified => {
            assert_eq!(listed.state(), RootState::Ready, "{listed:?}");
            "READY".into()
        }
        reason => {
            assert_eq!(listed.state(), RootState::Unavailable, "{listed:?}");
            short_name(reason.as_str_name(), "ROOT_REASON_").into()
        }
    }
}

/// Responses about paths outside are identical in every byte, whether the path exists or not.
#[tokio::test]
async fn existence_outside_is_never_disclosed() {
    let fixture = Fixture::new(
        "dir root\nskill out/there\nfile out/file\n| text\nfifo out/fifo\n\
         link root/to-there -> $TMP/out/there\nlink root/to-gone -> $TMP/out/gone\n\
         link out/loop -> loop\nlink out/back -> ../root",
    );
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let long = format!("out/{}", "x".repeat(300));
    let mut responses = Vec::new();
    for path in [
        &long,
        "out/there",
        "out/gone",
        "out/file",
        "out/fifo",
        "out/there/SKILL.md",
        "out/file/below",
        "out/gone/below",
        "out/loop",
        "root/to-there",
        "root/to-gone",
        "root/to-gone/below",
        "root/../out/there",
        "root/../out/gone",
        ".",
        "out",
    ] {
        let root = selected("same", fixture.top().join(path));
        let listed = daemon.list(std::slice::from_ref(&root)).await;
        assert_eq!(listed.roots[0].reason(), RootReason::NotAllowed, "{path}");
        let resolved = daemon.resolve(std::slice::from_ref(&root)).await;
        responses.push((
            path,
            listed.roots,
            listed.warnings,
            listed.diagnostics,
            resolved.roots,
        ));
    }
    for other in &responses[1..] {
        let (one, other) = (&responses[0], other);
        assert_eq!(
            (&one.1, &one.2, &one.3, &one.4),
            (&other.1, &other.2, &other.3, &other.4)
        );
    }
    assert_eq!(
        state_or_reason(&daemon, &selected("r", fixture.path("out/back"))).await,
        "READY"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn up_to_256_roots_are_accepted() {
    let fixture = Fixture::new("skill root/a");
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let roots: Vec<_> = (0..257)
        .map(|n| selected(&format!("r{n}"), fixture.path("root")))
        .collect();
    for count in [129, 256] {
        let answer = daemon.list(&roots[..count]).await;
        assert_eq!((answer.roots.len(), answer.skills.len()), (count, count));
        let order: Vec<_> = answer.roots.iter().map(|r| &r.id).collect();
        assert_eq!(
            order,
            roots[..count].iter().map(|r| &r.id).collect::<Vec<_>>()
        );
    }
    let answer = daemon.try_list(crate::harness::list_request(&roots)).await;
    assert_eq!(
        crate::harness::rpc_error(&answer.expect_err("257")).reason,
        "TOO_MANY_ROOTS"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn get_executor_describes_the_daemon() {
    let fixture = Fixture::new("skill root/a");
    let limits = Limits {
        max_depth: 7,
        max_file_bytes: 12_345,
        ..Limits::default()
    };
    let before = std::time::SystemTime::now();
    let setup = Setup {
        limits,
        ..Setup::allowing([fixture.path("root")])
    };
    let daemon = Daemon::start(setup).await;
    let executor = daemon.executor().await;
    assert_eq!(executor.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(executor.environment_ids, ["local"]);
    let started =
        std::time::SystemTime::try_from(executor.start_time.expect("set")).expect("a time");
    assert!(before <= started && started <= std::time::SystemTime::now());
    for feature in ["fresh", "file-uri", "published", "gzip"] {
        assert!(executor.features.iter().any(|f| f == feature), "{feature}");
    }
    let limits = executor.limits.expect("limits");
    assert_eq!(
        (limits.max_depth, limits.max_file_bytes),
        (7, 12_345),
        "the configured limits"
    );
    assert_eq!((limits.max_roots, limits.max_directories), (256, 50_000));
    assert_eq!((limits.max_entries, limits.max_skills), (500_000, 20_000));
    assert_eq!(
        (limits.max_read_bytes, limits.default_read_bytes),
        (1 << 20, 8_192)
    );
    assert_eq!(
        (limits.max_page_size, limits.max_page_bytes),
        (1_000, 1 << 20)
    );
    assert_eq!(
        (limits.max_diagnostics, limits.max_handle_bytes),
        (1_000, 2_048)
    );
    assert_eq!(
        (limits.max_frontmatter_bytes, limits.max_manifest_bytes),
        (64 << 10, 256 << 10)
    );

    let listed = daemon.list(&[selected("r", fixture.path("root"))]).await;
    assert_eq!(listed.epoch, executor.epoch, "one epoch per daemon");
    let later = daemon.executor().await;
    assert!(later.revision >= listed.revision && listed.revision >= executor.revision);
    assert_eq!(later.start_time, executor.start_time);
    daemon.stop().await;
}

/// A list without roots looks like a list without skills, so a warning tells them apart.
#[tokio::test]
async fn a_list_without_roots_says_how_to_select_roots() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let list = daemon.list(&[]).await;
    assert!(list.skills.is_empty() && list.roots.is_empty());
    let [warning] = &list.warnings[..] else {
        panic!("one warning: {:?}", list.warnings)
    };
    assert!(
        warning.contains("no root is selected") && warning.contains("ListRoots"),
        "{warning}"
    );
    daemon.stop().await;
}
