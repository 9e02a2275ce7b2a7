//! Parser of a plugin's manifest, `plugin.json`.

use super::{collect_problems, json, names, plugin};
use crate::daemon::model::limits::MAX_MANIFEST_BYTES;
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, PluginManifest};
use caproot_core::text;

/// Maximum characters of a version.
const MAX_VERSION_CHARS: usize = 64;

/// Parses a manifest from all its bytes, or from the first `MAX_MANIFEST_BYTES` + 1 bytes.
/// `dir_name`, the name of the plugin's directory, replaces an absent or blank name. Returns `None`
/// and a problem `MANIFEST_INVALID` if the manifest is unusable.
#[must_use]
pub fn read(bytes: &[u8], dir_name: Option<&[u8]>) -> (Option<PluginManifest>, Vec<FileProblem>) {
    collect_problems(|problems| parse_manifest(bytes, dir_name, problems))
}

fn parse_manifest(
    bytes: &[u8],
    dir_name: Option<&[u8]>,
    problems: &mut Vec<FileProblem>,
) -> Result<PluginManifest, FileProblem> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the manifest is over {MAX_MANIFEST_BYTES} bytes");
        return Err(invalid_manifest(why));
    }

    let value = json::parse(bytes).map_err(|problem| match problem.code {
        DiagnosticCode::NotUtf8 => problem,
        _ => FileProblem {
            code: DiagnosticCode::ManifestInvalid,
            ..problem
        },
    })?;

    if value.as_map().is_none() {
        let message = format!("the manifest is {}, and must be an object", value.kind());
        return Err(invalid_manifest(message).with_position(1, 1));
    }

    Ok(PluginManifest {
        name: plugin_name(&value, dir_name, problems).map_err(invalid_manifest)?,
        version: plugin_version(&value, problems),
        declarations: plugin::read_manifest_details(&value, bytes, problems),
    })
}

fn invalid_manifest(why: String) -> FileProblem {
    FileProblem::error(DiagnosticCode::ManifestInvalid, why)
}

fn plugin_name(
    value: &DynamicValue,
    dir_name: Option<&[u8]>,
    problems: &mut Vec<FileProblem>,
) -> Result<Box<str>, String> {
    let own = match value.get("name") {
        None | Some(DynamicValue::Null) => Box::default(),
        Some(DynamicValue::Text(name)) => text::collapse_whitespace(name),
        Some(other) => return Err(format!("`name` is {}, and must be text", other.kind())),
    };

    let name = match dir_name {
        Some(dir_name) if own.is_empty() => {
            let (name, problem) = names::name_from_directory(dir_name);
            problems.extend(problem);
            name
        }
        _ => own,
    };

    names::check_name(&name)?;
    // `PLUGIN/SERVER` names a server of one plugin.
    if name.contains('/') {
        let name = text::quote_word(&name);
        return Err(format!("the name {name} of the plugin has a slash"));
    }
    Ok(name)
}

fn plugin_version(value: &DynamicValue, problems: &mut Vec<FileProblem>) -> Box<str> {
    let message = match value.get("version") {
        None | Some(DynamicValue::Null) => return Box::default(),
        Some(DynamicValue::Text(version)) => {
            let version = text::collapse_whitespace(version);
            if !text::exceeds_chars(&version, MAX_VERSION_CHARS) {
                return version;
            }
            format!("`version` is over {MAX_VERSION_CHARS} characters; omitted")
        }
        Some(other) => format!("`version` is {}, and must be text; omitted", other.kind()),
    };
    problems.push(FileProblem::warning(DiagnosticCode::FieldInvalid, message));
    Box::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DiagnosticCode, MAX_MANIFEST_BYTES, read};
    use crate::daemon::model::Severity::{Error, Warning};

    #[test]
    fn manifests_give_names_and_versions() {
        for (json, name, version, code) in [
            (
                "{\"name\": \" demo \\n plugin \", \"version\": \"1.0\"}",
                "demo plugin",
                "1.0",
                None,
            ),
            ("\u{feff}{\"name\":\"a\",\"$schema\":[{}]}", "a", "", None),
            ("{}", "dir", "", None),
            ("{\"name\":null,\"version\":null}", "dir", "", None),
            ("{\"name\":\" \"}", "dir", "", None),
            (
                "{\"name\":\"a\",\"version\":1}",
                "a",
                "",
                Some(DiagnosticCode::FieldInvalid),
            ),
            (
                &format!("{{\"name\":\"a\",\"version\":\"{}\"}}", "1".repeat(65)),
                "a",
                "",
                Some(DiagnosticCode::FieldInvalid),
            ),
        ] {
            let (manifest, problems) = read(json.as_bytes(), Some(b"dir"));
            let manifest = manifest.expect(json);
            assert_eq!(
                (&*manifest.name, &*manifest.version),
                (name, version),
                "{json}"
            );
            let found = problems
                .iter()
                .map(|p| (p.code, p.severity))
                .collect::<Vec<_>>();
            assert_eq!(
                found,
                code.map(|code| (code, Warning))
                    .into_iter()
                    .collect::<Vec<_>>()
            );
        }
        let (manifest, problems) = read(b"{}", Some(b"caf\xe9"));
        assert_eq!(&*manifest.expect("usable").name, "caf\u{fffd}");
        assert_eq!(problems[0].code, DiagnosticCode::NotUtf8);
    }

    #[test]
    fn unusable_manifests_are_reported() {
        for (json, dir_name, line, column) in [
            ("{\n  x}", Some("dir"), 2, 3),
            ("", Some("dir"), 1, 1),
            ("[]", Some("dir"), 1, 1),
            ("{\"name\": 1}", Some("dir"), 0, 0),
            ("{\"name\": \"a\\u0001\"}", Some("dir"), 0, 0),
            (
                &format!("{{\"name\": \"{}\"}}", "ä".repeat(65)),
                Some("dir"),
                0,
                0,
            ),
            ("{}", None, 0, 0),
            ("{}", Some("a\u{1}"), 0, 0),
            (&" ".repeat(MAX_MANIFEST_BYTES + 1), Some("dir"), 0, 0),
        ] {
            let (manifest, problems) = read(json.as_bytes(), dir_name.map(str::as_bytes));
            assert_eq!(manifest, None, "{json}");
            let [problem] = &problems[..] else {
                panic!("{problems:?}")
            };
            assert_eq!(
                (problem.code, problem.severity),
                (DiagnosticCode::ManifestInvalid, Error)
            );
            assert_eq!(
                (problem.line, problem.column),
                (line, column),
                "{json} {problem:?}"
            );
        }
        let (manifest, problems) = read(b"{\"name\": \"\xff\"}", Some(b"dir"));
        assert_eq!(
            (manifest, problems[0].code),
            (None, DiagnosticCode::NotUtf8)
        );
        assert_eq!((problems[0].line, problems[0].column), (1, 11));
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, dir_name: Option<Vec<u8>>) {
            let _ = read(&bytes, dir_name.as_deref());
            let object = [b"{\"name\":\"".as_slice(), &bytes, b"\"}"].concat();
            let _ = read(&object, dir_name.as_deref());
        }
    }
}
