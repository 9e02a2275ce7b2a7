//! Methods of the MCP server: each method reads the view of the session, and a method that needs files takes
//! a permit.

use super::address::SkillAddress;
use super::call_error::McpCallError;
use super::connection::{ServedState, SyncState};
use super::cursor::{ListKind, McpListCursor};
use super::frontmatter::extra_fields;
use super::limits::{
    CATALOG_TIMEOUT, FIRST_LIST_TIMEOUT, LARGE_FILE_TIMEOUT, MAX_CALLS, MAX_ENTRY_BYTES,
    MAX_FILE_BYTES, MAX_LISTENS, MAX_PAGE_BYTES, MAX_PAGE_ITEMS, MAX_PAGE_TIME, MAX_WAITING_CALLS,
    SMALL_FILE_BYTES,
};
use super::texts::{ServerTexts, json_bytes};
use super::view::{ServedSkill, ServedView};
use crate::agent::mcp::ServedDaemon;
use crate::agent::mcp::files;
use caproot_core::text::escape_hidden_chars;
use caproot_session::{
    PluginDirectory, SkillDirectories, ToolError, ToolErrorCode, fill_placeholders,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use rmcp::model::{
    ContentBlock, GetPromptResult, ListPromptsResult, ListResourcesResult, ListSkillsResult,
    MetaObject, Prompt, PromptArgument, PromptMessage, Resource, ResourceContents, Role, Skill,
    SkillFrontmatter, SkillResources,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};

/// Skills of one page whose files are listed concurrently.
const MAX_CONCURRENT_LISTINGS: usize = 8;
/// Name of the argument of each prompt.
pub const PROMPT_ARGUMENTS: &str = "arguments";
/// Media type of a SKILL.md.
const MARKDOWN: &str = "text/markdown";
/// Key in `_meta` of lists: omissions of the whole view.
const OMISSIONS_META_KEY: &str = "caproot/omissions";
/// Key in `_meta` of lists: number of skills that this page omits, by reason.
const OMITTED_META_KEY: &str = "caproot/omitted";

/// Skills of a daemon, for any number of MCP sessions.
#[derive(Debug)]
pub struct McpBackend {
    pub state: watch::Receiver<ServedState>,
    pub texts: Arc<ServerTexts>,
    waiting_permits: Semaphore,
    call_permits: Semaphore,
    listen_permits: Arc<Semaphore>,
    /// Turn of a large file.
    large_file_turn: Arc<Semaphore>,
}

/// File for a response.
pub struct ServedFile {
    pub contents: ResourceContents,
    /// Turn of a large file, which ends once the host has read the response.
    pub turn: Option<OwnedSemaphorePermit>,
}

/// Permit of a call, with the view for its response. Released on drop.
struct CallPermit<'a> {
    daemon: Arc<ServedDaemon>,
    view: Arc<ServedView>,
    _waiting: SemaphorePermit<'a>,
    _call: SemaphorePermit<'a>,
}

/// Page of a list.
struct McpPage<T> {
    items: Vec<T>,
    /// Size of the items as JSON.
    bytes: usize,
    /// Number of skills that the page has or omits.
    passed: usize,
}

/// Numbers of skills that a page of `skills/list` omits, by reason.
#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OmittedSkills {
    name: usize,
    uri_taken: usize,
    files: usize,
    policy: usize,
}

/// Entry of `skills/list` for one skill.
enum SkillListItem {
    Skill(Box<Skill>, usize),
    Omitted,
    Gone,
}

impl OmittedSkills {
    /// Counts a skill that cannot be in the list.
    fn count_skill(&mut self, skill: &ServedSkill) {
        match skill.address {
            _ if !skill.is_offered() => self.policy += 1,
            SkillAddress::InvalidName => self.name += 1,
            SkillAddress::UriTaken => self.uri_taken += 1,
            SkillAddress::Uri(_) => self.files += 1,
        }
    }
}

impl<T: Serialize> McpPage<T> {
    fn new() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            passed: 0,
        }
    }

    /// Returns the first page of these skills. Skills without an item are omitted.
    fn fill(skills: &[ServedSkill], item: impl Fn(&ServedSkill) -> Option<T>) -> Self {
        let mut page = Self::new();
        for skill in skills {
            if let Some(item) = item(skill)
                && !page.add(item)
            {
                break;
            }
            page.passed += 1;
        }
        page
    }

    /// Adds an item. Returns whether the page has room; the first item always fits.
    fn add(&mut self, item: T) -> bool {
        let bytes = json_bytes(&item);
        self.add_with_size(item, bytes)
    }

    fn add_with_size(&mut self, item: T, bytes: usize) -> bool {
        self.bytes += bytes;
        let is_full = self.items.len() == MAX_PAGE_ITEMS
            || self.bytes > MAX_PAGE_BYTES && !self.items.is_empty();
        if !is_full {
            self.items.push(item);
        }
        !is_full
    }

    /// Returns the cursor of the next page of these skills, if more skills follow.
    fn next_cursor(&self, list: ListKind<'_>, skills: &[ServedSkill]) -> Option<String> {
        let passed = skills.get(self.passed.checked_sub(1)?)?;
        let has_more = self.passed < skills.len();
        has_more.then(|| list.encode_cursor(passed.sort_key()))
    }
}

impl McpBackend {
    pub fn new(state: watch::Receiver<ServedState>, texts: Arc<ServerTexts>) -> Self {
        Self {
            state,
            texts,
            waiting_permits: Semaphore::new(MAX_WAITING_CALLS),
            call_permits: Semaphore::new(MAX_CALLS),
            listen_permits: Arc::new(Semaphore::new(MAX_LISTENS)),
            large_file_turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the daemon whose session answers the calls of the tools. Waits until the daemon is there.
    pub async fn synced_daemon(&self) -> Result<Arc<ServedDaemon>, McpCallError> {
        let mut state = self.state.clone();
        let synced = state.wait_for(|state| state.sync == SyncState::Synced);
        if let Ok(Ok(state)) = timeout(CATALOG_TIMEOUT, synced).await
            && let Some(daemon) = &state.daemon
        {
            return Ok(daemon.clone());
        }
        let cause = self.lost_cause();
        let cause = cause
            .as_deref()
            .unwrap_or("the daemon has not sent its first list yet");
        let sentence = format!("the executor's skills are not available: {cause}; try again later");
        Err(ToolError::from_code(ToolErrorCode::ExecutorUnavailable, &sentence).into())
    }

    /// Returns the view of a list, without an error: the last one if the daemon is lost, an empty one if
    /// no daemon answers. Waits for a short time for the first view of a daemon that may answer.
    pub async fn listed_view(&self) -> Arc<ServedView> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| state.sync != SyncState::Connecting);
        // After the time, the client is told of the change.
        let _ = timeout(FIRST_LIST_TIMEOUT, settled).await;
        self.state.borrow().view.clone()
    }

    /// Returns why the daemon is lost, or never answered.
    fn lost_cause(&self) -> Option<String> {
        match &self.state.borrow().sync {
            SyncState::Lost(cause) => Some(cause.clone()),
            SyncState::Connecting | SyncState::Synced => None,
        }
    }

    /// Returns the metadata of a page: the omissions of the view, the reason if the daemon is lost, and what
    /// the page omits.
    fn page_meta(&self, view: &ServedView, omitted: Option<Value>) -> Option<MetaObject> {
        let mut omissions = view.omissions.clone();
        if let Some(cause) = self.lost_cause() {
            omissions.get_or_insert_with(|| json!({}))["executor"] =
                escape_hidden_chars(&cause).into();
        }
        let fields = [(OMISSIONS_META_KEY, omissions), (OMITTED_META_KEY, omitted)]
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let meta = MetaObject(fields.collect());
        (!meta.0.is_empty()).then_some(meta)
    }

    /// Takes a permit for one `subscriptions/listen`.
    pub fn acquire_listen_permit(&self) -> Result<OwnedSemaphorePermit, McpCallError> {
        self.listen_permits
            .clone()
            .try_acquire_owned()
            .map_err(|_| McpCallError::Busy("subscriptions"))
    }

    /// `resources/list`: the SKILL.md of every skill that a model may use by itself.
    pub fn list_resources(
        &self,
        view: &ServedView,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, McpCallError> {
        let rest = skills_after_cursor(view, ListKind::Resources, cursor)?;
        let page = McpPage::fill(rest, |skill| {
            skill.is_offered().then(|| {
                Resource::new(skill.main_uri(), skill.listed_name())
                    .with_description(skill.description())
                    .with_mime_type(MARKDOWN)
                    .with_size(skill.skill.size_bytes)
            })
        });

        let policy = page.passed - page.items.len();
        let omitted = (policy > 0).then(|| json!({"policy": policy}));
        let next_cursor = page.next_cursor(ListKind::Resources, rest);
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = next_cursor;
        result.meta = self.page_meta(view, omitted);
        Ok(result)
    }

    /// `skills/list`: the skills that the standard allows, each with its files.
    pub async fn list_skills(
        &self,
        view: &ServedView,
        cursor: Option<&str>,
    ) -> Result<ListSkillsResult, McpCallError> {
        if skills_after_cursor(view, ListKind::Skills, cursor)?.is_empty() {
            let mut result = ListSkillsResult::with_all_items(Vec::new());
            result.meta = self.page_meta(view, None);
            return Ok(result);
        }

        // Only the files of a skill need the daemon.
        let permit = self.acquire_call_permit().await?;

        // The view may have changed during the wait for the permit.
        let rest = skills_after_cursor(&permit.view, ListKind::Skills, cursor)?;
        let until = Instant::now() + MAX_PAGE_TIME;

        let mut pending = rest.iter().take(MAX_PAGE_ITEMS);
        // The order stays, because the cursor is the last skill that the page passed.
        let mut listed = FuturesOrdered::new();
        for skill in pending.by_ref().take(MAX_CONCURRENT_LISTINGS) {
            listed.push_back(permit.list_item_for_models(skill));
        }

        let mut page = McpPage::new();
        let mut omitted = OmittedSkills::default();
        while let Some(item) = listed.next().await {
            if let Some(skill) = pending.next() {
                listed.push_back(permit.list_item_for_models(skill));
            }

            match item? {
                SkillListItem::Skill(skill, bytes) => {
                    if !page.add_with_size(*skill, bytes) {
                        break;
                    }
                }
                SkillListItem::Omitted => omitted.count_skill(&rest[page.passed]),
                SkillListItem::Gone => {}
            }
            page.passed += 1;

            // The time is checked after a skill, so that each page passes at least one.
            if Instant::now() > until {
                break;
            }
        }

        let omitted = (omitted != OmittedSkills::default()).then(|| json!(omitted));
        let next_cursor = page.next_cursor(ListKind::Skills, rest);
        let mut result = ListSkillsResult::with_all_items(page.items);
        result.next_cursor = next_cursor;
        result.meta = self.page_meta(&permit.view, omitted);
        Ok(result)
    }

    /// `skills/get`: one skill of `skills/list`.
    pub async fn get_skill(&self, uri: &str) -> Result<Skill, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        let skill = permit.view.skill_by_main_uri(uri);
        match permit
            .list_item(skill.ok_or(McpCallError::NotFound)?)
            .await?
        {
            SkillListItem::Skill(skill, _) => Ok(*skill),
            SkillListItem::Omitted | SkillListItem::Gone => Err(McpCallError::NotFound),
        }
    }

    /// `resources/read`: a file of a skill.
    pub async fn read_resource(&self, uri: &str) -> Result<ServedFile, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        match permit.read_file(uri, SMALL_FILE_BYTES).await {
            Err(McpCallError::Source(error)) if error.code() == ToolErrorCode::TooLarge => {}
            read => {
                return Ok(ServedFile {
                    contents: read?,
                    turn: None,
                });
            }
        }

        // Small files get through while a host reads a large one.
        drop(permit);
        let turn = self.acquire_large_file_turn().await?;
        let permit = self.acquire_call_permit().await?;
        Ok(ServedFile {
            contents: permit.read_file(uri, MAX_FILE_BYTES).await?,
            turn: Some(turn),
        })
    }

    /// `resources/directory/read`: the children of a skill's directory, or of a directory below it.
    pub async fn read_directory(
        &self,
        uri: &str,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, McpCallError> {
        let kind = ListKind::Directory(uri);
        let last = cursor.map(|cursor| kind.decode_cursor(cursor).ok_or(McpCallError::BadCursor));
        let last = last.transpose()?.map(|McpListCursor(_, last, _)| last);

        let permit = self.acquire_call_permit().await?;
        let found = permit
            .view
            .resolve_uri(uri)
            .ok_or(McpCallError::NotADirectory)?;
        let children = files::list_children(&permit.daemon.session, &found).await?;

        let mut page = McpPage::new();
        let mut following = children
            .into_iter()
            .filter(|child| last.as_ref().is_none_or(|last| child.uri > *last));
        let has_more = following.any(|child| !page.add(child));

        let next = page
            .items
            .last()
            .filter(|_| has_more)
            .map(|child| kind.encode_cursor((0, &child.uri, "")));
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = next;
        Ok(result)
    }

    /// `prompts/list`: the skills that only a person may start.
    pub fn list_prompts(
        &self,
        view: &ServedView,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, McpCallError> {
        let rest = skills_after_cursor(view, ListKind::Prompts, cursor)?;
        let page = McpPage::fill(rest, |skill| {
            let name = skill.prompt_name.as_ref()?;
            let arguments = PromptArgument::new(PROMPT_ARGUMENTS)
                .with_description("Text for the skill, as the user wrote it")
                .with_required(false);
            Some(Prompt::new(
                name,
                Some(skill.description()),
                Some(vec![arguments]),
            ))
        });

        let next_cursor = page.next_cursor(ListKind::Prompts, rest);
        let mut result = ListPromptsResult::with_all_items(page.items);
        result.next_cursor = next_cursor;
        result.meta = self.page_meta(view, None);
        Ok(result)
    }

    /// `prompts/get`: the whole SKILL.md with the arguments of the user, for a model that follows it now.
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: &str,
    ) -> Result<GetPromptResult, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        let skill = permit
            .view
            .skill_by_prompt(name)
            .ok_or(McpCallError::UnknownPrompt)?;

        let mut file = permit
            .read_file(&skill.main_uri(), SMALL_FILE_BYTES)
            .await?;
        if let ResourceContents::TextResourceContents { text, .. } = &mut file {
            let directories = SkillDirectories {
                skill: skill.uri(),
                plugin: PluginDirectory::Skills(permit.view.uris_in_plugin(skill)),
            };
            *text = fill_placeholders(text, arguments, directories)
                .map_err(|error| McpCallError::BadPromptArguments(error.message().to_owned()))?;
        }
        let head = format!(
            "Use the skill `{}`, which the user started. Its SKILL.md follows; it may name other files of \
             the skill, which are resources below {}/.",
            skill.listed_name(),
            skill.uri()
        );

        let contents = [ContentBlock::text(head), ContentBlock::resource(file)];
        let messages = contents.map(|content| PromptMessage::new(Role::User, content));
        Ok(GetPromptResult::new(messages.into()).with_description(skill.description()))
    }

    async fn acquire_large_file_turn(&self) -> Result<OwnedSemaphorePermit, McpCallError> {
        let _waiting = self.acquire_waiting_permit()?;
        let turn = self.large_file_turn.clone().acquire_owned();
        match timeout(LARGE_FILE_TIMEOUT, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(McpCallError::Busy("large files")),
        }
    }

    fn acquire_waiting_permit(&self) -> Result<SemaphorePermit<'_>, McpCallError> {
        self.waiting_permits
            .try_acquire()
            .map_err(|_| McpCallError::Busy("calls"))
    }

    async fn acquire_call_permit(&self) -> Result<CallPermit<'_>, McpCallError> {
        // This permit comes first, so that calls that wait for the daemon are limited, too.
        let waiting = self.acquire_waiting_permit()?;
        let daemon = self.synced_daemon().await?;
        let call = self
            .call_permits
            .acquire()
            .await
            .map_err(|_| McpCallError::Busy("calls"))?;

        // Both of one moment: a view is of its daemon's session.
        let state = self.state.borrow();
        let daemon = state.daemon.clone().unwrap_or(daemon);
        Ok(CallPermit {
            daemon,
            view: state.view.clone(),
            _waiting: waiting,
            _call: call,
        })
    }
}

impl CallPermit<'_> {
    async fn read_file(
        &self,
        uri: &str,
        max_bytes: usize,
    ) -> Result<ResourceContents, McpCallError> {
        let found = self.view.resolve_uri(uri).ok_or(McpCallError::NotFound)?;
        files::read_file(&self.daemon.session, uri, &found, max_bytes).await
    }

    /// Returns the entry of a skill, or `Omitted` if no model may choose the skill by itself.
    async fn list_item_for_models(
        &self,
        skill: &ServedSkill,
    ) -> Result<SkillListItem, McpCallError> {
        if !skill.is_offered() {
            return Ok(SkillListItem::Omitted);
        }
        self.list_item(skill).await
    }

    async fn list_item(&self, skill: &ServedSkill) -> Result<SkillListItem, McpCallError> {
        let (SkillAddress::Uri(_), Some(author)) = (&skill.address, skill.author_texts()) else {
            return Ok(SkillListItem::Omitted);
        };
        let files = match files::list_skill_files(&self.daemon.session, skill).await {
            Ok(Some(files)) => SkillResources::Files(files),
            Err(McpCallError::NotFound) => return Ok(SkillListItem::Gone),
            Err(error) if error.is_temporary() => return Err(error),
            // One unreadable skill must not fail the whole page.
            Ok(None) | Err(_) => return Ok(SkillListItem::Omitted),
        };

        let description = escape_hidden_chars(author.description);
        let mut frontmatter = SkillFrontmatter::new(author.name, description);
        frontmatter.extra = extra_fields(&skill.skill);
        let shown = Skill::new(skill.main_uri(), frontmatter, files);
        let bytes = json_bytes(&shown);

        // One invalid entry would make clients reject the whole list.
        let fits = bytes <= MAX_ENTRY_BYTES && shown.validate().is_ok();
        Ok(if fits {
            SkillListItem::Skill(Box::new(shown), bytes)
        } else {
            SkillListItem::Omitted
        })
    }
}

/// Returns the skills after a cursor.
fn skills_after_cursor<'a>(
    view: &'a ServedView,
    list: ListKind<'_>,
    cursor: Option<&str>,
) -> Result<&'a [ServedSkill], McpCallError> {
    let Some(cursor) = cursor else {
        return Ok(view.skills_after(None));
    };
    let McpListCursor(root, name, package) =
        list.decode_cursor(cursor).ok_or(McpCallError::BadCursor)?;
    Ok(view.skills_after(Some((root, &name, &package))))
}
