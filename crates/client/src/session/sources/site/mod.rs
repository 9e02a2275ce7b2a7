//! Site as a source of skills: the index `https://HOST/.well-known/agent-skills/index.json` and the
//! SKILL.md files that it names. The index is requested at the start, every five minutes, and after a failed
//! verification, with conditional requests. Each file is requested when it is read, and is verified. All responses are [limited](limits).
//!
//! A site is reached over https. Redirects to another host, archives, and addresses that are not
//! globally routable are refused, and proxies of the environment are not used. A handle begins with
//! `site://` and the host, such as `site://docs.example/pdf/SKILL.md`.
//!
//! ```no_run
//! use caproot_client::session::sources::site::{SiteConfig, SiteSource};
//!
//! # async fn start() -> Result<(), caproot_client::session::sources::site::SiteNameError> {
//! let source = SiteSource::start(SiteConfig::new("docs.example")).await?;
//! # drop(source);
//! # Ok(())
//! # }
//! ```

mod client;
mod follow;
mod index;
pub mod limits;

use super::large_file::FileContent;
use super::mcp::fetch::{VerifiedFileCache, check_declaration, not_verified_error};
use super::mcp::frontmatter::find_difference;
use super::mcp::remote_skill::DeclaredFile;
use super::verified_file::{VerifiedFile, parse_cursor};
use super::{
    FetchedFile, PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource,
    SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest, unavailable_error,
    unlisted_package_error, wrong_authority_error,
};
use crate::session::address_check::AddressPolicy;
use crate::session::{ToolError, ToolErrorCode};
use caproot_core::sync::Mutex;
use caproot_core::wire::handle::is_within;
use client::{SiteClient, parse_site};
use follow::{FollowedSite, follow_site};
use futures_util::future::BoxFuture;
use index::{DeclaredSiteFile, ListedSite, SiteSkill, SiteSkills};
use rmcp::model::sha256_digest;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Configuration of a site.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// Host of the site, such as `docs.example`, with a port if needed, or its URL without a path.
    pub host: String,
    /// Whether addresses that are not globally routable are allowed, such as those of a local network.
    /// Also allows `http` on a loopback address.
    pub allows_private_addresses: bool,
    /// Time limit of a read; 10 s by default.
    pub read_timeout: Duration,
    /// How long `start` waits for the first list; 5 s by default. A later list is used when it
    /// arrives.
    pub start_timeout: Duration,
}

impl SiteConfig {
    /// Returns a site with the default limits, on globally routable addresses only.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            allows_private_addresses: false,
            read_timeout: limits::READ_TIMEOUT,
            start_timeout: limits::START_TIMEOUT,
        }
    }
}

/// Site that cannot be a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid site {host:?}: {reason}")]
pub struct SiteNameError {
    host: String,
    reason: String,
}

/// Skills of one site.
#[derive(Debug)]
pub struct SiteSource {
    id: String,
    client: SiteClient,
    read_timeout: Duration,
    state: watch::Receiver<SiteState>,
    /// Notified to request the index again.
    relist: Arc<Notify>,
    file_cache: Mutex<VerifiedFileCache>,
    _follow_task: AbortOnDropHandle<()>,
}

/// Latest state of a site.
#[derive(Debug, Clone)]
struct SiteState {
    listing: Arc<SkillListing>,
    skills: Arc<SiteSkills>,
    /// Reason if the site is unavailable; the end of a sentence.
    unavailable_reason: Option<String>,
    has_result: bool,
}

impl SiteState {
    fn connecting() -> Self {
        Self {
            listing: Arc::default(),
            skills: Arc::default(),
            unavailable_reason: Some("it does not answer yet".to_owned()),
            has_result: false,
        }
    }

    /// Records that the list is still valid. Returns whether the snapshot changed.
    fn mark_available(&mut self) -> bool {
        self.unavailable_reason.take().is_some()
    }

    /// Stores a list of the site. Returns whether the snapshot changed.
    fn store_list(&mut self, listed: ListedSite) -> bool {
        let is_same_skill = |(package, skill): (&String, &Arc<SiteSkill>)| {
            let known = self.skills.get(package);
            known.is_some_and(|known| Arc::ptr_eq(known, skill))
        };
        let is_same = *self.listing == listed.listing
            && self.skills.len() == listed.skills.len()
            && listed.skills.iter().all(is_same_skill);

        if !is_same {
            self.listing = Arc::new(listed.listing);
            self.skills = Arc::new(listed.skills);
        }
        self.has_result = true;
        let was_available = self.unavailable_reason.take().is_none();
        !is_same || !was_available
    }
}

#[derive(Debug)]
struct SiteWatch(watch::Receiver<SiteState>);

impl SiteSource {
    /// Starts the source of a site and follows its index until the source is dropped. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// A host that cannot be a site, or an address that is not allowed.
    pub async fn start(config: SiteConfig) -> Result<Self, SiteNameError> {
        let SiteConfig {
            host,
            allows_private_addresses,
            read_timeout,
            start_timeout,
        } = config;
        let refused = |reason| SiteNameError {
            host: host.clone(),
            reason,
        };
        let policy = if allows_private_addresses {
            AddressPolicy::Any
        } else {
            AddressPolicy::Global
        };
        let location = parse_site(&host, policy).map_err(refused)?;
        let client = SiteClient::new(&location, policy).await.map_err(refused)?;

        let id = location.id.clone();
        let relist = Arc::new(Notify::new());
        let (sender, state) = watch::channel(SiteState::connecting());
        let site = FollowedSite {
            location,
            client: client.clone(),
            relist: relist.clone(),
        };
        let follow_task = AbortOnDropHandle::new(tokio::spawn(follow_site(site, sender)));
        let source = Self {
            id,
            client,
            read_timeout,
            state,
            relist,
            file_cache: Mutex::default(),
            _follow_task: follow_task,
        };
        source.wait_for_list(start_timeout).await;
        Ok(source)
    }

    /// Waits for the first list, or the first failure, at most for `within`.
    pub async fn wait_for_list(&self, within: Duration) {
        let mut state = self.state.clone();
        drop(timeout(within, state.wait_for(|state| state.has_result)).await);
    }

    /// Requests the index again. Returns at once.
    pub fn refresh(&self) {
        self.relist.notify_one();
    }

    /// Returns the listed skill of a package.
    fn find_skill(&self, package: &str) -> Result<Arc<SiteSkill>, ToolError> {
        let state = self.state.borrow();
        if let Some(reason) = &state.unavailable_reason {
            return Err(unavailable_error(SourceKind::Site, &self.id, reason));
        }
        if !self.owns_handle(&self.id, package) {
            return Err(wrong_authority_error());
        }
        let skill = state.skills.get(package);
        skill.cloned().ok_or_else(unlisted_package_error)
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        let skill = self.find_skill(&request.package)?;
        request.check_resource_in_package()?;
        let resource = match request.resource.as_str() {
            "" => skill.skill.main_resource.as_str(),
            resource => resource,
        };
        let Some(declared) = skill.files.get(resource) else {
            let message = "the skill has no such file";
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                message,
            ));
        };
        if let Some(error) = skill.rejection.get() {
            return Err(error.clone());
        }

        let cursor = parse_cursor(&request.cursor, resource)?;
        let file = self.fetch_in_time(&skill, resource, declared).await?;
        file.cut_page(cursor, resource, resource.to_owned(), request.max_bytes)
    }

    /// Fetches a file within the time limit. Requests a new list if the site may have a new list, or
    /// may be gone.
    async fn fetch_in_time(
        &self,
        skill: &SiteSkill,
        resource: &str,
        declared: &DeclaredSiteFile,
    ) -> Result<VerifiedFile, ToolError> {
        let fetch = self.fetch_file(skill, resource, declared);
        let fetched = timeout(self.read_timeout, fetch).await;
        let fetched = fetched.unwrap_or_else(|_| Err(self.silence_error()));

        fetched.inspect_err(|error| {
            if matches!(
                error.code(),
                ToolErrorCode::NotVerified | ToolErrorCode::SourceUnavailable
            ) {
                self.relist.notify_one();
            }
        })
    }

    /// Fetches and verifies a file.
    async fn fetch_file(
        &self,
        skill: &SiteSkill,
        resource: &str,
        declared: &DeclaredSiteFile,
    ) -> Result<VerifiedFile, ToolError> {
        let cached = self.file_cache.lock().get(&declared.digest);
        if let Some(file) = cached {
            return verify_main_file(skill, resource, &file.text).map(|()| file);
        }

        let FileContent { bytes, turn } = self.fetch_content(skill, resource, declared).await?;
        let digest = sha256_digest(&bytes);
        let text = String::from_utf8(bytes)
            .map_err(|_| ToolError::from_code(ToolErrorCode::NotText, "the file is not text"))?;
        let file = VerifiedFile::new(digest, text);
        drop(turn);
        self.file_cache.lock().insert(&file);
        Ok(file)
    }

    /// Fetches and verifies the content of a file, which need not be text.
    async fn fetch_content(
        &self,
        skill: &SiteSkill,
        resource: &str,
        declared: &DeclaredSiteFile,
    ) -> Result<FileContent, ToolError> {
        let content = self.client.fetch_file(&declared.url).await?;
        let bytes = &content.bytes;
        let is_main = resource == skill.skill.main_resource;
        let listed = DeclaredFile {
            digest: &declared.digest,
            size: None,
        };
        check_declaration(listed, bytes.len() as u64, &sha256_digest(bytes))
            .inspect_err(|error| reject_main_file(skill, is_main, error))?;
        verify_main_file(skill, resource, &String::from_utf8_lossy(bytes))?;
        Ok(content)
    }

    /// Returns all files of a skill. The index must be the same at the end.
    async fn fetch_declared_files(&self, package: &str) -> Result<Vec<FetchedFile>, ToolError> {
        let skill = self.find_skill(package)?;
        if let Some(error) = skill.rejection.get() {
            return Err(error.clone());
        }

        let mut files = Vec::new();
        for (resource, declared) in &skill.files {
            let fetch = timeout(
                self.read_timeout,
                self.fetch_content(&skill, resource, declared),
            );
            let content = fetch.await.unwrap_or_else(|_| Err(self.silence_error()))?;
            files.push(FetchedFile {
                resource: resource.clone(),
                bytes: content.bytes,
            });
        }

        if Arc::ptr_eq(&self.find_skill(package)?, &skill) {
            Ok(files)
        } else {
            let message = "the skill changed while its files were read";
            Err(ToolError::from_code(
                ToolErrorCode::ResourceChanged,
                message,
            ))
        }
    }

    fn silence_error(&self) -> ToolError {
        unavailable_error(SourceKind::Site, &self.id, "it does not answer in time")
    }

    /// Returns the declared files of a skill, all on one page: their number is limited.
    fn declared_files(&self, package: &str) -> Result<PackageFilesPage, ToolError> {
        let skill = self.find_skill(package)?;
        let files = skill.files.keys().map(|resource| PackageFile {
            resource: resource.clone(),
            size_bytes: None,
            media_type: String::new(),
        });
        Ok(PackageFilesPage {
            files: files.collect(),
            ..PackageFilesPage::default()
        })
    }
}

/// Checks the frontmatter of a SKILL.md against the index. Other files have none.
fn verify_main_file(skill: &SiteSkill, resource: &str, text: &str) -> Result<(), ToolError> {
    if resource != skill.skill.main_resource {
        return Ok(());
    }
    match find_difference(text, &skill.frontmatter, false) {
        None => Ok(()),
        Some(difference) => {
            let reason = format!("the SKILL.md differs from the index: {difference}");
            let error = not_verified_error(&reason);
            reject_main_file(skill, true, &error);
            Err(error)
        }
    }
}

/// Records the error of a SKILL.md, so that no file of the skill is read until the index changes.
fn reject_main_file(skill: &SiteSkill, is_main: bool, error: &ToolError) {
    if is_main {
        // The first error stays.
        let _ = skill.rejection.set(error.clone());
    }
}

impl SkillSource for SiteSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Site
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn authorities(&self) -> Vec<String> {
        vec![self.id.clone()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        let state = self.state.borrow();
        SourceSnapshot {
            listing: state.listing.clone(),
            unavailable_reason: state.unavailable_reason.clone(),
        }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut state = self.state.clone();
        state.mark_unchanged();
        Some(Box::new(SiteWatch(state)))
    }

    fn read_timeout(&self) -> Duration {
        self.read_timeout
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }

    fn owns_handle(&self, authority: &str, handle: &str) -> bool {
        is_within(handle, &format!("site://{authority}"))
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(std::future::ready(self.declared_files(&request.package)))
    }

    fn fetch_package<'a>(
        &'a self,
        package: &'a str,
    ) -> BoxFuture<'a, Result<Vec<FetchedFile>, ToolError>> {
        Box::pin(self.fetch_declared_files(package))
    }
}

impl SourceWatch for SiteWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.0.changed().await.is_err() {
                // The follow task has ended.
                std::future::pending::<()>().await;
            }
        })
    }
}
