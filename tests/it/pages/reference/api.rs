//! `docs/reference/api.md`: the service, its messages and its enums.

use std::fmt::Write as _;

use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

use super::check_page;
use super::protocol::{anchor, cell, comment, line_number, link_errors, link_names, pool};

const HEAD: &str = "# API

The package `caproot.v1` of the daemon's gRPC server. The files are in `proto/caproot/v1`, and server
reflection serves them with their comments. [gRPC](../grpc/service.md) is the guide, with a call of
each kind.

| method | request | response |
| --- | --- | --- |
";

/// Returns a link to a message or an enum of the package, or the name of another type.
fn link_type(full_name: &str, name: &str) -> String {
    if full_name.starts_with("caproot.v1.") {
        format!("[{name}](#{})", anchor(name))
    } else {
        format!("`{full_name}`")
    }
}

fn link_message(message: &MessageDescriptor) -> String {
    link_type(message.full_name(), message.name())
}

fn link_kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => link_message(message),
        Kind::Enum(values) => link_type(values.full_name(), values.name()),
        scalar => format!("`{scalar:?}`").to_lowercase(),
    }
}

fn link_field_type(field: &FieldDescriptor) -> String {
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()];
        return format!(
            "map of {} to {}",
            link_kind(&key.kind()),
            link_kind(&value.kind())
        );
    }
    let kind = link_kind(&field.kind());
    let is_message = matches!(field.kind(), Kind::Message(_));
    match field.containing_oneof() {
        Some(choice) if !choice.is_synthetic() => format!("{kind}, one of `{}`", choice.name()),
        _ if field.is_list() => format!("repeated {kind}"),
        _ if field.supports_presence() && !is_message => format!("optional {kind}"),
        _ => kind,
    }
}

/// Returns a comment with links.
fn linked_comment(file: &FileDescriptor, path: &[i32]) -> String {
    link_names(&link_errors(&comment(file, path), "errors.md"), "")
}

/// Returns the streaming keyword and the link of a response.
fn response(method: &MethodDescriptor) -> String {
    let stream = if method.is_server_streaming() {
        "stream of "
    } else {
        ""
    };
    format!("{stream}{}", link_message(&method.output()))
}

fn message_section(message: &MessageDescriptor) -> String {
    let file = message.parent_file();
    let about = linked_comment(&file, message.path());
    let mut section = format!("\n### {}\n\n{about}\n", message.name());
    if message.fields().len() > 0 {
        section.push_str("\n| field | type | number | meaning |\n| --- | --- | --- | --- |\n");
    }
    for field in message.fields() {
        let (name, number) = (field.name(), field.number());
        let about = cell(&linked_comment(&file, field.path()));
        let kind = link_field_type(&field);
        writeln!(section, "| `{name}` | {kind} | {number} | {about} |").expect("a string");
    }
    section
}

fn enum_section(values: &EnumDescriptor) -> String {
    let file = values.parent_file();
    let about = linked_comment(&file, values.path());
    let mut section = format!("\n### {}\n\n{about}\n\n", values.name());
    section.push_str("| value | number | meaning |\n| --- | --- | --- |\n");
    for value in values.values() {
        let comment = linked_comment(&file, value.path());
        // `errors.md` has the comments of the reasons.
        let reason = value
            .name()
            .strip_prefix("ERROR_REASON_")
            .filter(|_| value.number() > 0);
        let about = reason.map_or(cell(&comment), |reason| {
            link_errors(&format!("`{reason}`"), "errors.md")
        });
        let (name, number) = (value.name(), value.number());
        writeln!(section, "| `{name}` | {number} | {about} |").expect("a string");
    }
    section
}

/// Returns the sections of a file's messages and enums, in the order of the file.
fn file_sections(file: &FileDescriptor) -> String {
    let name = file.name().rsplit('/').next().expect("a name");
    let mut sections: Vec<(i32, String)> = Vec::new();
    for message in file.messages() {
        assert!(
            message.child_messages().all(|child| child.is_map_entry())
                && message.child_enums().len() == 0,
            "{} has nested types",
            message.name()
        );
        sections.push((line_number(file, message.path()), message_section(&message)));
    }
    for values in file.enums() {
        sections.push((line_number(file, values.path()), enum_section(&values)));
    }
    sections.sort();
    let sections: String = sections.into_iter().map(|(_, section)| section).collect();
    format!("\n## {name}\n{sections}")
}

fn render_api() -> String {
    let pool = pool();
    let service = pool.services().next().expect("a service");
    let file = service.parent_file();
    let mut page = HEAD.to_owned();
    let about = linked_comment(&file, service.path());
    let mut sections = format!("\n## {}\n\n{about}\n", service.name());
    for method in service.methods() {
        let (name, request, response) = (
            method.name(),
            link_message(&method.input()),
            response(&method),
        );
        writeln!(
            page,
            "| [{name}](#{}) | {request} | {response} |",
            anchor(name)
        )
        .expect("a string");
        let about = linked_comment(&file, method.path());
        write!(
            sections,
            "\n### {name}\n\nRequest: {request}. Response: {response}.\n\n{about}\n"
        )
        .expect("a string");
    }
    page.push_str(&sections);
    let names = [
        "capability_service",
        "root",
        "skill",
        "plugin",
        "diagnostic",
    ];
    for name in names {
        let file = pool
            .get_file_by_name(&format!("caproot/v1/{name}.proto"))
            .expect("a file");
        page.push_str(&file_sections(&file));
    }
    let files = pool
        .files()
        .filter(|file| file.package_name() == "caproot.v1")
        .count();
    assert_eq!(files, names.len(), "the page has each file");
    page
}

#[test]
fn the_page_is_current() {
    check_page("api", &render_api());
}
