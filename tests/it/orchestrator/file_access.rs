//! File access of an orchestrator: its process runs in a mount namespace without the executors'
//! files. One of three daemons is killed and one edited. strace shows that the process does not
//! even try to open an executor's file.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use caproot_client::{Mirror, MirrorSelection};
use caproot_core::proto::caproot::v1::{
    CapabilityRootLocation, Consistency, ListSkillsRequest, SelectedCapabilityRoot, SkillView,
};
use serde_json::{Value, json};

use super::call_command::{CallProcess, write_fleet};
use super::client;
use crate::harness::HANG_TIMEOUT;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, wrap_command};
use crate::harness::test_servers::unused_address;

const ENVIRONMENTS: [&str; 3] = ["one", "two", "three"];

/// Starts a daemon of one environment that allows one directory.
fn start_executor(environment: &str, dir: &Path, address: &str) -> Process {
    let mut command = caproot(["serve", "--environment-id", environment, "--allow"]);
    Process::start(
        command
            .arg(dir)
            .arg("--listen")
            .arg(format!("tcp:{address}")),
    )
}

fn select_dir(environment: &str, dir: &Path) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: format!("root-{environment}"),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: environment.to_owned(),
            path: dir.to_str().expect("UTF-8").to_owned(),
        }),
    }
}

/// Lists the skills of these executors with fresh lists, in the format of `skills.list`.
async fn list_from_daemons(daemons: &[(&str, &str)], fixture: &Fixture) -> Vec<Value> {
    let mut all = Vec::new();
    for (environment, address) in daemons {
        let request = ListSkillsRequest {
            selected_capability_roots: vec![select_dir(environment, &fixture.path(environment))],
            view: SkillView::Basic.into(),
            consistency: Consistency::Fresh.into(),
            ..ListSkillsRequest::default()
        };
        let list = client(address)
            .await
            .list_skills(&request)
            .await
            .expect("a list");
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

/// Reads all pages of `skills.list` of the process.
async fn read_list(process: &mut CallProcess) -> Vec<Value> {
    let (mut skills, mut arguments) = (Vec::new(), json!({}));
    loop {
        let page = process.call("skills.list", &arguments).await;
        if page.get("error").is_some() {
            // The list changed between two pages.
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

/// Waits for events until the process lists these skills.
async fn wait_for_list(mut process: CallProcess, expected: Vec<Value>) -> CallProcess {
    let listed = async {
        while read_list(&mut process).await != expected {
            process.wait_for_event().await;
        }
    };
    tokio::time::timeout(3 * HANG_TIMEOUT, listed)
        .await
        .expect("no hang");
    process
}

async fn read_skill(process: &mut CallProcess, environment: &str, name: &str) -> Value {
    let root = format!("root-{environment}");
    let arguments = json!({
        "authority": {"kind": "executor", "id": root},
        "package": format!("skill://{root}/{name}"),
        "resource": "",
    });
    process.call("skills.read", &arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_orchestrator_opens_no_file_of_an_executor() {
    // The orchestrator has `own`, and the executors have `fixture`.
    let own = Fixture::new("dir own");
    let fixture = Fixture::new("repeat 60 skill one/s{}\nskill two/a\nskill two/b\nskill three/a");
    let log = own.path("own/log");
    let hide = format!(
        "mount -t tmpfs none {} && exec \"$@\"",
        fixture.top().display()
    );
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &hide,
        "sh",
    ];
    let strace = ["strace", "-D", "-f", "-qq", "-e", "trace=%file", "-o"].map(OsStr::new);
    let strace = strace.into_iter().chain([log.as_os_str()]);
    let mut command = caproot(["call", "--events", "--fleet"]);
    command
        .arg(own.path("own/fleet.yaml"))
        .arg("--selected")
        .arg(own.path("own/selected.json"));
    let skipped = "no user namespaces, so the executors' files cannot be hidden";
    let Some(untraced) = wrap_command(unshare, &mut command, skipped) else {
        return;
    };
    let traced = unshare.iter().map(OsStr::new).chain(strace);
    let skipped = "strace is missing or may not trace, so opened files are not checked";
    let traced = wrap_command(traced, command, skipped);
    let is_traced = traced.is_some();

    let addresses = [unused_address(), unused_address(), unused_address()];
    let daemons: Vec<_> = ENVIRONMENTS.iter().zip(&addresses).collect();
    let start = |n: usize| {
        start_executor(
            ENVIRONMENTS[n],
            &fixture.path(ENVIRONMENTS[n]),
            &addresses[n],
        )
    };
    let (_one, two, _three) = (start(0), start(1), start(2));
    let all: Vec<_> = daemons.iter().map(|(e, a)| (**e, a.as_str())).collect();
    write_fleet(&own.path("own/fleet.yaml"), &all);
    let selection: Vec<_> = ENVIRONMENTS.iter().map(|environment| {
        json!({"id": format!("root-{environment}"), "location": {
            "type": "environment", "environmentId": environment, "path": fixture.path(environment)}})
    }).collect();
    own.write("own/selected.json", json!(selection).to_string());

    let process = CallProcess::start(traced.unwrap_or(untraced));
    // A mirror in the test process watches the same daemon.
    let selection = MirrorSelection::new(vec![select_dir("two", &fixture.path("two"))]);
    let mut mirror = Mirror::start(&client(&addresses[1]).await, selection);

    let mut process = wait_for_list(process, list_from_daemons(&all, &fixture).await).await;
    assert_eq!(
        read_skill(&mut process, "one", "s07").await["resource"],
        "skill://root-one/s07/SKILL.md"
    );

    // One skill is edited.
    fixture.write(
        "three/a/SKILL.md",
        "---\nname: a\ndescription: Edited.\n---\nNew text.\n",
    );
    fs::rename(fixture.path("one/s07"), fixture.path("one/t07")).expect("a rename");
    let mut process = wait_for_list(process, list_from_daemons(&all, &fixture).await).await;
    let contents = read_skill(&mut process, "three", "a").await["contents"].clone();
    assert!(contents.as_str().expect("text").ends_with("New text.\n"));
    assert_eq!(
        read_skill(&mut process, "one", "s07").await["error"]["code"],
        "PACKAGE_NOT_FOUND"
    );

    // One daemon is killed: its skills disappear with a warning, and the other skills stay.
    drop(two);
    let without = [all[0], all[2]];
    let mut process = wait_for_list(process, list_from_daemons(&without, &fixture).await).await;
    assert_eq!(
        read_skill(&mut process, "two", "a").await["error"]["code"],
        "EXECUTOR_UNAVAILABLE"
    );
    let warnings = process.call("skills.list", &json!({})).await["warnings"].clone();
    assert!(
        warnings[0].as_str().expect("a warning").contains("\"two\""),
        "{warnings}"
    );
    assert_eq!(
        read_skill(&mut process, "three", "a").await["contents"],
        contents
    );

    // The daemon restarts with other skills.
    fs::remove_dir_all(fixture.path("two/b")).expect("a directory");
    fixture.write("two/c/SKILL.md", "---\ndescription: Came meanwhile.\n---\n");
    let _two = start(1);
    let expected = list_from_daemons(&all, &fixture).await;
    let mut process = wait_for_list(process, expected).await;
    assert_eq!(
        read_skill(&mut process, "two", "c").await["truncated"],
        false
    );
    while mirror
        .snapshot()
        .catalog
        .skill("skill://root-two/c")
        .is_none()
    {
        tokio::time::timeout(HANG_TIMEOUT, mirror.changed())
            .await
            .expect("no hang");
    }

    assert_eq!(process.end().await, Some(0));
    if is_traced {
        let log = fs::read_to_string(&log).expect("a log");
        assert!(
            log.contains("selected.json"),
            "the trace has the process's own files"
        );
        let top = fixture.top().to_str().expect("UTF-8");
        let accesses: Vec<_> = log.lines().filter(|line| line.contains(top)).collect();
        assert!(accesses.is_empty(), "{accesses:#?}");
    }
}
