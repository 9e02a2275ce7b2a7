//! Names in the certificate of a client: DNS names, and URIs such as SPIFFE IDs. The certificate
//! must be verified before.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// Maximum number of names in a certificate.
const MAX_NAMES: usize = 64;
/// Maximum size of a name.
const MAX_NAME_BYTES: usize = 256;

/// Reason why the names in a certificate are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubjectNamesError {
    /// The certificate cannot be parsed, or has several subjectAltName extensions.
    #[error("cannot parse the certificate or its subjectAltName")]
    Unreadable,
    /// The certificate exceeds the limits on names.
    #[error("more than 64 names, or a name of more than 256 bytes")]
    TooMany,
    /// A name is not a valid DNS name or URI.
    #[error("a name is neither a valid DNS name nor a URI")]
    InvalidName,
}

/// Returns the DNS names (in lower case) and URIs of a certificate in their order. Skips other
/// kinds of names. If one name is invalid, returns no names: a rule must not match some names of a
/// bad certificate. A DNS name contains no `:` and every URI contains one, so the two are never
/// confused.
pub fn subject_names(certificate: &[u8]) -> Result<Vec<String>, SubjectNamesError> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| SubjectNamesError::Unreadable)?;
    let extension = certificate
        .subject_alternative_name()
        .map_err(|_| SubjectNamesError::Unreadable)?;
    let Some(extension) = extension else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for name in &extension.value.general_names {
        let (name, is_valid) = match name {
            GeneralName::DNSName(name) => (name.to_ascii_lowercase(), is_dns_name(name)),
            GeneralName::URI(name) => ((*name).to_owned(), is_uri(name)),
            GeneralName::Invalid(..) => return Err(SubjectNamesError::InvalidName),
            _ => continue,
        };
        if names.len() == MAX_NAMES || name.len() > MAX_NAME_BYTES {
            return Err(SubjectNamesError::TooMany);
        }
        if !is_valid {
            return Err(SubjectNamesError::InvalidName);
        }
        names.push(name);
    }
    Ok(names)
}

fn is_dns_name(text: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"-._*".contains(&b);
    !text.is_empty() && text.bytes().all(is_valid)
}

fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    has_scheme && text.bytes().all(|b| b.is_ascii_graphic())
}
