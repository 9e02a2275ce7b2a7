//! Every code that the commands print, with its meaning, for `caproot explain`. The comments of the
//! protocol are the meanings of its enums.

use crate::cli::exit::EXIT_CODES;
use crate::daemon::model::{DiagnosticCode, Severity};
use crate::lint::explain::{explanation_markdown, explanation_of};
use caproot_core::proto::{FILE_DESCRIPTOR_SET, grpc_code_name};
use caproot_core::text::{similar, wrap_words};
use caproot_session::ToolErrorCode;
use prost_reflect::{DescriptorPool, EnumDescriptor, EnumValueDescriptor};
use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

/// Line width of a paragraph.
const MAX_COLUMNS: usize = 80;
/// Enums of the protocol whose names the commands print, with the prefix of their values.
const PROTOCOL_ENUMS: [(CodeKind, &str, &str); 4] = [
    (CodeKind::CallError, "ErrorReason", "ERROR_REASON_"),
    (CodeKind::RootState, "RootState", "ROOT_STATE_"),
    (CodeKind::RootReason, "RootReason", "ROOT_REASON_"),
    (CodeKind::RemovalReason, "RemovalReason", "REMOVAL_REASON_"),
];

/// Place where a code is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    Diagnostic(Severity),
    CallError,
    Status,
    RootState,
    RootReason,
    RemovalReason,
    ExecutorState,
    ToolError,
    /// Exit code with its number.
    ExitCode(u8),
}

/// Code with its meaning.
#[derive(Debug, Clone)]
pub struct CodeEntry {
    pub kind: CodeKind,
    pub name: String,
    /// Meaning in a few words.
    pub summary: String,
    /// Meaning in sentences.
    cause: String,
    /// Instructions, in sentences. Empty if there is nothing to do.
    fix: String,
    /// Whole explanation, as Markdown.
    pub markdown: String,
}

impl CodeKind {
    /// Returns the place in a few words.
    pub fn describe(self) -> String {
        let place = match self {
            Self::Diagnostic(severity) => return severity.name().to_owned(),
            Self::ExitCode(number) => return format!("exit code {number}"),
            Self::CallError => "error of a call",
            Self::Status => "status of a call",
            Self::RootState => "state of a root",
            Self::RootReason => "reason of an unavailable root",
            Self::RemovalReason => "reason of a removed skill",
            Self::ExecutorState => "state of an executor",
            Self::ToolError => "error of a tool call",
        };
        place.to_owned()
    }
}

impl CodeEntry {
    fn new(kind: CodeKind, name: impl Into<String>, cause: &str, fix: &str) -> Self {
        let name = name.into();
        let mut markdown = format!("# {name} ({})\n\n", kind.describe());
        let paragraphs: Vec<_> = [cause, fix]
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(|text| wrap_words("", text, MAX_COLUMNS))
            .collect();
        markdown.push_str(&paragraphs.join("\n"));

        Self {
            kind,
            name,
            summary: first_sentence(cause),
            cause: cause.to_owned(),
            fix: fix.to_owned(),
            markdown,
        }
    }

    fn from_diagnostic(code: DiagnosticCode) -> Self {
        let explanation = explanation_of(code);
        Self {
            kind: CodeKind::Diagnostic(explanation.default_severity),
            name: code.name().to_owned(),
            summary: explanation.summary.to_owned(),
            cause: explanation.cause.clone(),
            fix: explanation.fix.clone(),
            markdown: explanation_markdown(code),
        }
    }

    /// Reads the comment of a value: `Status: X. Cause. Fix: fix. Metadata: names.`
    fn from_enum_value(kind: CodeKind, name: &str, comment: &str) -> Self {
        let (text, _) = split_at_keyword(comment, "Metadata: ");
        let (cause, fix) = split_at_keyword(text, "Fix: ");
        let status = cause
            .strip_prefix("Status: ")
            .and_then(|rest| rest.split_once(". "));

        let cause = match status {
            Some((status, cause)) => format!("{cause} The status of the call is {status}."),
            None => cause.to_owned(),
        };
        Self::new(kind, name, &cause, &capitalize(fix))
    }

    /// Returns the entry as JSON.
    pub fn to_json(&self) -> Value {
        let mut json = json!({
            "code": self.name,
            "kind": self.kind.describe(),
            "summary": self.summary,
            "cause": self.cause,
            "fix": self.fix,
            "markdown": self.markdown,
        });
        match self.kind {
            CodeKind::Diagnostic(severity) => {
                json["kind"] = "diagnostic".into();
                json["severity"] = severity.name().into();
            }
            CodeKind::ExitCode(number) => {
                json["kind"] = "exit code".into();
                json["exitCode"] = number.into();
            }
            _ => {}
        }
        json
    }
}

/// Returns every code, in the order of the list. A name can have several meanings.
pub fn all_codes() -> Vec<CodeEntry> {
    let mut codes: Vec<_> = DiagnosticCode::ALL.map(CodeEntry::from_diagnostic).into();
    codes.extend(protocol_codes());

    codes.extend((1..=16).map(Code::from_i32).map(|code| {
        CodeEntry::new(
            CodeKind::Status,
            grpc_code_name(code),
            status_meaning(code),
            "",
        )
    }));

    codes.extend(executor_states());
    codes.extend(ToolErrorCode::ALL.iter().map(|code| {
        let fix = "The hint of the result says how a model goes on.";
        CodeEntry::new(CodeKind::ToolError, code.name(), code.meaning(), fix)
    }));
    codes.extend(EXIT_CODES.iter().map(|entry| {
        let kind = CodeKind::ExitCode(entry.code);
        let mut code = CodeEntry::new(kind, entry.name, entry.meaning, "");
        entry.summary.clone_into(&mut code.summary);
        code
    }));
    codes
}

/// Finds the meanings of a code: in any letter case, with `-` instead of `_`, with or without the
/// prefix of the protocol, and as printed, such as `error[YAML_SYNTAX]`. An exit code is also found by
/// its number. The error is the most similar name, if there is a similar name.
pub fn find_codes(text: &str) -> Result<Vec<CodeEntry>, Option<String>> {
    let name = normalize_name(text);
    let all = all_codes();
    let near = similar::most_similar(&name, all.iter().map(|code| &*code.name)).map(str::to_owned);

    let number: Option<u8> = name.parse().ok();
    let mut found = all;
    found.retain(|code| match (code.kind, number) {
        (CodeKind::ExitCode(exit_code), Some(number)) => exit_code == number,
        _ => code.name == name,
    });
    if found.is_empty() {
        return Err(near);
    }
    Ok(found)
}

fn normalize_name(text: &str) -> String {
    let text = text.trim();
    let name = text
        .split_once('[')
        .and_then(|(_, rest)| rest.strip_suffix(']'))
        .unwrap_or(text)
        .to_uppercase()
        .replace('-', "_");

    let mut prefixes = PROTOCOL_ENUMS
        .iter()
        .map(|(_, _, prefix)| *prefix)
        .chain(["DIAGNOSTIC_CODE_"]);
    prefixes
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(&name)
        .to_owned()
}

/// Returns the values of the enums of the protocol.
fn protocol_codes() -> Vec<CodeEntry> {
    let mut codes = Vec::new();
    // The build made the descriptors. A test reads them.
    let Ok(pool) = DescriptorPool::decode(FILE_DESCRIPTOR_SET) else {
        return codes;
    };
    for (kind, enum_name, prefix) in PROTOCOL_ENUMS {
        if let Some(descriptor) = pool.get_enum_by_name(&format!("caproot.v1.{enum_name}")) {
            codes.extend(
                descriptor
                    .values()
                    .filter(|value| value.number() != 0)
                    .map(|value| {
                        let name = value.name().trim_start_matches(prefix);
                        CodeEntry::from_enum_value(kind, name, &value_comment(&descriptor, &value))
                    }),
            );
        }
    }
    codes
}

/// Returns the comment of a value on one line.
fn value_comment(descriptor: &EnumDescriptor, value: &EnumValueDescriptor) -> String {
    let file = descriptor.parent_file();
    let source = file.file_descriptor_proto().source_code_info.as_ref();
    let mut locations = source.into_iter().flat_map(|source| &source.location);
    let location = locations.find(|location| location.path == value.path());
    location
        .map_or("", |location| location.leading_comments())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Splits a text at a keyword. The second part is empty if the text has no keyword.
fn split_at_keyword<'a>(text: &'a str, keyword: &str) -> (&'a str, &'a str) {
    let (before, after) = text.split_once(keyword).unwrap_or((text, ""));
    (before.trim_end(), after)
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ")
        .map_or(text, |(first, _)| first)
        .trim_end_matches('.')
        .to_owned()
}

fn executor_states() -> [CodeEntry; 5] {
    let state = |name, meaning, fix| CodeEntry::new(CodeKind::ExecutorState, name, meaning, fix);

    [
        state(
            ServingStatus::Serving.as_str_name(),
            "The daemon answers calls.",
            "",
        ),
        state(
            ServingStatus::NotServing.as_str_name(),
            "The daemon answers and does not serve, such as during its shutdown.",
            "Try again later, or start the daemon again.",
        ),
        state(
            ServingStatus::Unknown.as_str_name(),
            "The daemon does not know its own state.",
            "Read the log of the daemon.",
        ),
        state(
            ServingStatus::ServiceUnknown.as_str_name(),
            "The server has no state of its services, so the server is no caproot daemon.",
            "Check the endpoint.",
        ),
        state(
            "REMOVED",
            "The fleet file no longer has the executor.",
            "Add the executor to the file to watch it again.",
        ),
    ]
}

/// Returns the meaning of a status. A daemon sends most statuses with the reason of an error.
fn status_meaning(code: Code) -> &'static str {
    match code {
        Code::Ok => "The call succeeded.",
        Code::Cancelled => {
            "The call was cancelled before the response. Usually the client or the connection ended."
        }
        Code::Unknown => {
            "The server gave no usable status. Another program or a proxy may answer at the \
             endpoint. Check the endpoint."
        }
        Code::InvalidArgument => {
            "A field of the request is invalid. The message names the field. Correct the field."
        }
        Code::DeadlineExceeded => {
            "The call did not finish within its timeout. Set a longer timeout with --timeout, or \
             leave out --fresh."
        }

        Code::NotFound => {
            "The package or the file does not exist now. `caproot list --long` shows the packages, \
             and `caproot resources` the files of a package."
        }
        Code::AlreadyExists => {
            "The call would create something that exists already. A caproot daemon does not send \
             this status."
        }
        Code::PermissionDenied => {
            "The caller may not make the call, or a path is not allowed. Ask the executor's operator \
             to add a rule to `callers`, or to allow the directory with `caproot serve --allow DIR`."
        }
        Code::ResourceExhausted => {
            "A limit of the daemon is reached. Try again later, with fewer calls or streams at once."
        }

        Code::FailedPrecondition => {
            "The root or the file cannot be used in its state. The message has the fix."
        }
        Code::Aborted => "The catalog or the file changed during the call. Repeat the command.",
        Code::OutOfRange => {
            "The request or the response is over a limit of size. Select fewer roots in one request."
        }
        Code::Unimplemented => {
            "The daemon does not know the call or the compression. Compare `caproot status` with \
             `caproot --version`, and update the older version."
        }

        Code::Internal => {
            "The request is malformed, or the daemon has a bug. Report the lines in the log of the \
             daemon."
        }
        Code::Unavailable => {
            "The daemon cannot be reached, or ends. Try again later, and check the endpoint."
        }
        Code::DataLoss => "Data was lost. A caproot daemon does not send this status.",
        Code::Unauthenticated => {
            "The caller proves no identity. Present a token with --token-file, or a client \
             certificate with --cert and --key."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CodeKind, all_codes, find_codes};
    use crate::cli::exit::EXIT_CODES;
    use crate::daemon::model::{DiagnosticCode, RootReason};
    use caproot_core::proto::caproot::v1 as pb;
    use caproot_core::proto::grpc_code_name;
    use caproot_session::ToolErrorCode;
    use tonic::Code;

    /// Returns whether `explain` knows a name in a place.
    fn knows(name: &str, is_kind: impl Fn(CodeKind) -> bool) -> bool {
        find_codes(name).is_ok_and(|found| found.iter().any(|code| is_kind(code.kind)))
    }

    #[test]
    fn every_code_of_every_enum_is_known() {
        for code in DiagnosticCode::ALL {
            let is_known = knows(code.name(), |kind| matches!(kind, CodeKind::Diagnostic(_)));
            assert!(is_known, "{}", code.name());
        }
        for reason in (1..).map_while(|n| pb::ErrorReason::try_from(n).ok()) {
            let name = reason.wire_name();
            assert!(knows(name, |kind| kind == CodeKind::CallError), "{name}");
        }
        for reason in RootReason::ALL {
            let name = reason.name();
            assert!(knows(name, |kind| kind == CodeKind::RootReason), "{name}");
        }
        for state in (1..).map_while(|n| pb::RootState::try_from(n).ok()) {
            let name = state.as_str_name();
            assert!(knows(name, |kind| kind == CodeKind::RootState), "{name}");
        }
        for reason in (1..).map_while(|n| pb::RemovalReason::try_from(n).ok()) {
            let name = reason.as_str_name();
            assert!(
                knows(name, |kind| kind == CodeKind::RemovalReason),
                "{name}"
            );
        }
        for code in (1..=16).map(Code::from_i32) {
            let name = grpc_code_name(code);
            assert!(knows(name, |kind| kind == CodeKind::Status), "{name}");
        }
        for code in ToolErrorCode::ALL {
            let name = code.name();
            assert!(knows(name, |kind| kind == CodeKind::ToolError), "{name}");
        }
        for entry in EXIT_CODES {
            let kind = CodeKind::ExitCode(entry.code);
            assert!(knows(entry.name, |found| found == kind), "{}", entry.name);
            assert!(knows(&entry.code.to_string(), |found| found == kind));
        }
        for name in ["SERVING", "NOT_SERVING", "REMOVED"] {
            assert!(
                knows(name, |kind| kind == CodeKind::ExecutorState),
                "{name}"
            );
        }
    }

    #[test]
    fn every_code_has_a_meaning() {
        for code in all_codes() {
            let name = &code.name;
            assert!(
                !code.summary.is_empty() && code.cause.ends_with('.'),
                "{code:?}"
            );
            assert!(code.fix.is_empty() || code.fix.ends_with('.'), "{code:?}");
            assert!(
                code.markdown.starts_with(&format!("# {name} (")),
                "{code:?}"
            );
            assert!(!code.markdown.contains("Fix: "), "{code:?}");
        }
    }

    #[test]
    fn codes_are_found_in_any_spelling() {
        for text in [
            "YAML_SYNTAX",
            "yaml_syntax",
            "Yaml-Syntax ",
            "DIAGNOSTIC_CODE_YAML_SYNTAX",
            "error[YAML_SYNTAX]",
        ] {
            let found = find_codes(text).expect(text);
            let names: Vec<_> = found.iter().map(|code| &*code.name).collect();
            assert_eq!(names, ["YAML_SYNTAX"], "{text}");
        }
        for (slip, meant) in [
            ("YAML_SYNTEX", Some("YAML_SYNTAX")),
            ("missing-descripton", Some("MISSING_DESCRIPTION")),
            ("package-not-fund", Some("PACKAGE_NOT_FOUND")),
            ("E0308", None),
            ("", None),
        ] {
            let near = find_codes(slip).expect_err(slip);
            assert_eq!(near.as_deref(), meant, "{slip}");
        }
    }

    #[test]
    fn a_name_can_have_several_meanings() {
        let found = find_codes("not-found").expect("a code");
        let kinds: Vec<_> = found.iter().map(|code| code.kind).collect();
        assert_eq!(kinds, [CodeKind::RootReason, CodeKind::Status]);
        let found = find_codes("outside_root").expect("a code");
        assert_eq!(found.len(), 2);
        assert!(
            found[1]
                .cause
                .contains("The status of the call is PERMISSION_DENIED.")
        );
    }
}
