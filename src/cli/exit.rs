//! Exit codes for scripts.
//!
//! | code | name | meaning |
//! | --- | --- | --- |
//! | 0 | [`OK`] | success; also if the reader of stdout left early |
//! | 1 | [`PROBLEMS_FOUND`] | the result reports problems: a root is not ready (`list`, `roots`, `resolve`), the daemon is not serving (`status`), the listed file is not on this machine (`path`), a skill or plugin has an error, or a directory has neither (`check`) |
//! | 2 | [`USAGE`] | invalid command line |
//! | 3 | [`NO_DAEMON`] | no daemon answers at the endpoint, the server is not a daemon, or its TLS certificate is not trusted |
//! | 4 | [`REJECTED`] | the daemon rejected the call as invalid; the same call will be rejected again |
//! | 5 | [`NOT_PERMITTED`] | the caller is not permitted, or the daemon rejected its certificate |
//! | 6 | [`TRY_LATER`] | the daemon cannot respond now |
//! | 70 | [`INTERNAL`] | internal error |
//! | 73 | [`CANNOT_LISTEN`] | cannot listen: the address is in use, or its directory is unsafe |
//! | 74 | [`OUTPUT_FAILED`] | cannot write the output |
//! | 75 | [`NEEDS_RESTART`] | the daemon ended for a reload that needs a new process, and the service manager starts it again |
//! | 76 | [`VERSION_MISMATCH`] | the daemon has another version and does not know the call |
//! | 78 | [`BAD_CONFIG`] | invalid configuration: a missing file, conflicting values, or a required sandbox that the kernel does not have |
//!
//! Codes from 70 up are the codes of sysexits.h.

use tonic::Code;

/// Success.
pub const OK: u8 = 0;
/// The result reports problems.
pub const PROBLEMS_FOUND: u8 = 1;
/// Invalid command line. clap uses the same code.
pub const USAGE: u8 = 2;
/// No daemon answers at the endpoint.
pub const NO_DAEMON: u8 = 3;
/// The daemon rejected the call as invalid.
pub const REJECTED: u8 = 4;
/// The caller is not permitted.
pub const NOT_PERMITTED: u8 = 5;
/// The daemon cannot respond now.
pub const TRY_LATER: u8 = 6;
/// Internal error.
pub const INTERNAL: u8 = 70;
/// Cannot listen.
pub const CANNOT_LISTEN: u8 = 73;
/// Cannot write the output.
pub const OUTPUT_FAILED: u8 = 74;
/// A reload needs a new process, which the service manager starts.
pub const NEEDS_RESTART: u8 = 75;
/// The daemon does not know the call.
pub const VERSION_MISMATCH: u8 = 76;
/// Invalid configuration.
pub const BAD_CONFIG: u8 = 78;

/// Returns the exit code of a call with this status.
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
