//! Decides which of the links of an environment serves, as a value: claims and failed questions go
//! in, actions come out.

use super::subject::RandomToken;
use caproot_core::proto::link::caproot::link::v1::{ClaimState, InstanceClaim};

/// How many questions to the greater link must fail before a superseded link claims again.
const MAX_FAILED_PROBES: u8 = 3;

/// Order of links. The greatest serves: the newest, and of equally old links the greatest token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkRank {
    /// Unix time in milliseconds at which the link started.
    pub started_ms: u64,
    /// Token of the link.
    pub instance: RandomToken,
}

/// Claim of one link to an environment.
#[derive(Debug)]
pub struct EnvironmentClaim {
    own: LinkRank,
    /// The greater link, while there is one.
    greater: Option<GreaterLink>,
}

#[derive(Debug)]
struct GreaterLink {
    rank: LinkRank,
    failed_probes: u8,
}

/// Action of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAction {
    /// Publish the link's claim.
    Publish,
    /// Take dials.
    StartServing,
    /// Take no more dials, and reset the tunnels.
    StopServing,
    /// Ask the link with this token whether it runs.
    Probe(RandomToken),
}

impl EnvironmentClaim {
    /// Creates the claim of a link that serves until it hears of a greater link.
    pub fn new(own: LinkRank) -> Self {
        Self { own, greater: None }
    }

    /// Whether the link serves.
    pub fn is_serving(&self) -> bool {
        self.greater.is_none()
    }

    /// Returns the link's claim as a message.
    pub fn message(&self) -> InstanceClaim {
        let state = if self.is_serving() {
            ClaimState::Claimed
        } else {
            ClaimState::Superseded
        };
        self.message_with(state)
    }

    /// Returns the message of a link that ends.
    pub fn release_message(&self) -> InstanceClaim {
        self.message_with(ClaimState::Released)
    }

    /// Takes the claim of a link, possibly of this link.
    pub fn hear(&mut self, claim: &InstanceClaim) -> Vec<ClaimAction> {
        let Some(instance) = RandomToken::parse(&claim.instance) else {
            return Vec::new();
        };
        // A link receives its own claims, too: it subscribes to the claims of all links.
        if instance == self.own.instance {
            return Vec::new();
        }

        let rank = LinkRank {
            started_ms: claim.started_ms,
            instance,
        };
        let heard = GreaterLink {
            rank,
            failed_probes: 0,
        };
        match (claim.state(), &mut self.greater) {
            (ClaimState::Claimed, None) if heard.rank > self.own => {
                self.greater = Some(heard);
                vec![ClaimAction::StopServing]
            }
            // The other link does not know of this link.
            (ClaimState::Claimed, None) => vec![ClaimAction::Publish],
            (ClaimState::Claimed, Some(greater)) if heard.rank > greater.rank => {
                *greater = heard;
                Vec::new()
            }
            (state, Some(greater)) if heard.rank == greater.rank => match state {
                // Either state shows that the greater link runs, which is all that a probe asks.
                ClaimState::Claimed | ClaimState::Superseded => {
                    greater.failed_probes = 0;
                    Vec::new()
                }
                ClaimState::Released => self.claim_again(),
                ClaimState::Unspecified => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Takes the report that no link has the token of a probe.
    pub fn probe_failed(&mut self) -> Vec<ClaimAction> {
        let Some(greater) = &mut self.greater else {
            return Vec::new();
        };
        greater.failed_probes += 1;
        if greater.failed_probes < MAX_FAILED_PROBES {
            return Vec::new();
        }
        self.claim_again()
    }

    /// Returns the action that is due at each interval, and after each new connection to the
    /// broker.
    pub fn refresh(&self) -> ClaimAction {
        match &self.greater {
            None => ClaimAction::Publish,
            Some(greater) => ClaimAction::Probe(greater.rank.instance.clone()),
        }
    }

    fn claim_again(&mut self) -> Vec<ClaimAction> {
        self.greater = None;
        vec![ClaimAction::StartServing, ClaimAction::Publish]
    }

    fn message_with(&self, state: ClaimState) -> InstanceClaim {
        InstanceClaim {
            instance: self.own.instance.to_string(),
            started_ms: self.own.started_ms,
            state: state.into(),
        }
    }
}

#[cfg(test)]
mod tests;
