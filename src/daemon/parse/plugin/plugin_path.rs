//! Paths in a manifest: `./…`, inside the plugin. Parsing is lexical; links are not resolved.

use crate::daemon::model::DiagnosticCode;
use crate::daemon::parse::fields::FieldReader;
use crate::daemon::parse::secret_filter;
use caproot_core::wire::RelPath;

/// Parses the path at `key`. Reports an invalid path.
pub fn read_plugin_path(fields: &mut FieldReader<'_>, key: &str, text: &str) -> Option<RelPath> {
    let path = parse_plugin_path(text);
    if path.is_none() {
        let text = secret_filter::quote_path(text);
        let why = format!("`{key}` names {text}, expected `./` and a path inside the plugin");
        fields.report_warning(DiagnosticCode::PathInvalid, why);
    }
    path
}

/// Parses `./` and a path inside the plugin. The path may end in `/`; `./` is the plugin itself.
pub fn parse_plugin_path(text: &str) -> Option<RelPath> {
    parse_path_below(text.strip_prefix('.')?).filter(|_| text.starts_with("./"))
}

/// Parses a working directory inside the plugin. In contrast to other paths, `./` is optional and
/// the path may begin with a placeholder for the plugin's directory.
pub fn parse_working_dir(text: &str) -> Option<RelPath> {
    const PLACEHOLDERS: [&str; 3] = [
        "${CLAUDE_PLUGIN_ROOT}",
        "${PLUGIN_ROOT}",
        "${CODEX_PLUGIN_ROOT}",
    ];
    if text == "." {
        return Some(RelPath::root());
    }
    let mut placeholders = PLACEHOLDERS.iter();
    match placeholders.find_map(|placeholder| text.strip_prefix(placeholder)) {
        Some("") => Some(RelPath::root()),
        Some(rest) => parse_path_below(rest).filter(|_| rest.starts_with('/')),
        None => parse_plugin_path(text)
            .or_else(|| parse_path_below(text).filter(|_| !text.starts_with('/'))),
    }
}

fn parse_path_below(text: &str) -> Option<RelPath> {
    let path = text.trim_start_matches('/');
    // `././a` is the same as `./a`.
    let path = path.strip_prefix("./").unwrap_or(path);
    RelPath::new(path.strip_suffix('/').unwrap_or(path).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{RelPath, parse_plugin_path, parse_working_dir};
    use proptest::prelude::*;

    #[test]
    fn paths_must_be_inside_the_plugin() {
        for (text, expected) in [
            ("./a", Some("a")),
            ("./a/b.json", Some("a/b.json")),
            ("./a/", Some("a")),
            ("./", Some("")),
            (".//a", Some("a")),
            ("././a", Some("a")),
            ("a", None),
            (".", None),
            ("", None),
            ("/a", None),
            ("../a", None),
            ("./../a", None),
            ("./a/../../b", None),
            ("./a/./b", None),
            ("./a//b", None),
            ("./a\0", None),
            ("~/a", None),
        ] {
            let found = parse_plugin_path(text);
            let expected = expected.map(str::as_bytes);
            assert_eq!(found.as_ref().map(RelPath::as_bytes), expected, "{text:?}");
        }
    }

    #[test]
    fn working_directories_must_be_inside_the_plugin() {
        for (text, expected) in [
            ("server", Some("server")),
            ("./server", Some("server")),
            (".", Some("")),
            ("${CLAUDE_PLUGIN_ROOT}", Some("")),
            ("${CLAUDE_PLUGIN_ROOT}/server", Some("server")),
            ("${CLAUDE_PLUGIN_ROOT}server", None),
            ("${CLAUDE_PLUGIN_ROOT}/../x", None),
            ("/opt/x", None),
            ("..", None),
            ("../x", None),
        ] {
            let found = parse_working_dir(text);
            let expected = expected.map(str::as_bytes);
            assert_eq!(found.as_ref().map(RelPath::as_bytes), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsed_paths_never_leave_the_plugin(text in "(\\.\\./|\\./|/|a|\\.\\.|\\.|\0|\\$\\{PLUGIN_ROOT\\}){0,8}", any: String) {
            for text in [text, any] {
                for found in [parse_plugin_path(&text), parse_working_dir(&text)].into_iter().flatten() {
                    prop_assert!(found.segments().all(|s| s != b".." && s != b"."));
                }
            }
        }
    }
}
