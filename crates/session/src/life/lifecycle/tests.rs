//! Forks of random sessions: a fork never has a skill that its session does not have.

use super::ForkScope;
use crate::options::choice::SkillChoice;
use crate::options::session_options::SessionOptions;
use crate::skills::result::ToolError;
use crate::skills::skill_source::{
    SkillListing, SkillSource, SourceKind, SourceSnapshot, TextPage, TextPageRequest,
};
use crate::state::Session;
use caproot_client::Fleet;
use caproot_core::proto::caproot::v1::{Authority, Skill};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const NAMES: [&str; 4] = ["deploy", "mail", "notes", "pdf"];
/// Two sources of each kind.
const SOURCE_IDS: [&str; 6] = ["e0", "e1", "l0", "l1", "m0", "m1"];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
});

/// Source with fixed skills, whose files have the handle of the skill as their text.
#[derive(Debug)]
struct FixedSource {
    id: &'static str,
    kind: SourceKind,
    listing: Arc<SkillListing>,
    is_lost: bool,
}

impl FixedSource {
    fn new(index: usize, names: &BTreeSet<usize>, is_lost: bool) -> Self {
        let id = SOURCE_IDS[index];
        let kind = SourceKind::ALL[index / 2];
        let skills = names.iter().map(|name| {
            let package = format!("skill://{id}/{}", NAMES[*name]);
            Arc::new(Skill {
                authority: Some(Authority {
                    kind: kind.name().into(),
                    id: id.into(),
                }),
                main_resource: format!("{package}/SKILL.md"),
                package,
                name: NAMES[*name].into(),
                user_invocable: true,
                ..Skill::default()
            })
        });
        Self {
            id,
            kind,
            is_lost,
            listing: Arc::new(SkillListing {
                skills: skills.collect(),
                ..SkillListing::default()
            }),
        }
    }
}

impl SkillSource for FixedSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn id(&self) -> &str {
        self.id
    }

    fn authorities(&self) -> Vec<String> {
        vec![self.id.to_owned()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        SourceSnapshot {
            listing: self.listing.clone(),
            unavailable_reason: self.is_lost.then(|| "it is lost".to_owned()),
        }
    }

    fn read_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        let page = TextPage {
            resource: format!("{}/SKILL.md", request.package),
            contents: request.package.clone(),
            next_cursor: String::new(),
            digest: String::new(),
        };
        Box::pin(std::future::ready(Ok(page)))
    }
}

/// Rules and roots of a fork.
#[derive(Debug, Clone)]
struct ForkStep {
    choice: SkillChoice,
    roots: Option<Vec<&'static str>>,
}

fn start(sources: Vec<Arc<dyn SkillSource>>, choice: SkillChoice) -> Session {
    let options = SessionOptions {
        choice,
        ..SessionOptions::default()
    };
    let _context = RUNTIME.enter();
    let fleet = Fleet::from_executors([]);
    let started = Session::start_with(&fleet, Vec::new(), sources, &options);
    RUNTIME.block_on(started).expect("distinct sources")
}

fn fork(session: &Session, step: &ForkStep) -> Session {
    let known: Vec<_> = session.authorities.iter().map(|known| &*known.id).collect();
    let roots = step.roots.as_ref().map(|roots| {
        let selected = roots.iter().copied().filter(|root| known.contains(root));
        selected.collect::<Vec<_>>()
    });
    let scope = roots.as_deref().map_or(ForkScope::All, ForkScope::Only);
    let fork = session.fork(scope).expect("known roots");
    fork.with_narrower_choice(&step.choice).expect("few rules")
}

/// Handles that a session lists, describes, injects and reads.
#[derive(Debug, PartialEq, Eq)]
struct SeenSkills {
    listed: BTreeSet<String>,
    described: BTreeSet<String>,
    injected: BTreeSet<String>,
    read: BTreeSet<String>,
    counted: usize,
}

impl SeenSkills {
    fn of_session(session: &Session) -> Self {
        let listed = session.listed_skills().expect("an open session");
        let text = session.instruction_text(100_000);
        let prompt = NAMES.map(|name| format!("${name}")).join(" ");
        let injected = RUNTIME.block_on(session.inject(&prompt.as_str().into()));
        // An ambiguous name also tells which skills there are.
        let candidates = injected
            .ambiguous
            .into_iter()
            .flat_map(|name| name.candidates);
        let fragments = injected.fragments.into_iter().map(|skill| skill.package);
        let counts = session.source_states().into_iter();

        Self {
            listed: listed.into_iter().map(|skill| skill.package).collect(),
            described: text
                .skills
                .iter()
                .map(|placed| placed.skill.package.clone())
                .collect(),
            injected: candidates
                .map(|candidate| candidate.package)
                .chain(fragments)
                .collect(),
            read: readable_packages(session),
            counted: counts.map(|source| source.skills).sum(),
        }
    }

    fn is_within(&self, parent: &Self) -> bool {
        self.listed.is_subset(&parent.listed)
            && self.described.is_subset(&parent.described)
            && self.injected.is_subset(&parent.injected)
            && self.read.is_subset(&parent.read)
            && self.counted <= parent.counted
    }
}

/// Returns the packages that the read tool reads.
fn readable_packages(session: &Session) -> BTreeSet<String> {
    let ids = SOURCE_IDS.iter();
    let packages = ids.flat_map(|id| NAMES.map(|name| format!("skill://{id}/{name}")));
    packages
        .filter(|package| {
            let arguments = json!({ "package": package });
            let result = RUNTIME.block_on(session.call("skills.read", &arguments));
            let page: Value = serde_json::from_str(&result.json).expect("JSON");
            page["contents"] == package.as_str()
        })
        .collect()
}

fn any_rule() -> impl Strategy<Value = String> {
    let name = prop::sample::select(&NAMES[..]).prop_map(|name| format!("name:{name}"));
    let source = (0..SOURCE_IDS.len()).prop_map(|index| {
        let kind = SourceKind::ALL[index / 2].name();
        format!("source:{kind}/{}", SOURCE_IDS[index])
    });
    let handle = (
        prop::sample::select(&SOURCE_IDS[..]),
        prop::sample::select(&NAMES[..]),
    )
        .prop_map(|(id, name)| format!("handle:skill://{id}/{name}"));
    prop_oneof![name, source, handle]
}

fn any_choice() -> impl Strategy<Value = SkillChoice> {
    let rules = || prop::collection::vec(any_rule(), 0..3);
    (rules(), rules()).prop_map(|(include, exclude)| {
        let mut mistakes = Vec::new();
        let choice = SkillChoice {
            include: crate::ChoiceRule::parse_all(&include, &mut mistakes),
            exclude: crate::ChoiceRule::parse_all(&exclude, &mut mistakes),
            ..SkillChoice::default()
        };
        assert_eq!(mistakes, [""; 0]);
        choice
    })
}

fn any_step() -> impl Strategy<Value = ForkStep> {
    let roots = prop::sample::subsequence(&SOURCE_IDS[..], 0..=SOURCE_IDS.len());
    (any_choice(), prop::option::of(roots)).prop_map(|(choice, roots)| ForkStep { choice, roots })
}

fn any_sources() -> impl Strategy<Value = Vec<Arc<dyn SkillSource>>> {
    let names = prop::collection::btree_set(0..NAMES.len(), 0..=NAMES.len());
    let source = (names, prop::bool::weighted(0.1));
    prop::collection::vec(source, SOURCE_IDS.len()).prop_map(|sources| {
        let sources = sources.iter().enumerate();
        sources
            .map(|(index, (names, is_lost))| {
                Arc::new(FixedSource::new(index, names, *is_lost)) as Arc<dyn SkillSource>
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_fork_of_a_fork_never_has_a_skill_that_its_session_does_not_have(
        sources in any_sources(),
        choice in any_choice(),
        steps in prop::collection::vec(any_step(), 1..4),
    ) {
        let mut session = start(sources, choice);
        let mut seen = SeenSkills::of_session(&session);

        for step in &steps {
            let narrower = fork(&session, step);
            let now = SeenSkills::of_session(&narrower);
            prop_assert!(now.is_within(&seen), "{now:?} in {seen:?} after {step:?}");

            // A fork without rules has the same skills again, also with the rules of all steps.
            let again = narrower.fork(ForkScope::All).expect("an open session");
            prop_assert_eq!(&SeenSkills::of_session(&again), &now);
            (session, seen) = (narrower, now);
        }
    }
}

#[test]
fn an_excluded_skill_masks_its_name_in_a_fork() {
    let names = BTreeSet::from([3]);
    let sources = [0, 2]
        .map(|index| Arc::new(FixedSource::new(index, &names, false)) as Arc<dyn SkillSource>);
    let session = start(sources.to_vec(), SkillChoice::default());
    let by_rule = ForkStep {
        choice: SkillChoice {
            exclude: vec!["source:executor/e0".parse().expect("a rule")],
            ..SkillChoice::default()
        },
        roots: None,
    };
    let by_root = ForkStep {
        choice: SkillChoice::default(),
        roots: Some(vec!["l0"]),
    };
    for step in [by_rule, by_root] {
        let fork = fork(&session, &step);
        assert_eq!(fork.listed_skills().expect("open"), [], "{step:?}");
        assert_eq!(fork.instruction_text(8_000).text, "", "{step:?}");
    }
}
