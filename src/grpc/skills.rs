//! A skill in the words of the wire.

use super::answers::{place, scope};
use super::wire::{item, message, struct_of, structure, text};
use crate::domain::sidecar::{Permissions, Sidecar, ToolDependency};
use crate::domain::{Digest, RootId, Scope, Skill, handle};
use crate::proto::caproot::v1 as pb;
use prost::Message as _;

/// A skill under the id of its root.
pub(super) fn skill(
    root: &RootId,
    root_scope: Option<Scope>,
    skill: &Skill,
    view: pb::SkillView,
) -> pb::Skill {
    let mut bytes = Vec::new();
    encode(root, root_scope, skill, view, &mut bytes);
    pb::Skill::decode(&*bytes).expect("it is what was written")
}

/// The same as the bytes of its message: of what every skill has no value is made in between.
pub(super) fn encode(
    root: &RootId,
    root_scope: Option<Scope>,
    skill: &Skill,
    view: pb::SkillView,
    out: &mut Vec<u8>,
) {
    let authored = &skill.authored;
    let sidecar = skill.sidecar();
    message(1, out, |out| {
        text(1, "executor", out);
        text(2, root.as_str(), out);
    });
    let mut place = handle::print(root, &skill.package);
    text(2, &place, out);
    place.push_str("/SKILL.md");
    text(3, &place, out);
    text(4, skill.name(), out);
    text(5, authored.description(), out);
    text(6, authored.short_description().unwrap_or_default(), out);
    text(7, skill.plugin.as_deref().unwrap_or_default(), out);
    text(9, &skill.digest().as_ref().map(Digest::to_string).unwrap_or_default(), out);
    let rest = pb::Skill {
        scope: root_scope.map(|s| scope(s).into()),
        size_bytes: skill.size(),
        policy: Some(policy(sidecar)),
        stale: skill.is_stale(),
        ..pb::Skill::default()
    };
    if view == pb::SkillView::Basic {
        return rest.encode_raw(out);
    }
    text(20, authored.license().unwrap_or_default(), out);
    text(21, authored.compatibility().unwrap_or_default(), out);
    for (key, value) in authored.metadata() {
        message(22, out, |out| {
            text(1, key, out);
            text(2, value, out);
        });
    }
    for tool in authored.allowed_tools() {
        item(23, tool, out);
    }
    if let Some(fields) = authored.frontmatter() {
        structure(24, fields, out);
    }
    let permissions = sidecar.and_then(|s| s.permissions.as_ref());
    let rest = pb::Skill {
        interface: interface(root, skill),
        dependencies: sidecar.map_or(&[][..], |s| &s.dependencies).iter().map(tool).collect(),
        permissions: permissions.map(self::permissions),
        ..rest
    };
    rest.encode_raw(out);
}

fn policy(sidecar: Option<&Sidecar>) -> pb::SkillPolicy {
    let policy = sidecar.map(|s| &s.policy);
    pb::SkillPolicy {
        allow_implicit_invocation: policy.and_then(|p| p.allow_implicit_invocation),
        products: policy.map_or(&[][..], |p| &p.products).iter().map(ToString::to_string).collect(),
    }
}

fn interface(root: &RootId, skill: &Skill) -> Option<pb::SkillInterface> {
    let interface = skill.sidecar()?.interface.as_ref()?;
    Some(pb::SkillInterface {
        display_name: owned(interface.display_name.as_deref()),
        short_description: owned(interface.short_description.as_deref()),
        icon_small: place(root, skill.icon_small()),
        icon_large: place(root, skill.icon_large()),
        brand_color: owned(interface.brand_color.as_deref()),
        default_prompt: owned(interface.default_prompt.as_deref()),
    })
}

fn tool(tool: &ToolDependency) -> pb::ToolDependency {
    pb::ToolDependency {
        r#type: tool.kind.to_string(),
        value: tool.value.to_string(),
        description: owned(tool.description.as_deref()),
        transport: owned(tool.transport.as_deref()),
        command: owned(tool.command.as_deref()),
        url: owned(tool.url.as_deref()),
    }
}

fn permissions(asked: &Permissions) -> pb::SkillPermissions {
    let texts = |list: &[Box<str>]| list.iter().map(ToString::to_string).collect();
    let sandbox =
        if asked.write.is_empty() { pb::Sandbox::ReadOnly } else { pb::Sandbox::WorkspaceWrite };
    pb::SkillPermissions {
        network: asked.network,
        file_system_read: texts(&asked.read),
        file_system_write: texts(&asked.write),
        macos: asked.macos.as_ref().map(struct_of),
        sandbox: sandbox.into(),
    }
}

fn owned(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}
