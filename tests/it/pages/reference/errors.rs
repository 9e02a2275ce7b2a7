//! `docs/reference/errors.md`: the reasons of errors.

use std::fmt::Write as _;

use prost_reflect::MethodDescriptor;

use super::check_page;
use super::protocol::{anchor, comment, enum_values, link_errors, link_names, pool, split_at};

const HEAD: &str = "# Errors

The commands of caproot print the status, the reason and the message of an error, such as
`NOT_FOUND PACKAGE_NOT_FOUND: the package is not in the root's catalog now; list again`. In gRPC, the reason is a
detail of the error.

";

/// Returns the methods that name the reason below `Errors:` in their comment; `None` if the service
/// names the reason, so that any method can end with the error.
fn methods_with(reason: &str) -> Option<Vec<MethodDescriptor>> {
    let quoted = format!("`{reason}`");
    let service = pool().services().next().expect("a service");
    if comment(&service.parent_file(), service.path()).contains(&quoted) {
        return None;
    }
    let names = |method: &MethodDescriptor| {
        let comment = comment(&service.parent_file(), method.path());
        comment
            .split_once("Errors:")
            .is_some_and(|(_, errors)| errors.contains(&quoted))
    };
    Some(service.methods().filter(names).collect())
}

fn render_errors() -> String {
    let reasons = pool()
        .get_enum_by_name("caproot.v1.ErrorReason")
        .expect("an enum");
    let introduction = comment(&reasons.parent_file(), reasons.path());
    let introduction = link_errors(&introduction, "");
    let mut page = format!("{HEAD}{introduction}\n\n");
    page.push_str("| reason | status | fix |\n| --- | --- | --- |\n");
    let mut sections = String::new();
    for error in enum_values(&reasons, "ERROR_REASON_") {
        let (status, cause) = split_at(&error.cause, "Status: ")
            .1
            .split_once(". ")
            .expect("a cause");
        let [cause, fix] = [cause, &error.fix].map(|text| link_names(text, "api.md"));
        let (name, metadata) = (&error.name, error.metadata.trim_end_matches('.'));
        writeln!(page, "| [`{name}`](#{}) | {status} | {fix} |", anchor(name)).expect("a string");
        write!(
            sections,
            "\n## {name}\n\n{cause}\n\n- Status: {status}\n- Fix: {fix}\n"
        )
        .expect("a string");
        if !metadata.is_empty() {
            writeln!(sections, "- Metadata: {metadata}").expect("a string");
        }
        let methods = methods_with(name).map_or("any".to_owned(), |methods| {
            assert!(!methods.is_empty(), "no method has {name}");
            let link = |method: &MethodDescriptor| {
                format!("[{0}](api.md#{1})", method.name(), anchor(method.name()))
            };
            methods.iter().map(link).collect::<Vec<_>>().join(", ")
        });
        writeln!(sections, "- Methods: {methods}").expect("a string");
    }
    page + &sections
}

#[test]
fn the_page_is_current() {
    check_page("errors", &render_errors());
}
