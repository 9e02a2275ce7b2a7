//! Catalog: the result of one scan of one root, sorted and immutable, so that it can be shared.

pub use super::diagnostic::BoundedDiagnostics;
use super::skill::Skill;
use super::{
    DisabledPackages, ManifestFiles, Plugin, PluginManifest, PluginMarketplace, RootScope,
    RootTrust, TrustCounts, TrustMode, TrustPolicy,
};
use caproot_core::lock::{ApprovedFiles, EntryKind};
use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{RelPath, RootId, handle};
use std::sync::Arc;

/// How many skills a chunk has. A replaced skill copies one chunk.
const CHUNK_LEN: usize = 128;

/// Kind of a root. The first kind that applies counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // documented at `RootKind` in root.proto
pub enum RootKind {
    Plugin,
    Skill,
    SkillSet,
}

/// Counts of one scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented at `RootCounts` in root.proto
pub struct RootCounts {
    pub omitted: u32,
    pub disabled: u32,
    pub directories: u32,
    pub entries: u32,
    pub skipped: u32,
}

/// Properties of a root as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogHeader {
    /// Scope of the root, if it is published.
    pub scope: Option<RootScope>,
    /// Whether links below the root are followed.
    pub follow_links: bool,
    /// Kind of the root.
    pub kind: RootKind,
    /// Manifest of the root itself, if the root is a plugin.
    pub plugin: Option<PluginManifest>,
    /// Counts of the scan.
    pub counts: RootCounts,
    /// Whether a limit ended the scan early.
    pub truncated: bool,
    /// Approval of the skills and plugins; `None` if no lock applies to the root.
    pub trust: Option<RootTrust>,
}

/// Approval of the skills and plugins of a scanned catalog.
#[derive(Debug)]
pub struct ApprovedView<'a> {
    /// Mode and counts of the root.
    pub trust: RootTrust,
    /// Skills that callers see, in the order of the scanned catalog.
    pub listed: Vec<Arc<Skill>>,
    /// Packages of the other skills.
    pub hidden: Vec<RelPath>,
    /// Names of the other skills that the lock has, sorted.
    pub reserved_names: Vec<Box<str>>,
    /// Plugins that callers see, in the order of the scanned catalog.
    pub plugins: Vec<Arc<Plugin>>,
    /// Diagnostics that callers see.
    pub diagnostics: BoundedDiagnostics,
    /// Last catalog that callers saw. Equal parts are shared.
    pub last: Option<&'a Catalog>,
}

/// Skills, plugins and diagnostics of one root. A root can be selected under several ids, so the
/// catalog holds no handles: they are formatted for each id.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Properties of the root as a whole.
    pub header: CatalogHeader,
    /// Skills by qualified name, then package in the byte order of its handle.
    skills: SkillChunks,
    /// Indices into `skills`, by package.
    by_package: Arc<[u32]>,
    /// Packages that are not listed because the operator disabled them.
    pub disabled_packages: DisabledPackages,
    /// Packages that are not listed because their files are not approved, sorted.
    pub hidden_packages: Arc<[RelPath]>,
    /// Names in the lock of which a package is hidden, sorted.
    reserved_names: Arc<[Box<str>]>,
    /// Plugins by package, in the byte order of its handle.
    plugins: Arc<[Arc<Plugin>]>,
    /// Marketplace files of the root.
    marketplaces: Arc<[PluginMarketplace]>,
    /// Files whose content is never served.
    pub manifest_files: Arc<ManifestFiles>,
    /// The worst diagnostics, by severity, resource and line.
    pub diagnostics: Arc<BoundedDiagnostics>,
    /// Upper bound of the bytes that a skill's or plugin's handle adds to the handle of the root.
    longest_handle_len: usize,
    /// Whether a skill may be restricted to certain products.
    may_have_product_filters: bool,
    /// Whether a skill may declare requirements.
    pub may_have_requirements: bool,
}

impl Catalog {
    /// Creates a catalog. Sorts the skills and the diagnostics.
    #[must_use]
    pub fn new(
        skills: Vec<Arc<Skill>>,
        mut diagnostics: BoundedDiagnostics,
        header: CatalogHeader,
    ) -> Self {
        diagnostics.sort_and_truncate();
        let longest_handle_len = skills.iter().map(|s| s.handle_len).max().unwrap_or(0);
        let may_have_product_filters = skills.iter().any(|s| !s.products().is_empty());
        let may_have_requirements = skills.iter().any(|s| s.requirements().is_some());

        let (skills, by_package) = sort_skills(skills);
        Self {
            header,
            skills,
            by_package,
            diagnostics: Arc::new(diagnostics),
            longest_handle_len,
            may_have_product_filters,
            may_have_requirements,
            disabled_packages: DisabledPackages::default(),
            hidden_packages: Arc::default(),
            reserved_names: Arc::default(),
            plugins: Arc::default(),
            marketplaces: Arc::default(),
            manifest_files: Arc::default(),
        }
    }

    /// Adds the plugins, marketplaces and manifest files. Sorts the plugins.
    #[must_use]
    pub fn with_plugins(
        mut self,
        mut plugins: Vec<Arc<Plugin>>,
        marketplaces: Vec<PluginMarketplace>,
        manifest_files: ManifestFiles,
    ) -> Self {
        plugins.sort_by(|a, b| handle::compare_encoded(&a.package, &b.package));
        let lengths = plugins.iter().map(|plugin| plugin.handle_len());
        self.longest_handle_len = lengths.fold(self.longest_handle_len, usize::max);
        self.plugins = plugins.into();
        self.marketplaces = marketplaces.into();
        self.manifest_files = Arc::new(manifest_files);
        self
    }

    /// Returns the plugins, by package.
    #[must_use]
    pub fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// Returns the plugin of a package.
    #[must_use]
    pub fn plugin(&self, package: &RelPath) -> Option<&Arc<Plugin>> {
        let at = self
            .plugins
            .binary_search_by(|p| handle::compare_encoded(&p.package, package));
        Some(&self.plugins[at.ok()?])
    }

    /// Returns the marketplace files of the root.
    #[must_use]
    pub fn marketplaces(&self) -> &[PluginMarketplace] {
        &self.marketplaces
    }

    /// Returns the number of skills and plugins by their approval; zero if no lock applies.
    #[must_use]
    pub fn trust_counts(&self) -> TrustCounts {
        self.header
            .trust
            .map(|trust| trust.counts)
            .unwrap_or_default()
    }

    /// Returns the approved files of a listed package. A package may be a skill and a plugin, and the lock may
    /// approve only one of them. Returns `None` if the lock has no version of the package any more.
    #[must_use]
    pub fn approved_files<'a>(
        &self,
        package: &RelPath,
        trust: &'a TrustPolicy,
    ) -> Option<&'a ApprovedFiles> {
        let of_skill = || {
            let skill = self.skill(package)?;
            trust.approved_files(EntryKind::Skill, skill.name(), skill.trust.as_ref()?)
        };
        let of_plugin = || {
            let plugin = self.plugin(package)?;
            let name = &plugin.manifest.name;
            trust.approved_files(EntryKind::Plugin, name, plugin.trust.as_ref()?)
        };
        of_skill().or_else(of_plugin)
    }

    /// Returns the names in the lock of which a package is hidden, sorted.
    #[must_use]
    pub fn reserved_names(&self) -> &[Box<str>] {
        &self.reserved_names
    }

    /// Returns the catalog that callers see of a scanned catalog. In the mode `hide`, marketplaces are omitted:
    /// a lock has none.
    #[must_use]
    pub fn with_approval(&self, view: ApprovedView<'_>) -> Self {
        let ApprovedView {
            trust,
            listed,
            mut hidden,
            reserved_names,
            plugins,
            mut diagnostics,
            last,
        } = view;
        hidden.sort();
        diagnostics.sort_and_truncate();

        let mut catalog = self.clone();
        catalog.header.trust = Some(trust);
        let omitted = u32::try_from(hidden.len()).unwrap_or(u32::MAX);
        let counts = &mut catalog.header.counts;
        counts.omitted = counts.omitted.saturating_add(omitted);
        if trust.mode == TrustMode::Hide {
            catalog.marketplaces = Arc::default();
        }

        // A catalog that shares the order of the last one differs from it only in its skills.
        let same = last.filter(|last| {
            last.len() == listed.len()
                && last.skills(0).zip(&listed).all(|(known, skill)| {
                    known.package == skill.package && known.name() == skill.name()
                })
                && last.plugins.len() == plugins.len()
                && last
                    .plugins
                    .iter()
                    .zip(&plugins)
                    .all(|(a, b)| Arc::ptr_eq(a, b))
                && last.marketplaces == catalog.marketplaces
        });
        if let Some(last) = same {
            catalog.skills = last.skills.with_skills(&listed);
            catalog.by_package = last.by_package.clone();
        } else {
            (catalog.skills, catalog.by_package) = sort_skills(listed);
        }

        catalog.diagnostics = Arc::new(diagnostics);
        catalog.hidden_packages = hidden.into();
        catalog.reserved_names = reserved_names.into();
        catalog.plugins = plugins.into();
        if trust.mode == TrustMode::Hide && catalog.plugin(&RelPath::root()).is_none() {
            catalog.header.plugin = None;
        }
        catalog
    }

    /// Returns a copy in which each changed skill replaces the skill with the same package and
    /// name. The cost is proportional to the number of changed skills. The copy shares all other
    /// skills.
    #[must_use]
    pub fn with_replaced_skills(&self, changed: &[Arc<Skill>]) -> Self {
        let mut new = self.clone();
        for skill in changed {
            if let Some(at) = self.skill_position(&skill.package) {
                new.longest_handle_len = new.longest_handle_len.max(skill.handle_len);
                new.may_have_product_filters |= !skill.products().is_empty();
                new.may_have_requirements |= skill.requirements().is_some();
                new.skills.replace_skill(at, skill.clone());
            }
        }
        new
    }

    /// Whether all skills and plugins are known to be listed under this root id for this product.
    /// If `false`, the caller must check each.
    #[must_use]
    pub fn lists_all(&self, root: &RootId, product: &str) -> bool {
        (product.is_empty() || !self.may_have_product_filters)
            && handle::formatted_len(root, self.longest_handle_len) <= MAX_HANDLE_BYTES
    }

    /// How many skills the catalog has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_package.len()
    }

    /// Whether the catalog has no skill.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_package.is_empty()
    }

    /// Iterates over the skills from an index on, by qualified name, then package.
    pub fn skills(&self, from: usize) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.iter(from)
    }

    /// Returns the skill of a package.
    #[must_use]
    pub fn skill(&self, package: &RelPath) -> Option<&Arc<Skill>> {
        Some(self.skills.get(self.skill_position(package)?))
    }

    fn skill_position(&self, package: &RelPath) -> Option<usize> {
        let found = self
            .by_package
            .binary_search_by(|i| self.skills.get(*i as usize).package.cmp(package));
        Some(self.by_package[found.ok()?] as usize)
    }

    /// Iterates over the changed skills, each with the old skill, if one catalog was made of the
    /// other by [`Catalog::with_replaced_skills`]; otherwise returns `None`. Skips all chunks that
    /// the catalogs share.
    #[must_use]
    pub fn replaced_skills<'a>(
        &'a self,
        old: &'a Self,
    ) -> Option<impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)>> {
        Arc::ptr_eq(&self.by_package, &old.by_package)
            .then(|| self.skills.replaced_pairs(&old.skills))
    }

    /// Whether both catalogs look the same to callers. The numbers of scanned directories and
    /// entries are ignored.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let header = CatalogHeader {
            counts: RootCounts {
                directories: other.header.counts.directories,
                entries: other.header.counts.entries,
                ..self.header.counts
            },
            ..self.header.clone()
        };
        header == other.header
            && (Arc::ptr_eq(&self.diagnostics, &other.diagnostics)
                || self.diagnostics == other.diagnostics)
            && self.disabled_packages == other.disabled_packages
            && self.hidden_packages == other.hidden_packages
            && self.reserved_names == other.reserved_names
            && self.plugins == other.plugins
            && self.marketplaces == other.marketplaces
            && self.manifest_files == other.manifest_files
            && self.skills == other.skills
    }
}

/// Sorts skills by name, then package. Returns also their indices by package.
fn sort_skills(mut skills: Vec<Arc<Skill>>) -> (SkillChunks, Arc<[u32]>) {
    skills.sort_by(|a, b| {
        a.name()
            .cmp(b.name())
            .then_with(|| handle::compare_encoded(&a.package, &b.package))
    });
    let mut by_package: Vec<u32> = (0u32..).take(skills.len()).collect();
    by_package.sort_by_key(|at| &skills[*at as usize].package);
    let chunks = skills.chunks(CHUNK_LEN).map(Into::into);
    (SkillChunks(chunks.collect()), by_package.into())
}

/// Skills in order, in chunks of [`CHUNK_LEN`]. Copies share the chunks in which they are equal.
#[derive(Debug, Clone)]
struct SkillChunks(Box<[Arc<[Arc<Skill>]>]>);

impl SkillChunks {
    fn get(&self, at: usize) -> &Arc<Skill> {
        &self.0[at / CHUNK_LEN][at % CHUNK_LEN]
    }

    fn replace_skill(&mut self, at: usize, skill: Arc<Skill>) {
        let chunk = &mut self.0[at / CHUNK_LEN];
        let mut copy = chunk.to_vec();
        copy[at % CHUNK_LEN] = skill;
        *chunk = copy.into();
    }

    /// Returns the chunks of as many other skills. Chunks with the same skills are shared.
    fn with_skills(&self, skills: &[Arc<Skill>]) -> Self {
        let chunks = self.0.iter().zip(skills.chunks(CHUNK_LEN));
        let shared = chunks.map(|(known, chunk)| {
            let is_same = known.iter().zip(chunk).all(|(a, b)| Arc::ptr_eq(a, b));
            if is_same { known.clone() } else { chunk.into() }
        });
        Self(shared.collect())
    }

    fn iter(&self, from: usize) -> impl Iterator<Item = &Arc<Skill>> {
        let chunks = self.0.iter().skip(from / CHUNK_LEN);
        chunks.flat_map(|chunk| chunk.iter()).skip(from % CHUNK_LEN)
    }

    /// Iterates over the skills that differ from the skill at the same index in `old`.
    fn replaced_pairs<'a>(
        &'a self,
        old: &'a Self,
    ) -> impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)> {
        let chunks = self
            .0
            .iter()
            .zip(&old.0)
            .filter(|(new, old)| !Arc::ptr_eq(new, old));
        let pairs = chunks.flat_map(|(new, old)| new.iter().zip(old.iter()));
        pairs.filter(|(new, old)| !Arc::ptr_eq(new, old) && new != old)
    }
}

impl PartialEq for SkillChunks {
    fn eq(&self, other: &Self) -> bool {
        let lengths = |chunks: &Self| (chunks.0.len(), chunks.0.last().map(|chunk| chunk.len()));
        lengths(self) == lengths(other) && self.replaced_pairs(other).next().is_none()
    }
}
