//! Comments of the protocol as Markdown, from the descriptors of the build.

use std::sync::LazyLock;

use caproot_core::proto::FILE_DESCRIPTOR_SET;
use caproot_core::proto::caproot::v1::ErrorReason;
use fancy_regex::{Captures, Regex};
use prost_reflect::{DescriptorPool, EnumDescriptor, FileDescriptor};

/// Returns the descriptors of the protocol.
pub(super) fn pool() -> DescriptorPool {
    static POOL: LazyLock<DescriptorPool> =
        LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("descriptors"));
    POOL.clone()
}

/// Returns the line of the element at `path` of the file, from 0.
pub(super) fn line_number(file: &FileDescriptor, path: &[i32]) -> i32 {
    location(file, path).0
}

/// Returns the comment of the element at `path` of the file. Each paragraph and each item of a list
/// is one line.
pub(super) fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let (_, comment) = location(file, path);
    let mut lines: Vec<String> = Vec::new();
    for line in comment
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
    {
        let is_number = |(number, _): (&str, &str)| number.parse::<u8>().is_ok();
        let begins_item = line.starts_with("- ") || line.split_once(". ").is_some_and(is_number);
        match lines.last_mut() {
            Some(last) if !last.is_empty() && !line.is_empty() && !begins_item => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    assert!(
        !lines.is_empty(),
        "a comment at {path:?} of {}",
        file.name()
    );
    lines.join("\n")
}

fn location(file: &FileDescriptor, path: &[i32]) -> (i32, String) {
    let source = file
        .file_descriptor_proto()
        .source_code_info
        .as_ref()
        .expect("comments");
    let location = source
        .location
        .iter()
        .find(|location| location.path == path);
    let location = location.unwrap_or_else(|| panic!("no location {path:?} in {}", file.name()));
    (location.span[0], location.leading_comments().to_owned())
}

/// Value of an enum without the prefix of the enum.
pub(super) struct EnumValueDoc {
    pub name: String,
    /// Comment without the fix and the metadata.
    pub cause: String,
    /// Text after `Fix: `, as a sentence.
    pub fix: String,
    /// Text after `Metadata: `.
    pub metadata: String,
}

/// Returns the values of an enum except the first, which means that the field is not set.
pub(super) fn enum_values(values: &EnumDescriptor, prefix: &str) -> Vec<EnumValueDoc> {
    let described = values.values().skip(1).map(|value| {
        let comment = comment(&values.parent_file(), value.path());
        let (comment, metadata) = split_at(&comment, "Metadata: ");
        let (cause, fix) = split_at(comment, "Fix: ");
        EnumValueDoc {
            name: value
                .name()
                .strip_prefix(prefix)
                .expect("the prefix")
                .to_owned(),
            cause: cause.to_owned(),
            fix: capitalize(fix),
            metadata: metadata.to_owned(),
        }
    });
    described.collect()
}

/// Splits the text at a keyword; the second part is empty if the text has no keyword.
pub(super) fn split_at<'a>(text: &'a str, keyword: &str) -> (&'a str, &'a str) {
    let (before, after) = text.split_once(keyword).unwrap_or((text, ""));
    assert!(!after.contains(keyword), "{keyword} twice: {text}");
    (before.trim_end(), after)
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// Formats a comment for a cell of a table.
pub(super) fn cell(comment: &str) -> String {
    let lines: Vec<_> = comment.lines().filter(|line| !line.is_empty()).collect();
    lines.join("<br>").replace('|', "\\|")
}

/// Returns the anchor of a heading, as forges derive it.
pub(super) fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "")
}

/// Links the reasons of errors between backticks to `errors.md`. `page` is the name of that page on
/// another page, and empty on the page itself.
pub(super) fn link_errors(text: &str, page: &str) -> String {
    static QUOTED: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"`([A-Z][A-Z_]+)`").expect("a pattern"));
    let link = |found: &Captures<'_, str>| match ErrorReason::from_wire_name(&found[1]) {
        Some(_) => format!("[`{0}`]({page}#{1})", &found[1], anchor(&found[1])),
        None => found[0].to_owned(),
    };
    QUOTED.replace_all(text, link).into_owned()
}

/// Links the names of messages, enums and methods outside of backticks to `api.md`, if the name has
/// two words or more, such as `ListSkills`.
pub(super) fn link_names(text: &str, page: &str) -> String {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?<![`\w.\[])[A-Z][a-z]+(?:[A-Z][a-z]+)+(?![\w\]])").expect("a pattern")
    });
    let pool = pool();
    let names: Vec<String> = pool
        .all_messages()
        .map(|message| message.name().to_owned())
        .chain(pool.all_enums().map(|values| values.name().to_owned()))
        .chain(pool.services().flat_map(|service| {
            service
                .methods()
                .map(|method| method.name().to_owned())
                .collect::<Vec<_>>()
        }))
        .collect();
    let link = |found: &Captures<'_, str>| {
        let name = &found[0];
        if names.iter().any(|known| known == name) {
            format!("[{name}]({page}#{})", anchor(name))
        } else {
            name.to_owned()
        }
    };
    // The odd parts are between backticks.
    let parts = text.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 0 {
            WORDS.replace_all(part, link).into_owned()
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("`")
}
