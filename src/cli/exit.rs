//! Exit codes: what a script can tell apart without reading what was said.
//!
//! | code | name | meaning |
//! | --- | --- | --- |
//! | 0 | [`OK`] | all is well; also when the reader of stdout left early |
//! | 1 | [`WRONG`] | there is an answer, and it says that something is wrong: a root is not ready (`list`, `roots`, `resolve`), the daemon is not serving (`status`), what it lists is not on this machine (`path`), a skill or plugin has an error, or a directory has neither (`check`) |
//! | 2 | [`USAGE`] | the command line is wrong |
//! | 3 | [`NO_DAEMON`] | no daemon answers at the endpoint, what answers is none, or it cannot prove over TLS to be the one |
//! | 4 | [`REFUSED`] | the daemon refused the call as wrong; the same call will be refused again |
//! | 5 | [`NOT_PERMITTED`] | this caller may not do that, or the daemon does not take its certificate |
//! | 6 | [`TRY_LATER`] | the daemon could not answer now |
//! | 70 | [`INTERNAL`] | something broke that nobody foresaw |
//! | 73 | [`CANNOT_LISTEN`] | a listener cannot be made: taken, or an unsafe directory |
//! | 74 | [`OUTPUT`] | output could not be written |
//! | 75 | [`RESTART`] | the daemon ended so that the service manager starts it again: a reload needs a new process |
//! | 76 | [`OTHER_VERSION`] | the daemon does not know the call: it is of another version |
//! | 78 | [`CONFIG`] | bad configuration: what it names is missing, or does not fit together, or a sandbox is required that the kernel does not have |
//!
//! Codes from 70 up are those of sysexits.h.

use tonic::Code;

/// All is well.
pub const OK: u8 = 0;
/// The answer says that something is wrong.
pub const PROBLEMS_FOUND: u8 = 1;
/// The command line is wrong; clap's own code.
pub const USAGE: u8 = 2;
/// No daemon answers at the endpoint.
pub const NO_DAEMON: u8 = 3;
/// The daemon refused the call as wrong.
pub const REJECTED: u8 = 4;
/// This caller may not do that.
pub const NOT_PERMITTED: u8 = 5;
/// The daemon could not answer now.
pub const TRY_LATER: u8 = 6;
/// Something broke that nobody foresaw.
pub const INTERNAL: u8 = 70;
/// A listener cannot be made.
pub const CANNOT_LISTEN: u8 = 73;
/// Output could not be written.
pub const OUTPUT_FAILED: u8 = 74;
/// A reload needs a new process, which the service manager starts.
pub const NEEDS_RESTART: u8 = 75;
/// The daemon does not know the call.
pub const VERSION_MISMATCH: u8 = 76;
/// Bad configuration.
pub const BAD_CONFIG: u8 = 78;

/// The exit code for a call that ended with `code`.
#[must_use]
pub fn code_for_status(code: Code) -> u8 {
    match code {
        Code::Ok => OK,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange => REJECTED,
        Code::Unimplemented => VERSION_MISMATCH,
        Code::PermissionDenied | Code::Unauthenticated => NOT_PERMITTED,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Cancelled => {
            TRY_LATER
        }
        Code::Unknown | Code::Internal | Code::DataLoss => INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    #[test]
    fn every_code_has_its_exit_code() {
        let codes: Vec<u8> =
            (0..=16).map(|code| super::code_for_status(Code::from_i32(code))).collect();
        assert_eq!(codes, [0, 6, 70, 4, 6, 4, 4, 5, 6, 4, 4, 4, 76, 70, 6, 70, 5]);
    }
}
