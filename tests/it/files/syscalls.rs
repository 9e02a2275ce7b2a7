//! Checks the system calls of the real binary during a session with strace: below a root the daemon
//! only reads, and it opens no rejected path. Both methods to open files are tested.

use std::fs;
use std::path::Path;
use std::process::Command;

use caproot_core::proto::caproot::v1::{ListResourcesRequest, ReadResourceRequest};

use crate::harness::fixture::Fixture;
use crate::harness::process::Process;
use crate::harness::replica::Replica;
use crate::harness::strace;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};
use crate::harness::{Daemon, files_request, read_request, selected};

/// Part of every path that is requested and must be rejected.
const REJECTED: &str = "never-to-be-opened";
/// System calls that are allowed below a root. Flags of open calls are checked in addition.
const READING: [&str; 17] = [
    "close",
    "fcntl",
    "fstat",
    "fstatfs",
    "getdents64",
    "inotify_add_watch",
    "lseek",
    "newfstatat",
    "openat",
    "openat2",
    "pread64",
    "preadv2",
    "read",
    "readlink",
    "readlinkat",
    "statfs",
    "statx",
];
/// Flags that an open call for reading does not have.
const WRITING: [&str; 6] = [
    "O_WRONLY",
    "O_RDWR",
    "O_CREAT",
    "O_TRUNC",
    "O_APPEND",
    "O_TMPFILE",
];
/// Calls whose data may contain paths. The data goes over the wire and is no path argument.
const TALKING: [&str; 10] = [
    "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg", "pread64",
    "preadv2",
];

/// Parses a line of strace's log into the name of a system call and its arguments. Returns `None`
/// for other lines.
fn parse_call(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(' ')?;
    let rest = rest.trim_start();
    let (name, about) = match rest.strip_prefix("<... ") {
        Some(resumed) => resumed.split_once(" resumed>")?,
        None => rest.split_once('(')?,
    };
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let about = match about.find('"').filter(|_| TALKING.contains(&name)) {
        Some(text) => &about[..text],
        None => about,
    };
    is_name.then_some((name, about))
}

/// Returns the name of a call that does more than read below a directory.
fn forbidden_call<'a>(name: &'a str, about: &str, dir: &str) -> Option<&'a str> {
    if !about.contains(dir) {
        return None;
    }
    let opens = name.starts_with("open") && WRITING.iter().any(|flag| about.contains(flag));
    (opens || !READING.contains(&name)).then_some(name)
}

#[test]
fn a_call_that_writes_is_detected() {
    let check = |line: &str| {
        let (name, about) = parse_call(line).expect("a call");
        forbidden_call(name, about, "/top/root").map(str::to_owned)
    };
    for line in [
        r#"7 openat(3</top/root>, "x", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 4</top/root/x>"#,
        r#"7 openat2(3</top/root>, "x", {flags=O_RDWR, resolve=RESOLVE_BENEATH}, 24) = 4"#,
        r#"7 unlink("/top/root/x") = 0"#,
        r#"7 renameat2(3</top/root>, "x", 3</top/root>, "y", 0) = -1 ENOENT (No such file)"#,
        "7 ftruncate(4</top/root/x>, 0 <unfinished ...>",
        r#"7 write(4</top/root/x>, "text", 4) = 4"#,
        "7 fchmod(4</top/root/x>, 0600) = 0",
    ] {
        assert!(check(line).is_some(), "{line}");
    }
    for line in [
        r#"7 openat(3</top/root>, "x", O_RDONLY|O_NONBLOCK|O_CLOEXEC) = 4</top/root/x>"#,
        "7 <... openat resumed>) = 4</top/root/x>",
        r#"7 write(9<socket:[1]>, "of /top/root", 12) = 12"#,
        r#"7 unlink("/run/socket") = 0"#,
    ] {
        assert_eq!(check(line), None, "{line}");
    }
    assert_eq!(parse_call("7 +++ exited with 0 +++"), None);
}

/// Handles and paths that must be rejected before any open call.
fn rejected_handles(top: &Path) -> Vec<String> {
    let long = "x".repeat(5_000);
    vec![
        format!("../../{REJECTED}"),
        format!("/{REJECTED}"),
        format!("skill://r/../{REJECTED}"),
        format!("skill://r/a/../../{REJECTED}"),
        format!("skill://r/%2E%2E/{REJECTED}"),
        format!("skill://r//{REJECTED}"),
        format!("skill://r/{REJECTED}%00"),
        format!("skill://r/{REJECTED}\0"),
        format!("skill://r/{REJECTED}/{long}"),
        format!("skill://other/{REJECTED}"),
        format!("file://{}/{REJECTED}", top.display()),
        // Well-formed handles of packages that are not in the list.
        format!("skill://r/{REJECTED}"),
        format!("skill://r/write-changelog/../{REJECTED}"),
    ]
}

/// Calls every method with valid and invalid arguments.
async fn session(daemon: &Daemon, fixture: &Fixture) {
    let root = selected("r", fixture.path("root"));
    let roots = [root.clone()];
    daemon.executor().await;
    daemon.published_roots().await;
    let mut replica = Replica::synced(daemon, watch_request(roots.to_vec())).await;
    let list = fresh_list(daemon, &roots).await;
    assert_eq!(list.skills.len(), 3, "the demo");
    daemon.resolve(&roots).await;
    for skill in &list.skills {
        let request = ListResourcesRequest {
            include_digests: true,
            ..files_request(&root, &skill.package)
        };
        let files = daemon.list_resources(request).await.expect("files");
        for file in files.resources {
            let read = read_request(&root, &skill.package, &file.resource);
            let small = ReadResourceRequest {
                max_bytes: 64,
                ..read
            };
            daemon
                .read_all(small)
                .await
                .expect("a listed file can be read");
        }
    }
    for text in rejected_handles(fixture.top()) {
        daemon
            .read(read_request(&root, &text, ""))
            .await
            .expect_err("no package");
        let resource = daemon
            .read(read_request(&root, "skill://r/write-changelog", &text))
            .await;
        resource.expect_err("no resource");
    }
    let outside = selected("o", fixture.top().join(REJECTED));
    assert_eq!(fresh_list(daemon, &[outside]).await.skills.len(), 0);
    fixture.write("root/new/SKILL.md", skill_text("new", "Comes."));
    replica
        .wait_while(|replica| !replica.skills.contains_key("skill://r/new"))
        .await;
    fs::remove_dir_all(fixture.path("root/new")).expect("remove");
    replica
        .wait_while(|replica| replica.skills.contains_key("skill://r/new"))
        .await;
    replica.catch_up(daemon).await;
}

#[tokio::test]
async fn the_daemon_only_reads_below_a_root() {
    let fixture = Fixture::new("dir logs");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(demo)
        .arg(fixture.path("root"))
        .status();
    assert!(copied.expect("cp").success());
    fs::create_dir(fixture.path(REJECTED)).expect("a directory");
    for inject in [None, Some("inject=openat2:error=ENOSYS")] {
        let log = fixture.path("logs/strace");
        let mut options = vec!["-y", "-s", "256", "-e", "trace=%file,%desc"];
        options.extend(inject.iter().flat_map(|inject| ["-e", *inject]));
        let Some(mut command) = strace::trace_daemon(&log, &options) else {
            return;
        };
        command
            .arg("--root")
            .arg(format!("r={}", fixture.path("root").display()));
        let serving = Process::start(&mut command);
        let daemon = serving.connect().await;
        session(&daemon, &fixture).await;
        drop(daemon);
        serving.stop().await;
        assert_only_reads(&fs::read_to_string(&log).expect("strace's log"), &fixture);
    }
}

/// Name outside the allowed directory, which must never be an argument of a system call.
const OUTSIDE: &str = "never-looked-up";

/// Returns the path arguments of a call: its first text, and the paths of its descriptors.
fn path_arguments(about: &str) -> impl Iterator<Item = &str> {
    let text = about.split('"').nth(1);
    let descriptors = about.split('<').skip(1).filter_map(|d| d.split('>').next());
    text.into_iter().chain(descriptors)
}

#[tokio::test]
async fn no_name_outside_is_looked_up_for_a_link() {
    let detour = format!("outside/{OUTSIDE}/../../root/s");
    let fixture = Fixture::new(&format!(
        "dir logs\nskill root/a\nskill root/s\nskill outside/{OUTSIDE}\n\
         link root/a/x.md -> ../../{detour}/SKILL.md\nlink root/a/hop.md -> x.md\n\
         link root/a/y.md -> $TMP/{detour}/SKILL.md\nlink root/a/dir -> ../../outside/{OUTSIDE}\n\
         link root/d -> ../{detour}\nlink root/m/SKILL.md -> ../../outside/{OUTSIDE}/SKILL.md\n\
         link root/a/up -> ../.."
    ));
    let root = selected("r", fixture.path("root"));
    let by_link = selected("d", fixture.path("root/d"));
    for inject in [None, Some("inject=openat2:error=ENOSYS")] {
        let log = fixture.path("logs/strace");
        let mut options = vec!["-y", "-s", "4096", "-e", "trace=%file,%desc"];
        options.extend(inject.iter().flat_map(|inject| ["-e", *inject]));
        let Some(mut command) = strace::trace_daemon(&log, &options) else {
            return;
        };
        command
            .arg("--root")
            .arg(format!("r={}", fixture.path("root").display()));
        let serving = Process::start(&mut command);
        let daemon = serving.connect().await;
        let list = fresh_list(&daemon, &[root.clone(), by_link.clone()]).await;
        assert_eq!(list.skills.len(), 2, "a and s");
        daemon
            .list_resources(files_request(&root, "skill://r/a"))
            .await
            .expect("files");
        let above = format!("up/outside/{OUTSIDE}/SKILL.md");
        for file in ["x.md", "hop.md", "y.md", "dir/SKILL.md", &above] {
            let resource = format!("skill://r/a/{file}");
            let answer = daemon
                .read(read_request(&root, "skill://r/a", &resource))
                .await;
            answer.expect_err(file);
        }
        drop(daemon);
        serving.stop().await;

        let text = fs::read_to_string(&log).expect("strace's log");
        assert!(text.contains(OUTSIDE), "the targets of the links are read");
        // The text of a resumed readlinkat is the target of the link.
        let calls = text.lines().filter(|line| !line.contains("<... readlink"));
        let calls: Vec<_> = calls.filter_map(parse_call).collect();
        // The kernel ends such a call at the link `up`, before the names behind it.
        let ends_at_link = |about: &str, path: &str| {
            path.contains("a/up/outside/") && about.contains("RESOLVE_NO_SYMLINKS")
        };
        let looked_up = calls.iter().find(|(_, about)| {
            path_arguments(about).any(|path| path.contains(OUTSIDE) && !ends_at_link(about, path))
        });
        assert_eq!(looked_up, None, "{inject:?}");
        // The names before it are not looked up either.
        let outside = fixture.path("outside").display().to_string();
        let looked_up = calls
            .iter()
            .find(|(_, about)| path_arguments(about).any(|path| path.starts_with(&outside)));
        assert_eq!(looked_up, None, "{inject:?}");
    }
}

/// Asserts that no call in the log does more than read below the root or opens a rejected path.
fn assert_only_reads(log: &str, fixture: &Fixture) {
    let root = fixture.path("root").display().to_string();
    // The first line is the execve call of the daemon, whose arguments name the root.
    let lines: Vec<_> = log
        .lines()
        .filter(|line| !line.contains(" execve("))
        .collect();
    assert_eq!(
        lines.len() + 1,
        log.lines().count(),
        "the daemon executes no other program"
    );
    let calls: Vec<_> = lines
        .iter()
        .filter_map(|line| Some((*line, parse_call(line)?)))
        .collect();
    let mut forbidden = calls
        .iter()
        .filter(|(_, (name, about))| forbidden_call(name, about, &root).is_some());
    assert_eq!(forbidden.next(), None, "more than reading below a root");
    let is_rejected = |about: &str| about.contains(REJECTED) || about.contains("/etc/passwd");
    // A root outside may be resolved with readlinkat to report where links lead, but is never
    // opened.
    let mut opened = calls
        .iter()
        .filter(|(_, (name, about))| name.contains("open") && is_rejected(about));
    assert_eq!(opened.next(), None, "rejected paths are not opened");
    let mut not_resolved = calls.iter().filter(|(_, (name, about))| {
        about.contains(REJECTED) && (*name != "readlinkat" || about.contains("../"))
    });
    assert_eq!(
        not_resolved.next(),
        None,
        "rejected paths are only resolved"
    );
    // Asserts that the log contains the expected calls.
    for (seen, name) in [
        ("SKILL.md", "open"),
        ("patterns.md", "pread64"),
        ("write-changelog>", "getdents64"),
        ("/proc/self/fd/", "inotify_add_watch"),
    ] {
        let is_it =
            |(_, (n, about)): &&(&str, (&str, &str))| n.starts_with(name) && about.contains(seen);
        assert!(
            calls.iter().any(|call| is_it(&call)),
            "{name} of {seen} is in the log"
        );
    }
}
