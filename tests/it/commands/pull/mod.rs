//! `caproot pull` and `caproot pull --check` against real daemons: the directory equals the package, files
//! of others survive, and a killed pull leaves one whole state.

mod hostile;
mod mirror;
mod mounts;
mod property;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use caproot_client::pull::CHECKSUM_FILE;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::json;

use crate::config::metrics::{scrape, series_value};
use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{
    ConfiguredDaemon, Output, Process, caproot, client_command, run_command,
};
use crate::harness::strace::{can_trace, kill_at_call};
use crate::harness::watch_harness::skill_text;

const TREE: &str = "skill r/pdf\nfile r/pdf/scripts/fill.py\n| #!\nmode 0755 r/pdf/scripts/fill.py\n\
                    file r/pdf/references/the steps.md\n| One.\nskill r/other";

/// Starts a daemon that publishes `r` of a tree, with the directory `out` next to `r`.
async fn publish_tree(tree: &str) -> (Fixture, Daemon) {
    Daemon::publishing("r", &format!("{tree}\ndir out")).await
}

/// Content of a directory: bytes and executable bit of each file, by path.
type FileTree = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

/// Reads a directory without the checksum file. A link is an error.
fn read_tree(top: &Path) -> FileTree {
    let mut files = FileTree::new();
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("an entry");
            if meta.is_dir() {
                dirs.push(path);
                continue;
            }
            assert!(meta.is_file(), "{} is no file", path.display());
            let below = path
                .strip_prefix(top)
                .expect("below")
                .as_os_str()
                .as_bytes()
                .to_vec();
            if below != CHECKSUM_FILE.as_bytes() {
                let is_executable = meta.mode() & 0o111 != 0;
                files.insert(below, (fs::read(&path).expect("a file"), is_executable));
            }
        }
    }
    files
}

/// Runs `caproot pull` with these arguments in the directory of a fixture.
async fn run_pull(daemon: &Daemon, fixture: &Fixture, arguments: &str) -> Output {
    let mut command = client_command(daemon, arguments);
    command.current_dir(fixture.top());
    run_command(command).await
}

#[tokio::test]
async fn a_pull_of_all_skills_writes_each_to_its_directory() {
    let tree = "skill r/pdf\nfile r/pdf/notes.md\n| Notes.\nskill r/group/mail\nskill r/a/twice\n\
                skill r/b/twice\nfile r/.git/config\n| x\nfile r/.hidden/SKILL.md\n| ---\n\
                | name: hidden\n| description: H.\n| ---\n\
                file r/kit/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}\nskill r/kit/skills/deploy";
    let (fixture, daemon) = publish_tree(tree).await;

    let first = run_pull(&daemon, &fixture, "pull --all --into out/all").await;
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    let lines: Vec<_> = first.text().lines().collect();
    assert_eq!(
        lines,
        [
            "+ deploy/SKILL.md",
            "+ hidden/SKILL.md",
            "+ mail/SKILL.md",
            "+ pdf/SKILL.md",
            "+ pdf/notes.md",
            "+ twice/SKILL.md",
            "pulled 5 of 6 skills",
        ]
    );
    let skipped = "skill://r/b/twice is skipped: skill://r/a/twice has the directory twice";
    assert!(first.stderr.contains(skipped), "{}", first.stderr);
    let all = fixture.path("out/all");
    assert_eq!(names_in(&all), ["deploy", "hidden", "mail", "pdf", "twice"]);
    assert_eq!(
        read_tree(&all.join("pdf")),
        read_tree(&fixture.path("r/pdf"))
    );

    // A second pull reads nothing. A changed file of one skill does not stop the others.
    let json = run_pull(&daemon, &fixture, "pull --all --into out/all --output json").await;
    let packages = json.json()["packages"]
        .as_array()
        .expect("packages")
        .clone();
    let read = packages
        .iter()
        .filter_map(|package| package["readFiles"].as_u64());
    assert_eq!(read.collect::<Vec<_>>(), [0; 5]);
    fs::write(all.join("pdf/own.md"), "Own.").expect("a file");
    fixture.write("r/group/mail/more.md", "More.");
    let conflict = run_pull(&daemon, &fixture, "pull --all --into out/all").await;
    assert_eq!(conflict.code, Some(1));
    assert!(conflict.text().contains("+ mail/more.md"));
    assert!(
        conflict.stderr.contains(": extra    own.md"),
        "{}",
        conflict.stderr
    );

    for arguments in ["pull --into out/x", "pull pdf --all --into out/x"] {
        assert_eq!(
            run_pull(&daemon, &fixture, arguments).await.code,
            Some(2),
            "{arguments}"
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_plugin_is_written_whole_or_not_at_all() {
    let manifest = "/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}\n";
    let secret = r#"{"db": {"command": "node", "env": {"PASSWORD": "hunter2"}}}"#;
    let tree = format!(
        "file r/whole{manifest}file r/whole/.codex-plugin/plugin.json\n| {{\"name\": \"kit\"}}\n\
         skill r/whole/skills/mail\nfile r/whole/bin/run\n| x\nmode 0755 r/whole/bin/run\n\
         link r/whole/latest -> bin/run\nfile r/whole/.mcp.json\n\
         | {{\"db\": {{\"command\": \"node\", \"env\": {{\"PASSWORD\": \"${{DB}}\"}}}}}}\n\
         file r/secret{manifest}file r/secret/.mcp.json\n| {secret}\n\
         file r/linked{manifest}dir r/shared\nfile r/shared/x.md\n| X.\nlink r/linked/shared -> ../shared\n\
         file r/keys{manifest}file r/keys/conf/.env\n| A=1\n"
    );
    let (fixture, daemon) = publish_tree(&tree).await;

    let whole = run_pull(&daemon, &fixture, "pull skill://r/whole --into out/whole").await;
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let written: Vec<_> = whole
        .text()
        .lines()
        .filter(|line| line.starts_with('+'))
        .collect();
    assert_eq!(
        written,
        [
            "+ .claude-plugin/plugin.json",
            "+ .codex-plugin/plugin.json",
            "+ .mcp.json",
            "+ bin/run",
            "+ latest",
            "+ skills/mail/SKILL.md"
        ]
    );
    let check = run_pull(&daemon, &fixture, "pull --check --into out/whole").await;
    assert_eq!(check.code, Some(0), "{}", check.stderr);

    for (plugin, parts) in [
        (
            "secret",
            [
                "so nothing is written: .mcp.json\n",
                "`env.PASSWORD` may be secret",
            ],
        ),
        ("linked", ["so nothing is written: shared\n", "hint: "]),
        ("keys", ["so nothing is written: conf/.env\n", "hint: "]),
    ] {
        let words = format!("pull skill://r/{plugin} --into out/{plugin}");
        let refused = run_pull(&daemon, &fixture, &words).await;
        assert_eq!(
            (refused.code, refused.text()),
            (Some(1), ""),
            "{}",
            refused.stderr
        );
        for part in parts {
            assert!(
                refused.stderr.contains(part),
                "{plugin}: {}",
                refused.stderr
            );
        }
        assert!(!fixture.path(&format!("out/{plugin}")).exists());
    }
    daemon.stop().await;
}

/// Returns the names in a directory.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Command that pulls a package into `out/dir` of the fixture.
fn pull_command(fixture: &Fixture, daemon: &Daemon, words: &str) -> Command {
    let mut command = client_command(daemon, &format!("pull {words} --into"));
    command.arg(fixture.path("out/dir"));
    command
}

async fn pull(fixture: &Fixture, daemon: &Daemon, words: &str) -> Output {
    run_command(pull_command(fixture, daemon, words)).await
}

/// Runs `caproot pull --check` on `out/dir`. Returns the exit code and the lines.
async fn verify(fixture: &Fixture) -> (Option<i32>, Vec<String>) {
    let mut command = caproot(["pull", "--check", "--into"]);
    command.arg(fixture.path("out/dir"));
    let output = run_command(command).await;
    (
        output.code,
        output.text().lines().map(str::to_owned).collect(),
    )
}

#[tokio::test]
async fn a_pull_writes_the_package_and_later_only_its_changes() {
    let (fixture, daemon) = publish_tree(TREE).await;
    let output = pull(&fixture, &daemon, "pdf").await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        output.text().lines().collect::<Vec<_>>(),
        [
            "+ SKILL.md",
            "+ references/the%20steps.md",
            "+ scripts/fill.py",
            "pulled: 3 files of at most 10000, 62 of at most 1073741824 bytes, 3 files read",
        ]
    );
    let (out, package) = (fixture.path("out/dir"), fixture.path("r/pdf"));
    assert_eq!(read_tree(&out), read_tree(&package));
    assert_eq!(names_in(&fixture.path("out")), ["dir"]);

    let before = fs::metadata(&out).expect("a directory").ino();
    let output = pull(&fixture, &daemon, "pdf --output json").await;
    let report = output.json();
    let expected = json!({"package": "skill://r/pdf", "directory": out, "files": 3, "bytes": 62,
        "limits": {"files": 10_000, "bytes": 1 << 30}, "written": [], "removed": [], "withheld": [],
        "readFiles": 0,
        "conflicts": []});
    assert_eq!((output.code, &report), (Some(0), &expected));
    assert_eq!(
        fs::metadata(&out).expect("a directory").ino(),
        before,
        "not replaced"
    );

    // A moved file is linked, a changed mode is a new file, and the mode of the directory stays.
    fs::set_permissions(&out, fs::Permissions::from_mode(0o750)).expect("chmod");
    fs::rename(package.join("references"), package.join("assets")).expect("rename");
    let script = package.join("scripts/fill.py");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).expect("chmod");
    let output = pull(&fixture, &daemon, "skill://r/pdf").await;
    assert_eq!(
        output.text().lines().collect::<Vec<_>>(),
        [
            "+ assets/the%20steps.md",
            "+ scripts/fill.py",
            "- references/the%20steps.md",
            "pulled: 3 files of at most 10000, 62 of at most 1073741824 bytes, 1 file read",
        ]
    );
    assert_eq!(read_tree(&out), read_tree(&package));
    assert_eq!(
        fs::metadata(&out).expect("a directory").mode() & 0o7777,
        0o750
    );
    let (code, lines) = verify(&fixture).await;
    assert_eq!(
        (code, lines),
        (
            Some(0),
            vec!["skill://r/pdf: 3 files, 62 bytes, 0 differences".to_owned(),]
        )
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_second_pull_reads_no_file() {
    let fixture = Fixture::new(&format!("{TREE}\ndir out\ndir run\nmode 0700 run"));
    let config = "roots: [{id: r, path: r}]\nmetrics: {listen: 'unix:run/m.sock'}\n";
    let daemon = ConfiguredDaemon::start(&fixture, config).await;
    let reads = || {
        let series = "caproot_calls_total{method=\"caproot.v1.CapabilityService/ReadResource\",\
                      code=\"OK\"}";
        series_value(&scrape(&fixture), series)
    };
    for _ in 0..3 {
        assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
        assert!((reads() - 3.0).abs() < 0.1, "each file is read once");
    }
    fs::remove_file(fixture.path("out/dir/SKILL.md")).expect("remove");
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    assert!((reads() - 4.0).abs() < 0.1, "only the missing file is read");
    assert_eq!(
        read_tree(&fixture.path("out/dir")),
        read_tree(&fixture.path("r/pdf"))
    );
    daemon.stop().await;
}

#[tokio::test]
async fn files_with_equal_content_are_read_once_and_stay_separate_files() {
    let (fixture, daemon) =
        publish_tree("skill r/pdf\nfile r/pdf/a\n| same\nfile r/pdf/b\n| same").await;
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    fixture.replace("r/pdf/SKILL.md", skill_text("pdf", "Changed."));
    assert_eq!(fresh(&daemon).await, 1);
    let output = pull(&fixture, &daemon, "pdf").await;
    assert!(
        output.text().ends_with(" bytes, 1 file read\n"),
        "{}",
        output.text()
    );
    let inode = |name: &str| fs::metadata(fixture.path(name)).expect("a file").ino();
    assert_ne!(inode("out/dir/a"), inode("out/dir/b"));
    assert_eq!(
        read_tree(&fixture.path("out/dir")),
        read_tree(&fixture.path("r/pdf"))
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_directory_that_another_pull_writes_is_left_alone() {
    let (fixture, daemon) = publish_tree(TREE).await;
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    let other_pull = fs::File::open(fixture.path("out/dir")).expect("a directory");
    flock(&other_pull, FlockOperation::LockExclusive).expect("a lock");
    pull(&fixture, &daemon, "pdf")
        .await
        .exited_with(6, "another pull is writing");
    assert_eq!(
        verify(&fixture).await.0,
        Some(0),
        "a comparison needs no lock"
    );
    drop(other_pull);
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    daemon.stop().await;
}

/// Changes of a pulled directory, with the line of the conflict.
const CONFLICTS: [(&str, &str); 9] = [
    ("echo x > dir/SKILL.md", "changed  SKILL.md"),
    ("sed -i s/pdf/PDF/ dir/SKILL.md", "changed  SKILL.md"),
    ("chmod -x dir/scripts/fill.py", "changed  scripts/fill.py"),
    ("echo x > dir/notes.txt", "extra    notes.txt"),
    ("mkdir dir/empty", "extra    empty"),
    ("mkfifo dir/scripts/pipe", "extra    scripts/pipe"),
    ("ln -sf ../../outside/f dir/SKILL.md", "changed  SKILL.md"),
    (
        "rm -r dir/scripts && ln -s ../../outside dir/scripts",
        "changed  scripts",
    ),
    ("ln -s ../../outside dir/more", "extra    more"),
];

#[tokio::test]
async fn files_of_others_are_replaced_only_by_force() {
    let (mut fixture, daemon) = publish_tree(TREE).await;
    fixture.add("file outside/f\n| mine\nfile outside/fill.py\n| mine");
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    for (script, line) in CONFLICTS {
        let shell = Command::new("sh")
            .current_dir(fixture.path("out"))
            .args(["-euc", script])
            .status();
        assert!(shell.expect("a shell").success(), "{script}");
        fixture.write("r/pdf/SKILL.md", skill_text("pdf", script));
        assert_eq!(crate::harness::in_time(fresh(&daemon)).await, 2, "{script}");
        let (code, lines) = verify(&fixture).await;
        assert!(
            code == Some(1) && lines.iter().any(|l| l == line),
            "{script}: {lines:?}"
        );

        let output = pull(&fixture, &daemon, "pdf").await.exited_with(1, "");
        assert_eq!(
            output.text().lines().collect::<Vec<_>>(),
            [line],
            "{script}"
        );
        assert!(
            output.stderr.contains("nothing is written: 1 file"),
            "{}",
            output.stderr
        );
        assert_eq!(
            verify(&fixture).await.1,
            lines,
            "{script}: nothing is written"
        );

        pull(&fixture, &daemon, "pdf --force").await.succeeded();
        assert_eq!(
            read_tree(&fixture.path("out/dir")),
            read_tree(&fixture.path("r/pdf"))
        );
        assert_eq!(verify(&fixture).await.0, Some(0), "{script}");
        // No link was followed.
        for file in ["outside/f", "outside/fill.py"] {
            assert_eq!(
                fs::read(fixture.path(file)).expect("a file"),
                b"mine\n",
                "{script}"
            );
        }
    }
    assert_eq!(names_in(&fixture.path("out")), ["dir"]);
    daemon.stop().await;
}

/// Waits until the daemon has seen each change. Returns the number of skills.
async fn fresh(daemon: &Daemon) -> usize {
    let root = crate::harness::located("r", "published:r");
    crate::harness::watch_harness::fresh_list(daemon, &[root])
        .await
        .skills
        .len()
}

#[tokio::test]
async fn verify_finds_missing_files() {
    let (fixture, daemon) = publish_tree(TREE).await;
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    fs::remove_dir_all(fixture.path("out/dir/scripts")).expect("remove");
    let (code, lines) = verify(&fixture).await;
    assert_eq!(code, Some(1));
    assert_eq!(
        lines,
        [
            "missing  scripts/fill.py",
            "skill://r/pdf: 3 files, 62 bytes, 1 difference",
        ]
    );
    pull(&fixture, &daemon, "pdf").await.succeeded();
    assert_eq!(verify(&fixture).await.0, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn unusable_directories_are_rejected_and_stay_as_they_are() {
    let (mut fixture, daemon) = publish_tree(TREE).await;
    fixture.add("file out/file\n| x\ndir out/full\nfile out/full/x\n| x\nfile outside/f\n| x");
    symlink("../outside", fixture.path("out/link")).expect("a link");
    let into = async |dir: &Path, flags: &str| {
        let mut command = client_command(&daemon, &format!("pull pdf {flags} --into"));
        command.arg(dir);
        run_command(command).await
    };
    for (dir, code, says) in [
        ("out/file", 78, "is a file or a link, not a directory"),
        ("out/link", 78, "is a file or a link, not a directory"),
        ("out/file/dir", 74, "File exists"),
        ("out/full", 1, "nothing is written"),
    ] {
        into(&fixture.path(dir), "").await.exited_with(code, says);
    }
    assert_eq!(names_in(&fixture.path("outside")), ["f"]);
    // The working directory and the home are never replaced.
    let mut command = client_command(&daemon, "pull pdf --force --into .");
    command.current_dir(fixture.path("out/full"));
    run_command(command).await.exited_with(78, "");
    let mut command = client_command(&daemon, "pull pdf --force --into");
    command
        .arg(fixture.path("out"))
        .env("HOME", fixture.path("out/full"));
    run_command(command).await.exited_with(78, "");
    assert_eq!(names_in(&fixture.path("out")), ["file", "full", "link"]);
    // Another package needs --force, too.
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    let output = pull(&fixture, &daemon, "other").await;
    assert!(
        output.code == Some(78) && output.stderr.contains("skill://r/pdf"),
        "{}",
        output.stderr
    );
    assert_eq!(pull(&fixture, &daemon, "other --force").await.code, Some(0));
    assert_eq!(
        read_tree(&fixture.path("out/dir")),
        read_tree(&fixture.path("r/other"))
    );
    // An unreadable checksum file.
    fixture.write(
        &format!("out/dir/{CHECKSUM_FILE}"),
        "{\"package\":\"x\",\"files\":{\"../x\":1}}",
    );
    assert_eq!(pull(&fixture, &daemon, "other").await.code, Some(78));
    assert_eq!(verify(&fixture).await.0, Some(78));
    assert_eq!(pull(&fixture, &daemon, "other --force").await.code, Some(0));
    assert_eq!(verify(&fixture).await.0, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn packages_over_a_limit_are_rejected() {
    let (fixture, daemon) = publish_tree(TREE).await;
    for (flag, says) in [
        ("--max-files 2", "more than 2 files"),
        ("--max-bytes 61", "more than 61 bytes"),
    ] {
        let output = pull(&fixture, &daemon, &format!("pdf {flag}")).await;
        assert!(
            output.code == Some(4) && output.stderr.contains(says),
            "{}",
            output.stderr
        );
    }
    assert!(names_in(&fixture.path("out")).is_empty());
    assert_eq!(
        pull(&fixture, &daemon, "pdf --max-files 3 --max-bytes 62")
            .await
            .code,
        Some(0)
    );
    daemon.stop().await;
}

/// The pull is killed at each of its system calls that change the disk. The directory then has the old
/// or the new package, and the next pull succeeds and removes what the killed pull left.
#[tokio::test]
async fn a_killed_pull_leaves_one_whole_package() {
    if !can_trace() {
        return;
    }
    let (fixture, daemon) = publish_tree(TREE).await;
    let (out, package) = (fixture.path("out/dir"), fixture.path("r/pdf"));
    assert_eq!(pull(&fixture, &daemon, "pdf").await.code, Some(0));
    let mut kills = 0;
    for (call, count) in [
        ("mkdirat", 3),
        ("linkat", 2),
        ("write", 3),
        ("fchmod", 2),
        ("syncfs", 1),
        ("renameat2", 1),
        ("fsync", 1),
        ("unlinkat", 4),
    ] {
        for when in 1..=count {
            let old = read_tree(&out);
            let text = format!("{call} {when}");
            fixture.write("r/pdf/SKILL.md", skill_text("pdf", &text));
            fixture.write("r/pdf/scripts/run.sh", &text);
            assert_eq!(fresh(&daemon).await, 2);
            let new = read_tree(&package);
            let command = kill_at_call(&pull_command(&fixture, &daemon, "pdf"), call, when);
            let output = run_command(command).await;
            kills += usize::from(output.code != Some(0));
            let now = read_tree(&out);
            assert!(now == old || now == new, "{text}: a mix of two states");
            assert_eq!(verify(&fixture).await.0, Some(0), "{text}");
            pull(&fixture, &daemon, "pdf").await.succeeded();
            assert_eq!(read_tree(&out), new, "{text}");
            assert_eq!(names_in(&fixture.path("out")), ["dir"], "{text}");
        }
    }
    assert!(kills > 8, "only {kills} pulls were killed");
    daemon.stop().await;
}

/// Starts `caproot pull --watch`.
fn start_pull_watch(fixture: &Fixture, daemon: &Daemon) -> Process {
    Process::spawn(pull_command(fixture, daemon, "pdf").arg("--watch"))
}

async fn wait_for_line(watching: &mut Process, expected: &str) {
    while !watching.line().await.starts_with(expected) {}
}

#[tokio::test]
async fn a_watched_directory_follows_the_package() {
    let (fixture, daemon) = publish_tree(TREE).await;
    let (out, package) = (fixture.path("out/dir"), fixture.path("r/pdf"));
    let mut watching = start_pull_watch(&fixture, &daemon);
    wait_for_line(&mut watching, "pulled: 3 files").await;
    for text in ["First.", "Second."] {
        fixture.replace("r/pdf/SKILL.md", skill_text("pdf", text));
        wait_for_line(&mut watching, "+ SKILL.md").await;
        wait_for_line(&mut watching, "pulled: 3 files").await;
        assert_eq!(read_tree(&out), read_tree(&package));
    }
    // A package that disappears stays, and comes back.
    fs::rename(&package, fixture.path("moved")).expect("rename");
    fs::rename(fixture.path("moved"), &package).expect("rename");
    fixture.replace("r/pdf/SKILL.md", skill_text("pdf", "Third."));
    wait_for_line(&mut watching, "+ SKILL.md").await;
    wait_for_line(&mut watching, "pulled: 3 files").await;
    watching.exit_on(Signal::TERM).await.succeeded();

    // A conflict ends the watch.
    let mut watching = start_pull_watch(&fixture, &daemon);
    wait_for_line(&mut watching, "unchanged: 3 files").await;
    fixture.write("out/dir/mine.txt", "x");
    fixture.replace("r/pdf/SKILL.md", skill_text("pdf", "Fourth."));
    wait_for_line(&mut watching, "extra    mine.txt").await;
    assert_eq!(watching.exit().await.code, Some(1));
    daemon.stop().await;
}
