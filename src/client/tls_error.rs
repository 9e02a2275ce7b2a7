//! What stands between a client and a daemon over TLS, from rustls' errors to what a person can mend.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io::{self, ErrorKind};

/// The most names of a certificate that are repeated.
const MAX_NAMES: usize = 3;

/// Why there is no TLS with whatever answers. Displays as the end of a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// It speaks something else.
    #[error("what answers there does not speak TLS")]
    NotTls,
    /// It speaks TLS, and no HTTP/2 over it.
    #[error("what answers there does not speak HTTP/2 over TLS")]
    NotHttp2,
    /// It ended the connection without a word.
    #[error("what answers there ends the connection before TLS is agreed on")]
    ConnectionClosed,
    /// Its certificate comes from nobody that is trusted.
    #[error("its certificate comes from an authority that is not trusted here")]
    UnknownAuthority,
    /// Its certificate is of the past.
    #[error("its certificate has expired")]
    Expired,
    /// Its certificate is of the future.
    #[error("its certificate is not valid yet")]
    NotYetValid,
    /// Its certificate is somebody else's.
    #[error("its certificate is not for {wanted}, but for {names}")]
    WrongName {
        /// The name that was looked for.
        wanted: String,
        /// Those in the certificate, as text.
        names: String,
    },
    /// Its certificate cannot be trusted for another reason.
    #[error("its certificate cannot be trusted: {0}")]
    Untrusted(String),
    /// It wants a certificate, and none was given.
    #[error("it serves only clients that show a certificate")]
    CertificateRequired,
    /// It does not take the certificate that it was shown.
    #[error("it does not take the client's certificate: {0}")]
    CertificateRejected(&'static str),
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(String),
}

impl TlsError {
    /// What an error of a handshake, or of the first bytes after it, means.
    pub(super) fn from_io_error(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match cause {
            Some(error) => Self::from_rustls(error),
            None => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    Self::ConnectionClosed
                }
                _ => Self::Other(error.to_string()),
            },
        }
    }

    fn from_rustls(error: &Error) -> Self {
        match error {
            // These are said of the first bytes that are no TLS record.
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
            // The second: of an authority that only has the name of one that is trusted.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForNameContext { expected, presented } => Self::WrongName {
                wanted: expected.to_str().into_owned(),
                names: join_names(presented),
            },
            error => Self::Untrusted(error.to_string()),
        }
    }

    fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired => Self::CertificateRequired,
            AlertDescription::UnknownCA => Self::CertificateRejected(
                "it comes from an authority that the daemon does not trust",
            ),
            // What a daemon says that knows an authority of that name, with another key.
            AlertDescription::DecryptError => {
                Self::CertificateRejected("its signature, or that of its authority, does not hold")
            }
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
            alert => Self::Other(format!("the daemon says {alert:?}")),
        }
    }
}

/// Names as rustls gives them, a few of them.
fn join_names(names: &[String]) -> String {
    if names.is_empty() {
        return "no host at all".to_owned();
    }
    let more = if names.len() > MAX_NAMES { " and others" } else { "" };
    // The library wraps each in its kind, as in `DnsName("a.example")` and `IpAddress(127.0.0.1)`.
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    let first: Vec<_> = names.iter().take(MAX_NAMES).map(bare).collect();
    format!("{}{more}", first.join(", "))
}
