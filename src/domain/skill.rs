//! A skill as it is listed: what its author wrote, joined with where it lies and whose it is.

use super::diagnostic::{DiagnosticCode, FileProblem};
use super::limits::MAX_HANDLE_BYTES;
use super::sidecar::{self, SkillSidecar};
use super::{CompactFrontmatter, ContentDigest, RelPath, RootId, handle};
use std::sync::Arc;

/// The most characters of a qualified name.
const MAX_QUALIFIED_NAME_CHARS: usize = 128;

/// One listed skill. There are thousands: what it has in common with its file is held once.
#[derive(Debug, Clone)]
pub struct Skill {
    /// Its directory as walked, below the root.
    pub package: RelPath,
    /// The namespace in its name.
    pub plugin: Option<Arc<str>>,
    /// What its frontmatter says.
    pub frontmatter: CompactFrontmatter,
    /// The bytes that the handle of its SKILL.md takes behind the root's own.
    pub handle_len: usize,
    /// `<plugin>:<name>`, where it has a namespace.
    qualified_name: Option<Box<str>>,
    file: Arc<SkillFile>,
    icons: Option<Box<IconPaths>>,
}

/// Places below the root.
#[derive(Debug, Clone, PartialEq)]
struct IconPaths {
    small: Option<RelPath>,
    large: Option<RelPath>,
}

/// What was read of one SKILL.md and its sidecar.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillFile {
    /// Of the whole file; `None` where it is over `max_file_bytes`.
    pub digest: Option<ContentDigest>,
    /// In bytes.
    pub size: u64,
    /// What the frontmatter says; `None` where a problem says why it says nothing.
    pub frontmatter: Option<CompactFrontmatter>,
    /// What is wrong with the frontmatter.
    pub problems: Box<[FileProblem]>,
    /// What agents/openai.yaml says, and what is wrong with it.
    pub sidecar: Option<Box<(SkillSidecar, Vec<FileProblem>)>>,
    /// Whether `authored`, `digest` and `size` are those of an earlier version, since this one does
    /// not parse.
    pub stale: bool,
}

impl SkillFile {
    /// This file, as it last could be used: a half-written save must not empty a catalog.
    #[must_use]
    pub fn or_last_good(self, last: Option<&Self>) -> Self {
        match last {
            Some(last) if self.frontmatter.is_none() && last.frontmatter.is_some() => Self {
                digest: last.digest,
                size: last.size,
                frontmatter: last.frontmatter.clone(),
                stale: true,
                ..self
            },
            _ => self,
        }
    }
}

/// The plugin that a skill belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginNamespace {
    /// The plugin's name.
    pub name: Arc<str>,
    /// Where the plugin lies below the selected root; `None` for one at or above it elsewhere.
    pub plugin_dir: Option<RelPath>,
}

/// Joins what was read to a skill; `None` where a problem says why it is left out. Problems are
/// about the SKILL.md (first list) and its sidecar (second list).
#[must_use]
pub fn assemble_skill(
    package: &RelPath,
    file: &Arc<SkillFile>,
    namespace: Option<&PluginNamespace>,
) -> (Option<Skill>, Vec<FileProblem>, Vec<FileProblem>) {
    let mut problems = file.problems.to_vec();
    let sidecar = file.sidecar.as_deref();
    let mut sidecar_problems = sidecar.map(|(_, wrong)| wrong.clone()).unwrap_or_default();
    let Some(authored) = file.frontmatter.clone() else {
        return (None, problems, sidecar_problems);
    };
    let qualified = namespace.map(|ns| format!("{}:{}", ns.name, authored.name()));
    // One without a namespace is shorter than that by itself.
    if qualified.as_ref().is_some_and(|name| name.chars().count() > MAX_QUALIFIED_NAME_CHARS) {
        problems.push(FileProblem::error(
            DiagnosticCode::NameInvalid,
            "the plugin's name and the skill's are over 128 characters together; shorten one",
        ));
        return (None, problems, sidecar_problems);
    }
    let icons = sidecar.and_then(|(said, _)| said.interface.as_ref());
    let mut icon = |text: Option<&str>, key: &str| {
        let text = text?;
        let place =
            sidecar::resolve_icon(package, namespace.and_then(|ns| ns.plugin_dir.as_ref()), text);
        if place.is_none() {
            sidecar_problems.push(FileProblem::warning(
                DiagnosticCode::FieldInvalid,
                format!("`interface.{key}` must lie in `assets` of the skill or its plugin"),
            ));
        }
        place
    };
    let small = icon(icons.and_then(|i| i.icon_small.as_deref()), "icon_small");
    let large = icon(icons.and_then(|i| i.icon_large.as_deref()), "icon_large");
    let has_icons = small.is_some() || large.is_some();
    let skill = Skill {
        package: package.clone(),
        plugin: namespace.map(|ns| ns.name.clone()),
        frontmatter: authored,
        handle_len: handle::encoded_path_len(package) + "/SKILL.md".len(),
        qualified_name: qualified.map(Into::into),
        file: file.clone(),
        icons: has_icons.then(|| Box::new(IconPaths { small, large })),
    };
    (Some(skill), problems, sidecar_problems)
}

impl Skill {
    /// `<plugin>:<name>`, or the bare name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.qualified_name.as_deref().unwrap_or_else(|| self.frontmatter.name())
    }

    /// Of the whole SKILL.md; `None` where it is over `max_file_bytes`.
    #[must_use]
    pub fn digest(&self) -> Option<ContentDigest> {
        self.file.digest
    }

    /// The size of the SKILL.md in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.size
    }

    /// What its agents/openai.yaml says; `None` where it has none.
    #[must_use]
    pub fn sidecar(&self) -> Option<&SkillSidecar> {
        self.file.sidecar.as_deref().map(|(said, _)| said)
    }

    /// Whether the file no longer parses, and this is what it last said.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.file.stale
    }

    /// The place of the small icon below the root.
    #[must_use]
    pub fn icon_small(&self) -> Option<&RelPath> {
        self.icons.as_ref()?.small.as_ref()
    }

    /// The place of the large icon below the root.
    #[must_use]
    pub fn icon_large(&self) -> Option<&RelPath> {
        self.icons.as_ref()?.large.as_ref()
    }

    /// Whether it is for certain products only.
    #[must_use]
    pub fn has_product_filter(&self) -> bool {
        self.sidecar().is_some_and(|s| !s.policy.products.is_empty())
    }

    /// Whether a caller of this product sees the skill; an empty product sees all.
    #[must_use]
    pub fn is_visible_to_product(&self, product: &str) -> bool {
        let products = self.sidecar().map_or(&[][..], |s| &s.policy.products);
        product.is_empty()
            || products.is_empty()
            || products.iter().any(|p| p.eq_ignore_ascii_case(product))
    }

    /// Whether its handles below a root of this id keep to their bound; the problem is for one that is
    /// left out because they do not.
    pub fn check_handle(&self, root: &RootId) -> Result<(), FileProblem> {
        if handle::formatted_len(root, self.handle_len) <= MAX_HANDLE_BYTES {
            return Ok(());
        }
        let why = "a skill's handle would be over 2,048 bytes; shorten its path or the root's id";
        Err(FileProblem::error(DiagnosticCode::HandleTooLong, why))
    }

    /// Where its SKILL.md is, as walked.
    #[must_use]
    pub fn skill_file_path(&self) -> RelPath {
        self.package.join_path(&super::skill_file_name())
    }
}

impl PartialEq for Skill {
    /// Whether both are listed as the same: what is wrong with their files is said elsewhere.
    fn eq(&self, other: &Self) -> bool {
        let Self {
            package,
            plugin,
            frontmatter: authored,
            handle_len,
            qualified_name: qualified,
            file,
            icons,
        } = self;
        let is_same_file = || {
            let listed = |file: &SkillFile| (file.digest, file.size, file.stale);
            listed(file) == listed(&other.file) && self.sidecar() == other.sidecar()
        };
        (package, plugin, qualified, icons, handle_len)
            == (
                &other.package,
                &other.plugin,
                &other.qualified_name,
                &other.icons,
                &other.handle_len,
            )
            && *authored == other.frontmatter
            && (Arc::ptr_eq(file, &other.file) || is_same_file())
    }
}
