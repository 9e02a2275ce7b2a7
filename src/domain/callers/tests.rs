//! Who is let in by which rules.

use super::{Caller, Callers, Refusal, Rule, San, Token};
use crate::domain::{Peer, Reach};
use proptest::prelude::*;

/// A rule in short: `uid 7`, `gid 7`, `san NAME`, `token` and `in DIR`, whichever there are.
fn rule(name: &str, text: &str) -> Rule {
    let mut rule = Rule {
        name: name.into(),
        uids: Vec::new(),
        gids: Vec::new(),
        sans: Vec::new(),
        needs_token: false,
        reach: Reach::All,
    };
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word {
            "uid" => rule.uids.push(value().parse().expect("a uid")),
            "gid" => rule.gids.push(value().parse().expect("a gid")),
            "san" => rule.sans.push(San::parse(value()).expect("a name")),
            "token" => rule.needs_token = true,
            "in" => rule.reach = Reach::In([value().as_bytes().into()].into()),
            _ => panic!("{word}"),
        }
    }
    rule
}

fn callers(rules: &[&str]) -> Callers {
    let rules = rules.iter().enumerate();
    Callers { rules: rules.map(|(at, text)| rule(&at.to_string(), text)).collect() }
}

fn local(uid: u32, gids: &[u32]) -> Peer {
    Peer::Local { pid: 1, uid, gids: gids.into() }
}

fn remote(names: &[&str]) -> Peer {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    Peer::Remote { address: ([127, 0, 0, 1], 1).into(), names }
}

/// The names of the rules that let somebody in.
fn judged(rules: &[&str], peer: &Peer, shown: Token<'_>) -> Result<String, Refusal> {
    let caller = callers(rules).judge(peer, shown)?;
    Ok(caller.rules.iter().map(|name| &**name).collect::<Vec<_>>().join(" "))
}

#[test]
fn who_is_let_in() {
    let (none, unknown, not_allowed) =
        (Token::Missing, Err(Refusal::Unknown), Err(Refusal::NotAllowed));
    let in_by = |rules: &str| Ok(rules.to_owned());
    let (user, group) = (local(7, &[8]), local(9, &[1, 2, 8]));
    for (rules, peer, shown, expected) in [
        // The kinds of identity are alternatives.
        (&["uid 7"][..], &user, none, in_by("0")),
        (&["gid 8"], &user, none, in_by("0")),
        (&["gid 8"], &group, none, in_by("0")),
        (&["uid 7 gid 5 san a"], &user, none, in_by("0")),
        (&["uid 6 gid 5 san a"], &user, none, not_allowed.clone()),
        // A uid is no gid.
        (&["uid 8", "gid 7"], &user, none, not_allowed.clone()),
        // Every rule that matches counts.
        (&["uid 7", "uid 1", "gid 8"], &user, none, in_by("0 2")),
        // A token is needed beside what else a rule lists, and enough where it lists nothing.
        (&["uid 7 token"], &user, none, unknown.clone()),
        (&["uid 7 token"], &user, Token::Given(&[false]), unknown.clone()),
        (&["uid 7 token"], &user, Token::Given(&[true]), in_by("0")),
        (&["uid 7 token"], &group, Token::Given(&[true]), not_allowed.clone()),
        (&["uid 7 token"], &group, none, not_allowed.clone()),
        (&["token"], &user, none, not_allowed.clone()),
        (&["token"], &user, Token::Given(&[true]), in_by("0")),
        (&["token"], &remote(&[]), Token::Given(&[true]), in_by("0")),
        (&["token"], &remote(&[]), Token::Given(&[false]), unknown.clone()),
        (&["token"], &remote(&[]), none, unknown.clone()),
        (&["token", "uid 7"], &user, Token::Given(&[false, false]), in_by("1")),
        (&["token", "token"], &remote(&[]), Token::Given(&[false, true]), in_by("1")),
        // Whoever connects by TCP has no uid, and whoever by a Unix socket no certificate.
        (&["uid 0", "gid 0"], &remote(&[]), none, unknown.clone()),
        (&["san a"], &user, none, not_allowed.clone()),
        (&["san a.b"], &remote(&["x", "A.b"]), none, in_by("0")),
        (&["san a.b"], &remote(&["x.a.b"]), none, not_allowed.clone()),
        (&["san a.b token"], &remote(&["a.b"]), none, unknown.clone()),
        (&[], &user, none, not_allowed),
        (&[], &remote(&[]), none, unknown),
    ] {
        assert_eq!(judged(rules, peer, shown), expected, "{rules:?} {peer:?} {shown:?}");
    }
}

#[test]
fn names_of_certificates() {
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
        let is = judged(&[&rules[0]], &remote(&[name]), Token::Missing).is_ok();
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
        assert!(San::parse(bad).is_err(), "{bad}");
    }
}

/// Uids, gids, whether there is a name, whether a token is wanted, and a directory.
type Few = (Vec<u32>, Vec<u32>, bool, bool, Option<u8>);

fn rules() -> impl Strategy<Value = Vec<Few>> {
    let few = || prop::collection::vec(0..4_u32, 0..3);
    prop::collection::vec(
        (few(), few(), any::<bool>(), any::<bool>(), prop::option::of(0..4_u8)),
        0..5,
    )
}

fn built(rules: &[Few]) -> Callers {
    let rules = rules.iter().enumerate().map(|(at, (uids, gids, san, token, dir))| Rule {
        name: at.to_string().into(),
        uids: uids.clone(),
        gids: gids.clone(),
        sans: if *san { vec![San::parse("spiffe://a/b/*").expect("a name")] } else { Vec::new() },
        needs_token: *token,
        reach: dir.map_or(Reach::All, |dir| Reach::In([vec![b'/', b'a' + dir].into()].into())),
    });
    Callers { rules: rules.collect() }
}

fn peers() -> impl Strategy<Value = Peer> {
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

    /// Whatever is offered was given by a rule that matches by itself: rules join, and nothing else
    /// comes of it. The order of rules does not matter.
    #[test]
    fn nobody_gets_what_no_rule_gives(
        rules in rules(),
        peer in peers(),
        shown in prop::option::of(prop::collection::vec(any::<bool>(), 5)),
        path in "/[a-e](/x)?",
    ) {
        let shown = shown.as_deref().map_or(Token::Missing, Token::Given);
        let all = built(&rules);
        let alone = |at: usize| {
            let token = match shown {
                Token::Missing => Token::Missing,
                Token::Given(whose) => Token::Given(&whose[at..=at]),
            };
            Callers { rules: vec![all.rules[at].clone()] }.judge(&peer, token).ok()
        };
        let each: Vec<Caller> = (0..all.rules.len()).filter_map(alone).collect();
        let together = all.judge(&peer, shown);
        prop_assert_eq!(together.is_ok(), !each.is_empty());
        if let Ok(caller) = together {
            let by_one = each.iter().any(|one| one.reach.offers(path.as_bytes()));
            prop_assert_eq!(caller.reach.offers(path.as_bytes()), by_one);
            prop_assert_eq!(caller.rules.len(), each.len());
            let backwards = Callers { rules: all.rules.iter().rev().cloned().collect() };
            let whose: Vec<bool> = match shown {
                Token::Missing => Vec::new(),
                Token::Given(whose) => whose[..rules.len()].iter().rev().copied().collect(),
            };
            let shown = if shown == Token::Missing { shown } else { Token::Given(&whose) };
            prop_assert_eq!(backwards.judge(&peer, shown).map(|c| c.reach), Ok(caller.reach));
        }
    }

    /// Who shows nothing and has no identity is in nobody's rule.
    #[test]
    fn nobody_in_particular_is_refused(rules in rules()) {
        let refused = built(&rules).judge(&remote(&[]), Token::Missing);
        prop_assert_eq!(refused, Err(Refusal::Unknown));
    }
}
