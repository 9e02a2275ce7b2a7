//! What plugins declare, from JSON and Markdown: bounded, what is wrong is said in a few words, and a
//! token that is in a file of JSON is in nothing that comes out.

#![no_main]

use caproot::domain::plugin::{Kind, MAX_COMPONENTS, marketplace, prompt, read_file};
use caproot::domain::{DiagnosticCode, RelPath, manifest};
use caproot_fuzz::check_problems;
use libfuzzer_sys::fuzz_target;

/// Shaped like those of a service; in the dictionary and the seeds.
const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

fn check_hidden(out: &impl std::fmt::Debug) {
    let out = format!("{out:?}");
    assert!(!out.contains(TOKEN), "{out}");
}

fuzz_target!(|bytes: &[u8]| {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_json()) {
        let (found, problems) = read_file(kind, bytes);
        check_problems(&problems, 64, bytes);
        let is_broken = problems.iter().any(|p| p.code == DiagnosticCode::PluginFileInvalid);
        assert_eq!(found.is_none(), is_broken, "{problems:?}");
        check_hidden(&(&found, &problems));
        if let Some(found) = found {
            let most = found.servers.len().max(found.apps.len());
            let most = most.max(found.hooks.len()).max(found.lsp_servers.len());
            assert!(most <= MAX_COMPONENTS);
            assert!(found.servers.iter().all(|server| !server.name.is_empty()));
        }
    }
    let (list, problems) = marketplace::read(bytes, &RelPath::root());
    check_problems(&problems, 64, bytes);
    check_hidden(&(&list, &problems));
    let (found, problems) = manifest::read(bytes, Some(b"dir"));
    check_hidden(&(found.map(|found| found.declared), &problems));
    for kind in [Kind::Agents, Kind::Commands, Kind::OutputStyles] {
        let (found, problems) = prompt::read(kind, bytes, true, b"file");
        check_problems(&problems, 67, bytes);
        if let Some(found) = found {
            assert!(!found.name.is_empty() && found.name.chars().count() <= 128);
            assert!(found.description.chars().count() <= 1_024);
        }
    }
});
