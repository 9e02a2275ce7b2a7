//! `caproot exec`: real scripts run from a verified copy, with the files next to them, and report their
//! own exit codes.

mod races;
mod servers;
mod trusted_daemons;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::harness::fixture::Fixture;
use crate::harness::process::{
    Output, Process, client_command_with, has_program, run_client, run_command, serve,
};
use crate::harness::{Daemon, Setup, strace};

/// Skill with a script in each language. Each script reads a file next to itself, its arguments, its
/// stdin and its working directory, and exits with 7.
const TREE: &str = "\
skill r/kit
file r/kit/scripts/word.txt
| beside
file r/kit/scripts/helper.py
| WORD = 'beside'
file r/kit/scripts/run.py
| import os, sys, helper
| print(helper.WORD, sys.argv[1:], sys.stdin.read().strip(), os.path.basename(os.getcwd()))
| sys.exit(7)
file r/kit/scripts/run.sh
| #!/usr/bin/env bash
| here=\"$(dirname \"$0\")\"
| echo \"$(cat \"$here/word.txt\") $* $(cat) $(basename \"$PWD\")\"
| exit 7
mode 0755 r/kit/scripts/run.sh
file r/kit/scripts/run.js
| const fs = require('fs'), path = require('path');
| const word = fs.readFileSync(path.join(__dirname, 'word.txt'), 'utf8').trim();
| console.log(word, process.argv.slice(2).join(' '), fs.readFileSync(0, 'utf8').trim(), path.basename(process.cwd()));
| process.exitCode = 7;
file r/kit/scripts/word.mjs
| export const word = 'beside';
file r/kit/scripts/run.mjs
| import { word } from './word.mjs';
| import { readFileSync } from 'node:fs';
| import { basename } from 'node:path';
| console.log(word, process.argv.slice(2).join(' '), readFileSync(0, 'utf8').trim(), basename(process.cwd()));
| process.exitCode = 7;
file r/kit/scripts/run.rb
| word = File.read(File.join(__dir__, 'word.txt')).strip
| puts [word, ARGV.join(' '), STDIN.read.strip, File.basename(Dir.pwd)].join(' ')
| exit 7
file r/kit/scripts/run.pl
| #!/usr/bin/env perl
| use FindBin;
| open(my $file, '<', \"$FindBin::Bin/word.txt\"); my $word = <$file>; chomp $word;
| my $input = <STDIN>; chomp $input;
| my @dirs = split m{/}, $ENV{PWD};
| print \"$word @ARGV $input $dirs[-1]\\n\"; exit 7;
mode 0755 r/kit/scripts/run.pl
dir work
dir home
file input
| typed
";

/// Builds a tree and starts a daemon that publishes `r`, also at a Unix socket.
async fn publish(tree: &str) -> (Fixture, Daemon) {
    let fixture = Fixture::new(&format!("{tree}\ndir run\nmode 0700 run"));
    let setup = Setup {
        listen: vec![socket_of(&fixture)],
        ..Setup::publishing("r", fixture.path("r"))
    };
    let daemon = Daemon::start(setup).await;
    (fixture, daemon)
}

/// Returns the endpoint of the Unix socket.
fn socket_of(fixture: &Fixture) -> String {
    format!("unix:{}", fixture.path("run/caproot.sock").display())
}

/// Command `caproot exec` for a file of the skill `kit`, in the directory `work`.
fn exec_command(fixture: &Fixture, daemon: &Daemon, file: &str, words: &[&str]) -> Command {
    let handle = format!("skill://r/kit/{file}");
    target_command(fixture, daemon, &[&handle], words)
}

/// Command `caproot exec` for a file or a server, in the directory `work`.
fn target_command(fixture: &Fixture, daemon: &Daemon, target: &[&str], words: &[&str]) -> Command {
    let mut command = client_command_with(daemon, ["exec"]);
    command
        .args(target)
        .args(words)
        .current_dir(fixture.path("work"))
        .env("PWD", fixture.path("work"))
        .env("HOME", fixture.path("home"))
        .env("CAPROOT_ENDPOINT", socket_of(fixture))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

async fn exec(fixture: &Fixture, daemon: &Daemon, file: &str, words: &[&str]) -> Output {
    run_command(exec_command(fixture, daemon, file, words)).await
}

/// Returns the directories of the copies.
fn copies(fixture: &Fixture) -> Vec<PathBuf> {
    let dir = fixture.path("home/.cache/caproot/packages");
    let entries = fs::read_dir(dir).expect("the store");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_dir()).collect()
}

#[tokio::test]
async fn scripts_of_each_language_run_next_to_their_files() {
    let (fixture, daemon) = publish(TREE).await;
    let mut languages = 0;
    for (file, program) in [
        ("run.py", "python3"),
        ("run.sh", "bash"),
        ("run.js", "node"),
        ("run.mjs", "node"),
        ("run.rb", "ruby"),
        ("run.pl", "perl"),
    ] {
        if !has_program(program, &["--version"]) {
            continue;
        }
        let words = ["--", "one", "--two"];
        let mut command = exec_command(&fixture, &daemon, &format!("scripts/{file}"), &words);
        let input = fs::File::open(fixture.path("input")).expect("the input");
        command.stdin(Stdio::from(input));

        let output = run_command(command).await.exited_with(7, "");
        let words = match file {
            "run.py" => "['one', '--two']",
            _ => "one --two",
        };
        assert_eq!(output.text(), format!("beside {words} typed work\n"));
        languages += 1;
    }
    assert!(languages > 0, "no interpreter is installed");

    // All scripts are in one package, and none of them changed its copy.
    assert_eq!(copies(&fixture).len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_signal_ends_the_script_and_its_shell_sees_128_and_its_number() {
    let tree = format!("{TREE}file r/kit/kill.sh\n| kill -TERM $$");
    let (fixture, daemon) = publish(&tree).await;
    let inner = exec_command(&fixture, &daemon, "kill.sh", &[]);

    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; echo \"code $?\"", "sh"]);
    shell.arg(inner.get_program()).args(inner.get_args());
    let envs = inner
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    shell
        .env_clear()
        .envs(envs)
        .current_dir(fixture.path("work"));
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = run_command(shell).await.succeeded();
    assert_eq!(output.text(), "code 143\n");

    let direct = exec_command(&fixture, &daemon, "kill.sh", &[]);
    let status = tokio::process::Command::from(direct).status().await;
    assert_eq!(status.expect("the command runs").signal(), Some(15));
    daemon.stop().await;
}

#[tokio::test]
async fn a_script_that_cannot_run_has_its_code_and_reason() {
    let tree = format!(
        "{TREE}file r/kit/plain\n| echo no\nfile r/kit/odd.xyz\n| no\nfile r/kit/gone.sh\n\
         | #!/no/such/interpreter -x\nmode 0755 r/kit/gone.sh\nfile r/kit/bare.sh\n\
         | echo bare\nmode 0755 r/kit/bare.sh\nlink r/kit/out.sh -> $TMP/outside.sh\n\
         file outside.sh\n| echo outside\nfile r/kit/.git/hook.sh\n| echo hook\ndir open\n\
         mode 0777 open"
    );
    let (fixture, daemon) = publish(&tree).await;
    let cases: [(&str, &[&str], i32, &str); 10] = [
        ("scripts", &[], 127, "scripts is a directory of the package"),
        ("scripts/none.py", &[], 127, "no file scripts/none.py"),
        ("out.sh", &[], 127, "no file out.sh"),
        (".git/hook.sh", &[], 127, "no file .git/hook.sh"),
        ("plain", &[], 127, "no known interpreter"),
        ("odd.xyz", &[], 127, "no known interpreter"),
        ("gone.sh", &[], 127, "#!/no/such/interpreter -x"),
        ("bare.sh", &["--max-files", "2"], 125, "more than 2 files"),
        (
            "bare.sh",
            &["--copies", "../open"],
            125,
            "other users can write",
        ),
        ("bare.sh", &["--digest", "abc"], 125, "expected sha256:"),
    ];
    for (file, words, code, part) in cases {
        let output = exec(&fixture, &daemon, file, words).await;
        output.exited_with(code, part);
    }

    // The extension runs an executable file without a shebang.
    let bare = exec(&fixture, &daemon, "bare.sh", &[]).await.succeeded();
    assert_eq!(bare.text(), "bare\n");
    let mut without_path = exec_command(&fixture, &daemon, "scripts/run.py", &[]);
    without_path.env("PATH", fixture.path("home"));
    run_command(without_path)
        .await
        .exited_with(127, "the PATH has no python3");
    for handle in ["skill://r/none/run.sh", "skill://r/kit", "skill://r/kit/"] {
        let mut command = client_command_with(&daemon, ["exec", handle]);
        command
            .env("HOME", fixture.path("home"))
            .env("CAPROOT_ENDPOINT", socket_of(&fixture));
        let output = run_command(command).await;
        assert!(
            output.code == Some(127) || handle.ends_with('/'),
            "{}",
            output.stderr
        );
        assert!(output.stderr.contains("caproot: "), "{}", output.stderr);
    }
    let no_daemon = "exec skill://r/kit/bare.sh --endpoint unix:/none";
    run_client(&daemon, no_daemon)
        .await
        .exited_with(125, "/none");
    for (words, code, part) in [
        ("exec skill:kit", 125, "expected skill://ROOT"),
        ("exec kit/../kit/bare.sh", 125, "expected skill://ROOT"),
        ("exec /bare.sh", 125, "expected skill://ROOT"),
        ("exec kit", 127, "is no file of a listed skill"),
        ("exec kit/none.sh", 127, "no file none.sh"),
        ("exec cit/bare.sh", 125, "did you mean kit?"),
        ("exec --print skill://r/none", 127, "PACKAGE_NOT_FOUND"),
        ("exec --print kit/bare.sh -- x", 125, "cannot be used with"),
    ] {
        let mut command = client_command_with(&daemon, words.split(' '));
        command
            .env("HOME", fixture.path("home"))
            .env("CAPROOT_ENDPOINT", socket_of(&fixture));
        run_command(command).await.exited_with(code, part);
    }
    daemon.stop().await;
}

/// Writes the script `go.sh`, and returns the digest of the skill.
async fn write_script(fixture: &Fixture, daemon: &Daemon, text: &str) -> String {
    fixture.replace("r/kit/go.sh", text);
    package_digest(daemon, "skill://r/kit").await
}

/// Returns the digest of a package that `caproot resources` shows.
async fn package_digest(daemon: &Daemon, package: &str) -> String {
    let listed = client_command_with(daemon, ["resources", package, "--digests"]);
    let listed = run_command(listed).await.succeeded().stderr;
    let (_, digest) = listed
        .split_once("digest of the package: ")
        .expect("a digest");
    digest.lines().next().unwrap_or_default().to_owned()
}

/// The digest is that of the whole skill: the script may read any file next to itself.
#[tokio::test]
async fn another_file_of_the_skill_changes_the_digest() {
    let (fixture, daemon) = publish(TREE).await;
    let old = write_script(
        &fixture,
        &daemon,
        "cat \"$(dirname \"$0\")/scripts/word.txt\" && test \"$CLAUDE_SKILL_DIR/go.sh\" = \"$0\"\n",
    )
    .await;
    let words = ["--digest", &old];
    let output = exec(&fixture, &daemon, "go.sh", &words).await;
    assert_eq!(output.succeeded().text(), "beside\n");

    fixture.replace("r/kit/scripts/word.txt", "another\n");
    let new = package_digest(&daemon, "skill://r/kit").await;
    exec(&fixture, &daemon, "go.sh", &words)
        .await
        .exited_with(126, &format!("the skill changed: the daemon lists {new}"));
    let output = exec(&fixture, &daemon, "go.sh", &["--digest", &new]).await;
    assert_eq!(output.succeeded().text(), "another\n");
    // The lock has the same digest.
    let lock = fixture.path("kit.lock");
    run_client(&daemon, &format!("lock --out {}", lock.display()))
        .await
        .succeeded();
    assert!(fs::read_to_string(lock).expect("the lock").contains(&new));
    daemon.stop().await;
}

/// Runs `caproot exec --print` with the store of `exec`, and returns the path.
async fn print_path(fixture: &Fixture, daemon: &Daemon, target: &str) -> PathBuf {
    let mut command = client_command_with(daemon, ["exec", "--print", target]);
    command
        .env("HOME", fixture.path("home"))
        .env("CAPROOT_ENDPOINT", socket_of(fixture));
    let output = run_command(command).await.succeeded();
    PathBuf::from(output.text().trim_end())
}

#[tokio::test]
async fn a_printed_path_is_in_a_copy_that_stays() {
    let (fixture, daemon) = publish(&format!("{TREE}file r/kit/go.sh\n| echo go")).await;
    let dir = print_path(&fixture, &daemon, "kit").await;
    assert_eq!(copies(&fixture), std::slice::from_ref(&dir));
    for target in ["skill://r/kit", "kit/"] {
        assert_eq!(print_path(&fixture, &daemon, target).await, dir, "{target}");
    }
    for target in ["skill://r/kit/scripts/word.txt", "kit/scripts/word.txt"] {
        let path = print_path(&fixture, &daemon, target).await;
        assert_eq!(path, dir.join("scripts/word.txt"), "{target}");
        assert_eq!(fs::read_to_string(path).expect("a file"), "beside\n");
    }

    // Neither a file that a program wrote next to itself nor 40 other copies remove the copy.
    fs::write(dir.join("output.txt"), "x").expect("an extra file");
    for version in 0..40 {
        fixture.replace("r/kit/go.sh", format!("echo {version}\n"));
        exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    }
    assert!(dir.join("output.txt").exists());
    assert!(copies(&fixture).len() <= 33, "{:?}", copies(&fixture));

    // After an hour, the copy is one of many.
    let mark = PathBuf::from(format!("{}.reserved", dir.display()));
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    for path in [&mark, &dir] {
        let file = fs::File::open(path).expect("a file of the store");
        file.set_modified(hour_ago).expect("another time");
    }
    fixture.replace("r/kit/go.sh", "echo last\n");
    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    assert!(!dir.exists() && !mark.exists());
    daemon.stop().await;
}

/// Copies that must stay are bounded like all copies.
#[tokio::test]
async fn too_many_printed_copies_are_an_error() {
    let (fixture, daemon) = publish(TREE).await;
    let print = async |version: usize| {
        fixture.replace("r/kit/go.sh", format!("echo {version}\n"));
        let mut command = client_command_with(&daemon, ["exec", "--print", "kit"]);
        command
            .env("HOME", fixture.path("home"))
            .env("CAPROOT_ENDPOINT", socket_of(&fixture));
        run_command(command).await
    };
    for version in 0..32 {
        print(version).await.succeeded();
    }
    print(32)
        .await
        .exited_with(125, "too many copies whose paths were printed");
    daemon.stop().await;
}

#[tokio::test]
async fn only_the_expected_or_approved_script_runs() {
    let (fixture, daemon) = publish(TREE).await;
    let old = write_script(&fixture, &daemon, "echo old\n").await;
    let digest = exec(&fixture, &daemon, "go.sh", &["--digest", &old]).await;
    assert_eq!(digest.succeeded().text(), "old\n");
    let lock = fixture.path("kit.lock").display().to_string();
    run_client(&daemon, &format!("lock --out {lock}"))
        .await
        .succeeded();
    let approved = exec(&fixture, &daemon, "go.sh", &["--lock", &lock]).await;
    assert_eq!(approved.succeeded().text(), "old\n");

    let new = write_script(&fixture, &daemon, "echo new\n").await;
    exec(&fixture, &daemon, "go.sh", &["--digest", &old])
        .await
        .exited_with(126, &format!("the skill changed: the daemon lists {new}"));
    exec(&fixture, &daemon, "go.sh", &["--lock", &lock])
        .await
        .exited_with(126, "the lock does not approve the package: go.sh");
    let signers = ["--lock", &lock, "--signers", "none"];
    exec(&fixture, &daemon, "go.sh", &signers)
        .await
        .exited_with(125, "none: does not exist");
    let current = exec(&fixture, &daemon, "go.sh", &[]).await;
    assert_eq!(current.succeeded().text(), "new\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_changed_copy_never_runs() {
    let (fixture, daemon) = publish(&format!("{TREE}file r/kit/go.sh\n| echo go")).await;
    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    let first = copies(&fixture).remove(0);
    let inode = |dir: &Path| fs::metadata(dir).expect("a copy").ino();
    let before = inode(&first);

    // An unchanged copy runs again.
    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    assert_eq!(copies(&fixture), std::slice::from_ref(&first));
    assert_eq!(inode(&first), before);

    fs::write(first.join("go.sh"), "echo evil\n").expect("a changed script");
    let output = exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    assert_eq!(output.text(), "go\n");
    let second = copies(&fixture).remove(0);
    assert_ne!(second, first);

    fs::write(second.join("scripts/json.py"), "raise SystemExit(3)").expect("an extra module");
    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    let third = copies(&fixture);
    assert_eq!(third.len(), 1);
    assert!(!third[0].join("scripts/json.py").exists());
    daemon.stop().await;
}

#[tokio::test]
async fn a_copy_stays_while_its_script_runs() {
    let tree = format!(
        "{TREE}file r/kit/wait.sh\n| echo started\n| read line\n| cat \"$(dirname \"$0\")/late.txt\"\nfile r/kit/late.txt\n| late"
    );
    let (fixture, daemon) = publish(&tree).await;
    let mut command = exec_command(&fixture, &daemon, "wait.sh", &[]);
    command.stdin(Stdio::piped());
    let mut waiting = Process::spawn(command);
    assert_eq!(waiting.line().await, "started");
    let first = copies(&fixture).remove(0);

    // The script wrote next to itself, so the copy is not used again, and stays for the script.
    fs::write(first.join("output.txt"), "x").expect("an extra file");
    let words: Vec<_> = (0..40).map(|version| format!("echo {version}\n")).collect();
    for word in &words {
        fixture.replace("r/kit/go.sh", word);
        let output = exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
        assert_eq!(format!("echo {}", output.text()), *word);
    }
    let kept = copies(&fixture);
    assert!(kept.len() <= 33, "{} copies", kept.len());
    assert!(kept.contains(&first), "the copy of the running script");

    waiting.send_line(b"go\n");
    assert_eq!(waiting.line().await, "late");
    drop(waiting);
    daemon.stop().await;
}

#[tokio::test]
async fn the_daemon_starts_no_program() {
    let fixture = Fixture::new(&format!("{TREE}dir run\nmode 0700 run"));
    let log = fixture.path("strace");
    let options = ["-e", "trace=execve,execveat"];
    let mut daemon_command = serve(["--root"]);
    daemon_command
        .arg(fixture.path("r"))
        .args(["--listen", &socket_of(&fixture)]);
    let Some(traced) = strace::trace_command(&log, &options, daemon_command) else {
        return;
    };
    let daemon = Process::start_until(traced, |endpoints| endpoints.len() == 2);
    let endpoint = socket_of(&fixture);
    for words in [
        "list",
        "resources skill://r/kit",
        "read skill://r/kit",
        "exec skill://r/kit/scripts/run.sh",
    ] {
        let mut command = crate::harness::process::caproot(words.split(' '));
        command
            .env("CAPROOT_ENDPOINT", &endpoint)
            .env("HOME", fixture.path("home"));
        let output = run_command(command).await;
        assert!(
            matches!(output.code, Some(0 | 7)),
            "{words}: {}",
            output.stderr
        );
    }
    daemon.stop().await;

    let text = fs::read_to_string(&log).expect("the log of strace");
    let calls: Vec<_> = text.lines().filter(|line| line.contains("exec")).collect();
    assert!(
        calls.len() <= 1 && calls.iter().all(|call| call.contains("\"serve\"")),
        "{text}"
    );
}

#[tokio::test]
async fn scripts_of_one_skill_that_start_at_once_share_a_copy() {
    let (fixture, daemon) = publish(&format!("{TREE}file r/kit/go.sh\n| echo go")).await;
    let runs = (0..6).map(|_| exec(&fixture, &daemon, "go.sh", &[]));
    for output in futures_util::future::join_all(runs).await {
        assert_eq!(output.succeeded().text(), "go\n");
    }
    assert_eq!(copies(&fixture).len(), 1);
    daemon.stop().await;
}
