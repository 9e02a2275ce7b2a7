//! `caproot pull --lock`.

use std::fs;

use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, client_command, run_command};
use crate::harness::watch_harness::skill_text;

use super::{TREE, run};

async fn pull(daemon: &Daemon, fixture: &Fixture, words: &str) -> Output {
    let mut command = client_command(daemon, words);
    command.current_dir(fixture.top());
    run_command(command).await
}

#[tokio::test]
async fn only_approved_packages_are_written() {
    let (fixture, daemon) = Daemon::publishing("r", &format!("{TREE}\ndir out")).await;
    run(&fixture, "lock r --out caproot.lock").await.succeeded();
    fixture.write("r/new/SKILL.md", skill_text("new", "New."));
    fixture.write("r/pdf/scripts/fill.py", "#!/evil\n");

    let one = pull(
        &daemon,
        &fixture,
        "pull pdf --into out/pdf --lock caproot.lock",
    )
    .await;
    one.exited_with(
        1,
        "caproot: the lock does not approve the package: scripts/fill.py differ from the approved version",
    );
    assert!(!fixture.path("out/pdf").exists());
    pull(
        &daemon,
        &fixture,
        "pull mail --into out/mail --lock caproot.lock",
    )
    .await
    .succeeded();

    let all = pull(
        &daemon,
        &fixture,
        "pull --all --into out/all --lock caproot.lock",
    )
    .await;
    let all = all.exited_with(
        1,
        "new: the lock does not approve the package: the lock has no entry of its name",
    );
    assert!(
        all.text().ends_with("pulled 1 of 3 skills\n"),
        "{}",
        all.text()
    );
    let names: Vec<_> = fs::read_dir(fixture.path("out/all"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["mail"]);

    // An approved version is written after the update of the lock.
    run(&fixture, "lock r --update pdf --out caproot.lock")
        .await
        .succeeded();
    pull(
        &daemon,
        &fixture,
        "pull pdf --into out/pdf --lock caproot.lock",
    )
    .await
    .succeeded();
    let unsigned = "pull pdf --into out/pdf --lock caproot.lock --signers none";
    pull(&daemon, &fixture, unsigned)
        .await
        .exited_with(78, "none: does not exist");
    daemon.stop().await;
}
