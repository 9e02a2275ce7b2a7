//! Loads certificates, keys and certificate authorities for TLS from PEM files.

mod spiffe_id;
mod subject_names;

pub use spiffe_id::{SpiffeId, SpiffeIdError};
pub use subject_names::{SubjectNamesError, subject_names};

use crate::bounded_file;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};
use std::fmt;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// Maximum size of a file. The certificate bundle of a system is about a quarter of the limit.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Error of one file. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {reason}")]
pub struct CertFileError {
    /// Purpose of the file.
    pub kind: CertFileKind,
    /// Path of the file, or the name of the certificate store.
    pub subject: String,
    /// Predicate of the sentence, after `subject`.
    pub reason: String,
}

/// Purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertFileKind {
    /// Certificate and its chain.
    Certificate,
    /// Private key of the certificate.
    Key,
    /// Trusted certificate authorities.
    Authorities,
}

/// Certificate chain and private key.
#[derive(Debug, Clone)]
pub struct TlsIdentity {
    /// Chain and key for rustls.
    pub certified_key: Arc<CertifiedKey>,
    /// Problems that do not prevent use, as sentences.
    pub warnings: Vec<String>,
    /// Earliest expiry of the certificates in the chain.
    pub expires_at: SystemTime,
}

/// Whether a peer was rejected because its certificate is the certificate of an authority. rustls
/// passes this error of webpki on as text.
#[must_use]
pub fn is_authority_as_end_entity(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity")
}

/// Returns the cryptography provider of all TLS configurations.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Loads a certificate chain and its key. Returns the errors of both files.
pub fn load_identity(certificate: &Path, key: &Path) -> Result<TlsIdentity, Vec<CertFileError>> {
    let chain = load_chain(certificate);
    let key_file = PemFile::read(key, CertFileKind::Key).and_then(|file| Ok((file.key()?, file)));
    let ((chain, check), (der, key_file)) = match (chain, key_file) {
        (Ok(chain), Ok(key_file)) => (chain, key_file),
        (chain, key_file) => {
            return Err(chain.err().into_iter().chain(key_file.err()).collect());
        }
    };

    let certified_key =
        CertifiedKey::from_der(chain, der, &crypto_provider()).map_err(|error| {
            vec![match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    let certificate = certificate.display();
                    key_file.error(format!(
                        "is not the key of the certificate in {certificate}"
                    ))
                }
                Error::InvalidCertificate(error) => CertFileError {
                    kind: CertFileKind::Certificate,
                    subject: certificate.display().to_string(),
                    reason: format!("has an unusable first certificate: {error}"),
                },
                error => key_file.error(format!("contains an unusable key: {error}")),
            }]
        })?;

    let mut warnings = check.warnings;
    if key_file.is_world_accessible {
        let key = key.display();
        warnings.push(format!(
            "{key} can be read by every user; run `chmod o-rwx` on it"
        ));
    }
    Ok(TlsIdentity {
        certified_key: Arc::new(certified_key),
        warnings,
        expires_at: check.expires_at,
    })
}

/// Loads the certificate authorities in a file.
pub fn load_authorities(file: &Path) -> Result<RootCertStore, CertFileError> {
    let file = PemFile::read(file, CertFileKind::Authorities)?;
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(file.certificates()?) {
        roots.add(certificate).map_err(|error| {
            file.error(format!(
                "has an unusable certificate, number {number}: {error}"
            ))
        })?;
    }
    Ok(roots)
}

/// Loads the certificate authorities that the system trusts.
pub fn load_system_authorities() -> Result<RootCertStore, CertFileError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Old certificate stores contain certificates that rustls cannot parse.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let cause = found.errors.first().map(|error| format!(": {error}"));
    Err(CertFileError {
        kind: CertFileKind::Authorities,
        subject: "the system's certificate store".to_owned(),
        reason: format!("is empty{}", cause.unwrap_or_default()),
    })
}

/// Warnings about a chain, and its earliest expiry.
struct ChainCheck {
    warnings: Vec<String>,
    expires_at: SystemTime,
}

fn load_chain(file: &Path) -> Result<(Vec<CertificateDer<'static>>, ChainCheck), CertFileError> {
    let file = PemFile::read(file, CertFileKind::Certificate)?;
    let chain = file.certificates()?;
    let now = SystemTime::now();
    let mut check = ChainCheck {
        warnings: Vec::new(),
        expires_at: unix_time(i64::MAX),
    };
    for (number, der) in (1..).zip(&chain) {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| {
            file.error(format!(
                "has an invalid certificate, number {number}: {error}"
            ))
        })?;
        let validity = certificate.validity();
        let not_before = unix_time(validity.not_before.timestamp());
        let not_after = unix_time(validity.not_after.timestamp());
        let mut warn = |problem: fmt::Arguments<'_>| {
            let which = if number == 1 { "the" } else { "another" };
            let path = &file.display_path;
            check
                .warnings
                .push(format!("{which} certificate in {path} {problem}"));
        };
        if not_after < now {
            warn(format_args!("expired on {}", format_time(not_after)));
        }
        if now < not_before {
            warn(format_args!(
                "is not valid before {}",
                format_time(not_before)
            ));
        }

        // RFC 8446, 4.4.2: the first certificate is the machine's own, the others are of authorities.
        if number == 1
            && let Some(problem) = find_name_problem(&certificate)
        {
            warn(format_args!("{problem}"));
        }
        check.expires_at = check.expires_at.min(not_after);
    }
    Ok((chain, check))
}

/// Returns the problem of a certificate that names no host.
fn find_name_problem(certificate: &X509Certificate<'_>) -> Option<&'static str> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |names| &names.value.general_names[..]);

    let mut has_spiffe_id = false;
    for name in names {
        match name {
            GeneralName::DNSName(_) | GeneralName::IPAddress(_) => return None,
            GeneralName::URI(uri) => has_spiffe_id |= uri.starts_with("spiffe://"),
            _ => {}
        }
    }
    Some(if has_spiffe_id {
        "has a SPIFFE id and names no host; only clients that expect the SPIFFE id accept the \
         certificate"
    } else {
        "names no host in subjectAltName; clients reject the certificate"
    })
}

#[cfg(unix)]
fn is_world_accessible(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o006 != 0
}

/// Only Unix has the mode of a file.
#[cfg(not(unix))]
fn is_world_accessible(_: &Metadata) -> bool {
    false
}

/// Content of a PEM file of bounded size.
struct PemFile {
    kind: CertFileKind,
    display_path: String,
    bytes: Vec<u8>,
    /// Whether users other than the owner and the group may read or write the file.
    is_world_accessible: bool,
}

impl PemFile {
    fn read(path: &Path, kind: CertFileKind) -> Result<Self, CertFileError> {
        let display_path = path.display().to_string();
        let read = bounded_file::open(path).and_then(|file| {
            let is_world_accessible = is_world_accessible(file.metadata());
            Ok(Self {
                kind,
                display_path: display_path.clone(),
                bytes: file.read(MAX_FILE_BYTES)?,
                is_world_accessible,
            })
        });
        read.map_err(|error| CertFileError {
            kind,
            subject: display_path,
            reason: error.to_string(),
        })
    }

    /// Returns all certificates of the file, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CertFileError> {
        let certificates = CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.pem_error(&error))?;
        if certificates.is_empty() {
            return Err(self.error("contains no PEM certificate"));
        }
        Ok(certificates)
    }

    /// Returns the first private key of the file.
    fn key(&self) -> Result<PrivateKeyDer<'static>, CertFileError> {
        match PrivateKeyDer::pem_slice_iter(&self.bytes).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.pem_error(&error)),
            None => {
                let mark = b"ENCRYPTED";
                let is_encrypted = self.bytes.windows(mark.len()).any(|bytes| bytes == mark);
                Err(self.error(if is_encrypted {
                    "contains an encrypted key; use a key without a passphrase"
                } else {
                    "contains no PEM private key"
                }))
            }
        }
    }

    /// Converts a PEM error. The library's messages quote bytes of the file, which may be a key.
    fn pem_error(&self, error: &pem::Error) -> CertFileError {
        self.error(match error {
            pem::Error::MissingSectionEnd { .. } => "ends within a PEM section",
            pem::Error::Base64Decode(_) => "contains invalid base64 in its PEM section",
            _ => "is not valid PEM",
        })
    }

    fn error(&self, reason: impl Into<String>) -> CertFileError {
        CertFileError {
            kind: self.kind,
            subject: self.display_path.clone(),
            reason: reason.into(),
        }
    }
}

/// Converts a Unix time. Times before 1970 become 1970.
fn unix_time(seconds: i64) -> SystemTime {
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(duration).unwrap_or(UNIX_EPOCH)
}

/// Formats a time in UTC, to the minute.
#[must_use]
pub fn format_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(
        |_| "an unknown date".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}
