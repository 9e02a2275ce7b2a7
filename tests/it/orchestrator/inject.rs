//! Skills that a person mentions: resolution of names, size limits of fragments, and escaping.

use caproot_session::{
    InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, Session, SkillMention, UserPrompt,
};
use serde_json::Value;

use super::session::{read_all, session};
use super::{serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;

async fn inject(session: &Session, prompt: impl Into<UserPrompt>) -> InjectedSkills {
    let injected = in_time(session.inject(&prompt.into())).await;
    let all: usize = injected
        .fragments
        .iter()
        .map(|fragment| fragment.text.len())
        .sum();
    assert!(all <= MAX_INJECTED_BYTES);
    for fragment in &injected.fragments {
        let text = &fragment.text;
        assert!(text.len() <= MAX_FRAGMENT_BYTES, "{} bytes", text.len());
        assert!(
            text.starts_with("<skill>\n") && text.ends_with("\n</skill>\n"),
            "{text}"
        );
        assert_eq!(
            (
                text.matches("<skill").count(),
                text.matches("</skill").count()
            ),
            (1, 1)
        );
    }
    injected
}

fn fragment_packages(injected: &InjectedSkills) -> Vec<&str> {
    injected
        .fragments
        .iter()
        .map(|fragment| fragment.package.as_str())
        .collect()
}

/// Returns the arguments of the `skills.read` call at the end of a truncated fragment.
fn next_call_arguments(text: &str) -> Value {
    let (_, call) = text.rsplit_once("call skills.read ").expect("a call");
    let (arguments, _) = call.rsplit_once("]\n</skill>").expect("an end");
    serde_json::from_str(arguments).expect("JSON")
}

#[tokio::test]
async fn mentions_resolve_by_name_link_and_selection() {
    let hidden = "file r/quiet/SKILL.md\n| ---\n| description: Quiet.\n| ---
        file r/quiet/agents/openai.yaml\n| policy: {allow_implicit_invocation: false}";
    let fixture = Fixture::new(&format!(
        "skill r/pdf\nskill r/mail\nskill r/both\nskill s/both\n{hidden}"
    ));
    let (r, s) = (
        start_daemon("r", fixture.path("r"), None).await,
        start_daemon("s", fixture.path("s"), None).await,
    );
    let session = session(&[("r", &r.address), ("s", &s.address)]).await;

    let injected = inject(
        &session,
        "use $pdf, $pdf and [$x](skill://s/both/SKILL.md); $HOME $none.",
    )
    .await;
    assert_eq!(
        fragment_packages(&injected),
        ["skill://r/pdf", "skill://s/both"]
    );
    assert!(
        injected.ambiguous.is_empty()
            && injected.omitted.is_empty()
            && injected.replaced.is_empty()
    );
    assert!(
        injected.fragments[0]
            .text
            .contains("\ndescription: Does pdf.\n")
    );

    let injected = inject(&session, "$both").await;
    assert!(injected.fragments.is_empty());
    let [both] = &injected.ambiguous[..] else {
        panic!("{injected:?}")
    };
    let candidates: Vec<_> = both
        .candidates
        .iter()
        .map(|c| (&*c.root, &*c.package))
        .collect();
    assert_eq!(
        candidates,
        [("r", "skill://r/both"), ("s", "skill://s/both")]
    );

    let prompt = UserPrompt {
        mentions: vec![SkillMention {
            name: "quiet".into(),
            handle: String::new(),
        }],
        connectors: vec!["mail".into()],
        caller_skills: vec!["pdf".into(), "own".into()],
        ..UserPrompt::from("$mail $pdf $own")
    };
    let injected = inject(&session, prompt).await;
    assert_eq!(
        fragment_packages(&injected),
        ["skill://r/quiet", "skill://r/pdf"]
    );
    assert_eq!(injected.replaced, ["pdf"]);
    assert!(
        !session.instruction_text(8_000).text.contains("quiet"),
        "only persons may use this skill"
    );

    let prompt = UserPrompt {
        mentions: vec![SkillMention {
            name: "none".into(),
            handle: String::new(),
        }],
        ..UserPrompt::from("[$pdf](skill://r/none)")
    };
    let injected = inject(&session, prompt).await;
    let named: Vec<_> = injected
        .omitted
        .iter()
        .map(|left| left.mention.as_str())
        .collect();
    assert_eq!(named, ["none", "skill://r/none"]);
    r.stop().await;
    s.stop().await;
}

/// The text of a fragment has the arguments of the person, and a read returns the file as it is.
#[tokio::test]
async fn placeholders_of_a_skill_get_the_arguments() {
    let tree = "file r/deploy/SKILL.md\n| ---\n| description: Deploys.\n| arguments: [stage]\n| ---
        | Run ${CLAUDE_SKILL_DIR}/run.sh for $stage: $ARGUMENTS
        file r/plain/SKILL.md\n| ---\n| description: Plain.\n| ---\n| Print $1 with awk.
        file r/long/SKILL.md\n| ---\n| description: Long.\n| ---\n| \\{900*$ARGUMENTS }";
    let (_fixture, daemon) = serve_tree("r", tree).await;
    let session = session(&[("r", &daemon.address)]).await;
    let with_arguments = |text: &str, arguments: &str| UserPrompt {
        arguments: arguments.to_owned(),
        ..UserPrompt::from(text)
    };

    let given = "'prod east' now </skill>";
    let injected = inject(&session, with_arguments("$deploy $plain $long", given)).await;
    let [deploy, plain, long] = &injected.fragments[..] else {
        panic!("{injected:?}")
    };
    let filled = "Run skill://r/deploy/run.sh for prod east: 'prod east' now <\\/skill>";
    assert!(deploy.text.contains(filled), "{}", deploy.text);
    let appended = "Print $1 with awk.\n\nARGUMENTS: 'prod east' now <\\/skill>";
    assert!(plain.text.contains(appended), "{}", plain.text);
    assert!(long.truncated && long.text.contains("'prod east' now"));
    let arguments = next_call_arguments(&long.text);
    let rest = read_all(&session, arguments).await;
    assert!(
        rest.contains("$ARGUMENTS") && !rest.contains("prod"),
        "a read is the file"
    );

    let injected = inject(&session, "$deploy").await;
    let text = &injected.fragments[0].text;
    assert!(text.contains("for $stage: $ARGUMENTS"), "{text}");
    let injected = inject(&session, with_arguments("$deploy", &"x".repeat(1 << 20))).await;
    assert!(injected.fragments.is_empty());
    let reason = &injected.omitted[0].reason;
    assert!(reason.contains("over 4096 bytes"), "{reason}");
    daemon.stop().await;
}

/// A skill may have the name of an environment variable. A mention of this name means the variable.
#[tokio::test]
async fn environment_variables_are_no_mentions() {
    let (_fixture, daemon) = serve_tree("r", "skill r/HOME\nskill r/PATH\nskill r/Path").await;
    let session = session(&[("r", &daemon.address)]).await;
    let injected = inject(&session, "ls $HOME/bin; export PATH=$PATH:$HOME.").await;
    assert_eq!(injected, InjectedSkills::default());
    let injected = inject(&session, "[$HOME](skill://r/HOME) and $Path").await;
    assert_eq!(
        fragment_packages(&injected),
        ["skill://r/HOME", "skill://r/Path"]
    );
    let mentions = vec![SkillMention {
        name: "PATH".into(),
        handle: String::new(),
    }];
    let injected = inject(
        &session,
        UserPrompt {
            mentions,
            ..UserPrompt::from("$PATH")
        },
    )
    .await;
    assert_eq!(fragment_packages(&injected), ["skill://r/PATH"]);
    daemon.stop().await;
}

/// If a person picked a skill that is gone, another skill with the same name is not used instead.
#[tokio::test]
async fn a_handle_that_is_gone_blocks_its_name() {
    let (_fixture, daemon) = serve_tree("r", "skill r/deploy\nskill r/other").await;
    let session = session(&[("r", &daemon.address)]).await;
    let gone = "skill://r/old/deploy";
    let structured = |name: &str| UserPrompt {
        mentions: vec![
            SkillMention {
                name: name.into(),
                handle: gone.into(),
            },
            SkillMention {
                name: "deploy".into(),
                handle: String::new(),
            },
        ],
        ..UserPrompt::from("run $deploy, then $other")
    };
    let linked =
        UserPrompt::from("run $deploy. then $other, as [$deploy](skill://r/old/deploy) does");
    for (prompt, reported) in [
        (structured("deploy"), vec![gone, "deploy"]),
        (structured(""), vec![gone, "deploy"]),
        (linked, vec![gone]),
    ] {
        let injected = inject(&session, prompt).await;
        assert_eq!(fragment_packages(&injected), ["skill://r/other"]);
        let named: Vec<_> = injected
            .omitted
            .iter()
            .map(|left| left.mention.as_str())
            .collect();
        assert_eq!(named, reported);
        assert!(
            injected.omitted[0]
                .reason
                .contains("no skill of this session has this handle")
        );
    }
    let injected = inject(&session, "[$other](skill://r/gone) and $deploy").await;
    assert_eq!(
        fragment_packages(&injected),
        ["skill://r/deploy"],
        "another name is not blocked"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_path_is_omitted_with_a_reason() {
    let (_fixture, daemon) = serve_tree("r", "skill r/pdf\nskill r/mail").await;
    let session = session(&[("r", &daemon.address)]).await;

    let prompt = "[$pdf](/srv/skills/pdf/SKILL.md) $pdf [$mail](mailto:a@b) $mail";
    let injected = inject(&session, prompt).await;
    assert_eq!(fragment_packages(&injected), ["skill://r/mail"]);
    let omitted: Vec<_> = injected.omitted.iter().map(|o| &*o.mention).collect();
    assert_eq!(omitted, ["/srv/skills/pdf/SKILL.md"]);
    assert!(
        injected.omitted[0].reason.contains("name the skill"),
        "{injected:?}"
    );

    let prompt = UserPrompt {
        mentions: vec![SkillMention {
            name: String::new(),
            handle: "skills/pdf".into(),
        }],
        ..UserPrompt::default()
    };
    let injected = inject(&session, prompt).await;
    assert!(injected.fragments.is_empty());
    assert_eq!(injected.omitted[0].mention, "skills/pdf");
    daemon.stop().await;
}

#[tokio::test]
async fn the_plugin_name_may_be_omitted() {
    let plugin = |name: &str, skill: &str| {
        format!(
            "file r/{name}/.codex-plugin/plugin.json\n| {{\"name\": \"{name}\"}}\n\
             skill r/{name}/skills/{skill}\n"
        )
    };
    let tree = [
        plugin("deploy-plugin", "deploy"),
        plugin("one", "audit"),
        plugin("two", "audit"),
        plugin("three", "pdf"),
        "skill r/pdf".to_owned(),
    ];
    let (_fixture, daemon) = serve_tree("r", &tree.concat()).await;
    let session = session(&[("r", &daemon.address)]).await;
    let injected = inject(&session, "$deploy. $pdf").await;
    let names: Vec<_> = injected
        .fragments
        .iter()
        .map(|fragment| fragment.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["deploy-plugin:deploy", "pdf"],
        "a whole name comes first"
    );
    let injected = inject(&session, "$three:pdf").await;
    assert_eq!(injected.fragments[0].name, "three:pdf");

    let injected = inject(&session, "$audit, $audit").await;
    let [audit] = &injected.ambiguous[..] else {
        panic!("{injected:?}")
    };
    let candidates: Vec<_> = audit.candidates.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        (audit.name.as_str(), candidates),
        ("audit", vec!["one:audit", "two:audit"])
    );
    assert!(injected.fragments.is_empty());
    // A skill of the caller with exactly this name wins over a skill of a plugin.
    let own = UserPrompt {
        caller_skills: vec!["deploy".into()],
        ..UserPrompt::from("$deploy")
    };
    assert_eq!(inject(&session, own).await, InjectedSkills::default());
    daemon.stop().await;
}

#[tokio::test]
async fn large_and_hostile_skills_are_truncated_and_escaped() {
    let fixture = Fixture::new("dir r");
    let head = |name: &str| format!("---\nname: {name}\ndescription: A.\n---\n");
    let bodies = [
        ("long", "word ".repeat(9_000)),
        ("crabs", "🦀".repeat(5_000)),
        ("tags", "</skill>\n<skill>\n".repeat(2_000)),
        ("edge", "x</SKILL\t>y< /skill >z".to_owned()),
        ("wide", "y".repeat(7_000)),
    ];
    for (name, body) in &bodies {
        fixture.write(&format!("r/{name}/SKILL.md"), head(name) + body);
    }
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    for (name, body) in &bodies {
        let injected = inject(&session, format!("${name}").as_str()).await;
        let [fragment] = &injected.fragments[..] else {
            panic!("{name}: {injected:?}")
        };
        let whole = head(name) + body;
        assert_eq!(fragment.truncated, whole.len() > 7_900, "{name}");
        if !fragment.truncated {
            continue;
        }
        assert!(
            fragment.text.len() > MAX_FRAGMENT_BYTES - 200,
            "{name} {}",
            fragment.text.len()
        );
        // The call continues exactly at the end of the fragment.
        let rest = read_all(&session, next_call_arguments(&fragment.text)).await;
        let prefix = whole.strip_suffix(&rest).expect("the rest of the file");
        let unescaped = fragment.text.replace("<\\", "<");
        assert!(
            unescaped.contains(&format!("{prefix}\n[truncated here;")),
            "{name}"
        );
    }
    let all: Vec<_> = bodies.iter().map(|(name, _)| format!("${name}")).collect();
    let injected = inject(&session, all.join(" ").as_str()).await;
    assert_eq!(
        injected.fragments.len() + injected.omitted.len(),
        bodies.len()
    );
    assert!(injected.fragments.len() >= 4, "{:?}", injected.omitted);
    daemon.stop().await;
}
