//! Caller policy: the operator's rules that map a peer's identity and token to a caller.

use crate::daemon::model::{AccessScope, PeerIdentity};
use std::sync::Arc;

/// Maximum bytes of a DNS name: RFC 1035, 2.3.4.
const MAX_DNS_BYTES: usize = 253;
/// Maximum bytes of a SPIFFE ID: SPIFFE-ID, 2.3.
const MAX_SPIFFE_BYTES: usize = 2_048;

/// Operator's rules for callers. A caller that matches several rules has the union of their access.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallerPolicy {
    /// Rules. The order has no effect.
    pub rules: Vec<CallerRule>,
}

/// One rule. The rule matches a peer that has one of the listed identities and presents the rule's
/// token, if the rule has a token. If the rule lists no identity, the token is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRule {
    /// Name for the log.
    pub name: Box<str>,
    /// User ids of local processes.
    pub uids: Vec<u32>,
    /// Primary or supplementary group ids of local processes.
    pub gids: Vec<u32>,
    /// Subject alternative names of a verified client certificate.
    pub sans: Vec<SanPattern>,
    /// Whether the peer must present the rule's token.
    pub needs_token: bool,
    /// Directories that the rule grants access to.
    pub access_scope: AccessScope,
}

/// Pattern for a subject alternative name of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanPattern {
    /// DNS name, compared without letter case.
    Dns(Box<str>),
    /// SPIFFE ID, compared in full.
    Spiffe(Box<str>),
    /// Prefix of SPIFFE IDs, ending in `/`.
    SpiffePrefix(Box<str>),
}

/// Result of comparing a call's token with the tokens of all rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck<'a> {
    /// The call has no token.
    Missing,
    /// The call has a token. Each entry tells whether the token is the rule's, in the order of the
    /// rules.
    Presented(&'a [bool]),
}

/// Authenticated caller. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Names of the rules that matched. Empty if no rules are configured.
    pub matched_rules: Arc<[Box<str>]>,
    /// Directories that the caller has access to.
    pub access_scope: Arc<AccessScope>,
}

/// Reason for denying a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthDenial {
    /// The peer proved no identity, or lacks a token or certificate that a rule requires.
    Unauthenticated,
    /// The peer proved an identity that no rule lists.
    NotAllowed,
    /// The token could not be compared, because the system refused a thread.
    NoThread,
}

impl CallerPolicy {
    /// Returns the caller, with the access that all matching rules grant together.
    pub fn authorize(
        &self,
        peer: &PeerIdentity,
        token: TokenCheck<'_>,
    ) -> Result<Caller, AuthDenial> {
        let matching: Vec<&CallerRule> = self
            .rules
            .iter()
            .enumerate()
            .filter(|(at, rule)| {
                let has_token = matches!(
                    token,
                    TokenCheck::Presented(matches) if matches.get(*at) == Some(&true)
                );
                rule.matches_peer(peer) && (has_token || !rule.needs_token)
            })
            .map(|(_, rule)| rule)
            .collect();

        let Some(access_scope) = matching
            .iter()
            .map(|rule| rule.access_scope.clone())
            .reduce(AccessScope::union)
        else {
            return Err(self.denial_reason(peer, token));
        };

        Ok(Caller {
            matched_rules: matching.iter().map(|rule| rule.name.clone()).collect(),
            access_scope: Arc::new(access_scope),
        })
    }

    fn denial_reason(&self, peer: &PeerIdentity, token: TokenCheck<'_>) -> AuthDenial {
        let may_lack_proof = match token {
            TokenCheck::Presented(matches) => !matches.contains(&true),
            // A rule lists the peer's identity, and only the token is missing; or the peer has no identity.
            TokenCheck::Missing => {
                let mut rules = self.rules.iter();
                rules.any(|rule| rule.has_identities() && rule.matches_peer(peer))
                    || matches!(peer, PeerIdentity::Remote { names, .. } if names.is_empty())
            }
        };
        if may_lack_proof {
            AuthDenial::Unauthenticated
        } else {
            AuthDenial::NotAllowed
        }
    }
}

impl CallerRule {
    /// Whether the rule lists an identity. A rule without identities matches every peer
    /// with its token.
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
            PeerIdentity::Remote { names, .. } => names
                .iter()
                .any(|name| self.sans.iter().any(|san| san.matches_name(name))),
        }
    }
}

impl SanPattern {
    /// Parses a DNS name, a SPIFFE ID, or a SPIFFE ID that ends in `/*`. The error states the rule
    /// that the text violates.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix("spiffe://") else {
            return if is_dns_name(text) {
                Ok(Self::Dns(text.to_ascii_lowercase().into()))
            } else if text.contains('*') && !text.contains("://") {
                Err("only a SPIFFE ID may end in `/*`; list each DNS name")
            } else {
                Err("expected a DNS name or a `spiffe://` URI")
            };
        };

        let bad = Err("expected a SPIFFE ID such as `spiffe://example.org/path` or `…/path/*`");
        if text.len() > MAX_SPIFFE_BYTES {
            return bad;
        }
        if let Some(path) = rest.strip_suffix("/*").filter(|path| is_spiffe_path(path)) {
            return Ok(Self::SpiffePrefix(format!("spiffe://{path}/").into()));
        }
        if is_spiffe_path(rest) {
            Ok(Self::Spiffe(text.into()))
        } else {
            bad
        }
    }

    fn matches_name(&self, name: &str) -> bool {
        match self {
            Self::Dns(dns) => dns.eq_ignore_ascii_case(name),
            Self::Spiffe(id) => **id == *name,
            Self::SpiffePrefix(prefix) => name
                .strip_prefix(&**prefix)
                .is_some_and(|rest| rest.split('/').all(is_segment)),
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    text.len() <= MAX_DNS_BYTES && text.split('.').all(is_dns_label)
}

fn is_dns_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Whether the text after `spiffe://` is a trust domain with an optional path: SPIFFE-ID, 2.1 and
/// 2.2.
fn is_spiffe_path(rest: &str) -> bool {
    let mut segments = rest.split('/');
    segments.next().is_some_and(is_trust_domain) && segments.all(is_segment)
}

fn is_trust_domain(domain: &str) -> bool {
    (1..=255).contains(&domain.len())
        && domain
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_'))
}

/// Whether the segment is neither empty nor a dot segment and has no percent-encoding. A prefix of
/// such segments cannot match a path outside the prefix.
fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
        && segment
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests;
