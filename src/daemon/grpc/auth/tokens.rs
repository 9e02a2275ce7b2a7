//! Bearer tokens in files. A file is read for each comparison, so a replaced or deleted file takes
//! effect at once, and the daemon keeps no secret in memory. Blocking.

use crate::daemon::telemetry::RateLimitedLog;
use caproot_core::bounded_file::{self, BoundedReadError};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use subtle::ConstantTimeEq as _;

/// Maximum size of a token file. Most servers and proxies reject larger headers.
const MAX_FILE_BYTES: u64 = 4_096;
/// Shortest time between two messages about the same error of a file, and the limit of messages
/// within this time.
const ERROR_LOG_INTERVAL: Duration = Duration::from_mins(1);
const MAX_LOGGED_ERRORS: usize = 64;

/// File with one token. Surrounding white space is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

/// Error of a token file. The message continues after the name of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read, or is no regular file of the size of a token.
    #[error(transparent)]
    Unreadable(#[from] BoundedReadError),
    /// Users other than its owner and group may access the file; its mode.
    #[error("is accessible to all users (mode {0:04o}); run `chmod 0600` on it")]
    WorldAccessible(u32),
    /// A group whose members can connect to a Unix socket may access the file.
    #[error(
        "is accessible to group {group} (mode {mode:04o}), whose members can connect to a socket of the \
         daemon; run `chmod 0600` on it, or give it another group"
    )]
    SocketGroupAccessible {
        /// Mode of the file.
        mode: u32,
        /// Group of the file and of the socket.
        group: u32,
    },
    /// Only white space.
    #[error("is empty; write a token into it")]
    Empty,
    /// The contents are not a valid token.
    #[error("does not contain a valid token: printable ASCII characters without white space")]
    InvalidToken,
}

/// Token files of the authentication rules.
#[derive(Debug)]
pub struct RuleTokens {
    /// Name of each rule, and its token file if the rule requires a token.
    rules: Vec<(Box<str>, Option<TokenFile>)>,
    /// Groups whose members can connect to a Unix socket.
    socket_groups: BTreeSet<u32>,
    /// Rate limit of messages about errors, by the index of the rule.
    error_log: RateLimitedLog<(usize, TokenFileError)>,
}

/// Digest of a token that a caller presented. Not a secret, and can be compared again later.
#[derive(Debug, Clone)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Computes the digest of a token.
    #[must_use]
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// Returns the group of a file if the group can read or write the file, and is one of
/// `socket_groups`. Callers are members of these groups, so the file is not a secret.
#[must_use]
pub fn exposed_group(meta: &Metadata, socket_groups: &BTreeSet<u32>) -> Option<u32> {
    let group = meta.gid();
    (meta.mode() & 0o060 != 0 && socket_groups.contains(&group)).then_some(group)
}

impl TokenFile {
    /// Creates a token file from its absolute path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Checks that the file contains a token, and that neither every user nor a group of a socket
    /// may access the file.
    pub fn check(&self, socket_groups: &BTreeSet<u32>) -> Result<(), TokenFileError> {
        self.read_digest(socket_groups).map(drop)
    }

    /// Reads the token and returns its digest.
    fn read_digest(&self, socket_groups: &BTreeSet<u32>) -> Result<TokenDigest, TokenFileError> {
        let file = bounded_file::open(&self.0)?;

        // The mode is that of the open file: the path may lead to another file now.
        let meta = file.metadata();
        let mode = meta.mode() & 0o7777;
        if mode & 0o007 != 0 {
            return Err(TokenFileError::WorldAccessible(mode));
        }
        if let Some(group) = exposed_group(meta, socket_groups) {
            return Err(TokenFileError::SocketGroupAccessible { mode, group });
        }

        let bytes = file.read(MAX_FILE_BYTES)?;
        match bytes.trim_ascii() {
            [] => Err(TokenFileError::Empty),
            token if !token.iter().all(u8::is_ascii_graphic) => Err(TokenFileError::InvalidToken),
            token => Ok(TokenDigest::new(token)),
        }
    }
}

impl RuleTokens {
    /// Creates the token files of rules. Each rule has a name, and a file if it requires a token.
    /// `socket_groups` can connect to a Unix socket, and must not have access to the files.
    #[must_use]
    pub fn new(rules: Vec<(Box<str>, Option<TokenFile>)>, socket_groups: BTreeSet<u32>) -> Self {
        Self {
            rules,
            socket_groups,
            error_log: RateLimitedLog::new(ERROR_LOG_INTERVAL, MAX_LOGGED_ERRORS),
        }
    }

    /// Returns for each rule whether the token matches. Compares digests in constant time, so
    /// timing leaks neither the length nor a prefix of a token.
    #[must_use]
    pub fn matching_rules(&self, presented: &TokenDigest) -> Vec<bool> {
        self.rules
            .iter()
            .enumerate()
            .map(|(index, (rule, file))| {
                let Some(file) = file else { return false };
                match file.read_digest(&self.socket_groups) {
                    Ok(digest) => digest.0.ct_eq(&presented.0).into(),
                    Err(error) => {
                        // Each error is logged at most once within `ERROR_LOG_INTERVAL`.
                        if self.error_log.record_keyed_event((index, error)).is_ok() {
                            tracing::error!(
                                rule = &**rule,
                                error = error.to_string(),
                                "invalid token_file; the rule matches no caller"
                            );
                        }
                        false
                    }
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::daemon::grpc::auth::{RuleTokens, TokenDigest, TokenFile, TokenFileError};
    use caproot_core::bounded_file::BoundedReadError;
    use std::collections::BTreeSet;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    fn write(path: &Path, mode: u32, content: &[u8]) {
        drop(fs::remove_file(path));
        fs::write(path, content).expect("write file");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set mode");
    }

    #[test]
    fn token_file_is_checked() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("token");
        let file = TokenFile::new(path.clone());
        let matching_rules = |token: &str| {
            let rules = vec![("a".into(), None), ("b".into(), Some(file.clone()))];
            RuleTokens::new(rules, BTreeSet::new())
                .matching_rules(&TokenDigest::new(token.as_bytes()))
        };
        let missing = file.check(&BTreeSet::new()).expect_err("no file");
        assert_eq!(missing.to_string(), "does not exist");
        assert_eq!(matching_rules(""), [false, false]);
        for (mode, content, error) in [
            (0o600, &b"s3cret"[..], None),
            (0o640, b"\n s3cret\r\n", None),
            (
                0o644,
                b"s3cret",
                Some(TokenFileError::WorldAccessible(0o644)),
            ),
            (
                0o602,
                b"s3cret",
                Some(TokenFileError::WorldAccessible(0o602)),
            ),
            (0o600, b" \n", Some(TokenFileError::Empty)),
            (0o600, b"s3 cret", Some(TokenFileError::InvalidToken)),
            (0o600, b"s3cret\nother", Some(TokenFileError::InvalidToken)),
            (0o600, b"s3cret\xff", Some(TokenFileError::InvalidToken)),
            (
                0o600,
                &[b'x'; 4_097],
                Some(BoundedReadError::TooLarge { max_bytes: 4_096 }.into()),
            ),
        ] {
            write(&path, mode, content);
            assert_eq!(file.check(&BTreeSet::new()).err(), error);
            assert_eq!(
                matching_rules("s3cret"),
                [false, error.is_none()],
                "{error:?}"
            );
            for wrong in ["", "s3cre", "s3cret ", "S3cret", "s3cret\0"] {
                assert_eq!(matching_rules(wrong), [false, false], "{wrong:?}");
            }
        }
        assert_eq!(
            TokenFile::new(dir.path().into()).check(&BTreeSet::new()),
            Err(BoundedReadError::Directory.into())
        );
    }

    #[test]
    fn the_group_of_a_socket_must_not_have_access() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("token");
        for (mode, is_exposed) in [
            (0o600, false),
            (0o640, true),
            (0o620, true),
            (0o440, true),
            (0o610, false),
        ] {
            write(&path, mode, b"s3cret");
            let group = fs::metadata(&path).expect("a file").gid();
            let rules = vec![("a".into(), Some(TokenFile::new(path.clone())))];
            for (socket_group, is_own) in [(group, true), (group + 1, false)] {
                let groups = BTreeSet::from([socket_group]);
                let error = (is_exposed && is_own)
                    .then_some(TokenFileError::SocketGroupAccessible { mode, group });
                assert_eq!(TokenFile::new(path.clone()).check(&groups).err(), error);
                let token = TokenDigest::new(b"s3cret");
                let matching = RuleTokens::new(rules.clone(), groups).matching_rules(&token);
                assert_eq!(matching, [error.is_none()], "{mode:o}");
            }
        }
    }
}
