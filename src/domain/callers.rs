//! Who may ask: the operator's rules, and what they make of whoever is at the other end. Leaves
//! finding out who that is to `app`, and comparing tokens to `bearer`.

use super::{AccessScope, PeerIdentity};
use std::sync::Arc;

/// The most bytes of a DNS name: RFC 1035, 2.3.4.
const MAX_DNS_BYTES: usize = 253;
/// The most bytes of a SPIFFE ID: SPIFFE-ID, 2.3.
const MAX_SPIFFE_BYTES: usize = 2_048;

/// The operator's rules. Several may match one caller, which then has what any of them gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallerPolicy {
    /// In no order that matters.
    pub rules: Vec<CallerRule>,
}

/// One rule. It matches a caller that has one of the identities that are listed, whichever, and
/// shows the rule's token, if there is one. Where none is listed, the token is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRule {
    /// For the log.
    pub name: Box<str>,
    /// Of processes of this machine.
    pub uids: Vec<u32>,
    /// Primary or supplementary groups of processes of this machine.
    pub gids: Vec<u32>,
    /// Names in a verified client certificate.
    pub sans: Vec<SanPattern>,
    /// Whether the rule's token must be shown.
    pub needs_token: bool,
    /// What the rule gives.
    pub access_scope: AccessScope,
}

/// A name that a certificate may carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanPattern {
    /// A DNS name; letter case does not matter.
    Dns(Box<str>),
    /// One SPIFFE ID.
    Spiffe(Box<str>),
    /// Every SPIFFE ID below a path, which ends in `/`.
    SpiffePrefix(Box<str>),
}

/// What a call carries as a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck<'a> {
    /// Nothing.
    Missing,
    /// A token; of each rule, whether it is the rule's.
    Presented(&'a [bool]),
}

/// Somebody who may ask. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The rules that let it in; none where there are no rules.
    pub matched_rules: Arc<[Box<str>]>,
    /// What it may ask for.
    pub access_scope: AccessScope,
}

/// Why somebody may not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthDenial {
    /// It proved no identity, or not all that a rule wants: no certificate, no token, a wrong one.
    Unauthenticated,
    /// It proved one that no rule names.
    NotAllowed,
}

impl CallerPolicy {
    /// Whether somebody may ask, and for what.
    pub fn authorize(
        &self,
        peer: &PeerIdentity,
        token: TokenCheck<'_>,
    ) -> Result<Caller, AuthDenial> {
        let token_of = |at: usize| match token {
            TokenCheck::Missing => false,
            TokenCheck::Presented(whose) => whose.get(at).copied().unwrap_or(false),
        };
        let matching =
            self.rules.iter().enumerate().filter(|(at, rule)| {
                rule.matches_peer(peer) && (!rule.needs_token || token_of(*at))
            });
        let matching: Vec<&CallerRule> = matching.map(|(_, rule)| rule).collect();
        let Some(reach) =
            matching.iter().map(|rule| rule.access_scope.clone()).reduce(AccessScope::union)
        else {
            return Err(self.denial_reason(peer, token));
        };
        let rules = matching.iter().map(|rule| rule.name.clone()).collect();
        Ok(Caller { matched_rules: rules, access_scope: reach })
    }

    fn denial_reason(&self, peer: &PeerIdentity, token: TokenCheck<'_>) -> AuthDenial {
        match token {
            TokenCheck::Presented(whose) if !whose.contains(&true) => {
                return AuthDenial::Unauthenticated;
            }
            // It is somebody whom a rule names, and lacks the token.
            TokenCheck::Missing
                if self.rules.iter().any(|r| r.has_identities() && r.matches_peer(peer)) =>
            {
                return AuthDenial::Unauthenticated;
            }
            TokenCheck::Presented(_) => return AuthDenial::NotAllowed,
            TokenCheck::Missing => {}
        }
        match peer {
            PeerIdentity::Remote { names, .. } if names.is_empty() => AuthDenial::Unauthenticated,
            PeerIdentity::Remote { .. } | PeerIdentity::Local { .. } => AuthDenial::NotAllowed,
        }
    }
}

impl CallerRule {
    /// Whether the rule lists anybody; one that does not is for whoever has its token.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        !(self.uids.is_empty() && self.gids.is_empty() && self.sans.is_empty())
    }

    fn matches_peer(&self, peer: &PeerIdentity) -> bool {
        if !self.has_identities() {
            return self.needs_token;
        }
        match peer {
            PeerIdentity::Local { uid, gids, .. } => {
                self.uids.contains(uid) || gids.iter().any(|gid| self.gids.contains(gid))
            }
            PeerIdentity::Remote { names, .. } => {
                names.iter().any(|name| self.sans.iter().any(|san| san.matches_name(name)))
            }
        }
    }
}

impl SanPattern {
    /// Reads a DNS name, a SPIFFE ID, or one that ends in `/*`; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix("spiffe://") else {
            return match text {
                _ if text.contains("://") => Err("is no DNS name and no `spiffe://` URI"),
                _ if text.contains('*') => {
                    Err("has a `*`, which only a SPIFFE ID may end in; name each DNS name")
                }
                _ if is_dns_name(text) => Ok(Self::Dns(text.to_ascii_lowercase().into())),
                _ => Err("is no DNS name and no `spiffe://` URI"),
            };
        };
        let bad = Err("is no SPIFFE ID, such as `spiffe://example.org/path` or `…/path/*`");
        if text.len() > MAX_SPIFFE_BYTES {
            return bad;
        }
        if let Some(path) = rest.strip_suffix("/*").filter(|path| is_spiffe_path(path)) {
            return Ok(Self::SpiffePrefix(format!("spiffe://{path}/").into()));
        }
        if is_spiffe_path(rest) { Ok(Self::Spiffe(text.into())) } else { bad }
    }

    fn matches_name(&self, name: &str) -> bool {
        match self {
            Self::Dns(dns) => dns.eq_ignore_ascii_case(name),
            Self::Spiffe(id) => **id == *name,
            Self::SpiffePrefix(prefix) => {
                name.strip_prefix(&**prefix).is_some_and(|rest| rest.split('/').all(is_segment))
            }
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(ok)
    };
    text.len() <= MAX_DNS_BYTES && text.split('.').all(is_label)
}

/// What is behind `spiffe://`: a trust domain, and a path if there is one. SPIFFE-ID, 2.1 and 2.2.
fn is_spiffe_path(rest: &str) -> bool {
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
