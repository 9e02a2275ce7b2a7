//! A session with a lock, and an executor that lies.

use std::sync::Arc;

use caproot_client::session::{Session, SessionOptions, UserPrompt};
use caproot_client::{Fleet, Trust};
use caproot_core::lock::{ApprovedFiles, ApprovedSkill, Lock, SkillDescription};
use caproot_core::proto::caproot::v1::Skill;
use caproot_core::wire::{ContentDigest, FileChecksum, RelPath};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::LockedDaemon;
use crate::harness::fixture::Fixture;
use crate::harness::in_time;
use crate::harness::process::{client_command_with, run_command};
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::test_servers::{HostileDaemon, ReadResponder, hostile_skill, read_response};
use crate::harness::watch_harness::skill_text;
use crate::orchestrator::session::parse_result;
use crate::orchestrator::{executor, published};

/// Returns a lock of the skill `a` with a SKILL.md and a file `data`.
fn lock(main: &str, data: &str) -> Lock {
    let file = |name: &[u8], text: &str| {
        let checksum = FileChecksum {
            digest: ContentDigest(Sha256::digest(text).into()),
            bytes: text.len() as u64,
            executable: false,
        };
        (RelPath::new(name).expect("a path"), checksum)
    };
    let files = vec![file(b"SKILL.md", main), file(b"data", data)];
    let description = SkillDescription {
        description: "Approved text.".into(),
        ..SkillDescription::default()
    };
    let files = ApprovedFiles::new(files).expect("files");
    [ApprovedSkill::new("a", description, files)]
        .into_iter()
        .collect()
}

fn listed(main: &str) -> Skill {
    Skill {
        description: "Evil text.".into(),
        short_description: "Evil text.".into(),
        digest: ContentDigest(Sha256::digest(main).into()).to_string(),
        ..hostile_skill("r", "skill://r/a")
    }
}

/// Starts a session with a lock on an executor.
async fn start(lock: Lock, skills: Vec<Skill>, read: Box<ReadResponder>) -> Session {
    let hostile = HostileDaemon {
        skills,
        read,
        ..HostileDaemon::default()
    };
    let address = hostile.start().await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&address))]);
    let options = SessionOptions {
        trust: Trust::Lock(Arc::new(lock)),
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, vec![published("r")], &options).await;
    session.expect("a session")
}

async fn call(session: &Session, tool: &str, arguments: Value) -> Value {
    parse_result(&in_time(session.call(tool, &arguments)).await)
}

fn read_data() -> Value {
    json!({"package": "skill://r/a", "resource": "data"})
}

#[tokio::test]
async fn descriptions_come_from_the_lock_and_other_skills_are_not_listed() {
    let other = Skill {
        name: "b".into(),
        ..hostile_skill("r", "skill://r/b")
    };
    let changed = Skill {
        digest: ContentDigest([0; 32]).to_string(),
        ..hostile_skill("r", "skill://r/c")
    };
    let read: Box<ReadResponder> = Box::new(|request| read_response(request, "main 1", ""));
    let skills = vec![listed("main 1"), other, changed];
    let session = start(lock("main 1", "data 1"), skills, read).await;
    let list = call(&session, "skills.list", json!({})).await;
    let text = list.to_string();
    assert!(
        text.contains("Approved text.") && !text.contains("Evil"),
        "{text}"
    );
    assert!(
        !text.contains("skill://r/b") && !text.contains("skill://r/c"),
        "{text}"
    );

    let main = json!({"package": "skill://r/a", "resource": ""});
    assert_eq!(
        call(&session, "skills.read", main).await["contents"],
        "main 1"
    );
    let missing = json!({"package": "skill://r/a", "resource": "other"});
    let error = call(&session, "skills.read", missing).await;
    assert_eq!(error["error"]["code"], "RESOURCE_NOT_FOUND", "{error}");
    let unlisted = json!({"package": "skill://r/c", "resource": ""});
    let error = call(&session, "skills.read", unlisted).await;
    assert_eq!(error["error"]["code"], "PACKAGE_NOT_FOUND", "{error}");
    let files = json!({"package": "skill://r/a", "resource": "./"});
    let files = call(&session, "skills.read", files).await.to_string();
    assert!(files.contains("data"), "{files}");
}

#[tokio::test]
async fn other_bytes_are_never_in_a_result() {
    let cases: Vec<Box<ReadResponder>> = vec![
        Box::new(|request| read_response(request, "evil 2", "")),
        Box::new(|request| read_response(request, "data 2 and evil", "")),
        Box::new(|request| read_response(request, "data", "")),
        Box::new(|request| read_response(request, "", "more")),
        Box::new(|request| read_response(request, "evil", "more")),
    ];
    for (number, read) in cases.into_iter().enumerate() {
        let session = start(lock("main 2", "data 2"), vec![listed("main 2")], read).await;
        let error = call(&session, "skills.read", read_data()).await;
        let code = error["error"]["code"].as_str().unwrap_or_default();
        assert!(
            ["NOT_VERIFIED", "INVALID_RESPONSE"].contains(&code),
            "{number}: {error}"
        );
        assert!(!error.to_string().contains("evil"), "{number}: {error}");
    }
}

/// Starts a daemon with the mode `hide`, and changes a file of the skill `b` without an event.
async fn start_with_evil_file(file: &str, good: &[u8]) -> (LockedDaemon, SharedMapping) {
    let fixture = Fixture::new("skill r/a\nskill r/b\nskill r/c\nskill r/d");
    let path = format!("r/b/{file}");
    fixture.write(&path, good);
    let mut mapping = SharedMapping::new(&fixture.path(&path));
    let evil = good.to_ascii_uppercase();
    // The first write sets the times. The later ones need not.
    mapping.write(&evil);
    mapping.write(good);
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    locked.list().await;
    mapping.write(&evil);
    (locked, mapping)
}

/// Starts a session without a lock on the root of a daemon.
async fn start_local(locked: &LockedDaemon) -> Session {
    let executor = executor(&locked.daemon.address);
    let fleet = Fleet::from_executors([("local".to_owned(), executor)]);
    let roots = vec![crate::harness::published("r")];
    let session = Session::start(&fleet, roots, &SessionOptions::default()).await;
    session.expect("a session")
}

#[tokio::test]
async fn a_changed_file_costs_no_other_skill() {
    let text = skill_text("b", "Does b.");
    let (locked, _mapping) = start_with_evil_file("SKILL.md", text.as_bytes()).await;
    let session = start_local(&locked).await;

    let prompt = UserPrompt {
        text: "Use $a, $b, $c and $d.".to_owned(),
        ..UserPrompt::default()
    };
    let injected = in_time(session.inject(&prompt)).await;
    let names: Vec<_> = injected.fragments.iter().map(|f| &*f.name).collect();
    assert_eq!(names, ["a", "c", "d"], "{:?}", injected.omitted);
    assert_eq!(injected.omitted[0].mention, "skill://r/b");
    assert!(
        injected.omitted[0].reason.contains("not approved"),
        "{:?}",
        injected.omitted
    );
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_changed_file_has_its_own_code_and_is_not_run() {
    let (locked, _mapping) = start_with_evil_file("run.sh", b"echo run").await;
    let session = start_local(&locked).await;
    let file = json!({"package": "skill://r/b", "resource": "run.sh"});
    let error = call(&session, "skills.read", file).await;
    assert_eq!(error["error"]["code"], "NOT_APPROVED", "{error}");
    locked.daemon.stop().await;

    let (locked, _mapping) = start_with_evil_file("run.sh", b"echo run").await;
    // Over TCP, `exec` needs a lock.
    let lock = locked.fixture.path("caproot.lock");
    let lock = lock.to_str().expect("UTF-8");
    let words = ["exec", "--lock", lock, "skill://r/b/run.sh"];
    let mut command = client_command_with(&locked.daemon, words);
    command.env("HOME", locked.fixture.path("home"));
    run_command(command).await.exited_with(126, "not approved");
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_verified_text_is_fetched_once_for_all_sessions() {
    let text = "data of one transfer ".repeat(1_000);
    let whole = text.clone();
    let read: Box<ReadResponder> = Box::new(move |request| read_response(request, &whole, ""));
    let first = start(lock("main 3", &text), vec![listed("main 3")], read).await;
    let page = call(&first, "skills.read", read_data()).await;
    assert!(text.starts_with(page["contents"].as_str().expect("a text")));

    // The other executor sends other bytes, and nothing asks it.
    let read: Box<ReadResponder> = Box::new(|request| read_response(request, "evil", ""));
    let second = start(lock("main 3", &text), vec![listed("main 3")], read).await;
    let mut arguments = read_data();
    arguments["cursor"] = page["next_cursor"].clone();
    let next = call(&second, "skills.read", arguments).await;
    let read = page["contents"].as_str().expect("a text").len();
    assert!(text[read..].starts_with(next["contents"].as_str().expect("a text")));
}

#[tokio::test]
async fn an_executor_may_have_each_version_with_the_same_main_file() {
    let mut both = lock("main 4", "data of 4");
    for version in lock("main 4", "data of 5, later").skills() {
        both.approve(version.clone());
    }
    // The executor of each session has another version.
    for data in ["data of 4", "data of 5, later"] {
        let read: Box<ReadResponder> = Box::new(move |request| {
            let is_main = request.resource.ends_with("/SKILL.md");
            read_response(request, if is_main { "main 4" } else { data }, "")
        });
        let session = start(both.clone(), vec![listed("main 4")], read).await;
        for _ in 0..2 {
            let read = call(&session, "skills.read", read_data()).await;
            assert_eq!(read["contents"], data, "{read}");
        }
    }
    let read: Box<ReadResponder> = Box::new(|request| read_response(request, "data of 6", ""));
    let session = start(both, vec![listed("main 4")], read).await;
    let error = call(&session, "skills.read", read_data()).await;
    assert_eq!(error["error"]["code"], "NOT_VERIFIED", "{error}");
}
