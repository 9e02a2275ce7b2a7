//! Laws of the search: skills that a view does not list have no effect, an updated index is a new index,
//! several catalogs are one, and pages join to the whole result.

use super::ranking::rank_skills;
use super::view_index::{IndexedSkill, ViewIndex};
use super::{ResultRange, SearchQuery, cursor_binding, search_page};
use crate::skills::result::ResultForm;
use crate::skills::skill_source::SkillListing;
use crate::view::list::tests::skill;
use crate::view::session_view::SessionView;
use crate::view::view_cursor::ViewCursor;
use caproot_core::proto::caproot::v1::Skill;
use caproot_core::wire::cursor::Cursor as _;
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;

const QUERIES: &[&str] = &[
    "aa bb", "ab", "aabb", "a-b", "dab cad", "abcdabcd", "kit:ab", "abcdabc", "AaBb", "表格",
];

/// Returns a skill of a root, with its number in its handle.
fn numbered(root: &str, number: usize, parts: &SkillParts) -> Arc<Skill> {
    let made = skill(root, &parts.name, &parts.description, parts.is_hidden);
    Arc::new(Skill {
        package: format!("skill://{root}/{number}"),
        ..Skill::clone(&made)
    })
}

fn view(id: u64, catalogs: &[Vec<Arc<Skill>>], is_listed: impl Fn(&Skill) -> bool) -> SessionView {
    let listings = catalogs.iter().map(|skills| {
        Arc::new(SkillListing {
            skills: skills.clone(),
            ..SkillListing::default()
        })
    });
    let listed = catalogs.iter().flatten().filter(|skill| is_listed(skill));
    SessionView {
        id,
        skills: listed.cloned().collect(),
        listings: listings.collect(),
        ..SessionView::closed()
    }
}

/// Returns the handles of the found skills.
fn found_packages(view: &SessionView, index: &ViewIndex, query: &str) -> Vec<String> {
    let query = SearchQuery::parse(query).expect("a short query");
    let positions = rank_skills(view, index, &query).into_iter();
    positions
        .map(|position| view.skills[position as usize].package.clone())
        .collect()
}

/// Returns the ends of the handles of the found skills of a new index.
fn search(view: &SessionView, query: &str) -> Vec<String> {
    found_packages(view, &ViewIndex::build(view, None), query)
}

#[derive(Debug, Clone)]
struct SkillParts {
    name: String,
    description: String,
    is_hidden: bool,
}

fn any_parts() -> impl Strategy<Value = SkillParts> {
    let name = prop_oneof![
        "[a-d]{1,3}(-[a-d]{1,3})?",
        "kit:[a-c]{1,2}",
        "[a-d]{8,12}",
        "[A-C][a-c]{1,2}[A-C][a-c]"
    ];
    let description = prop::collection::vec("[a-d]{1,4}|表格|[A-C]b[A-C]a", 0..8);
    (name, description, prop::bool::weighted(0.2)).prop_map(|(name, words, is_hidden)| SkillParts {
        name,
        description: words.join(" "),
        is_hidden,
    })
}

fn any_skills() -> impl Strategy<Value = Vec<Arc<Skill>>> {
    prop::collection::vec(any_parts(), 0..40).prop_map(|parts| {
        let numbers = parts.iter().enumerate();
        numbers.map(|(n, parts)| numbered("r", n, parts)).collect()
    })
}

fn any_query() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(QUERIES).prop_map(str::to_owned),
        prop::collection::vec("[a-d]{1,5}", 1..5).prop_map(|words| words.join(" ")),
        "(?s).{1,40}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn unlisted_skills_have_no_effect(
        skills in any_skills(), listed in prop::collection::vec(any::<bool>(), 40), query in any_query(),
    ) {
        let number = |skill: &Skill| skill.package["skill://r/".len()..].parse::<usize>().expect("a number");
        let is_listed = |skill: &Skill| listed[number(skill)];
        let some = view(1, std::slice::from_ref(&skills), is_listed);
        let only: Vec<_> = skills.iter().filter(|s| is_listed(s) && s.is_offered()).cloned().collect();
        let expected = search(&view(2, std::slice::from_ref(&only), |_| true), &query);
        prop_assert_eq!(&search(&some, &query), &expected);
        prop_assert!(expected.len() <= 100);
    }

    #[test]
    fn an_updated_index_is_a_new_index(
        before in any_skills(), added in prop::collection::vec((0_usize..40, any_parts()), 0..6),
        removed in prop::collection::vec(0_usize..40, 0..6), query in any_query(),
    ) {
        let mut after = before.clone();
        for (at, parts) in &added {
            // A handle of an earlier skill, or a new one.
            after.retain(|skill| skill.package != format!("skill://r/{at}"));
            after.insert((*at).min(after.len()), numbered("r", *at, parts));
        }
        for at in removed {
            after.retain(|skill| skill.package != format!("skill://r/{at}"));
        }

        let earlier = ViewIndex::build(&view(1, &[before], |_| true), None);
        let now = view(2, &[after.clone()], |_| true);
        let updated = ViewIndex::build(&now, Some(&earlier));
        // Equal skills at other addresses do not share the updated index.
        let copies: Vec<_> = after.iter().map(|skill| Arc::new(Skill::clone(skill))).collect();
        prop_assert_eq!(found_packages(&now, &updated, &query), search(&view(3, &[copies], |_| true), &query));
    }

    #[test]
    fn several_catalogs_are_one(skills in any_skills(), cut in 0_usize..40, query in any_query()) {
        let cut = cut.min(skills.len());
        let of_root = |root: &str, part: &[Arc<Skill>]| -> Vec<Arc<Skill>> {
            part.iter()
                .map(|s| {
                    let mut copy = Skill::clone(s);
                    copy.authority.as_mut().expect("an authority").id = root.to_owned();
                    Arc::new(copy)
                })
                .collect()
        };
        let parts = [of_root("a", &skills[..cut]), of_root("b", &skills[cut..])];
        prop_assert_eq!(search(&view(1, &parts, |_| true), &query), search(&view(2, &[skills], |_| true), &query));
    }

    #[test]
    fn pages_join_to_the_whole_result(skills in any_skills(), query in any_query(), limit in 1_usize..6) {
        let view = view(7, &[skills], |_| true);
        let index = ViewIndex::build(&view, None);
        let found = rank_skills(&view, &index, &SearchQuery::parse(&query).expect("a short query"));
        let mut begin = 0;
        let mut joined = Vec::new();
        loop {
            let range = ResultRange { begin, limit };
            let page = search_page(&view, &found, range, &query, ResultForm::default());
            let page = serde_json::to_value(&page).expect("JSON");
            let skills = page["skills"].as_array().expect("a list");
            prop_assert!(skills.len() <= limit);
            joined.extend(skills.iter().map(|skill| skill["package"].as_str().expect("text").to_owned()));
            prop_assert_eq!(&page["truncated"], &Value::Bool(!page["next_cursor"].is_null()));

            let Some(cursor) = page["next_cursor"].as_str() else { break };
            prop_assert_eq!(ViewCursor::decode(cursor, b""), None);
            prop_assert_eq!(ViewCursor::decode(cursor, b"search another query"), None);
            let next = ViewCursor::decode(cursor, cursor_binding(&query).as_bytes()).expect("a cursor");
            prop_assert!(next.view_id == 7 && next.index as usize > begin && cursor.len() <= 31);
            begin = next.index as usize;
        }
        let whole: Vec<_> = found.iter().map(|at| view.skills[*at as usize].package.clone()).collect();
        prop_assert_eq!(joined, whole);
    }
}

fn described(lines: &[(&str, &str)]) -> SessionView {
    let skills = lines
        .iter()
        .enumerate()
        .map(|(number, (name, description))| {
            let parts = SkillParts {
                name: (*name).to_owned(),
                description: (*description).to_owned(),
                is_hidden: false,
            };
            numbered("r", number, &parts)
        });
    view(1, &[skills.collect()], |_| true)
}

/// Returns the numbers of the found skills.
fn numbers(view: &SessionView, query: &str) -> Vec<usize> {
    let found = search(view, query);
    let numbers = found
        .iter()
        .map(|package| package["skill://r/".len()..].parse());
    numbers.map(|number| number.expect("a number")).collect()
}

#[test]
fn names_come_first() {
    let view = described(&[
        ("deploy-helper", "Deploys, deploys and deploys the deploy."),
        ("kit:deploy", "Ships."),
        ("deploy", "Ships."),
        ("help", "Answers."),
    ]);
    assert_eq!(numbers(&view, "Deploy!"), [1, 2, 0]);
    assert_eq!(numbers(&view, "kit deploy")[0], 1);
    // A transposition, and a name of stop words.
    assert_eq!(numbers(&view, "delpoy")[..2], [1, 2]);
    assert_eq!(numbers(&view, "help"), [3]);
    assert_eq!(numbers(&view, "helpp"), [3]);
}

#[test]
fn a_misspelled_term_is_replaced() {
    let view = described(&[
        ("a", "Fills spreadsheets."),
        ("b", "Paints walls."),
        ("c", "Fills bottles."),
    ]);
    assert_eq!(numbers(&view, "spredsheet"), [0]);
    assert_eq!(numbers(&view, "spraedsheets"), [0]);
    assert!(numbers(&view, "spxxxxheets").is_empty());
}

#[test]
fn camel_case_words_are_found_whole_and_in_parts() {
    let view = described(&[
        ("x", "Adds to-dos in TickTick."),
        ("y", "Adds to-dos in Ticktick."),
    ]);
    assert_eq!(numbers(&view, "ticktick").len(), 2);
    assert_eq!(numbers(&view, "tick"), [0]);
    let view = described(&[("x", "Adds to-dos."), ("y", "Adds to-dos in Ticktick.")]);
    assert_eq!(numbers(&view, "TickTick"), [1]);
}

#[test]
fn equal_names_do_not_fill_the_page() {
    let mut lines = vec![("pdf", "Reads a file."); 60];
    lines.extend(["one", "two", "three"].map(|name| (name, "Reads a file.")));
    let found = numbers(&described(&lines), "read file pdf");
    assert_eq!(found[0], 0);

    let found = numbers(&described(&lines), "read file");
    assert_eq!(found[..5], [0, 60, 61, 62, 1]);
    assert_eq!(found.len(), 63);
}

/// A rule of a session that switches a skill on gives the view a copy.
#[test]
fn a_copy_of_a_listed_skill_is_found() {
    let mut view = described(&[("a", "Solo."), ("b", "Solo.")]);
    view.skills[1] = Arc::new(Skill::clone(&view.skills[1]));
    assert_eq!(numbers(&view, "solo"), [0, 1]);
}

#[test]
fn bad_results_are_cut() {
    let view = described(&[
        ("one", "zebra zebra zebra yak"),
        (
            "two",
            "yak and a long text about many other animals of the steppe and forest",
        ),
        ("three", "yak"),
        ("four", "yak"),
    ]);
    assert_eq!(numbers(&view, "zebra yak"), [0]);
}

#[test]
fn bad_queries_have_no_result_or_no_query() {
    let view = described(&[("a", "Solo."), ("表格", "处理表格文件。")]);
    for query in [
        "",
        " ",
        "🦀🦀🦀",
        "\u{200b}\u{202e}",
        "x",
        "please help me",
        "!?",
    ] {
        assert!(numbers(&view, query).is_empty(), "{query:?}");
    }
    assert!(numbers(&view, &"🦀".repeat(400)).is_empty());
    assert!(SearchQuery::parse(&"x".repeat(401)).is_none());
    assert!(SearchQuery::parse(&"x y ".repeat(2_500_000)).is_none());
    assert_eq!(numbers(&view, "表格 文件"), [1]);
    assert_eq!(numbers(&view, "s\u{200b}ol\u{ad}o"), [0]);

    let many = (0..80)
        .map(|n| format!("w{n}"))
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(SearchQuery::parse(&many).expect("a query").terms.len(), 32);
}

#[test]
fn many_skills_of_one_name_are_bounded() {
    let view = described(&vec![("pdf", "Reads a file."); 20_000]);
    let index = ViewIndex::build(&view, None);
    for query in ["pdf", "read file", "pdff reads", "pdx"] {
        let query = SearchQuery::parse(query).expect("a short query");
        let found = rank_skills(&view, &index, &query);
        assert!(found.iter().copied().eq(0..100), "{found:?}");
    }
}

#[test]
fn an_index_takes_few_bytes() {
    let words = [
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta",
    ];
    let description = |n: usize| {
        let words = (0..25).map(|at| format!("{}{}", words[(n + at) % 8], (n * 7 + at * 13) % 900));
        words.collect::<Vec<_>>().join(" ")
    };
    let skills: Vec<_> = (0..5_000)
        .map(|n| {
            let parts = SkillParts {
                name: format!("skill-{}-{n}", words[n % 8]),
                description: description(n),
                is_hidden: false,
            };
            numbered("r", n, &parts)
        })
        .collect();
    let index = ViewIndex::build(&view(1, &[skills], |_| true), None);
    let listings = index.listings.iter();
    let tables = listings.map(|listing| listing.table(None).heap_bytes());
    let own = size_of::<IndexedSkill>() * index.skills.capacity();
    let bytes = (tables.sum::<usize>() + own) / index.skills.len();
    assert!((100..250).contains(&bytes), "{bytes} bytes a skill");
}
