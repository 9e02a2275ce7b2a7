//! agents/openai.yaml always gives a result within its limits, and fails closed on an error.

#![no_main]

use caproot::daemon::model::limits::MAX_MANIFEST_BYTES;
use caproot::daemon::model::sidecar::resolve_icon;
use caproot::daemon::model::{Severity, SkillSidecar};
use caproot::daemon::parse::sidecar;
use caproot_core::wire::RelPath;
use caproot_fuzz::{check_problems, check_wire_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (sidecar, problems) = sidecar::read(bytes);
    check_problems(&problems, 64, bytes);
    if bytes.len() > MAX_MANIFEST_BYTES || problems.iter().any(|p| p.severity == Severity::Error) {
        assert_eq!(sidecar, SkillSidecar::fail_closed());
    }
    check_lists(&sidecar);
    let package = RelPath::new(b"p/skills/s").expect("a path");
    let plugin = RelPath::new(b"p").expect("a path");
    let interface = sidecar.interface.unwrap_or_default();
    for text in [interface.icon_small, interface.icon_large]
        .into_iter()
        .flatten()
    {
        if let Some(place) = resolve_icon(&package, Some(&plugin), &text) {
            let assets = |dir: &[u8]| RelPath::new(dir).expect("a path");
            let own = place.strip_prefix(&assets(b"p/skills/s/assets"));
            let below = own.or_else(|| place.strip_prefix(&assets(b"p/assets")));
            assert!(
                below.is_some_and(|below| !below.is_root()),
                "{text:?} {place:?}"
            );
        }
    }
});

fn check_lists(sidecar: &SkillSidecar) {
    let check = |texts: &[Box<str>], max: usize| {
        assert!(texts.len() <= 256 && texts.iter().all(|text| text.chars().count() <= max));
    };
    check(&sidecar.products, 64);
    assert!(sidecar.dependencies.len() <= 256);
    for tool in &sidecar.dependencies {
        let long = [&tool.description, &tool.command, &tool.url];
        let long = long
            .into_iter()
            .flatten()
            .chain([&tool.value])
            .cloned()
            .collect::<Vec<_>>();
        let short = tool
            .transport
            .iter()
            .chain([&tool.kind])
            .cloned()
            .collect::<Vec<_>>();
        check(&long, 1_024);
        check(&short, 64);
        assert!(long.iter().chain(&short).all(|text| !text.is_empty()));
    }
    if let Some(permissions) = &sidecar.permissions {
        check(&permissions.file_system_read, 1_024);
        check(&permissions.file_system_write, 1_024);
        permissions
            .macos
            .iter()
            .for_each(|value| check_wire_value(value, 64 << 10));
    }
}
