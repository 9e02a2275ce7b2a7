//! Pages of random views: each page is within the limit, and all pages join to the view in order.

use super::list_page;
use crate::skills::result::{DEFAULT_RESULT_BYTES, ResultForm, ToolResult};
use crate::view::session_view::SessionView;
use crate::view::view_cursor::ViewCursor;
use caproot_core::proto::caproot::v1::{Authority, NotOffered, Skill};
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::cursor::Cursor as _;
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;

pub(crate) fn skill(root: &str, name: &str, description: &str, hidden: bool) -> Arc<Skill> {
    let package = format!("skill://{root}/{name}");
    Arc::new(Skill {
        authority: Some(Authority {
            kind: "executor".into(),
            id: root.into(),
        }),
        main_resource: format!("{package}/SKILL.md"),
        package,
        name: name.into(),
        description: description.into(),
        not_offered: if hidden {
            NotOffered::PeopleOnly
        } else {
            NotOffered::Unspecified
        }
        .into(),
        user_invocable: true,
        ..Skill::default()
    })
}

fn view(skills: Vec<Arc<Skill>>, warnings: Vec<String>) -> SessionView {
    let hidden = skills
        .iter()
        .filter(|skill| super::is_hidden(skill))
        .count();
    SessionView {
        id: 7,
        skills,
        hidden,
        warnings,
        ..SessionView::closed()
    }
}

/// Returns the entries of all pages and checks each page.
fn collect_entries(view: &SessionView) -> Vec<Value> {
    let (mut entries, mut at) = (Vec::new(), 0);
    loop {
        let page = list_page(view, at, DEFAULT_RESULT_BYTES);
        let result = ToolResult::from_outcome(Ok(&page), ResultForm::default());
        assert!(
            result.success && result.json.len() <= DEFAULT_RESULT_BYTES,
            "{}",
            result.json.len()
        );
        let page: Value = serde_json::from_str(&result.json).expect("JSON");
        let keys: Vec<_> = page.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["next_cursor", "skills", "truncated", "warnings"]);
        entries.extend(page["skills"].as_array().expect("a list").clone());
        assert_eq!(page["truncated"], !page["next_cursor"].is_null());
        let Some(cursor) = page["next_cursor"].as_str() else {
            return entries;
        };
        let next = ViewCursor::decode(cursor, b"").expect("a cursor");
        assert!(
            next.view_id == 7 && next.index as usize > at,
            "each page continues the list"
        );
        at = next.index as usize;
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,40}",
        "(?s).{0,300}",
        Just("\u{1}".repeat(1_024)),
        Just("\"\\".repeat(512)),
        Just("🦀".repeat(1_024)),
        Just("x".repeat(20_000)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn pages_join_to_the_whole_view(
        parts in prop::collection::vec((text(), any::<bool>()), 0..40),
        warnings in prop::collection::vec(text(), 0..20),
    ) {
        let each = parts.iter().enumerate();
        let skills: Vec<_> = each
            .map(|(n, (text, hidden))| skill("r", &format!("s{n}"), text, *hidden))
            .collect();
        let view = view(skills.clone(), warnings);
        let shown: Vec<_> = skills.iter().filter(|skill| !super::is_hidden(skill)).collect();
        let entries = collect_entries(&view);
        prop_assert_eq!(entries.len(), shown.len());
        for (entry, skill) in entries.iter().zip(shown) {
            prop_assert_eq!(&entry["package"], &skill.package);
            prop_assert_eq!(&entry["main_resource"], &skill.main_resource);
            prop_assert_eq!(&entry["authority"]["id"], "r");
            let said = entry["description"].as_str().expect("text");
            let kept = said.strip_suffix('…').unwrap_or(said);
            let whole = escape_hidden_chars(&skill.description);
            prop_assert!(said == whole || whole.starts_with(kept.trim_end()));
        }
    }

    #[test]
    fn a_cursor_survives_a_round_trip(view_id: u64, index: u32) {
        let cursor = ViewCursor { view_id, index };
        let text = cursor.encode(b"");
        prop_assert!(text.len() <= ViewCursor::MAX_CHARS);
        prop_assert_eq!(ViewCursor::decode(&text, b""), Some(cursor));
    }

    #[test]
    fn a_skill_with_a_long_name_is_omitted(name in text(), id in text()) {
        let view = view(vec![skill(&id, &name, "d", false), skill("r", "b", "d", false)], Vec::new());
        let entries = collect_entries(&view);
        prop_assert!(entries.len() <= 2 && entries.last().expect("the second")["name"] == "b");
    }
}

#[test]
fn hidden_skills_are_counted_in_a_warning() {
    let view = view(
        vec![skill("r", "a", "d", true), skill("r", "b", "d", false)],
        vec!["w".into()],
    );
    let page = list_page(&view, 0, DEFAULT_RESULT_BYTES);
    assert_eq!(page.skills.len(), 1);
    assert_eq!(page.warnings.len(), 2);
    assert!(page.warnings[1].starts_with("1 skills are not listed"));
    let beyond = list_page(&view, 9, DEFAULT_RESULT_BYTES);
    assert!(beyond.skills.is_empty() && beyond.next_cursor.is_none());
}
