//! Who may ask: the operator's rules, and what they make of whoever is at the other end. Leaves
//! finding out who that is to `app`, and comparing tokens to `bearer`.

use super::{Peer, Reach};
use std::sync::Arc;

/// The most bytes of a DNS name: RFC 1035, 2.3.4.
const MAX_DNS_BYTES: usize = 253;
/// The most bytes of a SPIFFE ID: SPIFFE-ID, 2.3.
const MAX_SPIFFE_BYTES: usize = 2_048;

/// The operator's rules. Several may match one caller, which then has what any of them gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Callers {
    /// In no order that matters.
    pub rules: Vec<Rule>,
}

/// One rule. It matches a caller that has one of the identities that are listed, whichever, and
/// shows the rule's token, if there is one. Where none is listed, the token is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// For the log.
    pub name: Box<str>,
    /// Of processes of this machine.
    pub uids: Vec<u32>,
    /// Primary or supplementary groups of processes of this machine.
    pub gids: Vec<u32>,
    /// Names in a verified client certificate.
    pub sans: Vec<San>,
    /// Whether the rule's token must be shown.
    pub needs_token: bool,
    /// What the rule gives.
    pub reach: Reach,
}

/// A name that a certificate may carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum San {
    /// A DNS name; letter case does not matter.
    Dns(Box<str>),
    /// One SPIFFE ID.
    Spiffe(Box<str>),
    /// Every SPIFFE ID below a path, which ends in `/`.
    SpiffeBelow(Box<str>),
}

/// What a call carries as a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// Nothing.
    Missing,
    /// A token; of each rule, whether it is the rule's.
    Given(&'a [bool]),
}

/// Somebody who may ask. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The rules that let it in; none where there are no rules.
    pub rules: Arc<[Box<str>]>,
    /// What it may ask for.
    pub reach: Reach,
}

/// Why somebody may not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It proved no identity, or not all that a rule wants: no certificate, no token, a wrong one.
    Unknown,
    /// It proved one that no rule names.
    NotAllowed,
}

impl Callers {
    /// Whether somebody may ask, and for what.
    pub fn judge(&self, peer: &Peer, token: Token<'_>) -> Result<Caller, Refusal> {
        let token_of = |at: usize| match token {
            Token::Missing => false,
            Token::Given(whose) => whose.get(at).copied().unwrap_or(false),
        };
        let matching = self
            .rules
            .iter()
            .enumerate()
            .filter(|(at, rule)| rule.knows(peer) && (!rule.needs_token || token_of(*at)));
        let matching: Vec<&Rule> = matching.map(|(_, rule)| rule).collect();
        let Some(reach) = matching.iter().map(|rule| rule.reach.clone()).reduce(Reach::or) else {
            return Err(self.refusal(peer, token));
        };
        let rules = matching.iter().map(|rule| rule.name.clone()).collect();
        Ok(Caller { rules, reach })
    }

    fn refusal(&self, peer: &Peer, token: Token<'_>) -> Refusal {
        match token {
            Token::Given(whose) if !whose.contains(&true) => return Refusal::Unknown,
            // It is somebody whom a rule names, and lacks the token.
            Token::Missing if self.rules.iter().any(|r| r.has_identities() && r.knows(peer)) => {
                return Refusal::Unknown;
            }
            Token::Given(_) => return Refusal::NotAllowed,
            Token::Missing => {}
        }
        match peer {
            Peer::Remote { names, .. } if names.is_empty() => Refusal::Unknown,
            Peer::Remote { .. } | Peer::Local { .. } => Refusal::NotAllowed,
        }
    }
}

impl Rule {
    /// Whether the rule lists anybody; one that does not is for whoever has its token.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        !(self.uids.is_empty() && self.gids.is_empty() && self.sans.is_empty())
    }

    fn knows(&self, peer: &Peer) -> bool {
        if !self.has_identities() {
            return self.needs_token;
        }
        match peer {
            Peer::Local { uid, gids, .. } => {
                self.uids.contains(uid) || gids.iter().any(|gid| self.gids.contains(gid))
            }
            Peer::Remote { names, .. } => {
                names.iter().any(|name| self.sans.iter().any(|san| san.is(name)))
            }
        }
    }
}

impl San {
    /// Reads a DNS name, a SPIFFE ID, or one that ends in `/*`; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix("spiffe://") else {
            return match text {
                _ if text.contains("://") => Err("is no DNS name and no `spiffe://` URI"),
                _ if text.contains('*') => {
                    Err("has a `*`, which only a SPIFFE ID may end in; name each DNS name")
                }
                _ if is_dns(text) => Ok(Self::Dns(text.to_ascii_lowercase().into())),
                _ => Err("is no DNS name and no `spiffe://` URI"),
            };
        };
        let bad = Err("is no SPIFFE ID, such as `spiffe://example.org/path` or `…/path/*`");
        if text.len() > MAX_SPIFFE_BYTES {
            return bad;
        }
        if let Some(path) = rest.strip_suffix("/*").filter(|path| is_spiffe(path)) {
            return Ok(Self::SpiffeBelow(format!("spiffe://{path}/").into()));
        }
        if is_spiffe(rest) { Ok(Self::Spiffe(text.into())) } else { bad }
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Self::Dns(dns) => dns.eq_ignore_ascii_case(name),
            Self::Spiffe(id) => **id == *name,
            Self::SpiffeBelow(prefix) => {
                name.strip_prefix(&**prefix).is_some_and(|rest| rest.split('/').all(is_segment))
            }
        }
    }
}

fn is_dns(text: &str) -> bool {
    let is_label = |label: &str| {
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(ok)
    };
    text.len() <= MAX_DNS_BYTES && text.split('.').all(is_label)
}

/// What is behind `spiffe://`: a trust domain, and a path if there is one. SPIFFE-ID, 2.1 and 2.2.
fn is_spiffe(rest: &str) -> bool {
    let mut segments = rest.split('/');
    let is_domain = |domain: &str| {
        let ok = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        !domain.is_empty() && domain.len() <= 255 && domain.bytes().all(ok)
    };
    segments.next().is_some_and(is_domain) && segments.all(is_segment)
}

/// No empty or dot segment, nothing encoded: so that a prefix is one of segments.
fn is_segment(segment: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !matches!(segment, "" | "." | "..") && segment.bytes().all(ok)
}

#[cfg(test)]
mod tests;
