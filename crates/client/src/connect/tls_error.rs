//! TLS failures between client and daemon, as errors of rustls and as messages for operators.

use super::spiffe_verifier::WrongSpiffeId;
use caproot_core::net::certs;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io::{self, ErrorKind};

/// Maximum number of certificate names in a message.
const MAX_NAMES: usize = 3;

/// TLS failure. Displays as the end of a sentence about the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The server does not speak TLS.
    #[error("the server does not speak TLS")]
    NotTls,
    /// The server speaks TLS, but not HTTP/2.
    #[error("the server does not speak HTTP/2 over TLS")]
    NotHttp2,
    /// The server closed the connection during the handshake.
    #[error("the server closed the connection during the TLS handshake")]
    ConnectionClosed,
    /// The authority of the server's certificate is not trusted.
    #[error("its certificate comes from an authority that is not trusted here")]
    UnknownAuthority,
    /// The server's certificate has expired.
    #[error("its certificate has expired")]
    Expired,
    /// The server's certificate is not valid yet.
    #[error("its certificate is not valid yet")]
    NotYetValid,
    /// The server's certificate has other names.
    #[error("its certificate is not for {wanted}, but for {names}")]
    WrongName {
        /// Expected name.
        wanted: String,
        /// Names in the certificate, as text.
        names: String,
    },
    /// The server's certificate cannot be trusted for another reason.
    #[error("its certificate cannot be trusted: {0}")]
    Untrusted(String),
    /// The server requires a client certificate.
    #[error("the daemon requires a client certificate")]
    CertificateRequired,
    /// The server rejected the client certificate.
    #[error("the daemon rejected the client certificate: {0}")]
    CertificateRejected(&'static str),
    /// Another failure.
    #[error("TLS failed: {0}")]
    Other(String),
}

impl TlsError {
    /// Converts an error of the handshake, or of the first bytes after it.
    pub(crate) fn from_io_error(error: &io::Error) -> Self {
        let cause = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Error>());
        match (cause, error.kind()) {
            (Some(error), _) => Self::from_rustls(error),
            (
                None,
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe,
            ) => Self::ConnectionClosed,
            (None, _) => Self::Other(error.to_string()),
        }
    }

    fn from_rustls(error: &Error) -> Self {
        match error {
            // rustls reports these errors if the first bytes are not a TLS record.
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) => Self::NotTls,
            Error::InvalidCertificate(error) => Self::from_certificate_error(error),
            Error::AlertReceived(alert) => Self::from_alert(*alert),
            error => Self::Other(error.to_string()),
        }
    }

    fn from_certificate_error(error: &CertificateError) -> Self {
        match error {
            // `BadSignature`: the authority has the name of a trusted authority, but another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => Self::WrongName {
                wanted: expected.to_str().into_owned(),
                names: join_names(presented),
            },
            CertificateError::Other(other) if other.0.is::<WrongSpiffeId>() => {
                Self::Untrusted(other.to_string())
            }
            error if certs::is_authority_as_end_entity(error) => Self::Untrusted(
                "it is the certificate of an authority (CA:TRUE), not of a server".to_owned(),
            ),
            error => Self::Untrusted(error.to_string()),
        }
    }

    fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired => Self::CertificateRequired,
            AlertDescription::UnknownCA => Self::CertificateRejected(
                "it comes from an authority that the daemon does not trust",
            ),
            // The daemon trusts an authority of the same name with another key.
            AlertDescription::DecryptError => Self::CertificateRejected(
                "its signature, or the signature of its authority, is invalid",
            ),
            AlertDescription::CertificateExpired => {
                Self::CertificateRejected("it has expired, or is not valid yet")
            }
            AlertDescription::CertificateRevoked => Self::CertificateRejected("it is revoked"),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied => {
                Self::CertificateRejected("the daemon's log says why")
            }
            AlertDescription::NoApplicationProtocol => Self::NotHttp2,
            alert => Self::Other(format!("the daemon sent the TLS alert {alert:?}")),
        }
    }
}

/// Joins the first names of a certificate.
fn join_names(names: &[String]) -> String {
    if names.is_empty() {
        return "no host".to_owned();
    }
    let more = if names.len() > MAX_NAMES {
        " and others"
    } else {
        ""
    };
    let first: Vec<_> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| bare_name(name))
        .collect();
    format!("{}{more}", first.join(", "))
}

/// Returns a name without its kind: rustls formats a name such as `DnsName("a.example")` or
/// `IpAddress(127.0.0.1)`.
fn bare_name(name: &str) -> &str {
    name.split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .unwrap_or(name)
        .trim_matches('"')
}
