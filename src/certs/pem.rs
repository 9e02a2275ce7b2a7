//! One PEM file: reads it in bounded memory, and takes certificates or a key out of it. Leaves what they
//! are good for to the room.

use super::{CertFileError, CertFileKind};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The most bytes of a file; all authorities of a machine take a quarter of that.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file that was read.
pub(super) struct PemFile {
    kind: CertFileKind,
    display_path: String,
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl PemFile {
    pub(super) fn read(path: &Path, part: CertFileKind) -> Result<Self, CertFileError> {
        let shown = path.display().to_string();
        let problem = |reason: String| CertFileError { kind: part, subject: shown.clone(), reason };
        let failed = |error: std::io::Error| {
            problem(match error.kind() {
                ErrorKind::NotFound => "does not exist".to_owned(),
                ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
                _ => format!("cannot be read: {error}"),
            })
        };
        // Before it is opened: to open a pipe would be to wait for its writer.
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(problem("is no file".to_owned()));
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(problem("is over 1 MiB, too large for certificates".to_owned()));
        }
        Ok(Self { kind: part, display_path: shown, bytes, metadata })
    }

    /// All certificates in it, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CertFileError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let all = all.map_err(|error| self.pem_error(&error))?;
        if all.is_empty() {
            return Err(self.error("holds no certificate in PEM"));
        }
        Ok(all)
    }

    /// The first private key in it.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, CertFileError> {
        match PrivateKeyDer::pem_slice_iter(&self.bytes).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.pem_error(&error)),
            None if self.is_encrypted() => {
                Err(self.error("holds a key with a passphrase; give one without"))
            }
            None => Err(self.error("holds no private key in PEM")),
        }
    }

    /// In our words: the library's repeat bytes of the file, which may be a key's.
    fn pem_error(&self, error: &pem::Error) -> CertFileError {
        self.error(match error {
            pem::Error::MissingSectionEnd { .. } => "ends in the middle of its PEM",
            pem::Error::Base64Decode(_) => "holds PEM that is no base64",
            _ => "is broken PEM",
        })
    }

    fn is_encrypted(&self) -> bool {
        let mark = b"ENCRYPTED";
        self.bytes.windows(mark.len()).any(|bytes| bytes == mark)
    }

    /// Whether users that are neither the owner nor of the group may read or write it.
    pub(super) fn is_world_accessible(&self) -> bool {
        self.metadata.permissions().mode() & 0o006 != 0
    }

    /// The file as messages name it.
    pub(super) fn display_path(&self) -> &str {
        &self.display_path
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> CertFileError {
        CertFileError { kind: self.kind, subject: self.display_path.clone(), reason: reason.into() }
    }
}
