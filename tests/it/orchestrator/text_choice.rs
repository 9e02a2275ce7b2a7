//! Instruction texts with descriptions and with bare names, on the
//! skills below `CAPROOT_CORPUS`.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use caproot_client::Fleet;
use caproot_session::{
    DEFAULT_BUDGET, InstructionText, Session, SessionOptions, SkillChoice, SkillInText,
};

use super::{executor, impatient_options, published, start_daemon};
use crate::harness::in_time;

/// Words that most skills have.
const STOP_WORDS: &str = "a an and are as at be by can do for from has have how if in into is it its not \
    of on only or other should than that the them then this to use used user using when which will \
    with you your skill skills task tasks";
/// Words of a query, and the words of it that must stand in the line of a skill.
const QUERY_WORDS: usize = 5;
const ENOUGH_WORDS: usize = 2;

/// Body of a skill, by its handle.
struct SkillBody {
    package: String,
    words: Vec<String>,
}

/// Returns the words of a text as keywords: lower-case, and without their endings.
fn keywords(text: &str) -> Vec<String> {
    let stop_words: BTreeSet<_> = STOP_WORDS.split_whitespace().collect();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.map(str::to_lowercase);
    words
        .filter(|word| word.len() > 1 && !stop_words.contains(word.as_str()))
        .map(|word| word.chars().take(6).collect())
        .collect()
}

/// Returns a query for each body: the words that the body has often, and few other bodies have.
fn queries(bodies: &[SkillBody]) -> Vec<Vec<&str>> {
    let mut frequencies: HashMap<&str, u32> = HashMap::new();
    for body in bodies {
        for word in body.words.iter().collect::<BTreeSet<_>>() {
            *frequencies.entry(word).or_default() += 1;
        }
    }

    let total = f64::from(u32::try_from(bodies.len()).expect("few skills"));
    let queries = bodies.iter().map(|body| {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for word in &body.words {
            *counts.entry(word).or_default() += 1;
        }
        let repeated = counts
            .iter()
            .filter(|(word, count)| **count > 1 && frequencies[*word] > 1);
        let mut weighted: Vec<_> = repeated
            .map(|(word, count)| {
                let rarity = (total / f64::from(frequencies[word])).ln();
                ((1.0 + f64::from(*count).ln()) * rarity, *word)
            })
            .collect();
        weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let words = weighted.into_iter().take(QUERY_WORDS);
        words.map(|(_, word)| word).collect()
    });
    queries.collect()
}

/// Returns how many queries have their skill in a text, in a line with enough of their words.
fn count_visible(text: &InstructionText, bodies: &[SkillBody], queries: &[Vec<&str>]) -> usize {
    let line_of = |placed: &SkillInText| {
        let mut lines = text.text.lines().filter_map(|line| line.strip_prefix("- "));
        lines.find(|line| match &placed.short_name {
            Some(name) => line
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(": ")),
            None => line.ends_with(&format!("({})", placed.skill.package)),
        })
    };
    let lines: HashMap<&str, Vec<String>> = text
        .skills
        .iter()
        .filter_map(|placed| Some((placed.skill.package.as_str(), keywords(line_of(placed)?))))
        .collect();
    let pairs = bodies.iter().zip(queries);
    let visible = pairs.filter(|(body, query)| {
        let line = lines.get(body.package.as_str());
        let known = line.map_or(0, |line| {
            query
                .iter()
                .filter(|word| line.iter().any(|known| known == *word))
                .count()
        });
        known >= ENOUGH_WORDS
    });
    visible.count()
}

#[tokio::test]
async fn descriptions_match_no_fewer_keyword_queries_than_bare_names() {
    let Some(corpus) = std::env::var_os("CAPROOT_CORPUS") else {
        println!("SKIPPED: CAPROOT_CORPUS is not set");
        return;
    };
    let daemon = start_daemon("r", PathBuf::from(corpus), None).await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let start = async |choice: SkillChoice| {
        let options = SessionOptions {
            choice,
            ..impatient_options()
        };
        let session = Session::start(&fleet, vec![published("r")], &options).await;
        let session = session.expect("a session");
        // The first scan of the corpus may take longer than the start waits.
        let mut changes = session.watch();
        while session.listed_skills().expect("open").is_empty() {
            in_time(changes.next()).await;
        }
        session
    };
    let described = start(SkillChoice::default()).await;
    let named = start(SkillChoice {
        name_only: vec!["source:executor/r".parse().expect("a rule")],
        ..SkillChoice::default()
    })
    .await;

    let mut bodies = Vec::new();
    for skill in described.listed_skills().expect("open") {
        let text = in_time(described.read_file(&skill.package, Some(&skill.authority), "")).await;
        let text = text.expect("a SKILL.md");
        let body = text.splitn(3, "---").last().expect("a text");
        bodies.push(SkillBody {
            words: keywords(body),
            package: skill.package,
        });
    }
    let queries = queries(&bodies);
    let [described, named] = [described, named].map(|session| {
        let text = session.instruction_text(DEFAULT_BUDGET);
        assert!(text.text.len() <= DEFAULT_BUDGET);
        let visible = count_visible(&text, &bodies, &queries);
        println!(
            "{} skills in the text, visible for {visible} of {} queries",
            text.listed,
            bodies.len()
        );
        visible
    });
    // Descriptions are dropped before a name is omitted.
    assert!(
        described > 0 && described >= named,
        "{described} with descriptions, {named} by name"
    );
    daemon.stop().await;
}
