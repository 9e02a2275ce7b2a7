//! A skill in the words of the wire.

use super::answers::{place, scope};
use crate::domain::sidecar::{Permissions, Sidecar, ToolDependency};
use crate::domain::value::packed::{Part, pack};
use crate::domain::{Digest, RootId, Scope, Skill};
use crate::proto::caproot::v1 as pb;
use prost_types::{ListValue, Struct, value::Kind};

/// The largest integer up to which every one is a double.
const MAX_EXACT: u64 = 1 << 53;

/// A skill under the id of its root.
pub(super) fn skill(
    root: &RootId,
    root_scope: Option<Scope>,
    skill: &Skill,
    view: pb::SkillView,
) -> pb::Skill {
    let authored = &skill.authored;
    let basic = pb::Skill {
        authority: Some(pb::Authority {
            kind: "executor".to_owned(),
            id: root.as_str().to_owned(),
        }),
        package: place(root, Some(&skill.package)),
        main_resource: place(root, Some(&skill.main_resource())),
        name: skill.name().to_owned(),
        description: authored.description().to_owned(),
        short_description: text(authored.short_description()),
        plugin: text(skill.plugin.as_deref()),
        scope: root_scope.map(|s| scope(s).into()),
        digest: skill.digest().as_ref().map(Digest::to_string).unwrap_or_default(),
        size_bytes: skill.size(),
        policy: Some(policy(skill.sidecar())),
        stale: skill.is_stale(),
        ..pb::Skill::default()
    };
    if view == pb::SkillView::Basic {
        return basic;
    }
    let sidecar = skill.sidecar();
    pb::Skill {
        license: text(authored.license()),
        compatibility: text(authored.compatibility()),
        metadata: authored.metadata().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        allowed_tools: authored.allowed_tools().map(str::to_owned).collect(),
        frontmatter: authored.frontmatter().map(structure),
        interface: interface(root, skill),
        dependencies: sidecar.map_or(&[][..], |s| &s.dependencies).iter().map(tool).collect(),
        permissions: sidecar.and_then(|s| s.permissions.as_ref()).map(permissions),
        ..basic
    }
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
        display_name: text(interface.display_name.as_deref()),
        short_description: text(interface.short_description.as_deref()),
        icon_small: place(root, skill.icon_small()),
        icon_large: place(root, skill.icon_large()),
        brand_color: text(interface.brand_color.as_deref()),
        default_prompt: text(interface.default_prompt.as_deref()),
    })
}

fn tool(tool: &ToolDependency) -> pb::ToolDependency {
    pb::ToolDependency {
        r#type: tool.kind.to_string(),
        value: tool.value.to_string(),
        description: text(tool.description.as_deref()),
        transport: text(tool.transport.as_deref()),
        command: text(tool.command.as_deref()),
        url: text(tool.url.as_deref()),
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
        macos: asked.macos.as_ref().map(|macos| structure(Part::of(&pack(macos)))),
        sandbox: sandbox.into(),
    }
}

fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// A mapping as a `Struct`; anything else gives an empty one.
fn structure(value: Part<'_>) -> Struct {
    let Part::Map(entries) = value else { return Struct::default() };
    Struct { fields: entries.map(|(k, v)| (k.to_owned(), wire_value(v))).collect() }
}

fn wire_value(value: Part<'_>) -> prost_types::Value {
    // Up to 2^53 every integer is a double.
    #[allow(clippy::cast_precision_loss)]
    let kind = match value {
        Part::Null => Kind::NullValue(0),
        Part::Bool(b) => Kind::BoolValue(b),
        Part::Int(n) if n.unsigned_abs() <= MAX_EXACT => Kind::NumberValue(n as f64),
        Part::Int(n) => Kind::StringValue(n.to_string()),
        Part::UInt(n) => Kind::StringValue(n.to_string()),
        Part::Float(x) if x.is_finite() => Kind::NumberValue(x),
        Part::Float(x) => Kind::StringValue(x.to_string()),
        Part::Text(text) => Kind::StringValue(text.to_owned()),
        Part::List(items) => Kind::ListValue(ListValue { values: items.map(wire_value).collect() }),
        Part::Map(_) => Kind::StructValue(structure(value)),
    };
    prost_types::Value { kind: Some(kind) }
}
