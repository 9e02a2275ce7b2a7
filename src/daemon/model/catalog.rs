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
    disabled_packages: DisabledPackages,
    /// Packages that are not listed because their files are not approved, sorted.
    hidden_packages: Arc<[RelPath]>,
    /// Names in the lock of which a package is hidden, sorted.
    reserved_names: Arc<[Box<str>]>,
    /// Plugins by package, in the byte order of its handle.
    plugins: Arc<[Arc<Plugin>]>,
    /// Marketplace files of the root.
    marketplaces: Arc<[PluginMarketplace]>,
    /// Files whose content is never served.
    manifest_files: Arc<ManifestFiles>,
    /// The worst diagnostics, by severity, resource and line.
    pub diagnostics: Arc<BoundedDiagnostics>,
    /// Upper bound of the bytes that a skill's or plugin's handle adds to the handle of the root.
    longest_handle_len: usize,
    /// Whether a skill may be restricted to certain products.
    may_have_product_filters: bool,
    /// Whether a skill may declare requirements.
    may_have_requirements: bool,
}

impl CatalogHeader {
    /// Returns the header without the counts that change with irrelevant files.
    fn without_scan_counts(&self) -> Self {
        let counts = RootCounts {
            directories: 0,
            entries: 0,
            ..self.counts
        };
        Self {
            counts,
            ..self.clone()
        }
    }
}

impl Catalog {
    /// Creates a catalog. Sorts the skills and the diagnostics.
    #[must_use]
    pub fn new(
        mut skills: Vec<Arc<Skill>>,
        mut diagnostics: BoundedDiagnostics,
        header: CatalogHeader,
    ) -> Self {
        skills.sort_by(|a, b| {
            a.name()
                .cmp(b.name())
                .then_with(|| handle::compare_encoded(&a.package, &b.package))
        });
        let mut by_package: Vec<u32> = (0u32..).take(skills.len()).collect();
        by_package.sort_by(|a, b| {
            skills[*a as usize]
                .package
                .cmp(&skills[*b as usize].package)
        });

        diagnostics.sort_and_truncate();
        let longest_handle_len = skills.iter().map(|s| s.handle_len).max().unwrap_or(0);
        let may_have_product_filters = skills.iter().any(|s| s.has_product_filter());
        let may_have_requirements = skills.iter().any(|s| s.requirements().is_some());

        Self {
            header,
            skills: SkillChunks::new(&skills),
            by_package: by_package.into(),
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
        let longest = plugins
            .iter()
            .map(|plugin| plugin.handle_len())
            .max()
            .unwrap_or(0);
        self.longest_handle_len = self.longest_handle_len.max(longest);
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

    /// Returns the files whose content is never served.
    #[must_use]
    pub fn manifest_files(&self) -> &ManifestFiles {
        &self.manifest_files
    }

    /// Sets the packages that the operator disabled.
    #[must_use]
    pub fn with_disabled_packages(self, disabled_packages: DisabledPackages) -> Self {
        Self {
            disabled_packages,
            ..self
        }
    }

    /// Returns the packages that the operator disabled.
    #[must_use]
    pub fn disabled_packages(&self) -> &DisabledPackages {
        &self.disabled_packages
    }

    /// Returns the number of skills and plugins by their approval; zero if no lock applies.
    #[must_use]
    pub fn trust_counts(&self) -> TrustCounts {
        self.header
            .trust
            .map_or_else(TrustCounts::default, |trust| trust.counts)
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

    /// Returns the packages that are not listed because their files are not approved, sorted.
    #[must_use]
    pub fn hidden_packages(&self) -> &[RelPath] {
        &self.hidden_packages
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

        let mut header = CatalogHeader {
            trust: Some(trust),
            ..self.header.clone()
        };
        let omitted = u32::try_from(hidden.len()).unwrap_or(u32::MAX);
        header.counts.omitted = header.counts.omitted.saturating_add(omitted);

        let marketplaces = match trust.mode {
            TrustMode::Warn => self.marketplaces.clone(),
            TrustMode::Hide => Arc::default(),
        };
        // A catalog that shares the order of the last one differs from it only in its skills.
        let same = last.filter(|last| {
            last.has_same_packages(&listed)
                && last.has_same_plugins(&plugins)
                && last.marketplaces == marketplaces
        });
        let mut catalog = if let Some(last) = same {
            Self {
                skills: last.skills.with_skills(&listed),
                by_package: last.by_package.clone(),
                ..self.clone()
            }
        } else {
            let sorted = Self::new(listed, BoundedDiagnostics::with_limit(0), header.clone());
            Self {
                skills: sorted.skills,
                by_package: sorted.by_package,
                ..self.clone()
            }
        };
        catalog.diagnostics = Arc::new(diagnostics);
        catalog.hidden_packages = hidden.into();
        catalog.reserved_names = reserved_names.into();
        catalog.plugins = plugins.into();
        if trust.mode == TrustMode::Hide && catalog.plugin(&RelPath::root()).is_none() {
            header.plugin = None;
        }
        catalog.marketplaces = marketplaces;
        catalog.header = header;
        catalog
    }

    /// Whether skills are the packages and names of this catalog, in its order.
    fn has_same_packages(&self, skills: &[Arc<Skill>]) -> bool {
        self.len() == skills.len()
            && self.skills(0).zip(skills).all(|(known, skill)| {
                known.package == skill.package && known.name() == skill.name()
            })
    }

    /// Whether plugins are those of this catalog, in its order. An unchanged plugin keeps its `Arc`.
    fn has_same_plugins(&self, plugins: &[Arc<Plugin>]) -> bool {
        self.plugins.len() == plugins.len()
            && self
                .plugins
                .iter()
                .zip(plugins)
                .all(|(a, b)| Arc::ptr_eq(a, b))
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
                new.may_have_product_filters |= skill.has_product_filter();
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

    /// Whether a skill of the catalog may declare requirements.
    #[must_use]
    pub fn may_have_requirements(&self) -> bool {
        self.may_have_requirements
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
        self.header.without_scan_counts() == other.header.without_scan_counts()
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

/// Skills in order, in chunks of [`CHUNK_LEN`]. Copies share the chunks in which they are equal.
#[derive(Debug, Clone)]
struct SkillChunks(Box<[Arc<[Arc<Skill>]>]>);

impl SkillChunks {
    fn new(skills: &[Arc<Skill>]) -> Self {
        Self(skills.chunks(CHUNK_LEN).map(Into::into).collect())
    }

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
        let last_len = self.0.last().map(|chunk| chunk.len());
        let other_last_len = other.0.last().map(|chunk| chunk.len());
        self.0.len() == other.0.len()
            && last_len == other_last_len
            && self.replaced_pairs(other).next().is_none()
    }
}
