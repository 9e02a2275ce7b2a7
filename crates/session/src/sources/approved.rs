//! Source that lists only approved skills and plugins of another source. Descriptions come from the lock. A file
//! is fetched whole, verified, and kept by its digest for all sessions of the process.

use super::verified_file::{ContentCache, VerifiedFile, parse_cursor};
use super::{
    PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource, SourceChanges,
    SourceKind, SourceSnapshot, TextPage, TextPageRequest, WholeFile, unknown_digests_error,
    unlisted_package_error,
};
use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::{ToolError, ToolErrorCode};
use caproot_client::{LockView, is_for_product, rewrite_handles};
use caproot_core::lock::{ApprovedFiles, ApprovedSkill, Lock};
use caproot_core::proto::caproot::v1::{Plugin, Skill, TrustState};
use caproot_core::sync::Mutex;
use caproot_core::wire::handle::{encode_path, format_name_handle};
use caproot_core::wire::limits::MAX_READ_BYTES;
use caproot_core::wire::short_digest;
use caproot_core::wire::{ContentDigest, RelPath, parse_file_name};
use futures_util::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Limit of a file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Limit of all cached contents of the process in bytes.
const MAX_CACHED_BYTES: usize = 64 << 20;
/// Packages whose version is remembered.
const MAX_NARROWED: usize = 10_000;
/// Files on a page of a list.
const MAX_PAGE_FILES: usize = 1_000;
/// Packages with one name and one SKILL.md of a root that are tried for a file.
const MAX_SAME_PACKAGES: usize = 8;

/// Verified contents of all sessions of the process, by digest.
static CONTENTS: LazyLock<ContentCache> = LazyLock::new(|| ContentCache::new(MAX_CACHED_BYTES));

/// Source with the approved skills and plugins of another source. Handles have the approved names in place of paths,
/// which the author of a skill chooses.
#[derive(Debug)]
pub struct ApprovedSource {
    source: Arc<dyn SkillSource>,
    /// Id of the source, in a form that a model may see.
    id: String,
    lock: Arc<Lock>,
    product: String,
    cached: Mutex<Arc<ApprovedSkills>>,
    cached_plugins: Mutex<Vec<ListedPlugin>>,
    /// Package digests of the versions that an executor may have, by authority and package. There is an
    /// entry once a file has excluded other versions with the same SKILL.md.
    narrowed: Mutex<NarrowedVersions>,
}

/// Approved versions that a package may have.
struct CandidateVersions<'a> {
    versions: Vec<&'a ApprovedSkill>,
    /// Whether the first version is the likely one.
    is_narrowed: bool,
}

/// Place of a file on the source, with the approved versions of its skill.
struct CandidateFile<'a> {
    /// Request to the source.
    request: TextPageRequest,
    candidates: CandidateVersions<'a>,
    /// Path in the package; at least one of the versions has the file.
    path: RelPath,
}

type NarrowedVersions = HashMap<(String, String), Vec<ContentDigest>>;

/// Latest listing, with the listing of the source from which it was built.
#[derive(Debug, Default)]
struct ApprovedSkills {
    listed: Arc<SkillListing>,
    approved: Arc<SkillListing>,
    /// Skills of the source by the package that the session has. Packages with one name and one SKILL.md
    /// are one skill of the session.
    by_package: HashMap<String, Vec<SharedSkill>>,
}

/// Plugin of the source, and the plugin of the session.
#[derive(Debug, Clone)]
struct ListedPlugin {
    listed: Arc<Plugin>,
    /// `None` if the plugin is not approved.
    approved: Option<ApprovedPluginListing>,
}

#[derive(Debug, Clone)]
struct ApprovedPluginListing {
    plugin: Arc<Plugin>,
    /// Package digests of the approved versions with these declarations.
    digests: Vec<ContentDigest>,
}

impl ApprovedSource {
    /// Creates a source with an id that a model may see. An empty product lists the skills of all products.
    pub fn new(source: Arc<dyn SkillSource>, id: String, lock: Arc<Lock>, product: &str) -> Self {
        Self {
            id,
            source,
            lock,
            product: product.to_owned(),
            cached: Mutex::default(),
            cached_plugins: Mutex::default(),
            narrowed: Mutex::default(),
        }
    }

    /// Returns the approved skills of now.
    fn approved_skills(&self, listed: &Arc<SkillListing>) -> Arc<ApprovedSkills> {
        let mut cached = self.cached.lock();
        if !Arc::ptr_eq(&cached.listed, listed) {
            *cached = Arc::new(self.approve_listing(listed));
        }
        cached.clone()
    }

    /// Returns the approved skills of a listing. The texts and handles of an executor are not passed on.
    fn approve_listing(&self, listed: &Arc<SkillListing>) -> ApprovedSkills {
        let mut reserved_names = listed.reserved_names.clone();
        let mut approved = Vec::new();
        for skill in &listed.skills {
            match LockView::new(&self.lock).skill(skill) {
                Some(found) if is_for_product(&found.skill, &self.product) => {
                    approved.push((found.skill, skill));
                }
                Some(_) => {}
                None => reserved_names.push(skill.name.clone()),
            }
        }
        reserved_names.retain(|name| !self.lock.versions(name).is_empty());

        let mut digests: HashMap<_, HashSet<_>> = HashMap::new();
        for (_, skill) in &approved {
            let of_name = digests.entry((authority_id(skill), &*skill.name));
            of_name.or_default().insert(&*skill.digest);
        }
        let mut skills = Vec::new();
        let mut by_package: HashMap<_, Vec<_>> = HashMap::new();
        for (own, skill) in &approved {
            let id = authority_id(skill);
            let versions = digests.get(&(id, &*skill.name)).map_or(0, HashSet::len);
            let name = versioned_name(&own.name, &own.digest, versions > 1);
            let package = format_name_handle(id, &name);
            let same = by_package.entry(package.clone()).or_default();
            if same.is_empty() {
                skills.push(Arc::new(Skill {
                    main_resource: format!("{package}/SKILL.md"),
                    package,
                    ..own.clone()
                }));
            }
            if same.len() < MAX_SAME_PACKAGES {
                same.push(SharedSkill::clone(skill));
            }
        }

        let warnings = match listed.warnings.len() {
            0 => Vec::new(),
            1 => vec![self.describe("has a warning; see the state of its roots")],
            count => {
                vec![self.describe(&format!("has {count} warnings; see the state of its roots"))]
            }
        };
        let approved = SkillListing {
            skills,
            warnings,
            truncated: listed.truncated,
            reserved_names,
        };
        ApprovedSkills {
            listed: listed.clone(),
            approved: Arc::new(approved),
            by_package,
        }
    }

    /// Returns the approved plugins of now. The declarations are those of the lock, and handles have the name of
    /// the plugin in place of its path.
    fn approved_plugins(&self) -> Vec<ApprovedPluginListing> {
        let listed = self.source.plugins();
        let mut cached = self.cached_plugins.lock();
        let is_same = cached.len() == listed.len()
            && cached.iter().zip(&listed).all(|(known, plugin)| {
                Arc::ptr_eq(&known.listed, plugin) || known.listed == *plugin
            });
        if !is_same {
            *cached = self.approve_plugins(&listed);
        }
        cached
            .iter()
            .filter_map(|known| known.approved.clone())
            .collect()
    }

    fn approve_plugins(&self, listed: &[Arc<Plugin>]) -> Vec<ListedPlugin> {
        let approved: Vec<_> = listed
            .iter()
            .map(|plugin| LockView::new(&self.lock).plugin(plugin))
            .collect();
        let mut declarations: HashMap<_, HashSet<_>> = HashMap::new();
        for (plugin, versions) in listed.iter().zip(&approved) {
            let of_name = declarations.entry((plugin_authority(plugin), &*plugin.name));
            let of_name = of_name.or_default();
            of_name.extend(versions.first().map(|version| version.declaration_digest));
        }

        // Plugins with one name and the same declarations are one plugin of the session.
        let mut packages = HashSet::new();
        let plugins = listed.iter().zip(&approved).map(|(plugin, versions)| {
            let authority = plugin_authority(plugin);
            let of_name = declarations.get(&(authority, &*plugin.name));
            let has_versions = of_name.is_some_and(|digests| digests.len() > 1);
            let approved = versions.first().and_then(|version| {
                let digest = version.declaration_digest.to_string();
                let name = versioned_name(&plugin.name, &digest, has_versions);
                let package = format_name_handle(authority, &name);
                packages
                    .insert(package.clone())
                    .then(|| ApprovedPluginListing {
                        plugin: Arc::new(with_package(plugin, &package)),
                        digests: versions
                            .iter()
                            .map(|version| version.content_digest)
                            .collect(),
                    })
            });
            ListedPlugin {
                listed: plugin.clone(),
                approved,
            }
        });
        plugins.collect()
    }

    fn describe(&self, predicate: &str) -> String {
        let source = self.source.kind().describe(&self.id);
        format!("{source} {predicate}")
    }

    /// Returns the skills of the source that a package of the session means; not empty.
    fn find_skills(&self, authority: &str, package: &str) -> Result<Vec<SharedSkill>, ToolError> {
        let skills = self.approved_skills(&self.source.snapshot().listing);
        let found = skills.by_package.get(package);
        let found =
            found.filter(|found| found.iter().all(|skill| authority_id(skill) == authority));
        found.cloned().ok_or_else(unlisted_package_error)
    }

    /// Returns the approved versions that a skill of the source may have, the most likely ones first.
    fn find_versions(&self, skill: &SharedSkill) -> Result<CandidateVersions<'_>, ToolError> {
        let approved = LockView::new(&self.lock)
            .skill(skill)
            .ok_or_else(unlisted_package_error)?;
        let mut versions = approved.versions;

        let narrowed = self.narrowed.lock();
        let key = (authority_id(skill).to_owned(), skill.package.clone());
        let likely = narrowed.get(&key);
        if let Some(likely) = likely {
            versions.sort_by_key(|version| !likely.contains(&version.content_digest));
        }
        Ok(CandidateVersions {
            is_narrowed: likely.is_some() || versions.len() == 1,
            versions,
        })
    }

    /// Records the versions that have a file which the executor returned.
    fn narrow_versions(&self, request: &TextPageRequest, versions: &[&ApprovedSkill]) {
        let key = (request.authority.clone(), request.package.clone());
        let digests = versions.iter().map(|version| version.content_digest);
        let mut narrowed = self.narrowed.lock();
        if narrowed.len() < MAX_NARROWED || narrowed.contains_key(&key) {
            narrowed.insert(key, digests.collect());
        }
    }

    /// Returns where the file of a request may be on the source. If several packages are one skill of the
    /// session, the first that has the approved file is read.
    fn find_files(&self, request: &TextPageRequest) -> Result<Vec<CandidateFile<'_>>, ToolError> {
        let skills = self.find_skills(&request.authority, &request.package)?;
        request.check_resource_in_package()?;
        let path = match &*request.resource {
            "" => RelPath::new(b"SKILL.md"),
            resource => find_path(&request.package, resource),
        };

        let found = skills.iter().map(|skill| {
            let candidates = self.find_versions(skill)?;
            let path = path.clone().filter(|path| candidates.has_file(path));
            let path = path.ok_or_else(|| {
                let message = "the approved skill has no such file";
                ToolError::from_code(ToolErrorCode::ResourceNotFound, message)
            })?;
            Ok(CandidateFile {
                request: TextPageRequest {
                    package: skill.package.clone(),
                    resource: format!("{}/{}", skill.package, encode_path(&path)),
                    cursor: String::new(),
                    ..request.clone()
                },
                candidates,
                path,
            })
        });
        found.collect()
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        let files = self.find_files(request)?;
        let resource = if request.resource.is_empty() {
            format!("{}/SKILL.md", request.package)
        } else {
            request.resource.clone()
        };
        let cursor = parse_cursor(&request.cursor, &resource)?;

        let mut first_error = None;
        for file in &files {
            match self.fetch_file(file).await {
                Ok(file) => {
                    return file.cut_page(cursor, &resource, request.max_bytes);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(unlisted_package_error))
    }

    /// Returns a whole file with its approved content, text or not. The media type of an executor could be any
    /// text, and a lock has none.
    async fn fetch_whole(&self, request: &TextPageRequest) -> Result<WholeFile, ToolError> {
        let mut first_error = None;
        for file in self.find_files(request)? {
            match self.source.read_whole(&file.request).await {
                Ok(whole) if self.verify_versions(&file, &whole.bytes).is_some() => {
                    return Ok(WholeFile {
                        media_type: String::new(),
                        ..whole
                    });
                }
                Ok(_) => first_error = first_error.or(Some(changed_content_error())),
                Err(error) => first_error = first_error.or(Some(self.own_error(error.code()))),
            }
        }
        Err(first_error.unwrap_or_else(unlisted_package_error))
    }

    /// Returns the verified content of a file, from the cache or from the source. The content decides which
    /// versions the executor may have.
    async fn fetch_file(&self, found: &CandidateFile<'_>) -> Result<VerifiedFile, ToolError> {
        let CandidateFile {
            request,
            candidates,
            path,
        } = found;
        let versions = &candidates.versions;
        let files = versions
            .iter()
            .filter_map(|version| version.files.get(path));
        let files: Vec<_> = files.collect();
        let first = files.first().ok_or_else(unlisted_package_error)?;
        let is_known =
            candidates.is_narrowed || files.iter().all(|file| file.digest == first.digest);
        if is_known && let Some(text) = CONTENTS.get(&first.digest) {
            return Ok(VerifiedFile::new(first.digest, text));
        }
        let max_bytes = files.iter().map(|file| file.bytes).max();
        let max_bytes = max_bytes.unwrap_or_default();
        if max_bytes > MAX_FILE_BYTES {
            let message = format!("the file is over {MAX_FILE_BYTES} bytes");
            return Err(ToolError::from_code(ToolErrorCode::TooLarge, &message));
        }

        let text = self.join_pages(request, max_bytes).await?;
        let digest = self
            .verify_versions(found, text.as_bytes())
            .ok_or_else(changed_content_error)?;
        let text = Arc::<str>::from(text);
        CONTENTS.put(digest, text.clone());
        Ok(VerifiedFile::new(digest, text))
    }

    /// Returns the digest of a content that approved versions have, and records these versions.
    fn verify_versions(&self, found: &CandidateFile<'_>, bytes: &[u8]) -> Option<ContentDigest> {
        let mut matching = found.candidates.versions.clone();
        matching.retain(|version| version.files.verify_content(&found.path, bytes).is_ok());
        let file = matching.first()?.files.get(&found.path)?;
        if matching.len() < found.candidates.versions.len() {
            self.narrow_versions(&found.request, &matching);
        }
        Some(file.digest)
    }

    /// Reads all pages of a file. Ends at a page that brings nothing, and at more than `max_bytes`.
    async fn join_pages(
        &self,
        request: &TextPageRequest,
        max_bytes: u64,
    ) -> Result<String, ToolError> {
        let mut page_request = TextPageRequest {
            max_bytes: MAX_READ_BYTES,
            ..request.clone()
        };
        let mut text = String::new();
        loop {
            let page = self.source.read_page(&page_request).await;
            let page = page.map_err(|error| self.own_error(error.code()))?;
            text.push_str(&page.contents);
            let is_stuck = page.contents.is_empty() && !page.next_cursor.is_empty();
            if text.len() as u64 > max_bytes || is_stuck {
                return Err(changed_content_error());
            }
            if page.next_cursor.is_empty() {
                return Ok(text);
            }
            page_request.cursor = page.next_cursor;
        }
    }

    /// Returns an error with the code of the source's error, and a text of this program: the source's text
    /// may be of the executor.
    fn own_error(&self, code: ToolErrorCode) -> ToolError {
        let message = self.describe(&format!("does not return the file: {}", code.name()));
        ToolError::from_code(code, &message)
    }

    fn list_approved_files(
        &self,
        request: &PackageFilesRequest,
    ) -> Result<PackageFilesPage, ToolError> {
        let skills = self.find_skills(&request.authority, &request.package)?;
        let candidates = self.find_versions(skills.first().ok_or_else(unlisted_package_error)?)?;
        let files = &candidates
            .versions
            .first()
            .ok_or_else(unlisted_package_error)?
            .files;
        let start = match &*request.page_token {
            "" => Some(0),
            token => token.parse().ok().filter(|start| *start < files.len()),
        };
        let start: usize = start.ok_or_else(|| {
            let message = "the cursor is not of this list";
            ToolError::from_code(ToolErrorCode::InvalidCursor, message)
        })?;

        let mut listed: Vec<_> = files
            .iter()
            .map(|(path, file)| PackageFile {
                resource: format!("{}/{}", request.package, encode_path(path)),
                size_bytes: Some(file.bytes),
                media_type: String::new(),
            })
            .collect();
        listed.sort_by(|a, b| a.resource.cmp(&b.resource));
        let end = listed.len().min(start + MAX_PAGE_FILES);
        let next_page_token = if end < listed.len() {
            end.to_string()
        } else {
            String::new()
        };
        Ok(PackageFilesPage {
            files: listed.drain(start..end).collect(),
            next_page_token,
            truncated: false,
        })
    }
}

impl CandidateVersions<'_> {
    fn has_file(&self, path: &RelPath) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|version| version.files.get(path).is_some())
    }
}

/// Returns the name of an approved skill or plugin in its handle: with digits of a digest if a root has several
/// versions. A name with `@` always has digits, so that it looks like no other.
fn versioned_name(name: &str, digest: &str, has_versions: bool) -> String {
    if has_versions || name.contains('@') {
        format!("{name}@{}", short_digest(digest))
    } else {
        name.to_owned()
    }
}

/// Returns an approved plugin with another handle. A handle outside the plugin is not approved, and is removed.
fn with_package(listed: &Plugin, package: &str) -> Plugin {
    let mut plugin = listed.clone();
    plugin.trust = TrustState::Approved.into();
    rewrite_handles(&mut plugin, |handle| {
        let below = handle.strip_prefix(&*listed.package);
        below.map_or_else(String::new, |below| format!("{package}{below}"))
    });
    plugin
}

fn plugin_authority(plugin: &Plugin) -> &str {
    let authority = plugin.authority.as_ref();
    authority.map_or("", |authority| &authority.id)
}

/// Returns the error of a file that is not as approved.
fn changed_content_error() -> ToolError {
    let message = "the file does not have its approved content";
    ToolError::from_code(ToolErrorCode::NotVerified, message)
}

fn authority_id(skill: &SharedSkill) -> &str {
    AuthorityRef::of_skill(skill).id
}

/// Returns the path of a file below its package.
fn find_path(package: &str, resource: &str) -> Option<RelPath> {
    let name = resource.strip_prefix(package)?.strip_prefix('/')?;
    parse_file_name(name).ok()
}

impl SkillSource for ApprovedSource {
    fn kind(&self) -> SourceKind {
        self.source.kind()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn authorities(&self) -> Vec<String> {
        self.source.authorities()
    }

    fn snapshot(&self) -> SourceSnapshot {
        let SourceSnapshot {
            listing,
            unavailable_reason,
        } = self.source.snapshot();
        SourceSnapshot {
            listing: self.approved_skills(&listing).approved.clone(),
            unavailable_reason: unavailable_reason.map(|_| "it does not answer".to_owned()),
        }
    }

    fn changes(&self) -> SourceChanges {
        self.source.changes()
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        let approved = self.approved_plugins().into_iter();
        approved.map(|listing| listing.plugin).collect()
    }

    fn approved_digests(&self, plugin: &Plugin) -> Vec<ContentDigest> {
        let mut approved = self.approved_plugins().into_iter();
        let found = approved.find(|listing| listing.plugin.package == plugin.package);
        found.map(|listing| listing.digests).unwrap_or_default()
    }

    fn retry(&self) {
        self.source.retry();
    }

    fn read_timeout(&self) -> Duration {
        self.source.read_timeout()
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }

    fn read_whole<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<WholeFile, ToolError>> {
        Box::pin(self.fetch_whole(request))
    }

    fn skill_files<'a>(
        &'a self,
        authority: &'a str,
        package: &'a str,
    ) -> BoxFuture<'a, Result<ApprovedFiles, ToolError>> {
        // While several approved versions are possible, no digest is certain.
        let skills = self.find_skills(authority, package).unwrap_or_default();
        let candidates = skills
            .first()
            .and_then(|skill| self.find_versions(skill).ok());
        let certain = candidates.filter(|candidates| candidates.is_narrowed);
        let files = certain.and_then(|found| Some(found.versions.first()?.files.clone()));
        Box::pin(std::future::ready(files.ok_or_else(unknown_digests_error)))
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        let listed = self.list_approved_files(request);
        Box::pin(std::future::ready(listed))
    }
}
