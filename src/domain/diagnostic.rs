//! Problems as data: what was met below a root, what it costs, where.

use super::RelPath;

/// The most bytes of a message; a longer one is cut at a character.
const MAX_MESSAGE_BYTES: usize = 512;

/// What kind of problem. The proto's `DiagnosticCode` documents cause and cure of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DiagnosticCode {
    OutsideRoot,
    LimitReached,
    NotRegular,
    Unreadable,
    DanglingLink,
    Alias,
    WrongCase,
    DirectoriesSkipped,
    NoFrontmatter,
    YamlSyntax,
    YamlRepaired,
    MissingDescription,
    NameInvalid,
    FieldTooLong,
    FieldInvalid,
    FieldUnknown,
    NotUtf8,
    ManifestInvalid,
    HandleTooLong,
    WatchDegraded,
    PluginFileInvalid,
    PathInvalid,
    PathMissing,
    ComponentInvalid,
    SecretRedacted,
    HiddenText,
}

impl DiagnosticCode {
    /// Every code, in the order of the proto.
    pub const ALL: [Self; 26] = [
        Self::OutsideRoot,
        Self::LimitReached,
        Self::NotRegular,
        Self::Unreadable,
        Self::DanglingLink,
        Self::Alias,
        Self::WrongCase,
        Self::DirectoriesSkipped,
        Self::NoFrontmatter,
        Self::YamlSyntax,
        Self::YamlRepaired,
        Self::MissingDescription,
        Self::NameInvalid,
        Self::FieldTooLong,
        Self::FieldInvalid,
        Self::FieldUnknown,
        Self::NotUtf8,
        Self::ManifestInvalid,
        Self::HandleTooLong,
        Self::WatchDegraded,
        Self::PluginFileInvalid,
        Self::PathInvalid,
        Self::PathMissing,
        Self::ComponentInvalid,
        Self::SecretRedacted,
        Self::HiddenText,
    ];

    /// Its name in the proto, without the enum's prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutsideRoot => "OUTSIDE_ROOT",
            Self::LimitReached => "LIMIT_REACHED",
            Self::NotRegular => "NOT_REGULAR",
            Self::Unreadable => "UNREADABLE",
            Self::DanglingLink => "DANGLING_LINK",
            Self::Alias => "ALIAS",
            Self::WrongCase => "WRONG_CASE",
            Self::DirectoriesSkipped => "DIRECTORIES_SKIPPED",
            Self::NoFrontmatter => "NO_FRONTMATTER",
            Self::YamlSyntax => "YAML_SYNTAX",
            Self::YamlRepaired => "YAML_REPAIRED",
            Self::MissingDescription => "MISSING_DESCRIPTION",
            Self::NameInvalid => "NAME_INVALID",
            Self::FieldTooLong => "FIELD_TOO_LONG",
            Self::FieldInvalid => "FIELD_INVALID",
            Self::FieldUnknown => "FIELD_UNKNOWN",
            Self::NotUtf8 => "NOT_UTF8",
            Self::ManifestInvalid => "MANIFEST_INVALID",
            Self::HandleTooLong => "HANDLE_TOO_LONG",
            Self::WatchDegraded => "WATCH_DEGRADED",
            Self::PluginFileInvalid => "PLUGIN_FILE_INVALID",
            Self::PathInvalid => "PATH_INVALID",
            Self::PathMissing => "PATH_MISSING",
            Self::ComponentInvalid => "COMPONENT_INVALID",
            Self::SecretRedacted => "SECRET_REDACTED",
            Self::HiddenText => "HIDDEN_TEXT",
        }
    }
}

/// What a problem costs. Orders from the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Something is left out.
    Error,
    /// It is used, but not as its author meant or as the format asks.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// Its name in the proto, without the enum's prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Note => "NOTE",
        }
    }
}

/// A problem in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// What kind.
    pub code: DiagnosticCode,
    /// What it costs.
    pub severity: Severity,
    /// Cause and cure for a person, at most 512 bytes.
    pub message: Box<str>,
    /// From 1; 0 for none.
    pub line: u32,
    /// In characters from 1; 0 for none.
    pub column: u32,
}

impl FileProblem {
    /// A problem without a position.
    #[must_use]
    pub fn new(code: DiagnosticCode, severity: Severity, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
        message.truncate(end);
        Self { code, severity, message: message.into(), line: 0, column: 0 }
    }

    /// Something is left out.
    #[must_use]
    pub fn error(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// It is used, but not as meant.
    #[must_use]
    pub fn warning(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    /// Worth knowing.
    #[must_use]
    pub fn note(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, message)
    }

    /// The same problem at a line and column, both from 1.
    #[must_use]
    pub fn with_position(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (line, column);
        self
    }
}

/// A problem at a place below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file or directory; `None` for the root as a whole, or where the place lies above it.
    pub resource: Option<RelPath>,
    /// What is wrong with it.
    pub problem: FileProblem,
}
