//! Selected roots as the platform names them, and what can be said of one. Leaves looking at the
//! disk to `disk`.

use percent_encoding::percent_decode_str;

/// The most bytes of a root id.
const MAX_ID_BYTES: usize = 256;
/// The most bytes of a root's path as given: Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4_096;

/// A selected root's id: 1 to 256 bytes, no control characters, not `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootId(Box<str>);

impl RootId {
    /// Checks the text of an id; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("is empty; an id has 1 to 256 bytes");
        }
        if text.len() > MAX_ID_BYTES {
            return Err("is over 256 bytes");
        }
        if text.chars().any(char::is_control) {
            return Err("holds a control character");
        }
        if matches!(text, "." | "..") {
            return Err("must not be `.` or `..`");
        }
        Ok(Self(text.into()))
    }

    /// The id as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who a published root is for. Orders as `ListRoots` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the proto's `Scope` says what each means
pub enum RootScope {
    Repo,
    User,
    System,
    Admin,
}

/// A root that the operator offers to platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRoot {
    /// Its id on this executor.
    pub id: RootId,
    /// Absolute, raw bytes, as the operator gave it.
    pub path: Box<[u8]>,
    /// Who it is for.
    pub scope: RootScope,
    /// Whether links below it are followed.
    pub follow_links: bool,
}

impl PublishedRoot {
    /// The root as a caller selects it in an environment.
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

/// A root as a platform selected it, its location not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRoot {
    /// The platform's name for it.
    pub id: RootId,
    /// The location's `type`.
    pub location_type: Box<str>,
    /// The location's environment.
    pub environment: Box<str>,
    /// The location's path.
    pub path: Box<str>,
}

impl SelectedRoot {
    /// Where the root is said to be, for an executor of these environments.
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

/// Why a root cannot be used. The proto's `RootReason` documents cause and cure of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RootReason {
    NotFound,
    NotADirectory,
    PermissionDenied,
    /// Permissions would let the daemon in, but not the walls that it built when it started.
    SandboxDenied,
    NotAllowed,
    WrongEnvironment,
    /// The selection has no environment id, or no location at all.
    MissingEnvironment,
    InvalidPath,
    /// The path as given is longer than any path that Linux opens.
    PathTooLong,
    UnsupportedLocation,
    Timeout,
    IoError,
}

impl RootReason {
    /// One of each name, in the order of the proto.
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

    /// Its name in the proto, without the enum's prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::PermissionDenied | Self::SandboxDenied => "PERMISSION_DENIED",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::WrongEnvironment | Self::MissingEnvironment => "WRONG_ENVIRONMENT",
            Self::InvalidPath | Self::PathTooLong => "INVALID_PATH",
            Self::UnsupportedLocation => "UNSUPPORTED_LOCATION",
            Self::Timeout => "TIMEOUT",
            Self::IoError => "IO_ERROR",
        }
    }

    /// The cause and what to do next, for a person. Never names a path: the caller has its own
    /// spelling, and the daemon's stays here.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::NotFound => "nothing is at the root's path; create the directory",
            Self::NotADirectory => "the root's path is not a directory; select a directory",
            Self::PermissionDenied => {
                "the daemon's user may not open the root; give it read and search permission"
            }
            Self::SandboxDenied => {
                "the daemon may not open the root: what is there now came after the daemon \
                 restricted itself; have the executor's operator restart it"
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
                "the root's path is no absolute path, `file:` URI or known `published:` name"
            }
            Self::UnsupportedLocation => {
                "the root's location type is not `environment`; select an environment location"
            }
            Self::Timeout => "the filesystem below the root does not answer; look at its mount",
            Self::IoError => {
                "the filesystem below the root failed, or the daemon has no file descriptor left; \
                 look at the disk or mount, and at the daemon's limit of open files"
            }
        }
    }
}

/// Where a selected root is, in the caller's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RootPath {
    /// An absolute path: raw bytes that begin with `/` and hold no NUL.
    Native(Box<[u8]>),
    /// The id of a published root.
    Published(Box<str>),
}

impl RootPath {
    /// Reads a native absolute path, a `file:` URI (RFC 8089, of this host) or `published:<id>`.
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

/// The path of a `file:` URI whose scheme is cut off, decoded.
fn file_uri_path(rest: &str) -> Option<Vec<u8>> {
    if rest.contains(['?', '#']) {
        return None;
    }
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let slash = rest.find('/')?;
            let (host, path) = rest.split_at(slash);
            if !(host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
                return None;
            }
            path
        }
    };
    // A `%` that begins no escape makes it no URI; a lenient reader would take it as it is.
    let is_escape = |at: usize| {
        let digits = path.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    };
    let ok = path.match_indices('%').all(|(at, _)| is_escape(at));
    ok.then(|| percent_decode_str(path).collect())
}

#[cfg(test)]
mod tests {
    use super::{RootId, RootPath};
    use proptest::prelude::*;

    #[test]
    fn ids() {
        for good in ["a", "deploy-plugin@1", "a/b", "ü", &"x".repeat(256)] {
            assert!(RootId::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "a\nb", "\u{7f}", &"x".repeat(257)] {
            assert!(RootId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths() {
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
        fn a_path_and_its_uri_are_the_same(path in "/[^\0]{0,60}", any: String, uri in "file:(//|/|localhost|%|%2F|%00|a|é|\\?|#){0,9}") {
            let native = RootPath::parse(&path);
            prop_assert_eq!(&native, &Some(RootPath::Native(path.as_bytes().into())));
            let spelled = path.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            // Its first slash ends the host.
            prop_assert_eq!(RootPath::parse(&format!("file:///{}", &spelled[3..])), native);
            for text in [any, uri] {
                if let Some(RootPath::Native(path)) = RootPath::parse(&text) {
                    prop_assert!(path.starts_with(b"/") && !path.contains(&0));
                }
            }
        }
    }
}
