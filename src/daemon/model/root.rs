//! Roots as the operator publishes them and as a platform selects them.

use caproot_core::wire::RootId;
use percent_encoding::percent_decode_str;

/// Maximum bytes of a root's path in a request: Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4_096;

/// Scope of a published root. Orders like `ListRoots`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // documented at `Scope` in root.proto
pub enum RootScope {
    Repo,
    User,
    System,
    Admin,
}

/// Root that the operator publishes to platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRoot {
    /// Id of the root on this executor.
    pub id: RootId,
    /// Absolute path in raw bytes, as configured.
    pub path: Box<[u8]>,
    /// Scope of the root.
    pub scope: RootScope,
    /// Whether links below the root are followed.
    pub follow_links: bool,
    /// Whether the root is hidden while its directory does not exist. Other roots are then
    /// unavailable.
    pub is_optional: bool,
    /// Absolute paths of directories that are not allowed, and in which a link below the root may find
    /// the directory of a skill. Only roots that the daemon chose itself have any.
    pub link_dirs: Box<[Box<[u8]>]>,
}

impl PublishedRoot {
    /// Whether callers and operators do not see the root: it is optional, and its directory does not
    /// exist.
    #[must_use]
    pub fn is_hidden(&self, reason: Option<RootReason>) -> bool {
        self.is_optional && matches!(reason, Some(RootReason::NotFound))
    }

    /// Returns the selection of this root that a caller in the environment sends.
    #[must_use]
    pub fn to_selected_root(&self, environment: &str) -> SelectedRoot {
        SelectedRoot {
            id: self.id.clone(),
            location_type: "environment".into(),
            environment: environment.into(),
            path: format!("published:{}", self.id.as_str()).into(),
        }
    }
}

/// Root as a platform selected it, with an unverified location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRoot {
    /// Id that the platform chose.
    pub id: RootId,
    /// Type of the location.
    pub location_type: Box<str>,
    /// Environment of the location.
    pub environment: Box<str>,
    /// Path of the location.
    pub path: Box<str>,
}

impl SelectedRoot {
    /// Returns the path of the root, if the location belongs to one of the executor's environments.
    pub fn root_path(&self, environments: &[String]) -> Result<RootPath, RootReason> {
        if !matches!(&*self.location_type, "" | "environment") {
            return Err(RootReason::UnsupportedLocation);
        }
        if self.environment.is_empty() {
            return Err(RootReason::MissingEnvironment);
        }
        if !environments.iter().any(|e| **e == *self.environment) {
            return Err(RootReason::WrongEnvironment);
        }
        if self.path.len() > MAX_PATH_BYTES {
            return Err(RootReason::PathTooLong);
        }
        RootPath::parse(&self.path).ok_or(RootReason::InvalidPath)
    }
}

/// Reason why a root is unavailable. `RootReason` in `root.proto` documents cause and fix of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RootReason {
    NotFound,
    /// The directory was removed where it is mounted from, so that the mount shows a directory without
    /// entries. `NOT_FOUND` on the wire.
    MountRemoved,
    NotADirectory,
    PermissionDenied,
    /// The daemon's sandbox denies access, although the file permissions allow it.
    SandboxDenied,
    NotAllowed,
    WrongEnvironment,
    /// The selection has no environment id or no location.
    MissingEnvironment,
    InvalidPath,
    /// No published root in the scope of the caller has the name. `INVALID_PATH` on the wire.
    UnknownPublished,
    /// The path is longer than `PATH_MAX`, the longest path that Linux opens.
    PathTooLong,
    UnsupportedLocation,
    Timeout,
    /// A file below the root takes too long to parse. `TIMEOUT` on the wire.
    ParseTimeout,
    IoError,
    /// The system refused a thread for the scan.
    NoThread,
    /// The scan failed by a fault of the daemon.
    ScanFailed,
}

impl RootReason {
    /// One reason for each name, in the order of the protobuf enum.
    pub const ALL: [Self; 9] = [
        Self::NotFound,
        Self::NotADirectory,
        Self::PermissionDenied,
        Self::NotAllowed,
        Self::WrongEnvironment,
        Self::InvalidPath,
        Self::UnsupportedLocation,
        Self::Timeout,
        Self::IoError,
    ];

    /// Returns the name in the protobuf enum, without its prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFound | Self::MountRemoved => "NOT_FOUND",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::PermissionDenied | Self::SandboxDenied => "PERMISSION_DENIED",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::WrongEnvironment | Self::MissingEnvironment => "WRONG_ENVIRONMENT",
            Self::InvalidPath | Self::UnknownPublished | Self::PathTooLong => "INVALID_PATH",
            Self::UnsupportedLocation => "UNSUPPORTED_LOCATION",
            Self::Timeout | Self::ParseTimeout => "TIMEOUT",
            Self::IoError | Self::NoThread | Self::ScanFailed => "IO_ERROR",
        }
    }

    /// Returns the cause and the fix. The message never contains a path, so that the daemon's paths
    /// stay private.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::NotFound => "the root's path does not exist; create the directory",
            Self::MountRemoved => {
                "the mounted directory was removed or replaced on the host; mount the directory above \
                 it, or restart the container"
            }
            Self::NotADirectory => "the root's path is not a directory; select a directory",
            Self::PermissionDenied => {
                "the daemon's user may not open the root; give it read and search permission"
            }
            Self::SandboxDenied => {
                "the daemon's sandbox does not allow the root: the directory was created after the \
                 daemon started; have the executor's operator restart the daemon"
            }
            Self::NotAllowed => {
                "the root lies outside every allowed root; have the executor's operator allow it"
            }
            Self::WrongEnvironment => {
                "the root belongs to another environment; ask the executor that owns it"
            }
            Self::MissingEnvironment => {
                "the environment id is missing from the root's location; send one of the \
                 `environment_ids` that GetExecutor lists"
            }
            Self::PathTooLong => "the root's path is over 4,096 bytes; select a shorter path",
            Self::InvalidPath => {
                "the root's path is not an absolute path, a `file:` URI or a known `published:` name"
            }
            Self::UnknownPublished => {
                "no published root has this name; correct the name in the root's path"
            }
            Self::UnsupportedLocation => {
                "the root's location type is not `environment`; select an environment location"
            }
            Self::Timeout => "the filesystem below the root does not respond; check its mount",
            Self::ParseTimeout => {
                "a file below the root takes too long to parse; the daemon's log names the file, and \
                 the root's diagnostics do if its parsing is stopped"
            }
            Self::IoError => {
                "the filesystem below the root failed, or the daemon has no file descriptor left; \
                 check the disk or mount, and the daemon's limit of open files"
            }
            Self::NoThread => {
                "the system refuses the daemon a thread for the scan, which is tried again; have the \
                 executor's operator raise the limit of threads"
            }
            Self::ScanFailed => {
                "the scan failed by a fault of the daemon, and is tried again; have the executor's \
                 operator report the error in the daemon's log"
            }
        }
    }
}

/// Path of a selected root, as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RootPath {
    /// Absolute path in raw bytes, without NUL.
    Native(Box<[u8]>),
    /// Id of a published root.
    Published(Box<str>),
}

impl RootPath {
    /// Parses an absolute path, a `file:` URI of this host (RFC 8089) or `published:<id>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_PATH_BYTES {
            return None;
        }
        if let Some(id) = text.strip_prefix("published:") {
            return (!id.is_empty()).then(|| Self::Published(id.into()));
        }
        let bytes = match text.split_once(':') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => file_uri_path(rest)?,
            _ => text.as_bytes().to_vec(),
        };
        let ok = bytes.first() == Some(&b'/') && !bytes.contains(&0);
        ok.then(|| Self::Native(bytes.into()))
    }
}

/// Returns the decoded path of a `file:` URI, given the text after the scheme.
fn file_uri_path(rest: &str) -> Option<Vec<u8>> {
    if rest.contains(['?', '#']) {
        return None;
    }

    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find('/')?);
            if !(host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
                return None;
            }
            path
        }
    };

    // `percent_decode_str` keeps a `%` that begins no escape, which is not valid in a URI.
    let ok = path.match_indices('%').all(|(at, _)| {
        let digits = path.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    });
    ok.then(|| percent_decode_str(path).collect())
}

#[cfg(test)]
mod tests {
    use super::RootPath;
    use proptest::prelude::*;

    #[test]
    fn root_paths_parse() {
        let native = |s: &[u8]| Some(RootPath::Native(s.into()));
        for (text, want) in [
            ("/opt/x", native(b"/opt/x")),
            ("file:///opt/a%20b", native(b"/opt/a b")),
            ("file:/opt", native(b"/opt")),
            ("FILE://localhost/opt", native(b"/opt")),
            ("file:///%ff", native(b"/\xff")),
            ("published:user", Some(RootPath::Published("user".into()))),
            ("file://elsewhere/opt", None),
            ("file:///opt?x", None),
            ("file:///opt#x", None),
            ("file:///a%00b", None),
            ("file:opt", None),
            ("file:///a%zz", None),
            ("file:///a%4", None),
            ("published:", None),
            ("relative", None),
            ("", None),
            ("/a\0b", None),
            ("skill://x", None),
        ] {
            assert_eq!(RootPath::parse(text), want, "{text:?}");
        }
        assert_eq!(RootPath::parse(&format!("/{}", "x".repeat(4_096))), None);
    }

    proptest! {
        #[test]
        fn a_path_and_its_uri_parse_to_the_same_path(path in "/[^\0]{0,60}", any: String, uri in "file:(//|/|localhost|%|%2F|%00|a|é|\\?|#){0,9}") {
            let native = RootPath::parse(&path);
            prop_assert_eq!(&native, &Some(RootPath::Native(path.as_bytes().into())));
            let spelled = path.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            // The first `/` is not encoded, because it ends the host.
            prop_assert_eq!(RootPath::parse(&format!("file:///{}", &spelled[3..])), native);
            for text in [any, uri] {
                if let Some(RootPath::Native(path)) = RootPath::parse(&text) {
                    prop_assert!(path.starts_with(b"/") && !path.contains(&0));
                }
            }
        }
    }
}
