//! Long conversations against real daemons: notices of changes instead of whole texts, and the skills
//! that a model read, after a compaction.

use caproot_client::Fleet;
use caproot_session::{
    DEFAULT_BUDGET, InstructionUpdate, MAX_INJECTED_BYTES, Session, SessionWatch, UpdateKind,
    UsedState, UserPrompt,
};
use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::session::{call, error_code, session};
use super::{executor, impatient_options, serve_tree};
use crate::harness::in_time;
use crate::harness::process::client_command;

fn skill_file(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n# Steps of {name}\n")
}

/// Waits until the text differs from the one that the model has.
async fn wait_for_update(
    session: &Session,
    watch: &mut SessionWatch,
    known: &str,
) -> InstructionUpdate {
    in_time(async {
        loop {
            let update = session.instruction_update(Some(known), DEFAULT_BUDGET);
            if update.kind != UpdateKind::Unchanged {
                return update;
            }
            watch.next().await;
        }
    })
    .await
}

/// Waits until a used file has a state.
async fn wait_for_state(
    session: &Session,
    watch: &mut SessionWatch,
    resource: &str,
    state: UsedState,
) {
    in_time(async {
        loop {
            let used = session.used_skills().await;
            let mut used = used.iter();
            if used.any(|file| file.resource == resource && file.state == state) {
                return;
            }
            watch.next().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_conversation_of_100_turns_costs_less_than_2_kb_of_notices() {
    let (fixture, daemon) = serve_tree("r", "skill r/first").await;
    for index in 0..60 {
        let name = format!("skill-{index:02}");
        let description = format!("Does work number {index} for a person who asks for it.");
        fixture.write(
            &format!("r/{name}/SKILL.md"),
            skill_file(&name, &description),
        );
    }
    let session = session(&[("r", &daemon.address)]).await;
    let mut watch = session.watch();
    while session
        .instruction_update(None, DEFAULT_BUDGET)
        .instructions
        .listed
        < 61
    {
        in_time(watch.next()).await;
    }

    let first = session.instruction_update(None, DEFAULT_BUDGET);
    let mut known = first.id;
    let mut whole_bytes = 0;
    let mut notices = Vec::new();
    for turn in 1..=100 {
        match turn {
            20 => fixture.write("r/new/SKILL.md", skill_file("new", "Is new.")),
            50 => fixture.replace("r/skill-07/SKILL.md", skill_file("skill-07", "Does more.")),
            80 => std::fs::remove_dir_all(fixture.path("r/skill-11")).expect("a directory"),
            _ => {
                let update = session.instruction_update(Some(&known), DEFAULT_BUDGET);
                assert_eq!((update.kind, &update.id), (UpdateKind::Unchanged, &known));
                continue;
            }
        }
        let update = wait_for_update(&session, &mut watch, &known).await;
        assert_eq!(update.kind, UpdateKind::Notice, "{update:?}");
        whole_bytes += session.instruction_text(DEFAULT_BUDGET).text.len();
        notices.push(update.instructions.text);
        known = update.id;
    }

    let notice_bytes: usize = notices.iter().map(String::len).sum();
    println!(
        "100 turns, 3 changes: {whole_bytes} bytes of whole texts, {notice_bytes} bytes of notices"
    );
    assert!(notice_bytes < 2_048 && whole_bytes > 10 * notice_bytes);
    assert!(
        notices[0].ends_with("New:\n- new: Is new.\n"),
        "{notices:?}"
    );
    assert!(
        notices[1].ends_with("- skill-07: Does more.\n"),
        "{notices:?}"
    );
    assert!(notices[2].ends_with("Gone:\n- skill-11\n"), "{notices:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn used_skills_are_given_back_after_a_compaction() {
    let tree = "skill r/pdf\nskill r/mail\nskill r/gone\nfile r/mail/notes.md\n| Notes.";
    let (fixture, daemon) = serve_tree("r", tree).await;
    let session = session(&[("r", &daemon.address)]).await;
    let mut watch = session.watch();
    assert!(session.used_skills().await.is_empty());

    call(
        &session,
        "skills.read",
        json!({"package": "skill://r/gone"}),
    )
    .await;
    call(&session, "skills.read", json!({"package": "skill://r/pdf"})).await;
    let notes = json!({"package": "skill://r/mail", "resource": "notes.md"});
    call(&session, "skills.read", notes).await;
    let prompt = UserPrompt {
        arguments: "to the team".to_owned(),
        ..UserPrompt::from("use $mail")
    };
    in_time(session.inject(&prompt)).await;
    call(&session, "skills.list", json!({})).await;
    let unknown = json!({"package": "skill://r/none"});
    let code = error_code(&session, "skills.read", unknown).await;
    assert_eq!(code, "PACKAGE_NOT_FOUND");

    let used = session.used_skills().await;
    let resources: Vec<_> = used.iter().map(|file| file.resource.as_str()).collect();
    let expected = [
        "skill://r/mail/SKILL.md",
        "skill://r/mail/notes.md",
        "skill://r/pdf/SKILL.md",
        "skill://r/gone/SKILL.md",
    ];
    assert_eq!(resources, expected);
    assert!(
        used.iter()
            .all(|file| file.state == UsedState::Unchanged && file.digest.starts_with("sha256:"))
    );

    // The session is saved before the changes, and restored after them.
    let saved = session.save().expect("a small session");
    assert!(!saved.contains("Does"), "no text of a skill: {saved}");
    fixture.replace("r/pdf/SKILL.md", skill_file("pdf", "Does more."));
    fixture.write("r/mail/notes.md", "More notes.");
    std::fs::remove_dir_all(fixture.path("r/gone")).expect("a directory");
    wait_for_state(&session, &mut watch, expected[2], UsedState::Changed).await;
    wait_for_state(&session, &mut watch, expected[3], UsedState::Gone).await;
    wait_for_state(&session, &mut watch, expected[1], UsedState::Changed).await;

    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let restored = Session::restore(&fleet, &saved, &impatient_options()).await;
    let restored = restored.expect("a saved session").session;
    assert_eq!(restored.used_skills().await, session.used_skills().await);

    let again = in_time(restored.reinject(MAX_INJECTED_BYTES)).await;
    let given: Vec<_> = again
        .fragments
        .iter()
        .map(|fragment| (fragment.resource.as_str(), fragment.changed))
        .collect();
    assert_eq!(
        given,
        [
            (expected[0], false),
            (expected[1], true),
            (expected[2], true)
        ]
    );
    let [mail, notes, pdf] = &again.fragments[..] else {
        panic!("{again:?}")
    };
    let arguments = "\n\nARGUMENTS: to the team";
    assert!(mail.fragment.text.contains(arguments), "{mail:?}");
    let head = "<resource>skill://r/mail/notes.md</resource>\nMore notes.";
    assert!(notes.fragment.text.contains(head), "{notes:?}");
    assert!(pdf.fragment.text.contains("Does more."), "{pdf:?}");
    assert_eq!(
        again.note,
        "Skill files that changed since you read them:\n- mail (skill://r/mail/notes.md)\n- pdf \
         (skill://r/pdf/SKILL.md)\nSkill files that you read and that are gone now:\n- gone \
         (skill://r/gone/SKILL.md)\n"
    );
    assert_eq!(again.omitted[0].mention, expected[3]);

    // The model has the files of now, in the same order.
    let twice = in_time(restored.reinject(MAX_INJECTED_BYTES)).await;
    assert!(twice.fragments.iter().all(|fragment| !fragment.changed));
    assert_eq!(twice.fragments[0].resource, expected[0]);

    for budget in [0, 300, 1_000, 2_000] {
        let some = in_time(session.reinject(budget)).await;
        let texts = some
            .fragments
            .iter()
            .map(|fragment| fragment.fragment.text.len());
        assert!(texts.sum::<usize>() + some.note.len() <= budget, "{some:?}");
        assert_eq!(some.fragments.len() + some.omitted.len(), 4, "{some:?}");
    }

    let _ = restored.close(false).await;
    let closed = restored.used_skills().await;
    assert!(
        closed.iter().all(|file| file.state == UsedState::Unknown),
        "{closed:?}"
    );
    assert!(
        restored
            .reinject(MAX_INJECTED_BYTES)
            .await
            .fragments
            .is_empty()
    );
    let update = restored.instruction_update(None, DEFAULT_BUDGET);
    assert_eq!(update.reason.as_deref(), Some("the session is closed"));
    daemon.stop().await;
}

/// Sends a request, and returns its result.
async fn result_of(process: &mut CallProcess, request: Value) -> Value {
    let mut answer = process.request(request).await;
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].take()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_have_notices_and_used_skills() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/mail").await;
    let mut process = CallProcess::start(client_command(&daemon, "call --events"));
    let first = result_of(&mut process, json!({"method": "instructions"})).await;
    assert_eq!(first["kind"], "whole");
    let known = first["id"].as_str().expect("an id").to_owned();
    let request = |id: &str| json!({"method": "instructions", "known": id});

    let same = result_of(&mut process, request(&known)).await;
    assert_eq!(
        (&same["kind"], &same["text"]),
        (&json!("unchanged"), &json!(""))
    );
    fixture.write("r/new/SKILL.md", skill_file("new", "Is new."));
    process.wait_for_event().await;
    let notice = result_of(&mut process, request(&known)).await;
    assert_eq!(
        (&notice["kind"], &notice["changes"]),
        (
            &json!("notice"),
            &json!({"added": ["new"], "changed": [], "removed": [], "unnamed": 0})
        )
    );

    // Another session does not know the id, and nothing of the id is repeated.
    let fork = result_of(&mut process, json!({"method": "fork"})).await;
    let mut other = request(&known);
    other["session"] = fork["session"].clone();
    let other = result_of(&mut process, other).await;
    assert_eq!(other["reason"], "the id is of another session");
    assert!(
        other["text"]
            .as_str()
            .expect("a text")
            .contains("- new: Is new.")
    );
    let hidden = format!("{}\u{202e}{}", "x".repeat(4 << 20), "\u{200b}");
    let unknown = result_of(&mut process, request(&hidden)).await;
    assert_eq!(unknown["reason"], "no session returned such an id");
    process.send(&request(&"x".repeat(10 << 20)));
    let mut too_long = process.next().await;
    while too_long.get("event").is_some() {
        too_long = process.next().await;
    }
    assert_eq!(too_long["error"]["message"], "the line is over 5 MiB");

    let read = json!({"method": "read", "skill": "pdf"});
    result_of(&mut process, read).await;
    let used = result_of(&mut process, json!({"method": "used_skills"})).await;
    assert_eq!(
        (&used[0]["resource"], &used[0]["state"]),
        (&json!("skill://local/pdf/SKILL.md"), &json!("unchanged"))
    );
    let again = result_of(&mut process, json!({"method": "reinject", "budget": 8000})).await;
    assert_eq!(again["fragments"][0]["package"], "skill://local/pdf");
    assert_eq!(again["note"], "");

    let saved = result_of(&mut process, json!({"method": "save"})).await;
    let wrong = json!({"method": "start", "saved": {"used": 1}});
    assert_eq!(process.request(wrong).await["error"]["code"], "BAD_CONFIG");
    let mut many = saved.clone();
    many["used"] = vec![saved["used"][0].clone(); 129].into();
    let rejected = process
        .request(json!({"method": "restore", "saved": many}))
        .await;
    let message = rejected["error"]["message"].to_string();
    assert!(
        message.contains("`used` has 129 files; the limit is 128"),
        "{message}"
    );
    result_of(&mut process, json!({"method": "close"})).await;
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
