//! The names that a certificate says its holder has: DNS names and URIs such as SPIFFE IDs. Leaves
//! whether the certificate holds to rustls, and what each name may do to `rpc`.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// The most names of one certificate, and bytes of one name.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 256;

/// Why a certificate's names are not used. Prints as the end of a sentence about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubjectNamesError {
    /// Not even the certificate can be read, or its names come twice.
    #[error("its names cannot be read")]
    Unreadable,
    /// More than is looked at.
    #[error("it holds over 64 names, or one over 256 bytes")]
    TooMany,
    /// A name that no host and no URI can have.
    #[error("one of its names is neither a host's nor a URI")]
    InvalidName,
}

/// The DNS names, in lower case, and the URIs of a certificate, in its order; other kinds of names
/// are passed over. All or none: half of the names could be the half that is let in. No DNS name
/// holds a `:`, and every URI does, so that neither is taken for the other.
pub fn subject_names(certificate: &[u8]) -> Result<Vec<String>, SubjectNamesError> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| SubjectNamesError::Unreadable)?;
    let extension =
        certificate.subject_alternative_name().map_err(|_| SubjectNamesError::Unreadable)?;
    let Some(extension) = extension else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for name in &extension.value.general_names {
        let (name, is_good) = match name {
            GeneralName::DNSName(name) => (name.to_ascii_lowercase(), is_dns_name(name)),
            GeneralName::URI(name) => ((*name).to_owned(), is_uri(name)),
            GeneralName::Invalid(..) => return Err(SubjectNamesError::InvalidName),
            _ => continue,
        };
        if names.len() == MAX_NAMES || name.len() > MAX_NAME_BYTES {
            return Err(SubjectNamesError::TooMany);
        }
        if !is_good {
            return Err(SubjectNamesError::InvalidName);
        }
        names.push(name);
    }
    Ok(names)
}

fn is_dns_name(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-._*".contains(&b);
    !text.is_empty() && text.bytes().all(is_good)
}

fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    has_scheme && text.bytes().all(|b| b.is_ascii_graphic())
}
