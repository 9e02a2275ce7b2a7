//! Components that plugins declare in JSON and Markdown: their size is limited, problems have short
//! messages, and a token in a JSON file never appears in the output.

#![no_main]

use caproot::daemon::model::plugin::{ComponentKind, MAX_COMPONENTS};
use caproot::daemon::model::{DiagnosticCode, Severity};
use caproot::daemon::parse::manifest;
use caproot::daemon::parse::plugin::{marketplace, prompt, read_file};
use caproot_core::wire::RelPath;
use caproot_fuzz::check_problems;
use libfuzzer_sys::fuzz_target;

/// Token in the format of a service. Part of the dictionary and the seeds.
const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

fn check_redacted(out: &impl std::fmt::Debug) {
    let out = format!("{out:?}");
    assert!(!out.contains(TOKEN), "{out}");
}

fuzz_target!(|bytes: &[u8]| {
    for kind in ComponentKind::ALL.into_iter().filter(|kind| kind.is_json()) {
        let (found, problems) = read_file(kind, bytes);
        check_problems(&problems, 64, bytes);
        let is_broken = problems
            .iter()
            .filter(|p| p.severity == Severity::Error)
            .any(|p| {
                matches!(
                    p.code,
                    DiagnosticCode::PluginFileInvalid | DiagnosticCode::NotUtf8
                )
            });
        assert_eq!(found.is_none(), is_broken, "{problems:?}");
        check_redacted(&(&found, &problems));
        if let Some(found) = found {
            assert!(found.mcp_servers.len().max(found.others.len()) <= MAX_COMPONENTS);
            assert!(
                found
                    .mcp_servers
                    .iter()
                    .all(|server| !server.name.is_empty())
            );
        }
    }
    let (list, problems) = marketplace::read(bytes, &RelPath::root());
    check_problems(&problems, 64, bytes);
    check_redacted(&(&list, &problems));
    let (found, problems) = manifest::read(bytes, Some(b"dir"));
    check_redacted(&(found.map(|found| found.declarations), &problems));
    for kind in [
        ComponentKind::Agents,
        ComponentKind::Commands,
        ComponentKind::OutputStyles,
    ] {
        let (found, problems) = prompt::read(kind, bytes, true, b"file");
        check_problems(&problems, 67, bytes);
        if let Some(found) = found {
            assert!(!found.name.is_empty() && found.name.chars().count() <= 128);
            assert!(found.declaration.wire_size() <= 64 << 10);
        }
    }
});
