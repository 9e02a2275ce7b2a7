//! Skills that a person names: whose they are, what of them a model gets, and that no text gets out.

use caproot::session::{
    InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, Session, SkillMention, UserPrompt,
};
use serde_json::Value;

use super::serving;
use super::session::{read_all, session};
use crate::fixture::Fixture;
use crate::harness::in_time;

async fn inject(session: &Session, prompt: impl Into<UserPrompt>) -> InjectedSkills {
    let injected = in_time(session.inject(&prompt.into())).await;
    let all: usize = injected.fragments.iter().map(|fragment| fragment.text.len()).sum();
    assert!(all <= MAX_INJECTED_BYTES);
    for fragment in &injected.fragments {
        let text = &fragment.text;
        assert!(text.len() <= MAX_FRAGMENT_BYTES, "{} bytes", text.len());
        assert!(text.starts_with("<skill>\n") && text.ends_with("\n</skill>\n"), "{text}");
        assert_eq!((text.matches("<skill").count(), text.matches("</skill").count()), (1, 1));
    }
    injected
}

fn packages(injected: &InjectedSkills) -> Vec<&str> {
    injected.fragments.iter().map(|fragment| fragment.package.as_str()).collect()
}

/// The arguments of the call that a cut fragment ends with.
fn goes_on(text: &str) -> Value {
    let (_, call) = text.rsplit_once("call skills.read ").expect("a call");
    let (arguments, _) = call.rsplit_once("]\n</skill>").expect("its end");
    serde_json::from_str(arguments).expect("JSON")
}

#[tokio::test]
async fn who_is_meant() {
    let hidden = "file r/quiet/SKILL.md\n| ---\n| description: Quiet.\n| ---
        file r/quiet/agents/openai.yaml\n| policy: {allow_implicit_invocation: false}";
    let fixture =
        Fixture::new(&format!("skill r/pdf\nskill r/mail\nskill r/both\nskill s/both\n{hidden}"));
    let (r, s) =
        (serving("r", fixture.path("r"), None).await, serving("s", fixture.path("s"), None).await);
    let session = session(&[("r", &r.address), ("s", &s.address)]).await;

    let told =
        inject(&session, "use $pdf, $pdf and [$x](skill://s/both/SKILL.md); $HOME $none.").await;
    assert_eq!(packages(&told), ["skill://r/pdf", "skill://s/both"]);
    assert!(told.ambiguous.is_empty() && told.omitted.is_empty() && told.replaced.is_empty());
    assert!(told.fragments[0].text.contains("\ndescription: Does pdf.\n"));

    let told = inject(&session, "$both").await;
    assert!(told.fragments.is_empty());
    let [both] = &told.ambiguous[..] else { panic!("{told:?}") };
    let candidates: Vec<_> = both.candidates.iter().map(|c| (&*c.root, &*c.package)).collect();
    assert_eq!(candidates, [("r", "skill://r/both"), ("s", "skill://s/both")]);

    let prompt = UserPrompt {
        mentions: vec![SkillMention { name: "quiet".into(), handle: String::new() }],
        connectors: vec!["mail".into()],
        caller_skills: vec!["pdf".into(), "own".into()],
        ..UserPrompt::from("$mail $pdf $own")
    };
    let told = inject(&session, prompt).await;
    assert_eq!(packages(&told), ["skill://r/quiet", "skill://r/pdf"]);
    assert_eq!(told.replaced, ["pdf"]);
    assert!(!session.instruction_text(8_000).text.contains("quiet"), "only a person calls it");

    let prompt = UserPrompt {
        mentions: vec![SkillMention { name: "none".into(), handle: String::new() }],
        ..UserPrompt::from("[$pdf](skill://r/none)")
    };
    let told = inject(&session, prompt).await;
    let named: Vec<_> = told.omitted.iter().map(|left| left.mention.as_str()).collect();
    assert_eq!(named, ["none", "skill://r/none"]);
    r.stop().await;
    s.stop().await;
}

/// A skill may have the name of an environment variable; a person who writes one means the variable.
#[tokio::test]
async fn environment_variables_are_no_mentions() {
    let fixture = Fixture::new("skill r/HOME\nskill r/PATH\nskill r/Path");
    let daemon = serving("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    let told = inject(&session, "ls $HOME/bin; export PATH=$PATH:$HOME.").await;
    assert_eq!(told, InjectedSkills::default());
    let told = inject(&session, "[$HOME](skill://r/HOME) and $Path").await;
    assert_eq!(packages(&told), ["skill://r/HOME", "skill://r/Path"]);
    let mentions = vec![SkillMention { name: "PATH".into(), handle: String::new() }];
    let told = inject(&session, UserPrompt { mentions, ..UserPrompt::from("$PATH") }).await;
    assert_eq!(packages(&told), ["skill://r/PATH"]);
    daemon.stop().await;
}

/// A person picked one skill, which is gone: another one with its name is not taken in its place.
#[tokio::test]
async fn a_handle_that_is_gone_blocks_its_name() {
    let fixture = Fixture::new("skill r/deploy\nskill r/other");
    let daemon = serving("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    let gone = "skill://r/old/deploy";
    let structured = |name: &str| UserPrompt {
        mentions: vec![
            SkillMention { name: name.into(), handle: gone.into() },
            SkillMention { name: "deploy".into(), handle: String::new() },
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
        let told = inject(&session, prompt).await;
        assert_eq!(packages(&told), ["skill://r/other"]);
        let named: Vec<_> = told.omitted.iter().map(|left| left.mention.as_str()).collect();
        assert_eq!(named, reported);
        assert!(told.omitted[0].reason.contains("no skill of this session has this handle"));
    }
    let told = inject(&session, "[$other](skill://r/gone) and $deploy").await;
    assert_eq!(packages(&told), ["skill://r/deploy"], "another name is not blocked");
    daemon.stop().await;
}

#[tokio::test]
async fn the_name_of_a_plugin_can_be_left_out() {
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
    let fixture = Fixture::new(&tree.concat());
    let daemon = serving("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    let told = inject(&session, "$deploy. $pdf").await;
    let names: Vec<_> = told.fragments.iter().map(|fragment| fragment.name.as_str()).collect();
    assert_eq!(names, ["deploy-plugin:deploy", "pdf"], "a whole name comes first");
    let told = inject(&session, "$three:pdf").await;
    assert_eq!(told.fragments[0].name, "three:pdf");

    let told = inject(&session, "$audit, $audit").await;
    let [audit] = &told.ambiguous[..] else { panic!("{told:?}") };
    let candidates: Vec<_> = audit.candidates.iter().map(|c| c.name.as_str()).collect();
    assert_eq!((audit.name.as_str(), candidates), ("audit", vec!["one:audit", "two:audit"]));
    assert!(told.fragments.is_empty());
    // The caller's own skill with the whole name is meant, and not a plugin's.
    let own = UserPrompt { caller_skills: vec!["deploy".into()], ..UserPrompt::from("$deploy") };
    assert_eq!(inject(&session, own).await, InjectedSkills::default());
    daemon.stop().await;
}

#[tokio::test]
async fn large_and_hostile_ones() {
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
    let daemon = serving("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    for (name, body) in &bodies {
        let told = inject(&session, format!("${name}").as_str()).await;
        let [fragment] = &told.fragments[..] else { panic!("{name}: {told:?}") };
        let whole = head(name) + body;
        assert_eq!(fragment.truncated, whole.len() > 7_900, "{name}");
        if !fragment.truncated {
            continue;
        }
        assert!(fragment.text.len() > MAX_FRAGMENT_BYTES - 200, "{name} {}", fragment.text.len());
        // The call goes on exactly where the fragment ends.
        let rest = read_all(&session, goes_on(&fragment.text)).await;
        let begun = whole.strip_suffix(&rest).expect("the rest of the file");
        let shown = fragment.text.replace("<\\", "<");
        assert!(shown.contains(&format!("{begun}\n[cut here;")), "{name}");
    }
    let all: Vec<_> = bodies.iter().map(|(name, _)| format!("${name}")).collect();
    let told = inject(&session, all.join(" ").as_str()).await;
    assert_eq!(told.fragments.len() + told.omitted.len(), bodies.len());
    assert!(told.fragments.len() >= 4, "{:?}", told.omitted);
    daemon.stop().await;
}
