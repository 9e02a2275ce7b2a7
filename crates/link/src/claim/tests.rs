//! Laws of claims, with up to five links on a broker that delays messages and is partitioned.

use super::{ClaimAction, EnvironmentClaim, LinkRank};
use crate::subject::RandomToken;
use caproot_core::proto::link::caproot::link::v1::InstanceClaim;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;

const LINKS: usize = 5;

/// Event of a schedule.
#[derive(Debug, Clone)]
enum Event {
    Start(usize),
    /// The link ends with a release.
    Stop(usize),
    /// The link ends without a message.
    Kill(usize),
    /// Links with different numbers do not reach each other.
    Partition([u8; LINKS]),
    Heal,
    Refresh(usize),
    /// The oldest message that waits for the link arrives.
    Deliver(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let link = 0..LINKS;
    prop_oneof![
        2 => link.clone().prop_map(Event::Start),
        1 => link.clone().prop_map(Event::Stop),
        1 => link.clone().prop_map(Event::Kill),
        1 => prop::array::uniform5(0..3_u8).prop_map(Event::Partition),
        1 => Just(Event::Heal),
        4 => link.clone().prop_map(Event::Refresh),
        6 => link.prop_map(Event::Deliver),
    ]
}

/// Link of the simulation.
#[derive(Default)]
struct Link {
    claim: Option<EnvironmentClaim>,
    rank: Option<LinkRank>,
    is_serving: bool,
    inbox: VecDeque<InstanceClaim>,
}

struct Simulation {
    links: Vec<Link>,
    partition: [u8; LINKS],
    /// Rank of the next start, by link. Two links may have the same clock.
    clocks: Vec<u64>,
    starts: usize,
}

fn token(number: usize) -> RandomToken {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).expect("a letter"));
    let text: String = (0..26)
        .map(|at| {
            if at < 20 {
                'a'
            } else {
                letter(number >> (at - 20))
            }
        })
        .collect();
    RandomToken::parse(&text).expect("a token")
}

impl Simulation {
    fn new(clocks: Vec<u64>) -> Self {
        let links = (0..LINKS).map(|_| Link::default()).collect();
        Self {
            links,
            partition: [0; LINKS],
            clocks,
            starts: 0,
        }
    }

    fn run(&mut self, event: &Event) {
        match *event {
            Event::Start(n) if self.links[n].claim.is_none() => {
                // The tokens are random, and the clocks are not in order.
                let started_ms = self.clocks[self.starts % self.clocks.len()];
                let rank = LinkRank {
                    started_ms,
                    instance: token(self.starts * 7 % 61),
                };
                self.starts += 1;
                let claim = EnvironmentClaim::new(rank.clone());
                self.links[n] = Link {
                    claim: Some(claim),
                    rank: Some(rank),
                    is_serving: true,
                    inbox: VecDeque::new(),
                };
                self.act(n, ClaimAction::Publish);
            }
            Event::Stop(n) => {
                if let Some(claim) = self.links[n].claim.take() {
                    self.publish(n, &claim.release_message());
                    self.links[n] = Link::default();
                }
            }
            Event::Kill(n) => self.links[n] = Link::default(),
            Event::Partition(partition) => self.partition = partition,
            Event::Heal => self.partition = [0; LINKS],
            Event::Refresh(n) => {
                if let Some(action) = self.links[n].claim.as_ref().map(EnvironmentClaim::refresh) {
                    self.act(n, action);
                }
            }
            Event::Deliver(n) => {
                let Some(message) = self.links[n].inbox.pop_front() else {
                    return;
                };
                let Some(claim) = &mut self.links[n].claim else {
                    return;
                };
                let actions = claim.hear(&message);
                for action in actions {
                    self.act(n, action);
                }
            }
            Event::Start(_) => {}
        }
    }

    fn act(&mut self, n: usize, action: ClaimAction) {
        match action {
            ClaimAction::Publish => {
                let message = self.links[n].claim.as_ref().expect("a link").message();
                self.publish(n, &message);
            }
            ClaimAction::StartServing => self.links[n].is_serving = true,
            ClaimAction::StopServing => self.links[n].is_serving = false,
            ClaimAction::Probe(instance) => {
                let is_asked = |link: &Link| {
                    link.rank
                        .as_ref()
                        .is_some_and(|rank| rank.instance == instance)
                };
                let asked = (0..LINKS).find(|m| is_asked(&self.links[*m]));
                let asked = asked.filter(|m| self.partition[*m] == self.partition[n]);
                if let Some(asked) = asked {
                    let answer = self.links[asked].claim.as_ref().expect("a link").message();
                    self.links[n].inbox.push_back(answer);
                } else {
                    let actions = self.links[n].claim.as_mut().expect("a link").probe_failed();
                    for action in actions {
                        self.act(n, action);
                    }
                }
            }
        }
    }

    /// Delivers a claim to every link that the sender reaches, and to the sender.
    fn publish(&mut self, from: usize, message: &InstanceClaim) {
        for to in 0..LINKS {
            if self.partition[to] == self.partition[from] && self.links[to].claim.is_some() {
                self.links[to].inbox.push_back(message.clone());
            }
        }
    }

    /// Heals the broker, and lets each link refresh a few times.
    fn settle(&mut self) {
        self.run(&Event::Heal);
        for _ in 0..12 {
            for n in 0..LINKS {
                self.run(&Event::Refresh(n));
            }
            while let Some(n) = (0..LINKS).find(|n| !self.links[*n].inbox.is_empty()) {
                self.run(&Event::Deliver(n));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Law: after any schedule, once the broker is whole, exactly one link serves: the greatest that
    /// runs.
    #[test]
    fn exactly_the_greatest_link_serves_in_the_end(
        clocks in vec(0..4_u64, 1..6),
        events in vec(event(), 0..120),
    ) {
        let mut simulation = Simulation::new(clocks);
        for event in &events {
            simulation.run(event);
        }
        simulation.settle();
        let ranks = simulation.links.iter().filter_map(|link| link.rank.clone());
        let greatest = ranks.max();
        let serving: Vec<_> = simulation.links.iter().filter(|link| link.is_serving).collect();
        let serving: Vec<_> = serving.into_iter().filter_map(|link| link.rank.clone()).collect();
        prop_assert_eq!(serving, greatest.into_iter().collect::<Vec<_>>());
        for link in &simulation.links {
            let claim = link.claim.as_ref().is_some_and(EnvironmentClaim::is_serving);
            prop_assert_eq!(claim, link.is_serving);
        }
    }
}

#[test]
fn claims_of_no_link_are_ignored() {
    let own = LinkRank {
        started_ms: 1,
        instance: token(0),
    };
    let mut claim = EnvironmentClaim::new(own);
    for instance in ["", "a.b", "A"] {
        let other = InstanceClaim {
            instance: instance.to_owned(),
            started_ms: 9,
            state: 1,
        };
        assert_eq!(claim.hear(&other), []);
    }
    let other = InstanceClaim {
        instance: token(1).to_string(),
        started_ms: 9,
        state: 77,
    };
    assert_eq!(claim.hear(&other), []);
    assert!(claim.is_serving());
}
