//! Address of a daemon: the printed address parses to the same address.

#![no_main]

use caproot_core::net::endpoint::DaemonEndpoint;
use caproot_fuzz::check_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match text.parse::<DaemonEndpoint>() {
    Ok(endpoint) => {
        let printed = endpoint.to_string();
        assert_eq!(printed.parse(), Ok(endpoint), "{printed}");
    }
    Err(error) => check_message(&error.to_string()),
});
