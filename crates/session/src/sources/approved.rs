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
    cached_plugins: Mutex<ApprovedPlugins>,
    /// Package digests of the versions that an executor may have, by authority and package. There is an
    /// entry once a file has excluded other versions with the same SKILL.md.
    narrowed: Mutex<HashMap<(String, String), Vec<ContentDigest>>>,
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

/// Latest listing, with the listing of the source from which it was built.
#[derive(Debug, Default)]
struct ApprovedSkills {
    listed: Arc<SkillListing>,
    approved: Arc<SkillListing>,
    /// Skills of the source by the package that the session has. Packages with one name and one SKILL.md
    /// are one skill of the session.
    by_package: HashMap<String, Vec<SharedSkill>>,
}

/// Latest approved plugins, with the plugins of the source from which they were built.
#[derive(Debug, Default)]
struct ApprovedPlugins {
    listed: Vec<Arc<Plugin>>,
    approved: Vec<ApprovedPluginListing>,
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
            digests
                .entry((authority_id(skill), &*skill.name))
                .or_default()
                .insert(&*skill.digest);
        }

        let mut skills = Vec::new();
        let mut by_package: HashMap<_, Vec<_>> = HashMap::new();
        for (own, skill) in &approved {
            let id = authority_id(skill);
            let versions = digests.get(&(id, &*skill.name)).map_or(0, HashSet::len);
            let package = versioned_handle(id, &own.name, &own.digest, versions);
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
        ApprovedSkills {
            listed: listed.clone(),
            approved: Arc::new(SkillListing {
                skills,
                warnings,
                truncated: listed.truncated,
                reserved_names,
            }),
            by_package,
        }
    }

    /// Returns the approved plugins of now. The declarations are those of the lock, and handles have the name of
    /// the plugin in place of its path.
    fn approved_plugins(&self) -> Vec<ApprovedPluginListing> {
        let listed = self.source.plugins();
        let mut cached = self.cached_plugins.lock();
        let is_same = cached.listed.len() == listed.len()
            && cached
                .listed
                .iter()
                .zip(&listed)
                .all(|(known, plugin)| Arc::ptr_eq(known, plugin) || known == plugin);
        if !is_same {
            cached.approved = self.approve_plugins(&listed);
            cached.listed = listed;
        }
        cached.approved.clone()
    }

    fn approve_plugins(&self, listed: &[Arc<Plugin>]) -> Vec<ApprovedPluginListing> {
        let approved: Vec<_> = listed
            .iter()
            .map(|plugin| LockView::new(&self.lock).plugin(plugin))
            .collect();
        let mut declarations: HashMap<_, HashSet<_>> = HashMap::new();
        for (plugin, versions) in listed.iter().zip(&approved) {
            declarations
                .entry((plugin_authority(plugin), &*plugin.name))
                .or_default()
                .extend(versions.first().map(|version| version.declaration_digest));
        }

        // Plugins with one name and the same declarations are one plugin of the session.
        let mut packages = HashSet::new();
        listed
            .iter()
            .zip(&approved)
            .filter_map(|(plugin, versions)| {
                let authority = plugin_authority(plugin);
                let digest = versions.first()?.declaration_digest.to_string();
                let declared = declarations
                    .get(&(authority, &*plugin.name))
                    .map_or(0, HashSet::len);
                let package = versioned_handle(authority, &plugin.name, &digest, declared);
                packages
                    .insert(package.clone())
                    .then(|| ApprovedPluginListing {
                        plugin: Arc::new(with_package(plugin, &package)),
                        digests: versions
                            .iter()
                            .map(|version| version.content_digest)
                            .collect(),
                    })
            })
            .collect()
    }

    fn describe(&self, predicate: &str) -> String {
        format!("{} {predicate}", self.source.kind().describe(&self.id))
    }

    /// Returns the skills of the source that a package of the session means; not empty.
    fn find_skills(&self, authority: &str, package: &str) -> Result<Vec<SharedSkill>, ToolError> {
        let skills = self.approved_skills(&self.source.snapshot().listing);
        skills
            .by_package
            .get(package)
            .filter(|found| found.iter().all(|skill| authority_id(skill) == authority))
            .cloned()
            .ok_or_else(unlisted_package_error)
    }

    /// Returns the approved versions that a skill of the source may have, the most likely ones first.
    fn find_versions(&self, skill: &SharedSkill) -> Result<CandidateVersions<'_>, ToolError> {
        let mut versions = LockView::new(&self.lock)
            .skill(skill)
            .ok_or_else(unlisted_package_error)?
            .versions;

        let narrowed = self.narrowed.lock();
        let likely = narrowed.get(&(authority_id(skill).to_owned(), skill.package.clone()));
        if let Some(likely) = likely {
            versions.sort_by_key(|version| !likely.contains(&version.content_digest));
        }
        Ok(CandidateVersions {
            is_narrowed: likely.is_some() || versions.len() == 1,
            versions,
        })
    }

    /// Returns where the file of a request may be on the source. If several packages are one skill of the
    /// session, the first that has the approved file is read.
    fn find_files(&self, request: &TextPageRequest) -> Result<Vec<CandidateFile<'_>>, ToolError> {
        let skills = self.find_skills(&request.authority, &request.package)?;
        request.check_resource_in_package()?;

        let path = match &*request.resource {
            "" => RelPath::new(b"SKILL.md"),
            resource => resource
                .strip_prefix(&*request.package)
                .and_then(|below| parse_file_name(below.strip_prefix('/')?).ok()),
        };

        skills
            .iter()
            .map(|skill| {
                let candidates = self.find_versions(skill)?;
                let mut versions = candidates.versions.iter();
                let path = path
                    .clone()
                    .filter(|path| versions.any(|version| version.files.get(path).is_some()))
                    .ok_or_else(|| {
                        ToolError::from_code(
                            ToolErrorCode::ResourceNotFound,
                            "the approved skill has no such file",
                        )
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
            })
            .collect()
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
                Ok(file) => return file.cut_page(cursor, &resource, request.max_bytes),
                Err(error) => first_error.get_or_insert(error),
            };
        }
        Err(first_error.unwrap_or_else(unlisted_package_error))
    }

    /// Returns a whole file with its approved content, text or not. The media type of an executor could be any
    /// text, and a lock has none.
    async fn fetch_whole(&self, request: &TextPageRequest) -> Result<WholeFile, ToolError> {
        let mut first_error = None;
        for file in self.find_files(request)? {
            let error = match self.source.read_whole(&file.request).await {
                Ok(whole) if self.verify_versions(&file, &whole.bytes).is_some() => {
                    return Ok(WholeFile {
                        media_type: String::new(),
                        ..whole
                    });
                }
                Ok(_) => changed_content_error(),
                Err(error) => self.own_error(error.code()),
            };
            first_error.get_or_insert(error);
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
        let files: Vec<_> = candidates
            .versions
            .iter()
            .filter_map(|version| version.files.get(path))
            .collect();
        let first = files.first().ok_or_else(unlisted_package_error)?;
        let is_known =
            candidates.is_narrowed || files.iter().all(|file| file.digest == first.digest);
        if is_known && let Some(file) = CONTENTS.get(first.digest) {
            return Ok(file);
        }

        let max_bytes = files
            .iter()
            .map(|file| file.bytes)
            .max()
            .unwrap_or_default();
        if max_bytes > MAX_FILE_BYTES {
            return Err(ToolError::from_code(
                ToolErrorCode::TooLarge,
                &format!("the file is over {MAX_FILE_BYTES} bytes"),
            ));
        }

        let text = self.join_pages(request, max_bytes).await?;
        let digest = self
            .verify_versions(found, text.as_bytes())
            .ok_or_else(changed_content_error)?;
        let file = VerifiedFile {
            digest,
            text: text.into(),
        };
        CONTENTS.put(&file);
        Ok(file)
    }

    /// Returns the digest of a content that approved versions have, and records these versions.
    fn verify_versions(&self, found: &CandidateFile<'_>, bytes: &[u8]) -> Option<ContentDigest> {
        let mut matching = found.candidates.versions.clone();
        matching.retain(|version| version.files.verify_content(&found.path, bytes).is_ok());
        let digest = matching.first()?.files.get(&found.path)?.digest;

        if matching.len() < found.candidates.versions.len() {
            let TextPageRequest {
                authority, package, ..
            } = &found.request;
            let key = (authority.clone(), package.clone());
            let mut narrowed = self.narrowed.lock();
            if narrowed.len() < MAX_NARROWED || narrowed.contains_key(&key) {
                let digests = matching.iter().map(|version| version.content_digest);
                narrowed.insert(key, digests.collect());
            }
        }
        Some(digest)
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
            let page = self
                .source
                .read_page(&page_request)
                .await
                .map_err(|error| self.own_error(error.code()))?;

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
        let predicate = format!("does not return the file: {}", code.name());
        ToolError::from_code(code, &self.describe(&predicate))
    }

    fn list_approved_files(
        &self,
        request: &PackageFilesRequest,
    ) -> Result<PackageFilesPage, ToolError> {
        let skills = self.find_skills(&request.authority, &request.package)?;
        let skill = skills.first().ok_or_else(unlisted_package_error)?;
        let versions = self.find_versions(skill)?.versions;
        let files = &versions.first().ok_or_else(unlisted_package_error)?.files;
        let start: usize = match &*request.page_token {
            "" => Some(0),
            token => token.parse().ok().filter(|start| *start < files.len()),
        }
        .ok_or_else(|| {
            ToolError::from_code(
                ToolErrorCode::InvalidCursor,
                "the cursor is not of this list",
            )
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
        Ok(PackageFilesPage {
            next_page_token: if end < listed.len() {
                end.to_string()
            } else {
                String::new()
            },
            files: listed.drain(start..end).collect(),
            truncated: false,
        })
    }
}

/// Returns the handle of an approved skill or plugin: its name, with digits of a digest if a root has several
/// versions. A name with `@` always has digits, so that it looks like no other.
fn versioned_handle(authority: &str, name: &str, digest: &str, versions: usize) -> String {
    if versions > 1 || name.contains('@') {
        format_name_handle(authority, &format!("{name}@{}", short_digest(digest)))
    } else {
        format_name_handle(authority, name)
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
    ToolError::from_code(
        ToolErrorCode::NotVerified,
        "the file does not have its approved content",
    )
}

fn authority_id(skill: &SharedSkill) -> &str {
    AuthorityRef::of_skill(skill).id
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
        let snapshot = self.source.snapshot();
        SourceSnapshot {
            listing: self.approved_skills(&snapshot.listing).approved.clone(),
            unavailable_reason: snapshot
                .unavailable_reason
                .map(|_| "it does not answer".to_owned()),
        }
    }

    fn changes(&self) -> SourceChanges {
        self.source.changes()
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        self.approved_plugins()
            .into_iter()
            .map(|listing| listing.plugin)
            .collect()
    }

    fn approved_digests(&self, plugin: &Plugin) -> Vec<ContentDigest> {
        self.approved_plugins()
            .into_iter()
            .find(|listing| listing.plugin.package == plugin.package)
            .map(|listing| listing.digests)
            .unwrap_or_default()
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
        let files = skills
            .first()
            .and_then(|skill| self.find_versions(skill).ok())
            .filter(|candidates| candidates.is_narrowed)
            .and_then(|found| Some(found.versions.first()?.files.clone()));
        Box::pin(std::future::ready(files.ok_or_else(unknown_digests_error)))
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(std::future::ready(self.list_approved_files(request)))
    }
}
