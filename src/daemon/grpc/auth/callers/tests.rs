//! Tests of the caller policy.

use super::{AuthDenial, Caller, CallerPolicy, CallerRule, SanPattern, TokenCheck};
use crate::daemon::model::{AccessScope, PeerIdentity};
use proptest::prelude::*;

/// Parses a rule such as `uid 7 gid 7 san NAME token in DIR`, in which each part is optional.
fn rule(name: &str, text: &str) -> CallerRule {
    let mut rule = CallerRule {
        name: name.into(),
        uids: Vec::new(),
        gids: Vec::new(),
        sans: Vec::new(),
        needs_token: false,
        access_scope: AccessScope::All,
    };
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word {
            "uid" => rule.uids.push(value().parse().expect("a uid")),
            "gid" => rule.gids.push(value().parse().expect("a gid")),
            "san" => rule.sans.push(SanPattern::parse(value()).expect("a name")),
            "token" => rule.needs_token = true,
            "in" => {
                rule.access_scope = AccessScope::Directories([value().as_bytes().into()].into());
            }
            _ => panic!("{word}"),
        }
    }
    rule
}

fn callers(rules: &[&str]) -> CallerPolicy {
    let rules = rules.iter().enumerate();
    CallerPolicy {
        rules: rules
            .map(|(at, text)| rule(&at.to_string(), text))
            .collect(),
    }
}

fn local(uid: u32, gids: &[u32]) -> PeerIdentity {
    PeerIdentity::Local {
        pid: 1,
        uid,
        gids: gids.into(),
    }
}

fn remote(names: &[&str]) -> PeerIdentity {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    PeerIdentity::Remote {
        address: ([127, 0, 0, 1], 1).into(),
        names,
    }
}

/// Returns the names of the rules that match the peer.
fn matched_rule_names(
    rules: &[&str],
    peer: &PeerIdentity,
    token: TokenCheck<'_>,
) -> Result<String, AuthDenial> {
    let caller = callers(rules).authorize(peer, token)?;
    Ok(caller
        .matched_rules
        .iter()
        .map(|name| &**name)
        .collect::<Vec<_>>()
        .join(" "))
}

#[test]
fn rules_authorize_matching_peers() {
    let (none, unknown, not_allowed) = (
        TokenCheck::Missing,
        Err(AuthDenial::Unauthenticated),
        Err(AuthDenial::NotAllowed),
    );
    let in_by = |rules: &str| Ok(rules.to_owned());
    let (user, group) = (local(7, &[8]), local(9, &[1, 2, 8]));
    for (rules, peer, token, expected) in [
        // The kinds of identity are alternatives.
        (&["uid 7"][..], &user, none, in_by("0")),
        (&["gid 8"], &user, none, in_by("0")),
        (&["gid 8"], &group, none, in_by("0")),
        (&["uid 7 gid 5 san a"], &user, none, in_by("0")),
        (&["uid 6 gid 5 san a"], &user, none, not_allowed.clone()),
        // Uids and gids are not mixed up.
        (&["uid 8", "gid 7"], &user, none, not_allowed.clone()),
        // Every rule that matches counts.
        (&["uid 7", "uid 1", "gid 8"], &user, none, in_by("0 2")),
        // A token is required in addition to a listed identity, and enough without one.
        (&["uid 7 token"], &user, none, unknown.clone()),
        (
            &["uid 7 token"],
            &user,
            TokenCheck::Presented(&[false]),
            unknown.clone(),
        ),
        (
            &["uid 7 token"],
            &user,
            TokenCheck::Presented(&[true]),
            in_by("0"),
        ),
        (
            &["uid 7 token"],
            &group,
            TokenCheck::Presented(&[true]),
            not_allowed.clone(),
        ),
        (&["uid 7 token"], &group, none, not_allowed.clone()),
        (&["token"], &user, none, not_allowed.clone()),
        (
            &["token"],
            &user,
            TokenCheck::Presented(&[true]),
            in_by("0"),
        ),
        (
            &["token"],
            &remote(&[]),
            TokenCheck::Presented(&[true]),
            in_by("0"),
        ),
        (
            &["token"],
            &remote(&[]),
            TokenCheck::Presented(&[false]),
            unknown.clone(),
        ),
        (&["token"], &remote(&[]), none, unknown.clone()),
        (
            &["token", "uid 7"],
            &user,
            TokenCheck::Presented(&[false, false]),
            in_by("1"),
        ),
        (
            &["token", "token"],
            &remote(&[]),
            TokenCheck::Presented(&[false, true]),
            in_by("1"),
        ),
        // A TCP peer has no uid, and a peer of a Unix socket has no certificate.
        (&["uid 0", "gid 0"], &remote(&[]), none, unknown.clone()),
        (&["san a"], &user, none, not_allowed.clone()),
        (&["san a.b"], &remote(&["x", "A.b"]), none, in_by("0")),
        (&["san a.b"], &remote(&["x.a.b"]), none, not_allowed.clone()),
        (&["san a.b token"], &remote(&["a.b"]), none, unknown.clone()),
        (&[], &user, none, not_allowed),
        (&[], &remote(&[]), none, unknown),
    ] {
        assert_eq!(
            matched_rule_names(rules, peer, token),
            expected,
            "{rules:?} {peer:?} {token:?}"
        );
    }
}

#[test]
fn san_patterns_match_certificate_names() {
    for (san, name, expected) in [
        ("Host.example", "hOST.EXAMPLE", true),
        ("host.example", "host.example.", false),
        ("spiffe://a.b/c", "spiffe://a.b/c", true),
        ("spiffe://a.b/c", "spiffe://a.b/C", false),
        ("spiffe://a.b", "spiffe://a.b", true),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/d", true),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/d/e", true),
        ("spiffe://a.b/*", "spiffe://a.b/c", true),
        ("spiffe://a.b/c/*", "spiffe://a.b/c", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/cd", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/../d", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/d/..", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/%2e%2e/d", false),
        ("spiffe://a.b/c/*", "spiffe://a.b/c/d?e", false),
        ("spiffe://a.b/*", "spiffe://a.bc/d", false),
    ] {
        let rules = [format!("san {san}")];
        let is = matched_rule_names(&[&rules[0]], &remote(&[name]), TokenCheck::Missing).is_ok();
        assert_eq!(is, expected, "{san} {name}");
    }
    for bad in [
        "",
        ".",
        "a..b",
        "*",
        "*.a",
        "a b",
        "a/b",
        "spiffe://",
        "spiffe:///a",
        "spiffe://A/b",
        "spiffe://a/",
        "spiffe://a//b",
        "spiffe://a/b/",
        "spiffe://a/b*",
        "spiffe://a/*/b",
        "spiffe://a/../b",
        "spiffe://*",
        "spiffe://a:1/b",
        "spiffe://a/b?c",
        "https://a/b",
        "127.0.0.1:1",
    ] {
        assert!(SanPattern::parse(bad).is_err(), "{bad}");
    }
}

/// Uids, gids, whether the rule lists a name, whether it requires a token, and a directory.
type RuleSpec = (Vec<u32>, Vec<u32>, bool, bool, Option<u8>);

fn rule_specs() -> impl Strategy<Value = Vec<RuleSpec>> {
    let few = || prop::collection::vec(0..4_u32, 0..3);
    prop::collection::vec(
        (
            few(),
            few(),
            any::<bool>(),
            any::<bool>(),
            prop::option::of(0..4_u8),
        ),
        0..5,
    )
}

fn policy_from_specs(rules: &[RuleSpec]) -> CallerPolicy {
    let rules = rules
        .iter()
        .enumerate()
        .map(|(at, (uids, gids, san, token, dir))| CallerRule {
            name: at.to_string().into(),
            uids: uids.clone(),
            gids: gids.clone(),
            sans: if *san {
                vec![SanPattern::parse("spiffe://a/b/*").expect("a name")]
            } else {
                Vec::new()
            },
            needs_token: *token,
            access_scope: dir.map_or(AccessScope::All, |dir| {
                AccessScope::Directories([vec![b'/', b'a' + dir].into()].into())
            }),
        });
    CallerPolicy {
        rules: rules.collect(),
    }
}

fn peers() -> impl Strategy<Value = PeerIdentity> {
    prop_oneof![
        (0..4_u32, prop::collection::vec(0..4_u32, 1..3)).prop_map(|(uid, gids)| local(uid, &gids)),
        prop::collection::vec(
            prop::sample::select(vec!["spiffe://a/b/c", "spiffe://a/c", "x"]),
            0..3
        )
        .prop_map(|names| remote(&names)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// The policy grants exactly the access that each matching rule grants alone. The order of the
    /// rules has no effect.
    #[test]
    fn access_is_the_union_of_matching_rules(
        rules in rule_specs(),
        peer in peers(),
        token in prop::option::of(prop::collection::vec(any::<bool>(), 5)),
        path in "/[a-e](/x)?",
    ) {
        let token = token.as_deref().map_or(TokenCheck::Missing, TokenCheck::Presented);
        let all = policy_from_specs(&rules);
        let alone = |at: usize| {
            let token = match token {
                TokenCheck::Missing => TokenCheck::Missing,
                TokenCheck::Presented(matches) => TokenCheck::Presented(&matches[at..=at]),
            };
            CallerPolicy { rules: vec![all.rules[at].clone()] }.authorize(&peer, token).ok()
        };
        let each: Vec<Caller> = (0..all.rules.len()).filter_map(alone).collect();
        let together = all.authorize(&peer, token);
        prop_assert_eq!(together.is_ok(), !each.is_empty());
        if let Ok(caller) = together {
            let by_one = each.iter().any(|one| one.access_scope.contains_path(path.as_bytes()));
            prop_assert_eq!(caller.access_scope.contains_path(path.as_bytes()), by_one);
            prop_assert_eq!(caller.matched_rules.len(), each.len());
            let backwards = CallerPolicy { rules: all.rules.iter().rev().cloned().collect() };
            let matches: Vec<bool> = match token {
                TokenCheck::Missing => Vec::new(),
                TokenCheck::Presented(matches) => {
                    matches[..rules.len()].iter().rev().copied().collect()
                }
            };
            let token = match token {
                TokenCheck::Missing => token,
                TokenCheck::Presented(_) => TokenCheck::Presented(&matches),
            };
            let reversed = backwards.authorize(&peer, token);
            prop_assert_eq!(reversed.map(|c| c.access_scope), Ok(caller.access_scope));
        }
    }

    /// A peer without identity and token matches no rule.
    #[test]
    fn anonymous_peers_are_unauthenticated(rules in rule_specs()) {
        let denied = policy_from_specs(&rules).authorize(&remote(&[]), TokenCheck::Missing);
        prop_assert_eq!(denied, Err(AuthDenial::Unauthenticated));
    }
}
