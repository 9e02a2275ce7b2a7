//! Groups of random roots: each root is shown once, with its own handles, and a group fits into a list
//! entry.

use super::{EqualRoots, ExecutorRoot, MAX_ENVIRONMENTS_BYTES, SharedSkill};
use crate::view::list::tests::skill;
use caproot_core::proto::caproot::v1::{NotOffered, Skill};
use proptest::prelude::*;
use std::sync::Arc;

/// Root with its skills.
#[derive(Debug, Clone)]
struct TestRoot {
    environment_id: String,
    id: String,
    skills: Vec<SharedSkill>,
}

impl TestRoot {
    /// Returns a root whose skills have this content.
    fn new(environment_id: &str, id: &str, contents: &[&str]) -> Self {
        let skills = contents.iter().enumerate().map(|(n, content)| {
            let skill = skill(id, &format!("s{n}"), content, false);
            Arc::new(Skill {
                digest: format!("sha256:{content}"),
                ..Skill::clone(&skill)
            })
        });
        Self {
            environment_id: environment_id.to_owned(),
            id: id.to_owned(),
            skills: skills.collect(),
        }
    }
}

fn find(roots: &[TestRoot]) -> EqualRoots {
    let roots: Vec<_> = roots
        .iter()
        .map(|root| ExecutorRoot {
            environment_id: &root.environment_id,
            id: &root.id,
            skills: &root.skills,
        })
        .collect();
    EqualRoots::find(&roots)
}

#[test]
fn equal_roots_of_other_environments_are_shown_once() {
    let roots = [
        TestRoot::new("a", "team@a", &["x", "y"]),
        TestRoot::new("b", "team@b", &["x", "y"]),
        TestRoot::new("b", "other", &["x", "y"]),
        TestRoot::new("c", "team@c", &["x", "z"]),
        TestRoot::new("d", "none", &[]),
        TestRoot::new("e", "none@e", &[]),
    ];
    let equal = find(&roots);
    let places: Vec<_> = roots[..4]
        .iter()
        .map(|root| {
            let skill = &root.skills[0];
            (equal.is_in_lists(skill), equal.is_in_texts(skill))
        })
        .collect();
    // Two roots of one environment are two roots.
    assert_eq!(
        places,
        [(true, true), (false, false), (true, true), (true, true)]
    );

    let group = equal.group(&roots[0].skills[1]).expect("a group");
    let packages: Vec<_> = group.packages("skill://team@a/s1").into_iter().collect();
    let expected = [
        ("a", "skill://team@a/s1".to_owned()),
        ("b", "skill://team@b/s1".to_owned()),
    ];
    assert_eq!(packages, expected);
    assert_eq!(group.more, 0);
    assert!(equal.group(&roots[3].skills[0]).is_none());
}

#[test]
fn a_difference_that_a_model_sees_keeps_roots_apart() {
    let base = TestRoot::new("a", "team@a", &["x"]);
    let other = TestRoot::new("b", "team@b", &["x"]);
    let changes: [fn(&mut Skill); 5] = [
        |skill| skill.description.push('!'),
        |skill| skill.short_description.push('!'),
        |skill| skill.set_not_offered(NotOffered::PeopleOnly),
        |skill| skill.digest = "sha256:other".to_owned(),
        // Without digests, the files cannot be compared.
        |skill| skill.digest.clear(),
    ];
    for change in changes {
        let mut other = other.clone();
        change(Arc::make_mut(&mut other.skills[0]));
        let equal = find(&[base.clone(), other.clone()]);
        assert!(equal.is_in_lists(&other.skills[0]), "{other:?}");
    }
    assert!(!find(&[base, other.clone()]).is_in_lists(&other.skills[0]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Law: each environment has each of its skills exactly once in the list, with its own handle.
    #[test]
    fn each_root_is_shown_once(
        parts in prop::collection::vec(("[a-e]{1,300}", 0_usize..3), 0..40),
    ) {
        let contents = [&["x"][..], &["x", "y"], &["y"]];
        let each = parts.iter().enumerate();
        let roots: Vec<_> = each
            .map(|(n, (environment, content))| {
                TestRoot::new(environment, &format!("{n}"), contents[*content])
            })
            .collect();
        let equal = find(&roots);

        let mut shown = Vec::new();
        for root in &roots {
            for skill in root.skills.iter().filter(|skill| equal.is_in_lists(skill)) {
                let Some(group) = equal.group(skill) else {
                    shown.push((root.environment_id.clone(), skill.package.clone()));
                    continue;
                };
                let packages = group.packages(&skill.package);
                let json = serde_json::to_string(&packages).expect("JSON");
                prop_assert!(packages.len() == 1 || json.len() <= MAX_ENVIRONMENTS_BYTES + 2);
                let packages = packages.into_iter();
                shown.extend(packages.map(|(environment, package)| (environment.to_owned(), package)));
            }
        }

        let mut expected = Vec::new();
        for root in &roots {
            let packages = root.skills.iter().map(|skill| skill.package.clone());
            expected.extend(packages.map(|package| (root.environment_id.clone(), package)));
        }
        shown.sort();
        expected.sort();
        prop_assert_eq!(shown, expected);

        // A text has the first group of each series, which counts the others.
        let in_texts = roots.iter().filter(|root| equal.is_in_texts(&root.skills[0]));
        let counted: usize = in_texts
            .map(|root| {
                let group = equal.group(&root.skills[0]);
                group.map_or(1, |group| group.roots.len() + group.more)
            })
            .sum();
        prop_assert_eq!(counted, roots.len());
    }
}
