//! The tool `skills.search` of a session: through a daemon, with changing catalogs, and with bad input.

mod recall;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caproot_client::Fleet;
use caproot_core::proto::caproot::v1::{Authority, Skill};
use caproot_session::sources::{SkillListing, SourceSnapshot, TextPage, TextPageRequest};
use caproot_session::{
    ForkScope, Session, SessionOptions, SkillChoice, SkillSource, SourceKind, ToolError,
    ToolErrorCode,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::session::{call, parse_result, session};
use super::{impatient_options, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;
use crate::harness::process::client_command;

/// Name and description of a skill.
#[derive(Debug, Clone)]
struct NamedText {
    name: String,
    description: String,
}

impl NamedText {
    /// Returns the lines of a file, each a name, a colon and a text.
    fn parse_lines(file: &str) -> Vec<Self> {
        let lines = file.lines().map(|line| {
            let (name, description) = line.split_once(": ").expect("a name and a text");
            Self {
                name: name.to_owned(),
                description: description.to_owned(),
            }
        });
        lines.collect()
    }
}

/// Source whose listing `list` returns for each call, by the number of earlier calls.
struct ListedSource<F> {
    kind: SourceKind,
    list: F,
    calls: AtomicUsize,
}

impl<F> std::fmt::Debug for ListedSource<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListedSource").finish_non_exhaustive()
    }
}

impl<F: Fn(usize) -> Arc<SkillListing> + Send + Sync> SkillSource for ListedSource<F> {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn id(&self) -> &'static str {
        "s"
    }

    fn authorities(&self) -> Vec<String> {
        vec!["s".to_owned()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        SourceSnapshot {
            listing: (self.list)(call),
            unavailable_reason: None,
        }
    }

    fn read_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read_page<'a>(
        &'a self,
        _: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(std::future::pending())
    }
}

/// Returns a listing of the source `s` of this kind.
fn listing(kind: SourceKind, texts: &[NamedText]) -> Arc<SkillListing> {
    let skills = texts.iter().enumerate().map(|(number, text)| {
        let package = format!("odd://{}/{number}", kind.name());
        Arc::new(Skill {
            authority: Some(Authority {
                kind: kind.name().to_owned(),
                id: "s".to_owned(),
            }),
            main_resource: format!("{package}/SKILL.md"),
            package,
            name: text.name.clone(),
            description: text.description.clone(),
            user_invocable: true,
            ..Skill::default()
        })
    });
    Arc::new(SkillListing {
        skills: skills.collect(),
        ..SkillListing::default()
    })
}

fn source(
    kind: SourceKind,
    list: impl Fn(usize) -> Arc<SkillListing> + Send + Sync + 'static,
) -> Arc<dyn SkillSource> {
    let calls = AtomicUsize::new(0);
    Arc::new(ListedSource { kind, list, calls })
}

async fn start_session(sources: Vec<Arc<dyn SkillSource>>, options: &SessionOptions) -> Session {
    Session::start_with(&Fleet::from_executors([]), Vec::new(), sources, options)
        .await
        .expect("a session")
}

/// Returns the names of a page.
fn names(page: &Value) -> Vec<&str> {
    let skills = page["skills"].as_array().expect("skills").iter();
    skills
        .map(|skill| skill["name"].as_str().expect("a name"))
        .collect()
}

async fn search(session: &Session, query: &str) -> Value {
    call(session, "skills.search", json!({"query": query})).await
}

async fn error_code(session: &Session, arguments: Value) -> Value {
    let result = in_time(session.call("skills.search", &arguments)).await;
    let error = parse_result(&result)["error"].clone();
    assert!(
        error["next"]
            .as_str()
            .is_some_and(|next| next.contains("skills.search") || next.contains("cursor"))
    );
    error["code"].clone()
}

/// Writes each text as a skill of the root `r`.
fn write_skills(fixture: &Fixture, texts: &[NamedText]) {
    for NamedText { name, description } in texts {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n# {name}\n");
        fixture.write(&format!("r/{name}/SKILL.md"), text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_finds_skills_of_a_daemon() {
    let texts = NamedText::parse_lines(recall::SKILLS);
    let fixture = Fixture::new("dir r");
    write_skills(&fixture, &texts);
    let manual = "---\ndescription: Fills secret PDF forms.\ndisable-model-invocation: true\n---\n";
    fixture.write("r/secret-pdf/SKILL.md", manual);
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let mut process = CallProcess::start(client_command(&daemon, "call --events"));

    let text = process.request(json!({"method": "instructions"})).await["result"].clone();
    assert!(text["shortened"].as_u64() > Some(0));
    let shown = text["text"].as_str().expect("text");
    assert!(
        shown.contains("or a call does not find it, call `skills_search`."),
        "{shown}"
    );

    let best = json!({"query": "fill fields of pdf forms", "limit": 2});
    let page = process.call("skills_search", &best).await;
    assert_eq!(names(&page)[0], "pdf-form-filling");
    assert_eq!(
        page["skills"][0]["main_resource"],
        "skill://r/pdf-form-filling/SKILL.md"
    );

    // All pages of a result, without the skill that only a person may choose.
    let query = json!({"query": "pdf", "limit": 2});
    let mut next = query.clone();
    let mut all = Vec::new();
    loop {
        let page = process.call("skills_search", &next).await;
        assert!(names(&page).len() <= 2);
        all.extend(names(&page).iter().map(|name| (*name).to_owned()));
        if page["next_cursor"].is_null() {
            break;
        }
        next["cursor"] = page["next_cursor"].clone();
    }
    let whole = json!({"query": "pdf", "limit": 20});
    let whole = process.call("skills_search", &whole).await;
    assert_eq!(all, names(&whole));
    assert!(
        all.len() > 4 && !all.contains(&"secret-pdf".to_owned()),
        "{all:?}"
    );
    let secret = json!({"query": "secret-pdf"});
    assert!(!names(&process.call("skills_search", &secret).await).contains(&"secret-pdf"));

    // A change: a new skill is found, and a deleted skill is gone.
    fixture.write(
        "r/zebra/SKILL.md",
        "---\ndescription: Counts zebras.\n---\n",
    );
    std::fs::remove_dir_all(fixture.path("r/pdf-form-filling")).expect("a directory");
    loop {
        process.wait_for_event().await;
        let found = process
            .call("skills_search", &json!({"query": "zebras"}))
            .await;
        let page = process.call("skills_search", &best).await;
        if names(&found).first() == Some(&"zebra") && !names(&page).contains(&"pdf-form-filling") {
            break;
        }
    }

    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn saved_and_forked_sessions_search_their_skills() {
    let (_fixture, daemon) = serve_tree("r", "skill r/alpha\nskill r/beta").await;
    let first = session(&[("r", &daemon.address)]).await;
    assert_eq!(names(&search(&first, "alpha").await), ["alpha"]);

    let fork = first.fork(ForkScope::All).expect("open");
    let narrower = SkillChoice {
        exclude: vec!["name:alpha".parse().expect("a rule")],
        ..SkillChoice::default()
    };
    let fork = fork.with_narrower_choice(&narrower).expect("few rules");
    assert!(names(&search(&fork, "alpha").await).is_empty());
    assert_eq!(names(&search(&fork, "beta").await), ["beta"]);
    let mentioned = "use $alpha, $beta, $none and [$x](skill://r/alpha)";
    let injected = in_time(fork.inject(&mentioned.into())).await;
    assert_eq!(injected.fragments.len(), 1);
    let omitted = injected.omitted.iter();
    let omitted: Vec<_> = omitted
        .map(|left| (&*left.mention, &*left.reason))
        .collect();
    let reason = "the skill is not in this session";
    assert_eq!(omitted, [("alpha", reason), ("skill://r/alpha", reason)]);

    let fleet = [("r".to_owned(), super::executor(&daemon.address))];
    let saved = first.save().expect("a small session");
    let restored =
        Session::restore(&Fleet::from_executors(fleet), &saved, &impatient_options()).await;
    let restored = restored.expect("a saved session").session;
    assert_eq!(restored.flat_tools()[2]["name"], "search");
    assert_eq!(names(&search(&restored, "alpha").await), ["alpha"]);

    let _ = restored.close(false).await;
    let closed = in_time(restored.search_skills("alpha", 5)).await;
    assert_eq!(
        closed.map_err(|error| error.code()),
        Err(ToolErrorCode::SessionClosed)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn an_empty_search_says_what_to_do() {
    let (_fixture, daemon) = serve_tree("r", "skill r/alpha").await;
    let session = session(&[("r", &daemon.address)]).await;
    search(&session, "alpha").await;
    for _ in 0..2 {
        let page = search(&session, "quantum").await;
        assert!(names(&page).is_empty());
        let warning = page["warnings"].to_string();
        assert!(
            warning.contains("skills.list") && warning.contains("other words"),
            "{warning}"
        );
    }
    assert_eq!(
        error_code(&session, json!({"query": "🦀"})).await,
        "INVALID_ARGUMENTS"
    );

    daemon.stop().await;
}

#[tokio::test]
async fn bad_arguments_are_rejected_with_a_hint() {
    let texts = NamedText::parse_lines(recall::SKILLS);
    let skills = listing(SourceKind::Local, &texts);
    let sources = || {
        vec![source(SourceKind::Local, {
            let skills = skills.clone();
            move |_| skills.clone()
        })]
    };
    let session = start_session(sources(), &SessionOptions::default()).await;
    for arguments in [
        json!({}),
        json!({"query": ""}),
        json!({"query": " \u{200b}"}),
        json!({"query": 7}),
        json!({"query": "pdf", "limit": 0}),
        json!({"query": "pdf", "limit": -1}),
        json!({"query": "pdf", "more": 1}),
        json!({"query": "🦀".repeat(400)}),
        json!({"query": "x".repeat(401)}),
        json!({"query": "pdf form ".repeat(10 << 20 >> 3)}),
    ] {
        let result = in_time(session.call("skills.search", &arguments)).await;
        let error = parse_result(&result)["error"].clone();
        assert_eq!(error["code"], "INVALID_ARGUMENTS");
        assert!(error.to_string().len() < 600, "{error}");
    }
    for query in [
        "x",
        "\u{202e}pdf\u{200b}",
        "填写表格",
        "电子表格",
        &"pdf ".repeat(100),
    ] {
        search(&session, query).await;
    }
    assert_eq!(
        names(&search(&session, "p\u{200b}df-merge\u{2066}-split").await)[0],
        "pdf-merge-split"
    );

    let page = json!({"query": "pdf", "limit": 2});
    let page = call(&session, "skills.search", page).await;
    let cursor = page["next_cursor"].as_str().expect("a second page");
    for (query, cursor) in [("docx", cursor), ("pdf", "x"), ("pdf", "é")] {
        let arguments = json!({"query": query, "cursor": cursor});
        assert_eq!(
            error_code(&session, arguments).await,
            "INVALID_CURSOR",
            "{query}"
        );
    }
    let first = json!({"query": "pdf", "limit": 2, "cursor": ""});
    assert_eq!(call(&session, "skills.search", first).await, page);
    let listed = call(&session, "skills.list", json!({})).await;
    let arguments = json!({"query": "pdf", "cursor": listed["next_cursor"]});
    assert_eq!(error_code(&session, arguments).await, "INVALID_CURSOR");
    let other = start_session(sources(), &SessionOptions::default()).await;
    let arguments = json!({"query": "pdf", "cursor": cursor});
    assert_eq!(error_code(&other, arguments).await, "CATALOG_CHANGED");
}

/// The names of the catalog of each call have the number of the call.
#[tokio::test]
async fn a_page_never_mixes_two_views() {
    let changing = source(SourceKind::Local, |call| {
        let texts = (0..40).map(|number| NamedText {
            name: format!("v{call}-{number}"),
            description: "Reads files.".to_owned(),
        });
        listing(SourceKind::Local, &texts.collect::<Vec<_>>())
    });
    let session = start_session(vec![changing], &SessionOptions::default()).await;
    let query = json!({"query": "reads files", "limit": 7});
    let first = call(&session, "skills.search", query.clone()).await;
    let version = |page: &Value| {
        let prefixes = names(page)
            .into_iter()
            .map(|name| name.split('-').next().expect("a prefix").to_owned());
        prefixes.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((names(&first).len(), version(&first).len()), (7, 1));

    let mut seen = names(&first).len();
    let mut page = first.clone();
    while !page["next_cursor"].is_null() {
        let mut next = query.clone();
        next["cursor"] = page["next_cursor"].clone();
        page = call(&session, "skills.search", next).await;
        assert_eq!(version(&page), version(&first));
        seen += names(&page).len();
    }
    assert_eq!(seen, 40);

    for _ in 0..8 {
        let page = call(&session, "skills.search", query.clone()).await;
        assert!(version(&page).is_disjoint(&version(&first)));
    }
    let mut old = query.clone();
    old["cursor"] = first["next_cursor"].clone();
    assert_eq!(error_code(&session, old).await, "CATALOG_CHANGED");
}

/// A masked skill is not found, and its words do not change the results.
#[tokio::test]
async fn masked_and_unchosen_skills_have_no_effect() {
    let text = |name: &str, description: &str| NamedText {
        name: name.to_owned(),
        description: description.to_owned(),
    };
    let local = [
        text("one", "zebra yak"),
        text("two", "zebra"),
        text("far", "yak gnu"),
    ];
    let remote = [text("one", "emu emu yak"), text("three", "gnu yak")];
    let options = |rules: &[&str]| SessionOptions {
        choice: SkillChoice {
            exclude: rules
                .iter()
                .map(|rule| rule.parse().expect("a rule"))
                .collect(),
            ..SkillChoice::default()
        },
        ..SessionOptions::default()
    };
    let fixed = |kind, texts: &[NamedText]| {
        let skills = listing(kind, texts);
        source(kind, move |_| skills.clone())
    };

    let all = vec![
        fixed(SourceKind::Local, &local),
        fixed(SourceKind::Mcp, &remote),
    ];
    let all = start_session(all, &options(&["name:far"])).await;
    let only = vec![
        fixed(SourceKind::Local, &local[..2]),
        fixed(SourceKind::Mcp, &remote[1..]),
    ];
    let only = start_session(only, &options(&[])).await;
    assert!(names(&search(&all, "emu").await).is_empty());
    for query in ["zebra yak", "yak", "gnu yak zebra", "one", "emuu yak"] {
        let found = search(&all, query).await;
        assert_eq!(names(&found), names(&search(&only, query).await), "{query}");
        assert!(!names(&found).contains(&"far"));
    }
}
