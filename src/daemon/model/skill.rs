//! Skill as it is listed: frontmatter, sidecar, path and namespace.

use super::diagnostic::{Diagnostic, DiagnosticCode, FileProblem};
use super::plugin::PluginSkillList;
use super::requirements::SkillRequirements;
use super::sidecar::{self, SkillInterface, SkillSidecar};
use super::trust::PackageTrust;
use super::{CompactFrontmatter, skill_file_name};
use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{ContentDigest, RelPath, RootId, handle};
use std::sync::Arc;

/// Maximum characters of a qualified name.
const MAX_QUALIFIED_NAME_CHARS: usize = 128;

/// Reason why a skill is not offered to models. The first reason that applies counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferRestriction {
    /// The author reserves the skill for people.
    PeopleOnly,
    /// The manifest of the plugin lists its skills, and the list does not cover this one.
    Unlisted,
    /// The skill or its plugin is switched off by default.
    SwitchedOff,
}

/// Listed skill. A catalog has thousands of skills, so each shares the content of its file.
#[derive(Debug, Clone)]
pub struct Skill {
    /// Directory of the skill below the root, with links unresolved.
    pub package: RelPath,
    /// Namespace of the qualified name.
    pub plugin: Option<Arc<str>>,
    /// Frontmatter of the SKILL.md.
    pub frontmatter: CompactFrontmatter,
    /// How many bytes the handle of the SKILL.md adds to the handle of the root.
    pub handle_len: usize,
    /// Approval of the skill; `None` if no lock applies to its root.
    pub trust: Option<PackageTrust>,
    /// Reason why the skill is not offered to models.
    pub restriction: Option<OfferRestriction>,
    /// Capabilities that the manifest of the plugin requires of a host. All skills of a plugin share them.
    pub host_capabilities: Arc<[Box<str>]>,
    /// How many directories `package` lies below the plugin; `None` if the plugin does not contain that path.
    pub plugin_depth: Option<u16>,
    /// `<plugin>:<name>`, if the skill has a namespace.
    qualified_name: Option<Box<str>>,
    file: Arc<SkillFile>,
    icons: Option<Box<IconPaths>>,
    requirements: Option<Box<SkillRequirements>>,
}

/// Paths of a skill's icons below the root.
#[derive(Debug, Clone, PartialEq, Default)]
struct IconPaths {
    small: Option<RelPath>,
    large: Option<RelPath>,
}

/// Parsed content of a SKILL.md and its sidecar.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillFile {
    /// Digest of the whole file. `None` if the file is larger than `max_file_bytes`.
    pub digest: Option<ContentDigest>,
    /// Size in bytes.
    pub size: u64,
    /// Frontmatter. `None` if the frontmatter is unusable, for the reason in `problems`.
    pub frontmatter: Option<CompactFrontmatter>,
    /// Problems with the frontmatter.
    pub problems: Box<[FileProblem]>,
    /// Content of agents/openai.yaml, and its problems.
    pub sidecar: Option<Box<SidecarFile>>,
    /// Whether `frontmatter`, `digest` and `size` are from an earlier version, because the current
    /// version does not parse.
    pub stale: bool,
}

/// Parsed content of agents/openai.yaml.
#[derive(Debug, Clone, PartialEq)]
pub struct SidecarFile {
    /// Content of the file.
    pub content: SkillSidecar,
    /// Problems with the file.
    pub problems: Vec<FileProblem>,
    /// Digest of the bytes that were parsed. `None` if the file cannot be read.
    pub digest: Option<ContentDigest>,
}

impl SkillFile {
    /// Whether only a repair could read the frontmatter.
    #[must_use]
    pub fn is_repaired(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.code == DiagnosticCode::YamlRepaired)
    }

    /// Falls back to the last usable version if this version is unusable, so that a half-written
    /// save does not remove the skill from the catalog.
    #[must_use]
    pub fn or_last_good(self, last: &Self) -> Self {
        if self.frontmatter.is_some() || last.frontmatter.is_none() {
            return self;
        }
        Self {
            digest: last.digest,
            size: last.size,
            frontmatter: last.frontmatter.clone(),
            stale: true,
            ..self
        }
    }
}

/// Plugin that a skill belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginNamespace {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// Directory of the plugin below the selected root. `None` if the plugin's directory lies
    /// outside the root.
    pub plugin_dir: Option<RelPath>,
    /// Whether the skills of the plugin are switched off by default.
    pub is_switched_off: bool,
    /// Capabilities that the manifest requires of a host.
    pub host_capabilities: Arc<[Box<str>]>,
    /// Skills that the plugin offers; `None` if its manifest lists none.
    pub skill_list: Option<PluginSkillList>,
}

/// Creates a skill from its file, or returns `None` if a problem makes the file unusable. The diagnostics
/// are those of the SKILL.md and of the sidecar. `is_unlisted` is whether the plugin lists other skills than
/// this one.
#[must_use]
pub fn assemble_skill(
    package: &RelPath,
    file: &Arc<SkillFile>,
    namespace: Option<&PluginNamespace>,
    is_unlisted: bool,
) -> (Option<Skill>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let mut report = |file: fn() -> RelPath, problem: FileProblem| {
        diagnostics.push(Diagnostic {
            resource: Some(package.join_path(&file())),
            problem,
        });
    };
    for problem in &file.problems {
        report(skill_file_name, problem.clone());
    }
    for problem in file.sidecar.iter().flat_map(|sidecar| &sidecar.problems) {
        report(sidecar::sidecar_path, problem.clone());
    }

    let sidecar = file.sidecar.as_ref().map(|sidecar| &sidecar.content);
    let Some(frontmatter) = file.frontmatter.clone() else {
        return (None, diagnostics);
    };

    let qualified_name = namespace.map(|ns| qualify_name(ns, frontmatter.name()));
    // A name without a namespace is never over the limit.
    if qualified_name
        .as_ref()
        .is_some_and(|name| name.chars().count() > MAX_QUALIFIED_NAME_CHARS)
    {
        let why =
            "the qualified name is over 128 characters; shorten the plugin's or the skill's name";
        report(
            skill_file_name,
            FileProblem::error(DiagnosticCode::NameInvalid, why),
        );
        return (None, diagnostics);
    }

    let plugin_dir = namespace.and_then(|ns| ns.plugin_dir.as_ref());
    let interface = sidecar.and_then(|sidecar| sidecar.interface.as_ref());
    let icons = interface
        .map(|interface| resolve_icons(package, plugin_dir, interface, &mut report))
        .unwrap_or_default();

    let restriction = find_restriction(&frontmatter, sidecar, namespace, is_unlisted, &mut report);

    let requirements = SkillRequirements::read(&frontmatter, sidecar);
    let below_plugin = plugin_dir.and_then(|dir| package.strip_prefix(dir));
    let skill = Skill {
        package: package.clone(),
        plugin: namespace.map(|ns| ns.name.clone()),
        frontmatter,
        handle_len: handle::encoded_path_len(package) + "/SKILL.md".len(),
        trust: None,
        restriction,
        host_capabilities: namespace
            .map(|ns| ns.host_capabilities.clone())
            .unwrap_or_default(),
        plugin_depth: below_plugin.and_then(|path| u16::try_from(path.depth()).ok()),
        qualified_name: qualified_name.map(Into::into),
        file: file.clone(),
        icons: (icons != IconPaths::default()).then(|| Box::new(icons)),
        requirements: requirements.map(Box::new),
    };
    (Some(skill), diagnostics)
}

/// Puts the namespace of a plugin before the name of its skill.
fn qualify_name(namespace: &PluginNamespace, name: &str) -> String {
    // Some authors write the whole name: `tempo:keep` in the plugin `tempo`.
    let own = name.strip_prefix(&*namespace.name);
    let bare = own.and_then(|name| name.strip_prefix(':'));
    format!("{}:{}", namespace.name, bare.unwrap_or(name))
}

/// Resolves the icons of a skill. Reports icons outside the `assets` of the skill or its plugin.
fn resolve_icons(
    package: &RelPath,
    plugin_dir: Option<&RelPath>,
    interface: &SkillInterface,
    report: &mut impl FnMut(fn() -> RelPath, FileProblem),
) -> IconPaths {
    let mut icons = IconPaths::default();
    for (path, text, key) in [
        (&mut icons.small, &interface.icon_small, "icon_small"),
        (&mut icons.large, &interface.icon_large, "icon_large"),
    ] {
        let Some(text) = text else { continue };
        *path = sidecar::resolve_icon(package, plugin_dir, text);
        if path.is_none() {
            let why = format!("`interface.{key}` must lie in `assets` of the skill or its plugin");
            let problem = FileProblem::warning(DiagnosticCode::FieldInvalid, why);
            report(sidecar::sidecar_path, problem);
        }
    }
    icons
}

/// Returns the reason why a skill is not offered to models. Reports a reason that is not in the skill's
/// own policy.
fn find_restriction(
    frontmatter: &CompactFrontmatter,
    sidecar: Option<&SkillSidecar>,
    namespace: Option<&PluginNamespace>,
    is_unlisted: bool,
    report: &mut impl FnMut(fn() -> RelPath, FileProblem),
) -> Option<OfferRestriction> {
    if frontmatter.forbids_model() || sidecar.is_some_and(|sidecar| sidecar.forbids_model) {
        return Some(OfferRestriction::PeopleOnly);
    }

    let is_plugin_off = namespace.is_some_and(|namespace| namespace.is_switched_off);
    let (restriction, why) = if is_unlisted {
        let why =
            "the plugin's manifest lists its skills, and not this one: models are not offered it";
        (OfferRestriction::Unlisted, why.to_owned())
    } else if frontmatter.is_switched_off() || is_plugin_off {
        let owner = if is_plugin_off {
            "`defaultEnabled` of the plugin"
        } else {
            "`default-enabled`"
        };
        let why = format!("{owner} switches the skill off: models are not offered it");
        (OfferRestriction::SwitchedOff, why)
    } else {
        return None;
    };

    report(
        skill_file_name,
        FileProblem::note(DiagnosticCode::SkillNotOffered, why),
    );
    Some(restriction)
}

impl Skill {
    /// Returns the qualified name, `<plugin>:<name>`, or the name without a namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.qualified_name
            .as_deref()
            .unwrap_or_else(|| self.frontmatter.name())
    }

    /// Returns the digest of the whole SKILL.md, or `None` if the file is larger than
    /// `max_file_bytes`.
    #[must_use]
    pub fn digest(&self) -> Option<ContentDigest> {
        self.file.digest
    }

    /// Returns the size of the SKILL.md in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.size
    }

    /// Returns the content of agents/openai.yaml, if the skill has one.
    #[must_use]
    pub fn sidecar(&self) -> Option<&SkillSidecar> {
        self.file.sidecar.as_deref().map(|sidecar| &sidecar.content)
    }

    /// Returns the digest of the parsed bytes of agents/openai.yaml, if the skill has the file. The inner
    /// value is `None` if the file cannot be read.
    #[must_use]
    pub fn sidecar_digest(&self) -> Option<Option<ContentDigest>> {
        self.file.sidecar.as_deref().map(|sidecar| sidecar.digest)
    }

    /// Whether the file no longer parses and the skill shows its last usable version.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.file.stale
    }

    /// Returns what the skill declares to need.
    #[must_use]
    pub fn requirements(&self) -> Option<&SkillRequirements> {
        self.requirements.as_deref()
    }

    /// Returns the path of the small icon below the root.
    #[must_use]
    pub fn icon_small(&self) -> Option<&RelPath> {
        self.icons.as_ref()?.small.as_ref()
    }

    /// Returns the path of the large icon below the root.
    #[must_use]
    pub fn icon_large(&self) -> Option<&RelPath> {
        self.icons.as_ref()?.large.as_ref()
    }

    /// Whether a person may choose the skill.
    #[must_use]
    pub fn is_user_invocable(&self) -> bool {
        !self.frontmatter.forbids_user()
    }

    /// Returns the products of the skill; empty for all products.
    #[must_use]
    pub fn products(&self) -> &[Box<str>] {
        self.sidecar().map_or(&[], |sidecar| &sidecar.products)
    }

    /// Whether a caller of this product sees the skill. An empty product sees all skills.
    #[must_use]
    pub fn is_visible_to_product(&self, product: &str) -> bool {
        let products = self.products();
        product.is_empty()
            || products.is_empty()
            || products.iter().any(|p| p.eq_ignore_ascii_case(product))
    }

    /// Checks that the skill's handle below a root with this id is not too long. The problem is for
    /// a skill that is omitted because its handle is too long.
    pub fn check_handle(&self, root: &RootId) -> Result<(), FileProblem> {
        check_handle_len("skill", root, self.handle_len)
    }

    /// Returns the path of the SKILL.md below the root, with links unresolved.
    #[must_use]
    pub fn skill_file_path(&self) -> RelPath {
        self.package.join_path(&skill_file_name())
    }
}

/// Checks the length of the handle of a skill or plugin below a root with this id.
pub(super) fn check_handle_len(
    noun: &str,
    root: &RootId,
    handle_len: usize,
) -> Result<(), FileProblem> {
    if handle::formatted_len(root, handle_len) <= MAX_HANDLE_BYTES {
        return Ok(());
    }
    let why =
        format!("a {noun}'s handle would be over 2,048 bytes; shorten its path or the root's id");
    Err(FileProblem::error(DiagnosticCode::HandleTooLong, why))
}

impl PartialEq for Skill {
    /// Whether both are listed the same. The problems of their files are ignored.
    fn eq(&self, other: &Self) -> bool {
        let Self {
            package,
            plugin,
            frontmatter,
            trust,
            restriction,
            host_capabilities,
            plugin_depth,
            file,
            icons,
            // The path determines the length, and the names of the plugin and the skill the qualified name.
            handle_len: _,
            qualified_name: _,
            // The file and the sidecar determine the requirements.
            requirements: _,
        } = self;

        let is_same_file = || {
            let listed = |file: &SkillFile| (file.digest, file.size, file.stale);
            listed(file) == listed(&other.file) && self.sidecar() == other.sidecar()
        };

        (
            package,
            plugin,
            icons,
            trust,
            restriction,
            host_capabilities,
            plugin_depth,
            frontmatter,
        ) == (
            &other.package,
            &other.plugin,
            &other.icons,
            &other.trust,
            &other.restriction,
            &other.host_capabilities,
            &other.plugin_depth,
            &other.frontmatter,
        ) && (Arc::ptr_eq(file, &other.file) || is_same_file())
    }
}
