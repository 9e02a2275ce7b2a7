//! Protobuf messages for skills.

use super::root_messages::{handle_or_empty, scope};
use super::wire_format::{
    to_struct, write_message, write_number, write_repeated_text, write_struct, write_text,
};
use crate::model::sidecar::{self, SkillPermissions, SkillSidecar, ToolDependency};
use crate::model::{ContentDigest, RelPath, RootId, RootScope, Skill, handle};
use crate::proto::caproot::v1 as pb;
use prost::Message as _;

/// Builds the message of a skill below the root with this id.
pub fn skill_message(
    root: &RootId,
    root_scope: Option<RootScope>,
    skill: &Skill,
    view: pb::SkillView,
) -> pb::Skill {
    let mut bytes = Vec::new();
    encode_skill(root, root_scope, skill, view, &mut bytes);
    pb::Skill::decode(&*bytes).expect("the encoder writes valid messages")
}

/// Encodes the message of a skill, with the fields in the order of their numbers and the keys of maps
/// in byte order, as for a catalog digest. Most fields are written directly, without a value of the
/// message.
pub fn encode_skill(
    root: &RootId,
    root_scope: Option<RootScope>,
    skill: &Skill,
    view: pb::SkillView,
    out: &mut Vec<u8>,
) {
    let frontmatter = &skill.frontmatter;
    let sidecar = skill.sidecar();
    write_message(1, out, |out| {
        write_text(1, "executor", out);
        write_text(2, root.as_str(), out);
    });
    let mut handle = handle::format_handle(root, &skill.package);
    write_text(2, &handle, out);
    handle.push_str("/SKILL.md");
    write_text(3, &handle, out);
    write_text(4, skill.name(), out);
    write_text(5, frontmatter.description(), out);
    write_text(6, frontmatter.short_description().unwrap_or_default(), out);
    write_text(7, skill.plugin.as_deref().unwrap_or_default(), out);
    if let Some(root_scope) = root_scope {
        write_number(8, scope(root_scope) as u64, out);
    }
    write_text(9, &skill.digest().as_ref().map(ContentDigest::to_string).unwrap_or_default(), out);
    let policy_fields = pb::Skill {
        size_bytes: skill.size(),
        policy: Some(policy(sidecar)),
        stale: skill.is_stale(),
        ..pb::Skill::default()
    };
    policy_fields.encode_raw(out);
    if view == pb::SkillView::Basic {
        return;
    }
    write_text(20, frontmatter.license().unwrap_or_default(), out);
    write_text(21, frontmatter.compatibility().unwrap_or_default(), out);
    for (key, value) in frontmatter.metadata() {
        write_message(22, out, |out| {
            write_text(1, key, out);
            write_text(2, value, out);
        });
    }
    for tool in frontmatter.allowed_tools() {
        write_repeated_text(23, tool, out);
    }
    if let Some(fields) = frontmatter.all_fields() {
        write_struct(24, fields, out);
    }
    let permissions = sidecar.and_then(|s| s.permissions.as_ref());
    let sidecar_fields = pb::Skill {
        interface: interface(root, skill),
        dependencies: sidecar
            .map_or(&[][..], |s| &s.dependencies)
            .iter()
            .map(tool_dependency)
            .collect(),
        permissions: permissions
            .map(|requested| self::permissions(root, &skill.package, requested)),
        ..pb::Skill::default()
    };
    sidecar_fields.encode_raw(out);
}

fn policy(sidecar: Option<&SkillSidecar>) -> pb::SkillPolicy {
    let policy = sidecar.map(|s| &s.policy);
    pb::SkillPolicy {
        allow_implicit_invocation: policy.and_then(|p| p.allow_implicit_invocation),
        products: policy.map_or(&[][..], |p| &p.products).iter().map(ToString::to_string).collect(),
    }
}

fn interface(root: &RootId, skill: &Skill) -> Option<pb::SkillInterface> {
    let interface = skill.sidecar()?.interface.as_ref()?;
    Some(pb::SkillInterface {
        display_name: text_or_empty(interface.display_name.as_deref()),
        short_description: text_or_empty(interface.short_description.as_deref()),
        icon_small: handle_or_empty(root, skill.icon_small()),
        icon_large: handle_or_empty(root, skill.icon_large()),
        brand_color: text_or_empty(interface.brand_color.as_deref()),
        default_prompt: text_or_empty(interface.default_prompt.as_deref()),
    })
}

fn tool_dependency(tool: &ToolDependency) -> pb::ToolDependency {
    pb::ToolDependency {
        r#type: tool.kind.to_string(),
        value: tool.value.to_string(),
        description: text_or_empty(tool.description.as_deref()),
        transport: text_or_empty(tool.transport.as_deref()),
        command: text_or_empty(tool.command.as_deref()),
        url: text_or_empty(tool.url.as_deref()),
    }
}

fn permissions(
    root: &RootId,
    package: &RelPath,
    requested: &SkillPermissions,
) -> pb::SkillPermissions {
    let paths =
        |list: &[Box<str>]| list.iter().map(|text| permission_path(root, package, text)).collect();
    let sandbox = if requested.file_system_write.is_empty() {
        pb::Sandbox::ReadOnly
    } else {
        pb::Sandbox::WorkspaceWrite
    };
    pb::SkillPermissions {
        network: requested.network,
        file_system_read: paths(&requested.file_system_read),
        file_system_write: paths(&requested.file_system_write),
        macos: requested.macos.as_ref().map(to_struct),
        sandbox: sandbox.into(),
    }
}

fn permission_path(root: &RootId, package: &RelPath, text: &str) -> pb::PermissionPath {
    let path = sidecar::resolve_permission_path(package, text);
    let resolved = match handle_or_empty(root, path.as_ref()) {
        handle if handle.is_empty() => pb::permission_path::Resolved::Outside(true),
        handle => pb::permission_path::Resolved::Handle(handle),
    };
    pb::PermissionPath { text: text.to_owned(), resolved: Some(resolved) }
}

fn text_or_empty(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}
