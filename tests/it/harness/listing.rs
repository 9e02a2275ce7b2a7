//! Formats a list of skills as canonical text that people can read and tests can compare, and
//! checks the properties of every response.
//!
//! ```text
//! ROOT STATE [REASON] [truncated]
//!   PACKAGE NAME "DESCRIPTION" [short="…"] [hidden|models-only|closed] [products=a,b]
//!     FIELD: VALUE            one line for each requested field that the skill has
//!   SEVERITY CODE RESOURCE[:LINE:COLUMN]
//! ```
//!
//! A text over 60 characters is shortened to its first 20, `…` and its length in characters. A
//! diagnostic about the whole root has the root's own handle.

use std::fmt::Write as _;

use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListSkillsResponse, NotOffered, PermissionPath, ResolvedRoot,
    RootKind, RootReason, RootState, RootStatus, Severity, Skill, permission_path,
};
use prost_types::value::Kind;

/// One canonical line, with the message if the line is a diagnostic.
pub(crate) struct Line {
    /// Canonical text.
    pub text: String,
    /// Message of a diagnostic, otherwise empty.
    pub message: String,
}

impl Line {
    fn plain(text: String) -> Self {
        Self {
            text,
            message: String::new(),
        }
    }
}

/// Returns the canonical lines of one response with the fields of `show`.
pub(crate) fn canonical_lines(
    answer: &ListSkillsResponse,
    resolved: &[ResolvedRoot],
    show: &[String],
) -> Vec<Line> {
    assert_invariants(answer);
    let mut lines = Vec::new();
    for root in &answer.roots {
        let resolved = resolved.iter().find(|r| r.id == root.id);
        lines.push(Line::plain(status(root, resolved, show)));
        for skill in answer.skills.iter().filter(|s| authority(s) == root.id) {
            lines.push(Line::plain(format!("  {}", headline(skill))));
            for field in show {
                let text = field_text(skill, field);
                if !text.is_empty() {
                    lines.push(Line::plain(format!("    {field}: {text}")));
                }
            }
        }
        for found in answer.diagnostics.iter().filter(|d| d.root_id == root.id) {
            let text = format!("  {}", diagnostic(found));
            lines.push(Line {
                text,
                message: found.message.clone(),
            });
        }
    }
    lines
}

/// Asserts the properties of every first page.
fn assert_invariants(answer: &ListSkillsResponse) {
    let rank = |id: &str| {
        answer
            .roots
            .iter()
            .position(|r| r.id == id)
            .expect("a known root")
    };
    let order: Vec<_> = answer
        .skills
        .iter()
        .map(|s| (rank(authority(s)), s.name.clone(), s.package.clone()))
        .collect();
    assert!(
        order.is_sorted(),
        "roots in request order, then name, then package: {order:#?}"
    );
    for root in &answer.roots {
        let found = answer.diagnostics.iter().filter(|d| d.root_id == root.id);
        let order: Vec<_> = found
            .map(|d| (d.severity, d.resource.clone(), d.line))
            .collect();
        assert!(order.is_sorted(), "severity, resource, line: {order:#?}");
        let ready = root.state() == RootState::Ready;
        assert_eq!(
            root.counts.is_some(),
            ready,
            "a ready root has counts: {root:?}"
        );
        assert_eq!(
            root.message.is_empty(),
            ready,
            "an unavailable root has a message: {root:?}"
        );
        assert!(root.message.len() <= 512, "{root:?}");
        if let Some(counts) = &root.counts {
            assert_eq!(counts.diagnostics as usize, order.len(), "{root:?}");
        }
    }
    let truncated = answer.roots.iter().any(|r| r.truncated);
    assert_eq!(
        answer.truncated, truncated,
        "the list is truncated if a root is"
    );
    for found in &answer.diagnostics {
        rank(&found.root_id);
        assert!(
            !found.message.is_empty() && found.message.len() <= 512,
            "{found:?}"
        );
    }
    assert!(answer.warnings.len() <= 16 && answer.warnings.iter().all(|w| w.len() <= 256));
    assert!(!answer.epoch.is_empty(), "every answer has an epoch");
}

fn authority(skill: &Skill) -> &str {
    let authority = skill.authority.as_ref().expect("an authority");
    assert_eq!(authority.kind, "executor");
    &authority.id
}

fn status(root: &RootStatus, resolved: Option<&ResolvedRoot>, show: &[String]) -> String {
    let mut text = format!(
        "{} {}",
        root.id,
        short_name(root.state().as_str_name(), "ROOT_STATE_")
    );
    if root.reason() != RootReason::Unspecified {
        write!(
            text,
            " {}",
            short_name(root.reason().as_str_name(), "ROOT_REASON_")
        )
        .expect("text");
    }
    if root.truncated {
        text.push_str(" truncated");
    }
    for field in show {
        let counts = root.counts.unwrap_or_default();
        let number = match field.as_str() {
            "other_product" => counts.other_product,
            "omitted" => counts.omitted,
            "skipped_directories" => counts.skipped_directories,
            "directories" => counts.directories,
            "entries" => counts.entries,
            "kind" => {
                let kind = resolved.map_or(RootKind::Unspecified, ResolvedRoot::kind);
                let name = short_name(kind.as_str_name(), "ROOT_KIND_");
                write!(text, " kind={name}").expect("text");
                continue;
            }
            "plugin" => {
                if let Some(plugin) = resolved.and_then(|r| r.plugin.as_ref()) {
                    write!(text, " plugin={}@{}", plugin.name, plugin.version).expect("text");
                }
                continue;
            }
            _ => continue,
        };
        write!(text, " {field}={number}").expect("text");
    }
    text
}

fn headline(skill: &Skill) -> String {
    let root = authority(skill);
    assert_eq!(skill.main_resource, format!("{}/SKILL.md", skill.package));
    assert!(skill.package.starts_with("skill://"), "{}", skill.package);
    assert!(
        skill.package.len() <= 2_048,
        "a handle of {root} over its limit"
    );
    if !skill.plugin.is_empty() {
        assert!(
            skill.name.starts_with(&format!("{}:", skill.plugin)),
            "{skill:?}"
        );
    }
    assert!(
        skill.digest.starts_with("sha256:") && skill.digest.len() == 71,
        "{skill:?}"
    );
    let mut text = format!(
        "{} {} {}",
        skill.package,
        shorten(&skill.name),
        quote(&skill.description)
    );
    if !skill.short_description.is_empty() {
        write!(text, " short={}", quote(&skill.short_description)).expect("text");
    }
    text.push_str(match (skill.not_offered(), skill.user_invocable) {
        (NotOffered::Unspecified, true) => "",
        (NotOffered::Unspecified, false) => " models-only",
        (NotOffered::PeopleOnly, true) => " hidden",
        (NotOffered::Unlisted, true) => " unlisted",
        (NotOffered::SwitchedOff, true) => " off",
        (_, _) => " closed",
    });
    if !skill.products.is_empty() {
        write!(text, " products={}", skill.products.join(",")).expect("text");
    }
    text
}

fn field_text(skill: &Skill, field: &str) -> String {
    match field {
        "license" if !skill.license.is_empty() => quote(&skill.license),
        "compatibility" if !skill.compatibility.is_empty() => quote(&skill.compatibility),
        "metadata" => {
            let sorted: std::collections::BTreeMap<_, _> = skill.metadata.iter().collect();
            sorted
                .iter()
                .map(|(k, v)| format!("{k}={}", quote(v)))
                .collect::<Vec<_>>()
                .join(" ")
        }
        "tools" => skill.allowed_tools.join(" | "),
        "host_capabilities" => skill.host_capabilities.join(" | "),
        "plugin_package" => skill.plugin_package().unwrap_or_default().to_owned(),
        "frontmatter" => skill.frontmatter.as_ref().map_or_else(String::new, |all| {
            json(&prost_types::Value {
                kind: Some(Kind::StructValue(all.clone())),
            })
        }),
        "interface" => skill
            .interface
            .as_ref()
            .map_or_else(String::new, |interface| {
                let all = [
                    ("display_name", &interface.display_name),
                    ("short_description", &interface.short_description),
                    ("icon_small", &interface.icon_small),
                    ("icon_large", &interface.icon_large),
                    ("brand_color", &interface.brand_color),
                    ("default_prompt", &interface.default_prompt),
                ];
                let given = all.iter().filter(|(_, text)| !text.is_empty());
                given
                    .map(|(name, text)| format!("{name}={}", quote(text)))
                    .collect::<Vec<_>>()
                    .join(" ")
            }),
        "dependencies" => {
            let tools = skill.dependencies.iter();
            tools
                .map(|t| format!("{}:{}", t.r#type, t.value))
                .collect::<Vec<_>>()
                .join(" ")
        }
        "permissions" => skill
            .permissions
            .as_ref()
            .map_or_else(String::new, |wanted| {
                let network = wanted
                    .network
                    .map_or("unsaid", |n| if n { "yes" } else { "no" });
                let paths = |list: &[PermissionPath]| {
                    list.iter()
                        .map(show_permission_path)
                        .collect::<Vec<_>>()
                        .join(",")
                };
                let read = paths(&wanted.file_system_read);
                let write = paths(&wanted.file_system_write);
                let sandbox = short_name(wanted.sandbox().as_str_name(), "SANDBOX_");
                format!("network={network} read={read} write={write} {sandbox}")
            }),
        _ => String::new(),
    }
}

fn show_permission_path(path: &PermissionPath) -> String {
    match path.resolved.as_ref().expect("a handle or outside") {
        permission_path::Resolved::Handle(handle) => format!("{}={handle}", path.text),
        permission_path::Resolved::Outside(outside) => {
            assert!(outside, "`outside` is never false");
            format!("{}=outside", path.text)
        }
    }
}

fn diagnostic(found: &Diagnostic) -> String {
    let severity = short_name(
        Severity::try_from(found.severity)
            .expect("known")
            .as_str_name(),
        "SEVERITY_",
    );
    let code = DiagnosticCode::try_from(found.code)
        .expect("known")
        .as_str_name();
    let code = short_name(code, "DIAGNOSTIC_CODE_");
    let whole = format!("skill://{}", found.root_id);
    let resource = if found.resource.is_empty() {
        &whole
    } else {
        &found.resource
    };
    match (found.line, found.column) {
        (0, 0) => format!("{severity} {code} {resource}"),
        (line, column) => format!("{severity} {code} {resource}:{line}:{column}"),
    }
}

/// Name of an enum value in the proto without the prefix of the enum.
pub(crate) fn short_name<'a>(name: &'a str, prefix: &str) -> &'a str {
    name.strip_prefix(prefix).expect("the enum's prefix")
}

/// Quotes a text on one line and shortens it.
pub(crate) fn quote(text: &str) -> String {
    match text.chars().count() {
        0..=60 => format!("{text:?}"),
        length => format!("{:?}…{length}", text.chars().take(20).collect::<String>()),
    }
}

fn shorten(name: &str) -> String {
    match name.chars().count() {
        0..=60 => name.to_owned(),
        length => format!("{}…{length}", name.chars().take(20).collect::<String>()),
    }
}

fn json(value: &prost_types::Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".into(),
        Some(Kind::BoolValue(b)) => b.to_string(),
        Some(Kind::NumberValue(n)) => n.to_string(),
        Some(Kind::StringValue(s)) => quote(s),
        Some(Kind::ListValue(list)) => {
            format!(
                "[{}]",
                list.values.iter().map(json).collect::<Vec<_>>().join(",")
            )
        }
        Some(Kind::StructValue(all)) => {
            let fields = all.fields.iter().map(|(k, v)| format!("{k:?}:{}", json(v)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
    }
}
