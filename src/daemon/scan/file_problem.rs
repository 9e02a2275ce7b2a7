//! Problems of files that cannot be opened or read, with the cure for each.

use crate::daemon::fs::dirs_snapshot::ResolveError;
use crate::daemon::fs::open_file::OpenError;
use crate::daemon::model::{DiagnosticCode, FileProblem, Severity};
use crate::daemon::parse::budget::ParseAborted;

/// Maximum number of notes on a file that is served.
const MAX_HARMLESS_NOTES: usize = 16;

/// Returns the problem of a file that was removed after its directory was listed.
pub fn vanished_problem() -> FileProblem {
    unreadable_problem(ResolveError::Missing, Severity::Error)
}

/// Returns the problem of a file whose read failed.
pub fn read_failed_problem() -> FileProblem {
    unreadable_problem(ResolveError::Failed, Severity::Error)
}

/// Converts the error of opening a file to a problem with the severity `Error`.
pub fn open_problem(error: OpenError) -> FileProblem {
    match error {
        OpenError::NotRegular => not_regular_problem(),
        OpenError::Resolve(
            error @ (ResolveError::Outside | ResolveError::Missing | ResolveError::Loop),
        ) => FileProblem {
            severity: Severity::Error,
            ..link_problem(error)
        },
        OpenError::Resolve(error) => unreadable_problem(error, Severity::Error),
    }
}

/// Returns the problem of a directory, FIFO, socket or device in the place of a file.
pub fn not_regular_problem() -> FileProblem {
    let why = "not a regular file; it was not opened";
    FileProblem::error(DiagnosticCode::NotRegular, why)
}

/// Returns the problem of a link below a root whose links are not followed.
pub fn link_not_followed_problem() -> FileProblem {
    let why = "links are not followed below this root";
    FileProblem::warning(DiagnosticCode::OutsideRoot, why)
}

/// Returns the problem of a link whose target cannot be opened.
pub fn link_problem(error: ResolveError) -> FileProblem {
    match error {
        ResolveError::Outside => FileProblem::warning(
            DiagnosticCode::OutsideRoot,
            "leads outside the allowed directories; allow the target's directory, or replace the \
             link",
        ),
        ResolveError::Missing | ResolveError::NotADirectory => FileProblem::note(
            DiagnosticCode::DanglingLink,
            "the link's target does not exist; fix or remove the link",
        ),
        ResolveError::Loop => FileProblem::note(
            DiagnosticCode::DanglingLink,
            "the links form a cycle, or are more than 40; fix or remove the link",
        ),
        ResolveError::Denied | ResolveError::TooManyOpenFiles | ResolveError::Failed => {
            unreadable_problem(error, Severity::Warning)
        }
    }
}

/// Returns the problem of a file or directory that cannot be read.
pub fn unreadable_problem(error: ResolveError, severity: Severity) -> FileProblem {
    let message = match error {
        ResolveError::Denied => "the daemon's user has no read permission; grant it",
        ResolveError::Missing => REMOVED,
        ResolveError::TooManyOpenFiles => TOO_MANY_OPEN_FILES,
        ResolveError::Outside
        | ResolveError::NotADirectory
        | ResolveError::Loop
        | ResolveError::Failed => READ_FAILED,
    };
    FileProblem::new(DiagnosticCode::Unreadable, severity, message)
}

/// Returns the problem of a file that was removed where it is mounted from.
pub fn removed_mount_problem() -> FileProblem {
    FileProblem::warning(
        DiagnosticCode::Unreadable,
        "the mounted file was removed or replaced on the host, so this is its last content; mount the \
         directory above it, or restart the container",
    )
}

/// Returns the problem of a file whose parsing was given up.
pub fn parse_problem(aborted: ParseAborted) -> FileProblem {
    let message = match aborted {
        ParseAborted::TooCostly => {
            "parsing the file takes more work than its size explains; the file is ignored; \
             simplify the file"
        }
        ParseAborted::Stopped => {
            "parsing the file took too long and was stopped; the file is ignored; simplify the file"
        }
    };
    FileProblem::error(DiagnosticCode::LimitReached, message)
}

const REMOVED: &str = "removed while it was read";
const TOO_MANY_OPEN_FILES: &str = "too many open files; raise the limit of open files";
pub const READ_FAILED: &str = "read failed; check the filesystem";

/// Whether a file or directory was removed after it was opened.
pub fn is_vanished(problem: &FileProblem) -> bool {
    &*problem.message == REMOVED
}

/// Whether a problem may disappear without a change below the root, and so without an event.
pub fn is_transient(problem: &FileProblem) -> bool {
    [TOO_MANY_OPEN_FILES, READ_FAILED].contains(&&*problem.message)
}

/// Whether a file with these problems was read as a whole and nothing in it is redacted, so that its bytes
/// say no more than its message.
pub fn is_harmless<'p>(problems: impl IntoIterator<Item = &'p FileProblem>) -> bool {
    // Further problems of a file with many are not recorded.
    let mut numbered = (0..).zip(problems);
    numbered.all(|(at, problem)| at < MAX_HARMLESS_NOTES && problem.severity == Severity::Note)
}
