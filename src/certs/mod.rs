//! Certificates and keys as TLS takes them, out of PEM files, or what is wrong with each file. Leaves which
//! files to `config` and `client`, and what is served with them to `app`.

mod pem;
mod subject_names;

pub use subject_names::{SubjectNamesError, subject_names};

use pem::PemFile;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// What is wrong with one file. Prints as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {reason}")]
pub struct CertFileError {
    /// What the file is for.
    pub kind: CertFileKind,
    /// The file, or whatever was asked.
    pub subject: String,
    /// Goes on after it.
    pub reason: String,
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertFileKind {
    /// One's own certificate, and those that lead to its authority.
    Certificate,
    /// Its private key.
    Key,
    /// The authorities whose certificates are trusted.
    Authorities,
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct TlsIdentity {
    /// For rustls.
    pub certified_key: Arc<CertifiedKey>,
    /// What is not as it should be, and stops nobody: sentences.
    pub warnings: Vec<String>,
    /// When the first certificate of the chain expires.
    pub expires_at: SystemTime,
}

/// The cryptography that everything here is for.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate (or a chain that begins with it) and its key. The error holds what is wrong with
/// either file.
pub fn load_identity(certificate: &Path, key: &Path) -> Result<TlsIdentity, Vec<CertFileError>> {
    let chain = load_chain(certificate);
    let read = PemFile::read(key, CertFileKind::Key).and_then(|file| Ok((file.key()?, file)));
    let ((chain, checked), (der, file)) = match (chain, read) {
        (Ok(chain), Ok(read)) => (chain, read),
        (chain, read) => return Err([chain.err(), read.err()].into_iter().flatten().collect()),
    };
    let certified = CertifiedKey::from_der(chain, der, &crypto_provider()).map_err(|error| {
        vec![match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let certificate = certificate.display();
                file.error(format!("is not the key of the certificate in {certificate}"))
            }
            Error::InvalidCertificate(error) => CertFileError {
                kind: CertFileKind::Certificate,
                subject: certificate.display().to_string(),
                reason: format!("begins with a certificate that cannot be used: {error}"),
            },
            error => file.error(format!("holds a key that cannot be used: {error}")),
        }]
    })?;
    let mut warnings = checked.warnings;
    if file.is_world_accessible() {
        let key = key.display();
        warnings.push(format!("{key} can be read by every user; run `chmod o-rwx` on it"));
    }
    Ok(TlsIdentity { certified_key: Arc::new(certified), warnings, expires_at: checked.expires_at })
}

/// The authorities in a file.
pub fn load_authorities(file: &Path) -> Result<RootCertStore, CertFileError> {
    let file = PemFile::read(file, CertFileKind::Authorities)?;
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(file.certificates()?) {
        roots.add(certificate).map_err(|error| {
            file.error(format!("holds an authority, number {number}, that cannot be used: {error}"))
        })?;
    }
    Ok(roots)
}

/// The authorities that the machine trusts.
pub fn load_system_authorities() -> Result<RootCertStore, CertFileError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A store of many years holds some that nobody can read any more.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let cause = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    let what = "this machine's store of certificate authorities".to_owned();
    Err(CertFileError {
        kind: CertFileKind::Authorities,
        subject: what,
        reason: format!("is empty{cause}"),
    })
}

/// What was found out about a chain.
struct ChainCheck {
    warnings: Vec<String>,
    expires_at: SystemTime,
}

fn load_chain(file: &Path) -> Result<(Vec<CertificateDer<'static>>, ChainCheck), CertFileError> {
    let file = PemFile::read(file, CertFileKind::Certificate)?;
    let chain = file.certificates()?;
    let now = SystemTime::now();
    let mut checked = ChainCheck { warnings: Vec::new(), expires_at: unix_time(i64::MAX) };
    for (number, der) in (1..).zip(&chain) {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| {
            file.error(format!(
                "holds a certificate, number {number}, that cannot be read: {error}"
            ))
        })?;
        let validity = certificate.validity();
        let (from, until) =
            (unix_time(validity.not_before.timestamp()), unix_time(validity.not_after.timestamp()));
        let mut warn = |what: fmt::Arguments<'_>| {
            let which = if number == 1 { "the" } else { "a further" };
            checked.warnings.push(format!("{which} certificate in {} {what}", file.display_path()));
        };
        if until < now {
            warn(format_args!("expired on {}", format_time(until)));
        }
        if now < from {
            warn(format_args!("is not valid before {}", format_time(from)));
        }
        if number == 1 && !names_a_host(&certificate) {
            warn(format_args!("names no host (subjectAltName); clients refuse such ones"));
        }
        checked.expires_at = checked.expires_at.min(until);
    }
    Ok((chain, checked))
}

fn names_a_host(certificate: &X509Certificate<'_>) -> bool {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    let is_host = |name: &GeneralName<'_>| {
        matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_))
    };
    names.value.general_names.iter().any(is_host)
}

/// Seconds since 1970; what was before is as long over as that.
fn unix_time(since: i64) -> SystemTime {
    let span = Duration::from_secs(u64::try_from(since).unwrap_or_default());
    UNIX_EPOCH.checked_add(span).unwrap_or(UNIX_EPOCH)
}

/// A time as it is best read.
#[must_use]
pub fn format_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(
        |_| "a day far off".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}
