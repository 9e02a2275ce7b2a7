//! An orchestrator that has no file of any executor: a process in a mount namespace of its own, where
//! the executors' directory is empty, with three daemons of which one is killed and one edited. strace
//! shows that it does not even look.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use caproot::client::{Mirror, MirrorSelection};
use caproot::proto::caproot::v1::{
    CapabilityRootLocation, Consistency, ListSkillsRequest, SelectedCapabilityRoot, SkillView,
};
use serde_json::{Value, json};

use super::call::{Calling, write_fleet};
use super::{client, nobody};
use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::HANG_TIMEOUT;

const ENVIRONMENTS: [&str; 3] = ["one", "two", "three"];

/// A real daemon of one environment that allows one directory.
fn serve(environment: &str, dir: &Path, address: &str) -> DaemonProcess {
    let listen = format!("tcp:{address}");
    let flags = ["--environment-id", environment, "--listen", &listen, "--allow"].map(OsStr::new);
    DaemonProcess::start(&[&flags[..], &[dir.as_os_str()]].concat())
}

fn root(environment: &str, dir: &Path) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: format!("root-{environment}"),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: environment.to_owned(),
            path: dir.to_str().expect("UTF-8").to_owned(),
        }),
    }
}

/// What fresh lists of the executors that are there give, as `skills.list` shows it.
async fn fresh(there: &[(&str, &str)], fixture: &Fixture) -> Vec<Value> {
    let mut all = Vec::new();
    for (environment, address) in there {
        let request = ListSkillsRequest {
            selected_capability_roots: vec![root(environment, &fixture.path(environment))],
            view: SkillView::Basic.into(),
            consistency: Consistency::Fresh.into(),
            ..ListSkillsRequest::default()
        };
        let list = client(address).await.list_skills(&request).await.expect("a list");
        all.extend(list.skills.into_iter().map(|skill| {
            let authority = skill.authority.expect("an authority");
            json!({
                "authority": {"kind": authority.kind, "id": authority.id},
                "package": skill.package,
                "name": skill.name,
                "description": skill.description,
                "main_resource": skill.main_resource,
            })
        }));
    }
    all
}

/// All pages of the process's `skills.list`.
fn listed(calling: &mut Calling) -> Vec<Value> {
    let (mut skills, mut arguments) = (Vec::new(), json!({}));
    loop {
        let page = calling.call("skills.list", &arguments);
        if page.get("error").is_some() {
            // The list changed between two of its pages.
            (skills, arguments) = (Vec::new(), json!({}));
            continue;
        }
        skills.extend(page["skills"].as_array().expect("a list").clone());
        if page["next_cursor"].is_null() {
            return skills;
        }
        arguments = json!({"cursor": page["next_cursor"]});
    }
}

/// Waits until the process lists this, by its events.
async fn until_listed(mut calling: Calling, expected: Vec<Value>) -> Calling {
    let looked = tokio::task::spawn_blocking(move || {
        while listed(&mut calling) != expected {
            calling.wait_for_event();
        }
        calling
    });
    tokio::time::timeout(3 * HANG_TIMEOUT, looked).await.expect("no hang").expect("no panic")
}

fn read(calling: &mut Calling, environment: &str, name: &str) -> Value {
    let root = format!("root-{environment}");
    calling.call(
        "skills.read",
        &json!({
            "authority": {"kind": "executor", "id": root},
            "package": format!("skill://{root}/{name}"),
            "resource": "",
        }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_of_an_executor() {
    // What the orchestrator has, and what the executors have.
    let own = Fixture::new("dir own");
    let fixture = Fixture::new("repeat 60 skill one/s{}\nskill two/a\nskill two/b\nskill three/a");
    let log = own.path("own/log");
    let hide = format!("mount -t tmpfs none {} && exec \"$@\"", fixture.top().display());
    let inside = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &hide, "sh"]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    };
    let trace: [&OsStr; 7] =
        ["strace", "-D", "-f", "-qq", "-e", "trace=%file", "-o"].map(OsStr::new);
    let tried = inside().args(trace).arg(&log).arg("true").stderr(Stdio::null()).status();
    let is_traced = tried.is_ok_and(|status| status.success());
    let tried = inside().arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!(
            "SKIPPED: no user namespaces here, so no process can be without the executors' files"
        );
        return;
    }
    if !is_traced {
        println!(
            "SKIPPED: there is no strace here, or it may not trace: what is opened was not looked at"
        );
    }

    let addresses = [nobody(), nobody(), nobody()];
    let daemons: Vec<_> = ENVIRONMENTS.iter().zip(&addresses).collect();
    let start = |n: usize| serve(ENVIRONMENTS[n], &fixture.path(ENVIRONMENTS[n]), &addresses[n]);
    let (_one, two, _three) = (start(0), start(1), start(2));
    let all: Vec<_> = daemons.iter().map(|(e, a)| (**e, a.as_str())).collect();
    write_fleet(&own.path("own/fleet.yaml"), &all);
    let selection: Vec<_> = ENVIRONMENTS.iter().map(|environment| {
        json!({"id": format!("root-{environment}"), "location": {
            "type": "environment", "environmentId": environment, "path": fixture.path(environment)}})
    }).collect();
    own.write("own/selected.json", json!(selection).to_string());

    let mut command = inside();
    if is_traced {
        command.args(trace).arg(&log);
    }
    command.arg(env!("CARGO_BIN_EXE_caproot")).args(["call", "--events", "--fleet"]);
    command.arg(own.path("own/fleet.yaml")).arg("--selected").arg(own.path("own/selected.json"));
    let calling = Calling::of(&mut command);
    // Another mirror, in this process, to compare with.
    let selection = MirrorSelection::new(vec![root("two", &fixture.path("two"))]);
    let mut mirror = Mirror::start(&client(&addresses[1]).await, selection);

    let mut calling = until_listed(calling, fresh(&all, &fixture).await).await;
    assert_eq!(read(&mut calling, "one", "s07")["resource"], "skill://root-one/s07/SKILL.md");

    // One is edited.
    fixture.write("three/a/SKILL.md", "---\nname: a\ndescription: Edited.\n---\nNew text.\n");
    fs::rename(fixture.path("one/s07"), fixture.path("one/t07")).expect("a rename");
    let mut calling = until_listed(calling, fresh(&all, &fixture).await).await;
    let contents = read(&mut calling, "three", "a")["contents"].clone();
    assert!(contents.as_str().expect("text").ends_with("New text.\n"));
    assert_eq!(read(&mut calling, "one", "s07")["error"]["code"], "PACKAGE_NOT_FOUND");

    // One is killed: its skills go, with a warning, and the others' stay.
    drop(two);
    let without = [all[0], all[2]];
    let mut calling = until_listed(calling, fresh(&without, &fixture).await).await;
    assert_eq!(read(&mut calling, "two", "a")["error"]["code"], "EXECUTOR_UNAVAILABLE");
    let warnings = calling.call("skills.list", &json!({}))["warnings"].clone();
    assert!(warnings[0].as_str().expect("a warning").contains("\"two\""), "{warnings}");
    assert_eq!(read(&mut calling, "three", "a")["contents"], contents);

    // It comes back, changed.
    fs::remove_dir_all(fixture.path("two/b")).expect("a directory");
    fixture.write("two/c/SKILL.md", "---\ndescription: Came meanwhile.\n---\n");
    let _two = start(1);
    let expected = fresh(&all, &fixture).await;
    let mut calling = until_listed(calling, expected).await;
    assert_eq!(read(&mut calling, "two", "c")["truncated"], false);
    while mirror.snapshot().catalog.skill("skill://root-two/c").is_none() {
        tokio::time::timeout(HANG_TIMEOUT, mirror.changed()).await.expect("no hang");
    }

    let code = tokio::task::spawn_blocking(move || calling.end()).await.expect("no panic");
    assert_eq!(code, Some(0));
    if is_traced {
        let log = fs::read_to_string(&log).expect("a log");
        assert!(log.contains("selected.json"), "it is traced");
        let top = fixture.top().to_str().expect("UTF-8");
        let looked: Vec<_> = log.lines().filter(|line| line.contains(top)).collect();
        assert!(looked.is_empty(), "{looked:#?}");
    }
}
