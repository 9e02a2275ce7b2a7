//! Source of skills on a remote server: an MCP server or a site. The list has no files. A file is fetched
//! whole when it is read, and a file that fails verification is never returned.

mod follow;
mod frontmatter;
mod large_file;
pub(super) mod limits;
mod list;
mod skill;
mod state;

pub(super) use large_file::{FileContent, read_file_body, take_turn};
pub(super) use list::{ListedSkills, RemoteSkills, SkillListBuilder};
pub use skill::McpSkillFile;
pub(super) use skill::{
    DeclaredFile, DeclaredFiles, MAIN_FILE, RemoteSkill, SkillDeclaration, SkillOrigin,
};

use super::verified_file::{VerifiedFile, parse_cursor};
use super::{
    FetchedFile, PackageFile, PackageFilesPage, PackageFilesRequest, SkillSource, SourceChanges,
    SourceKind, SourceSnapshot, TextPage, TextPageRequest, unavailable_error,
    unlisted_package_error, wrong_authority_error,
};
use crate::skills::skill_source::{channel_changes, unlisted_files_error};
use crate::{ToolError, ToolErrorCode};
use caproot_core::wire::ContentDigest;
use follow::follow_server;
use futures_util::future::BoxFuture;
use large_file::VerifiedFileCache;
use state::RemoteState;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Server of skills. Reasons are the end of a sentence about the server.
pub trait RemoteServer: fmt::Debug + Send + Sync + Sized + 'static {
    /// Connection that lists the skills until the connection is lost.
    type Connection: Send;
    /// Part of a connection that a read needs.
    type Link: Clone + fmt::Debug + Send + Sync;

    /// Kind of the source.
    const KIND: SourceKind;
    /// Longest delay between two connection attempts.
    const MAX_RETRY_DELAY: Duration;

    /// Returns the id of the source, which is its only authority.
    fn id(&self) -> &str;

    /// Returns whether a handle is of the authority.
    fn owns_handle(authority: &str, handle: &str) -> bool;

    /// Connects to the server. `relist` is notified when the skills may have changed.
    fn connect(
        &self,
        relist: &Arc<Notify>,
    ) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Returns the link of a connection.
    fn link(connection: &Self::Connection) -> Self::Link;

    /// Lists the skills. An unchanged skill of `before` is reused. Returns `None` if the latest list is
    /// valid.
    fn list_skills(
        &self,
        connection: &mut Self::Connection,
        before: &RemoteSkills,
    ) -> impl Future<Output = Result<Option<ListedSkills>, String>> + Send;

    /// Waits until the list may have changed, or until the connection is lost.
    fn wait_for_change(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Waits for an event after which a lost server is connected to without a delay.
    fn wait_for_retry(&self, relist: &Notify) -> impl Future<Output = ()> + Send;

    /// Returns whether the server never comes back.
    fn is_over(&self) -> bool {
        false
    }

    /// Logs why the server is unavailable.
    fn log_failure(&self, reason: &str);

    /// Lets the program be asked again for what the server needs.
    fn retry(&self) {}

    /// Requests the current statement about a skill, which may be known. Returns `None` if the list is the
    /// only statement. An unchanged skill of `before` is reused in a new list.
    fn request_statement(
        &self,
        _link: &Self::Link,
        _package: &str,
        _known: Option<&RemoteSkill>,
        _before: &RemoteSkills,
    ) -> impl Future<Output = Result<Option<SkillStatement>, ToolError>> + Send {
        ready(Ok(None))
    }

    /// Returns the URI or URL of a file. The file need not exist.
    fn locate_file(skill: &RemoteSkill, resource: &str) -> Result<String, ToolError>;

    /// Fetches a file within its limits.
    fn fetch_file(
        &self,
        link: &Self::Link,
        location: &str,
        declared: Option<DeclaredFile>,
    ) -> impl Future<Output = Result<FileContent, ToolError>> + Send;

    /// Lists the files of a skill whose files are not declared.
    fn list_directories(
        &self,
        _link: &Self::Link,
        _skill: &RemoteSkill,
    ) -> impl Future<Output = Result<PackageFilesPage, ToolError>> + Send {
        ready(Err(undeclared_files_error()))
    }
}

/// Statement of a server about a skill.
pub enum SkillStatement {
    /// The server serves the skill with these declarations.
    Served(Box<RemoteSkill>),
    /// The server does not serve the skill.
    Gone,
    /// New list, from a server that makes no statements about single skills.
    Listed(ListedSkills),
}

/// Limits of a source.
#[derive(Debug)]
pub struct ReadLimits {
    pub read_timeout: Duration,
    /// Age of the server's latest statement about a skill, up to which a read relies on the statement.
    pub max_age: Duration,
}

/// Skills of one server: `sources::mcp::McpSource` or `sources::site::SiteSource`.
#[derive(Debug)]
pub struct RemoteSource<S: RemoteServer> {
    server: Arc<S>,
    limits: ReadLimits,
    state: watch::Sender<RemoteState<S::Link>>,
    /// Notified to request a new list.
    relist: Arc<Notify>,
    /// Latest verified files, so that a page does not need a fetch of the whole file.
    file_cache: VerifiedFileCache,
    /// `None` if the server is disabled.
    follow_task: Option<AbortOnDropHandle<()>>,
}

/// Skill as the server declares it now, and the link to the server.
struct CurrentSkill<L> {
    skill: Arc<RemoteSkill>,
    link: L,
}

/// Content that passed verification. Keeps the turn of a large file.
struct VerifiedContent {
    content: FileContent,
    digest: ContentDigest,
}

impl<S: RemoteServer> RemoteSource<S> {
    /// Returns the source of a server that is never connected to.
    pub(super) fn disabled(server: S, limits: ReadLimits) -> Self {
        Self {
            server: Arc::new(server),
            limits,
            state: watch::Sender::new(RemoteState::without_listing("it is disabled")),
            relist: Arc::default(),
            file_cache: VerifiedFileCache::default(),
            follow_task: None,
        }
    }

    /// Follows the list of a server until the source is dropped.
    pub(super) fn follow(server: S, limits: ReadLimits) -> Self {
        let mut source = Self::disabled(server, limits);
        source
            .state
            .send_replace(RemoteState::without_listing("it does not answer yet"));
        let followed = follow_server(
            source.server.clone(),
            source.state.clone(),
            source.relist.clone(),
        );
        source.follow_task = Some(AbortOnDropHandle::new(tokio::spawn(followed)));
        source
    }

    /// Waits for the first list, or the first failure, at most for `within`.
    pub async fn wait_for_list(&self, within: Duration) {
        let mut state = self.state.subscribe();
        drop(timeout(within, state.wait_for(|state| state.has_result)).await);
    }

    /// Requests a new list, such as after a notification that the program received. Returns at once.
    pub fn refresh(&self) {
        self.relist.notify_one();
    }

    /// Returns the latest skill of a package.
    pub(super) fn find_skill(&self, package: &str) -> Option<Arc<RemoteSkill>> {
        self.state.borrow().find(package).cloned()
    }

    /// Runs a request within the time limit of a read.
    async fn run_in_time<T>(
        &self,
        request: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        timeout(self.limits.read_timeout, request)
            .await
            .unwrap_or_else(|_| Err(self.unavailable_error("it does not answer in time")))
    }

    fn unavailable_error(&self, reason: &str) -> ToolError {
        unavailable_error(S::KIND, self.server.id(), reason)
    }

    /// Returns the files of a skill, all on one page: their number is limited.
    async fn list_package_files(&self, package: &str) -> Result<PackageFilesPage, ToolError> {
        let CurrentSkill { skill, link } = self
            .run_in_time(self.current_skill(package, self.limits.max_age))
            .await?;
        let Some(files) = &skill.declared.files else {
            return self
                .run_in_time(self.server.list_directories(&link, &skill))
                .await;
        };

        Ok(PackageFilesPage {
            files: files
                .iter()
                .map(|(resource, file)| PackageFile {
                    resource: resource.clone(),
                    size_bytes: file.size,
                    media_type: String::new(),
                })
                .collect(),
            ..PackageFilesPage::default()
        })
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        request.check_resource_in_package()?;
        let fetch = async {
            let current = self
                .current_skill(&request.package, self.limits.max_age)
                .await?;
            let resource = current.skill.declared_spelling(&request.resource);
            let location = S::locate_file(&current.skill, &resource)?;
            current.skill.check_rejection()?;
            let cursor = parse_cursor(&request.cursor, &resource)?;
            let file = self.fetch_text(&current, &resource, &location).await?;
            file.cut_page(cursor, &resource, request.max_bytes)
        };

        self.run_in_time(fetch).await.inspect_err(|error| {
            // The server may have a new list, or may be gone. A lost server is tried again anyway.
            if matches!(
                error.code(),
                ToolErrorCode::NotVerified | ToolErrorCode::SourceUnavailable
            ) && self.state.borrow().link.is_ok()
            {
                self.relist.notify_one();
            }
        })
    }

    /// Fetches and verifies a text file of a skill.
    async fn fetch_text(
        &self,
        current: &CurrentSkill<S::Link>,
        resource: &str,
        location: &str,
    ) -> Result<VerifiedFile, ToolError> {
        let skill = &current.skill;
        let declared = skill.find_file(resource)?;
        if let Some(declared) = declared
            && let Some(file) = self.file_cache.find_file(declared.digest)
        {
            // A cached file with the listed digest is current. The frontmatter in the list can be another.
            skill.verify_file(resource, file.text.as_bytes(), file.digest)?;
            return Ok(file);
        }

        let fetched = self.fetch_verified(current, resource, location).await?;
        let text = String::from_utf8(fetched.content.bytes)
            .map_err(|_| ToolError::from_code(ToolErrorCode::NotText, "the file is not text"))?;
        let file = VerifiedFile {
            digest: fetched.digest,
            text: text.into(),
        };

        // A file without a listed digest cannot be checked later, so it is fetched for each page.
        if declared.is_some() {
            self.file_cache.insert_file(&file);
        }
        Ok(file)
    }

    /// Fetches and verifies a file of a skill, which need not be text.
    async fn fetch_verified(
        &self,
        current: &CurrentSkill<S::Link>,
        resource: &str,
        location: &str,
    ) -> Result<VerifiedContent, ToolError> {
        let CurrentSkill { skill, link } = current;
        let declared = skill.find_file(resource)?;
        let content = self.server.fetch_file(link, location, declared).await?;
        let digest = ContentDigest::of(&content.bytes);
        skill.verify_file(resource, &content.bytes, digest)?;
        Ok(VerifiedContent { content, digest })
    }

    /// Returns all files of a skill. The server says at the end, too, that these are the files.
    async fn fetch_declared_files(&self, package: &str) -> Result<Vec<FetchedFile>, ToolError> {
        let current = self.current_skill(package, self.limits.max_age).await?;
        let skill = &current.skill;
        if skill.declared.files.is_none() {
            return Err(undeclared_files_error());
        }
        skill.check_rejection()?;

        let mut files = Vec::new();
        for file in skill.declared_files() {
            let location = S::locate_file(skill, &file.resource)?;
            let fetch = self.fetch_verified(&current, &file.resource, &location);
            files.push(FetchedFile {
                bytes: self.run_in_time(fetch).await?.content.bytes,
                resource: file.resource,
            });
        }

        let confirmed = self
            .run_in_time(self.current_skill(package, Duration::ZERO))
            .await?;
        if confirmed.skill.is_same(skill) {
            return Ok(files);
        }
        Err(ToolError::from_code(
            ToolErrorCode::ResourceChanged,
            "the skill changed while its files were read",
        ))
    }

    /// Returns the skill of a package as the server declares it now, or at most the maximum age ago.
    async fn current_skill(
        &self,
        package: &str,
        max_age: Duration,
    ) -> Result<CurrentSkill<S::Link>, ToolError> {
        let state = self.state.borrow().clone();
        let mut current = state.find(package).cloned();
        let link = state
            .link
            .map_err(|reason| self.unavailable_error(&reason))?;
        if !S::owns_handle(self.server.id(), package) {
            return Err(wrong_authority_error());
        }

        if let Some(skill) = current.clone().filter(|known| known.age() <= max_age) {
            return Ok(CurrentSkill { skill, link });
        }
        let known = current.as_deref();
        let statement = self
            .server
            .request_statement(&link, package, known, &state.skills)
            .await?;

        if let Some(statement) = statement {
            self.state.send_if_modified(|state| match statement {
                SkillStatement::Served(skill) => state.replace_skill(package, Some(*skill)),
                SkillStatement::Gone => state.replace_skill(package, None),
                SkillStatement::Listed(listed) => state.store_list(Some(listed), &link),
            });
            current = self.find_skill(package);
        }
        Ok(CurrentSkill {
            skill: current.ok_or_else(unlisted_package_error)?,
            link,
        })
    }
}

impl<S: RemoteServer> SkillSource for RemoteSource<S> {
    fn kind(&self) -> SourceKind {
        S::KIND
    }

    fn id(&self) -> &str {
        self.server.id()
    }

    fn authorities(&self) -> Vec<String> {
        vec![self.server.id().to_owned()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        let state = self.state.borrow();
        SourceSnapshot {
            listing: state.listing.clone(),
            // A disabled server is no warning.
            unavailable_reason: state
                .link
                .as_ref()
                .err()
                .filter(|_| self.follow_task.is_some())
                .cloned(),
        }
    }

    fn changes(&self) -> SourceChanges {
        channel_changes(self.state.subscribe())
    }

    fn read_timeout(&self) -> Duration {
        self.limits.read_timeout
    }

    fn retry(&self) {
        self.server.retry();
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }

    fn owns_handle(&self, authority: &str, handle: &str) -> bool {
        S::owns_handle(authority, handle)
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(self.list_package_files(&request.package))
    }

    fn fetch_package<'a>(
        &'a self,
        package: &'a str,
    ) -> BoxFuture<'a, Result<Vec<FetchedFile>, ToolError>> {
        Box::pin(self.fetch_declared_files(package))
    }
}

fn not_verified_error(reason: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::NotVerified, reason)
}

/// Returns the error of a skill whose files are not declared: sites declare all files.
pub(super) fn undeclared_files_error() -> ToolError {
    unlisted_files_error("the MCP server does not declare the files of this skill")
}
