//! Reads a PEM file of bounded size, and parses its certificates or its private key.

use super::{CertFileError, CertFileKind};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Maximum size of a file. The certificate bundle of a system is about a quarter of the limit.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Content of a PEM file.
pub(super) struct PemFile {
    kind: CertFileKind,
    display_path: String,
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl PemFile {
    pub(super) fn read(path: &Path, kind: CertFileKind) -> Result<Self, CertFileError> {
        let display_path = path.display().to_string();
        let error = |reason: String| CertFileError { kind, subject: display_path.clone(), reason };
        let io_error = |io_error: std::io::Error| {
            error(match io_error.kind() {
                ErrorKind::NotFound => "does not exist".to_owned(),
                ErrorKind::PermissionDenied => "is not readable by this user".to_owned(),
                _ => format!("cannot be read: {io_error}"),
            })
        };
        // Checked before open(2), which blocks on a pipe without a writer.
        let metadata = std::fs::metadata(path).map_err(io_error)?;
        if !metadata.is_file() {
            return Err(error("is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(io_error)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(error(
                "is larger than 1 MiB, the limit for certificates and keys".to_owned(),
            ));
        }
        Ok(Self { kind, display_path, bytes, metadata })
    }

    /// Returns all certificates of the file, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CertFileError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certificates = certificates.map_err(|error| self.pem_error(&error))?;
        if certificates.is_empty() {
            return Err(self.error("contains no PEM certificate"));
        }
        Ok(certificates)
    }

    /// Returns the first private key of the file.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, CertFileError> {
        match PrivateKeyDer::pem_slice_iter(&self.bytes).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.pem_error(&error)),
            None if self.is_encrypted() => {
                Err(self.error("contains an encrypted key; use a key without a passphrase"))
            }
            None => Err(self.error("contains no PEM private key")),
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

    fn is_encrypted(&self) -> bool {
        let mark = b"ENCRYPTED";
        self.bytes.windows(mark.len()).any(|bytes| bytes == mark)
    }

    /// Whether users other than the owner and the group may read or write the file.
    pub(super) fn is_world_accessible(&self) -> bool {
        self.metadata.permissions().mode() & 0o006 != 0
    }

    pub(super) fn display_path(&self) -> &str {
        &self.display_path
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> CertFileError {
        CertFileError { kind: self.kind, subject: self.display_path.clone(), reason: reason.into() }
    }
}
