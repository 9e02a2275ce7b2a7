//! `caproot exec` runs the scripts of a daemon only if there is a reason to trust the daemon.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use super::{TREE, copies, exec, exec_command, publish, socket_of};
use crate::harness::fixture::Fixture;
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::process::{Process, run_client, run_command, serve, wrap_command};

/// Script that only says that it ran.
const SCRIPT: &str = "file r/kit/go.sh\n| echo ran";

#[tokio::test]
async fn a_daemon_that_any_user_may_be_sends_no_script() {
    let (fixture, daemon) = publish(&format!("{TREE}{SCRIPT}")).await;
    let tcp = format!("tcp:{}", daemon.address);
    let mut command = exec_command(&fixture, &daemon, "go.sh", &[]);
    command.env("CAPROOT_ENDPOINT", &tcp);
    run_command(command)
        .await
        .exited_with(125, "is not trusted to send a script");
    exec(
        &fixture,
        &daemon,
        "go.sh",
        &["--endpoint", "tls:localhost:1", "--ca", "x"],
    )
    .await
    .exited_with(125, "is not trusted to send a script");

    // A lock approves each byte.
    let lock = fixture.path("kit.lock").display().to_string();
    run_client(&daemon, &format!("lock --out {lock}"))
        .await
        .succeeded();
    let words = ["--endpoint", &tcp, "--lock", &lock];
    let output = exec(&fixture, &daemon, "go.sh", &words).await.succeeded();
    assert_eq!(output.text(), "ran\n");
    daemon.stop().await;
}

#[tokio::test]
async fn the_socket_of_another_user_sends_no_script() {
    let fixture = Fixture::new(&format!("{TREE}{SCRIPT}\ndir run"));
    // The other user passes through the top directory of the test.
    fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut command = serve(["--listen", &socket_of(&fixture), "--root"]);
    command.arg(fixture.path("r"));
    let setpriv = ["setpriv", "--reuid=7002", "--regid=7002", "--clear-groups"];
    let skipped = "setpriv(1) cannot run the binary as another user here";
    let Some(command) = wrap_command(setpriv, command, skipped) else {
        return;
    };
    chown(fixture.path("run"), Some(7002), Some(7002)).expect("a directory of the user");
    fs::set_permissions(fixture.path("run"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let serving = Process::start_until(command, |endpoints| endpoints.len() == 2);
    fs::set_permissions(
        fixture.path("run/caproot.sock"),
        fs::Permissions::from_mode(0o666),
    )
    .expect("a mode");

    let daemon = serving.connect().await;
    exec(&fixture, &daemon, "go.sh", &[])
        .await
        .exited_with(125, "the user 7002 serves the socket");
    serving.stop().await;
}

#[tokio::test]
async fn a_runtime_directory_of_another_user_is_ignored() {
    let (fixture, daemon) = publish(&format!("{TREE}{SCRIPT}")).await;
    let with_variable = || {
        let mut command = exec_command(&fixture, &daemon, "go.sh", &[]);
        command
            .env_remove("CAPROOT_ENDPOINT")
            .env("XDG_RUNTIME_DIR", fixture.path("run"));
        command
    };
    run_command(with_variable()).await.succeeded();

    if chown(fixture.path("run"), Some(7), None).is_err() {
        println!("SKIPPED: this user cannot give a directory to another user");
        return;
    }
    run_command(with_variable())
        .await
        .exited_with(125, "no daemon answers at any of the default sockets");
    daemon.stop().await;
}

#[tokio::test]
async fn flags_cannot_replace_the_values_of_the_operator() {
    run_in_namespaces!("--mount");
    let (mut fixture, daemon) = publish(&format!("{TREE}{SCRIPT}")).await;
    fixture.add("dir etc/caproot");
    let lock = fixture.path("etc/caproot/approved.lock");
    run_client(&daemon, &format!("lock --out {}", lock.display()))
        .await
        .succeeded();
    let rules = format!(
        "endpoint: {}\nlock: caproot/approved.lock\n",
        socket_of(&fixture)
    );
    fixture.write("etc/caproot-exec.yaml", rules);
    let etc = Mount::bind(&fixture.path("etc"), "/etc".as_ref());

    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    let cases: [&[&str]; 3] = [
        &["--endpoint", "unix:/tmp/c.sock"],
        &["--lock", "other.lock"],
        &["--fleet", "fleet.yaml", "--environment-id", "local"],
    ];
    for words in cases {
        exec(&fixture, &daemon, "go.sh", words)
            .await
            .exited_with(125, "/etc/caproot-exec.yaml fixes the value");
    }

    // The lock of the operator applies without a flag.
    fixture.replace("r/kit/go.sh", "echo changed\n");
    exec(&fixture, &daemon, "go.sh", &[])
        .await
        .exited_with(126, "the lock does not approve the package");
    fixture.write("etc/caproot-exec.yaml", "locks: x\n");
    exec(&fixture, &daemon, "go.sh", &[])
        .await
        .exited_with(125, "/etc/caproot-exec.yaml:1:1");
    drop(etc);
    daemon.stop().await;
}

#[tokio::test]
async fn a_relative_interpreter_never_runs() {
    let tree = format!(
        "{TREE}file r/kit/near.sh\n| #!./sh\nmode 0755 r/kit/near.sh\nfile r/kit/go.py\n| print('ran')\n\
         file work/sh\n| #!/bin/sh\n| echo evil\nmode 0755 work/sh\nfile work/python3\n| #!/bin/sh\n\
         | echo evil\nmode 0755 work/python3"
    );
    let (fixture, daemon) = publish(&tree).await;
    exec(&fixture, &daemon, "near.sh", &[])
        .await
        .exited_with(127, "the interpreter of the script is relative");
    let mut command = exec_command(&fixture, &daemon, "go.py", &[]);
    command.env("PATH", ".");
    run_command(command)
        .await
        .exited_with(127, "the PATH has no python3");
    daemon.stop().await;
}

#[tokio::test]
async fn a_copy_whose_path_others_can_change_never_runs() {
    let (fixture, daemon) = publish(&format!("{TREE}{SCRIPT}")).await;
    exec(&fixture, &daemon, "go.sh", &[]).await.succeeded();
    let copy = copies(&fixture).remove(0);
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).expect("a mode");
    exec(&fixture, &daemon, "go.sh", &[])
        .await
        .exited_with(125, "other users can write the directory");
    daemon.stop().await;
}
