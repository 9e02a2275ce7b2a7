//! Errors of config files and of flags, each in a table.

use std::path::Path;

use caproot::daemon::config::{Config, ProcessEnv, ServeFlags};

use crate::harness::fixture::Fixture;
use crate::harness::golden::check_cases;
use crate::harness::process::{caproot, run_blocking};

#[test]
fn each_invalid_file_has_its_error() {
    let env = ProcessEnv {
        current_dir: Some("/base".into()),
        ..ProcessEnv::default()
    };
    check_cases("tests/snapshots/config_errors.txt", |text| {
        let content = text.replace("LONG", &"x".repeat(300)).into_bytes();
        let config = Config::from_bytes(ServeFlags::default(), Path::new("f"), content, &env);
        let errors = config.expect_err(text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].to_string()
    });
}

#[test]
fn each_invalid_command_line_has_its_errors() {
    let fixture = Fixture::new(
        "file insecure.yaml\n| insecure_tcp: true\nfile f\nfile fleet.yaml
        | executors: {build-farm: {endpoint: 'tcp:127.0.0.1:1'}}",
    );
    check_cases("tests/snapshots/command_errors.txt", |words| {
        let words = words.strip_prefix("$ caproot ").expect("a command");
        let output = run_blocking(caproot(words.split(' ')).current_dir(fixture.top()));
        assert_eq!(output.text(), "", "a command that fails prints no result");
        format!(
            "exit code {}\n{}",
            output.code.expect("an exit code"),
            output.stderr
        )
    });
}
