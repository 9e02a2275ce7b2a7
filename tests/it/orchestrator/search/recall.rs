//! How often a search finds the right skill: by keywords as a model writes them, by exact names and by
//! misspelled names, in a catalog of the repository and in real catalogs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use caproot_session::{Session, SessionOptions, SourceKind};

use super::super::session::session;
use super::super::start_daemon;
use super::{NamedText, listing, source, start_session};
use crate::harness::in_time;
use crate::harness::rng::Rng;

/// Names and descriptions of 350 skills in families.
pub(super) const SKILLS: &str = include_str!("../../../search/skills.txt");
/// Queries, each with the name of the right skill. The keywords are not copied from the description.
const QUERIES: &str = include_str!("../../../search/queries.txt");

/// Results that count.
const TOP: usize = 5;

/// Rank of the right skill by query; `None` if the skill is not among the first 20.
type Ranks = BTreeMap<String, Option<usize>>;

fn fold(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the rank of the right skill, from 1 on.
async fn rank(session: &Session, query: &str, name: &str) -> Option<usize> {
    let found = in_time(session.search_skills(query, 20))
        .await
        .expect("a query");
    let position = found
        .iter()
        .position(|skill| fold(&skill.name) == fold(name));
    position.map(|position| position + 1)
}

/// Asserts that this part of the queries has the right skill among the first results.
fn assert_recall(title: &str, ranks: &Ranks, least: f64) {
    let is_hit = |rank: &Option<usize>| rank.is_some_and(|rank| rank <= TOP);
    let hits = ranks.values().filter(|rank| is_hit(rank)).count();
    let recall = f64::from(u32::try_from(hits).expect("few"))
        / f64::from(u32::try_from(ranks.len()).expect("few"));
    let misses: Vec<_> = ranks.iter().filter(|(_, rank)| !is_hit(rank)).collect();
    println!(
        "{title}: recall@{TOP} {recall:.3} of {}; missed {misses:?}",
        ranks.len()
    );
    assert!(recall >= least, "{title}: {recall:.3}; missed {misses:?}");
}

/// Returns a word with one edit: a character is removed, doubled, replaced, or swapped with the next.
fn with_typo(word: &str, rng: &mut Rng) -> String {
    let mut chars: Vec<char> = word.chars().collect();
    let last = chars.len() as u64 - 1;
    let at = usize::try_from(rng.below(last)).expect("a place");
    match rng.below(4) {
        0 => drop(chars.remove(at)),
        1 => chars.insert(at, chars[at]),
        2 => chars[at] = if chars[at] == 'x' { 'q' } else { 'x' },
        _ => chars.swap(at, at + 1),
    }
    chars.into_iter().collect()
}

/// Returns a name with a typo in its longest word.
fn misspelled(name: &str, rng: &mut Rng) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let longest = words
        .max_by_key(|word| word.chars().count())
        .expect("a word");
    let typo = loop {
        let typo = with_typo(longest, rng);
        if typo != longest {
            break typo;
        }
    };
    name.replacen(longest, &typo, 1)
}

/// Checks exact names in four spellings and misspelled names.
async fn check_names(title: &str, session: &Session, names: &[String]) {
    let mut rng = Rng::new(7);
    let mut typos = Ranks::new();
    for name in names {
        let spaced = name.replace(['-', '_', ':'], " ");
        for query in [
            name.as_str(),
            &spaced,
            &spaced.replace(' ', ""),
            &name.to_uppercase(),
        ] {
            assert_eq!(
                rank(session, query, name).await,
                Some(1),
                "{title}: {query}"
            );
        }
        let typo = misspelled(name, &mut rng);
        typos.insert(typo.clone(), rank(session, &typo, name).await);
    }
    assert_recall(&format!("{title}, one typo"), &typos, 0.98);
}

#[tokio::test]
async fn keywords_and_names_find_the_right_skill() {
    let texts = NamedText::parse_lines(SKILLS);
    assert_eq!(texts.len(), 350);
    let skills = listing(SourceKind::Local, &texts);
    let source = source(SourceKind::Local, move |_| skills.clone());
    let session = start_session(vec![source], &SessionOptions::default()).await;

    let mut ranks = Ranks::new();
    let queries = NamedText::parse_lines(QUERIES);
    assert_eq!(queries.len(), 40);
    for NamedText {
        name,
        description: query,
    } in queries
    {
        assert!(texts.iter().any(|text| text.name == name), "{name}");
        ranks.insert(query.clone(), rank(&session, &query, &name).await);
    }
    assert_recall("keywords", &ranks, 0.95);

    let names: Vec<_> = texts.into_iter().map(|text| text.name).collect();
    check_names("fixture", &session, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_real_catalogs_are_found() {
    let Some(corpus) = std::env::var_os("CAPROOT_CORPUS") else {
        println!("SKIPPED: CAPROOT_CORPUS is not set");
        return;
    };
    let daemon = start_daemon("corpus", PathBuf::from(corpus), None).await;
    let session = session(&[("corpus", &daemon.address)]).await;
    let listed = session.sources()[0].snapshot().listing;
    let names = listed.skills.iter().filter(|skill| skill.is_offered());
    let mut names: Vec<_> = names.map(|skill| skill.name.clone()).collect();
    names.sort();
    names.dedup();
    assert!(names.len() > 100, "{} skills", names.len());
    check_names("corpus", &session, &names).await;
    daemon.stop().await;
}
