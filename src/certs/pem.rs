//! One PEM file: reads it in bounded memory, and takes certificates or a key out of it. Leaves what they
//! are good for to the room.

use super::{Part, Problem};
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
    part: Part,
    shown: String,
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl PemFile {
    pub(super) fn read(path: &Path, part: Part) -> Result<Self, Problem> {
        let shown = path.display().to_string();
        let problem = |reason: String| Problem { part, what: shown.clone(), reason };
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
        Ok(Self { part, shown, bytes, metadata })
    }

    /// All certificates in it, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Problem> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let all = all.map_err(|error| self.broken(&error))?;
        if all.is_empty() {
            return Err(self.problem("holds no certificate in PEM"));
        }
        Ok(all)
    }

    /// The first private key in it.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Problem> {
        match PrivateKeyDer::pem_slice_iter(&self.bytes).next() {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(self.broken(&error)),
            None if self.is_encrypted() => {
                Err(self.problem("holds a key with a passphrase; give one without"))
            }
            None => Err(self.problem("holds no private key in PEM")),
        }
    }

    /// In our words: the library's repeat bytes of the file, which may be a key's.
    fn broken(&self, error: &pem::Error) -> Problem {
        self.problem(match error {
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
    pub(super) fn is_open_to_others(&self) -> bool {
        self.metadata.permissions().mode() & 0o006 != 0
    }

    /// The file as messages name it.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem { part: self.part, what: self.shown.clone(), reason: reason.into() }
    }
}
