//! Methods of the MCP server: each method takes a permit, reads the catalog and asks the daemon for
//! files.

use super::ServedDaemon;
use super::address::SkillAddress;
use super::call_error::McpCallError;
use super::catalog::{McpCatalog, ServedSkill};
use super::cursor::{ListKind, McpListCursor};
use super::feed::{FeedState, SyncState};
use super::files::{self, FileError, SkillFiles};
use super::frontmatter::extra_fields;
use super::limits::{
    CATALOG_TIMEOUT, FIRST_LIST_TIMEOUT, MAX_CALLS, MAX_ENTRY_BYTES, MAX_LISTENS, MAX_PAGE_BYTES,
    MAX_PAGE_ITEMS, MAX_PAGE_TIME, MAX_WAITING_CALLS,
};
use super::texts::{ServerTexts, json_bytes};
use caproot_client::CallError;
use caproot_core::text::escape_hidden_chars;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use rmcp::model::{
    ContentBlock, GetPromptResult, ListPromptsResult, ListResourcesResult, ListSkillsResult,
    MetaObject, Prompt, PromptMessage, Resource, ResourceContents, Role, Skill, SkillFrontmatter,
    SkillResources, Tool,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};

/// Skills of one page whose files are listed concurrently.
const MAX_CONCURRENT_LISTINGS: usize = 8;
/// Media type of a SKILL.md.
const MARKDOWN: &str = "text/markdown";
/// Key in `_meta` of lists: omissions of the whole catalog.
const OMISSIONS_META_KEY: &str = "caproot/omissions";
/// Key in `_meta` of lists: number of skills that this page omits, by reason.
const OMITTED_META_KEY: &str = "caproot/omitted";

/// Skills of a daemon, for any number of MCP sessions.
#[derive(Debug)]
pub struct McpBackend {
    state: watch::Receiver<FeedState>,
    texts: Arc<ServerTexts>,
    waiting_permits: Semaphore,
    call_permits: Semaphore,
    listen_permits: Arc<Semaphore>,
}

/// Permit of a call, with the catalog for its response. Released on drop.
struct CallPermit<'a> {
    daemon: Arc<ServedDaemon>,
    catalog: Arc<McpCatalog>,
    _waiting: SemaphorePermit<'a>,
    _call: SemaphorePermit<'a>,
}

/// Page of a list.
struct McpPage<T> {
    items: Vec<T>,
    /// Size of the items as JSON.
    bytes: usize,
}

/// Numbers of skills that a page omits, by reason.
#[derive(Default)]
struct OmittedSkills {
    names: usize,
    taken: usize,
    files: usize,
    policy: usize,
}

/// Entry of `skills/list` for one skill.
enum SkillListItem {
    Skill(Box<Skill>, usize),
    Omitted,
    /// No model may choose the skill by itself.
    HiddenFromModels,
    Gone,
}

impl<T> Default for McpPage<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
        }
    }
}

impl<T: Serialize> McpPage<T> {
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
}

impl OmittedSkills {
    /// Counts a skill that cannot be in the list.
    fn count_omitted(&mut self, address: &SkillAddress) {
        match address {
            SkillAddress::InvalidName => self.names += 1,
            SkillAddress::UriTaken => self.taken += 1,
            SkillAddress::Uri(_) => self.files += 1,
        }
    }

    fn to_json(&self) -> Option<Value> {
        let Self {
            names,
            taken,
            files,
            policy,
        } = self;
        (names + taken + files + policy > 0)
            .then(|| json!({"name": names, "uriTaken": taken, "files": files, "policy": policy}))
    }
}

impl McpBackend {
    pub fn new(state: watch::Receiver<FeedState>, texts: Arc<ServerTexts>) -> Self {
        Self {
            state,
            texts,
            waiting_permits: Semaphore::new(MAX_WAITING_CALLS),
            call_permits: Semaphore::new(MAX_CALLS),
            listen_permits: Arc::new(Semaphore::new(MAX_LISTENS)),
        }
    }

    /// Returns a receiver of the states from now on.
    pub fn state_receiver(&self) -> watch::Receiver<FeedState> {
        self.state.clone()
    }

    /// Whether the server has tools.
    pub fn has_tools(&self) -> bool {
        self.texts.tools.is_some()
    }

    /// Returns the instructions, with the names of the skills of now.
    pub fn instructions(&self) -> String {
        self.texts.instructions(self.state.borrow().catalog.names())
    }

    /// Returns the tools, with the skills of a catalog in the description of the read tool.
    pub fn list_tools(&self, catalog: &McpCatalog) -> Vec<Tool> {
        self.texts.tools(catalog.names())
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
        Err(self.unavailable_error())
    }

    /// Returns the catalog of a list, without an error: the last one if the daemon is lost, an empty one if
    /// no daemon answers. Waits for a short time for the first catalog of a daemon that may answer.
    pub async fn listed_catalog(&self) -> Arc<McpCatalog> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| state.sync != SyncState::Connecting);
        // After the time, the client is told of the change.
        let _ = timeout(FIRST_LIST_TIMEOUT, settled).await;
        self.state.borrow().catalog.clone()
    }

    /// Returns the error that the daemon is lost, or never answered.
    fn unavailable_error(&self) -> McpCallError {
        McpCallError::CatalogUnavailable(match &self.state.borrow().sync {
            SyncState::Lost(cause) => cause.clone(),
            SyncState::Connecting | SyncState::Synced => {
                "the daemon has not sent its first list yet".to_owned()
            }
        })
    }

    /// Returns the omissions of a list: those of the catalog, and the reason if the daemon is lost.
    fn omissions(&self, catalog: &McpCatalog) -> Option<Value> {
        let lost = match &self.state.borrow().sync {
            SyncState::Lost(cause) => Some(escape_hidden_chars(cause).into_owned()),
            SyncState::Connecting | SyncState::Synced => None,
        };
        match (catalog.omissions(), lost) {
            (omissions, None) => omissions,
            (None, Some(cause)) => Some(json!({ "executor": cause })),
            (Some(mut omissions), Some(cause)) => {
                omissions["executor"] = cause.into();
                Some(omissions)
            }
        }
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
        catalog: &McpCatalog,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, McpCallError> {
        let rest = skills_after_cursor(catalog, ListKind::Resources, cursor)?;

        let mut page = McpPage::default();
        let mut policy = 0;
        for skill in rest.iter().take(MAX_PAGE_ITEMS) {
            if !skill.is_offered() {
                policy += 1;
            } else if !page.add(main_resource(catalog, skill)) {
                break;
            }
        }

        let next = next_cursor(ListKind::Resources, rest, page.items.len() + policy);
        let left_out = (policy > 0).then(|| json!({"policy": policy}));
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = next;
        result.meta = meta_object([
            (OMISSIONS_META_KEY, self.omissions(catalog)),
            (OMITTED_META_KEY, left_out),
        ]);
        Ok(result)
    }

    /// `skills/list`: the skills that the standard allows, each with its files.
    pub async fn list_skills(
        &self,
        catalog: &McpCatalog,
        cursor: Option<&str>,
    ) -> Result<ListSkillsResult, McpCallError> {
        if skills_after_cursor(catalog, ListKind::Skills, cursor)?.is_empty() {
            let mut result = ListSkillsResult::with_all_items(Vec::new());
            result.meta = meta_object([(OMISSIONS_META_KEY, self.omissions(catalog))]);
            return Ok(result);
        }

        // Only the files of a skill need the daemon.
        let permit = self.acquire_call_permit().await?;
        let rest = skills_after_cursor(&permit.catalog, ListKind::Skills, cursor)?;
        let until = Instant::now() + MAX_PAGE_TIME;

        let mut pending = rest.iter().take(MAX_PAGE_ITEMS);
        let mut listed = FuturesOrdered::new();
        for skill in pending.by_ref().take(MAX_CONCURRENT_LISTINGS) {
            listed.push_back(permit.list_item_for_models(skill));
        }

        let mut page = McpPage::default();
        let mut omitted = OmittedSkills::default();
        let mut passed = 0;
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
                SkillListItem::Omitted => omitted.count_omitted(&rest[passed].address),
                SkillListItem::HiddenFromModels => omitted.policy += 1,
                SkillListItem::Gone => {}
            }
            passed += 1;
            if Instant::now() > until {
                break;
            }
        }

        let mut result = ListSkillsResult::with_all_items(page.items);
        result.next_cursor = next_cursor(ListKind::Skills, rest, passed);
        result.meta = meta_object([
            (OMISSIONS_META_KEY, self.omissions(&permit.catalog)),
            (OMITTED_META_KEY, omitted.to_json()),
        ]);
        Ok(result)
    }

    /// `skills/get`: one skill of `skills/list`.
    pub async fn get_skill(&self, uri: &str) -> Result<Skill, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        let skill = permit
            .catalog
            .skill_by_main_uri(uri)
            .ok_or(FileError::NotFound)?;
        match permit.list_item(skill).await? {
            SkillListItem::Skill(skill, _) => Ok(*skill),
            SkillListItem::Omitted | SkillListItem::HiddenFromModels | SkillListItem::Gone => {
                Err(FileError::NotFound.into())
            }
        }
    }

    /// `resources/read`: a file of a skill.
    pub async fn read_resource(&self, uri: &str) -> Result<ResourceContents, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        let found = permit.catalog.resolve_uri(uri).ok_or(FileError::NotFound)?;
        Ok(files::read_file(&permit.daemon, uri, &found).await?)
    }

    /// `resources/directory/read`: the children of a skill's directory, or of a directory below it.
    pub async fn read_directory(
        &self,
        uri: &str,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, McpCallError> {
        let kind = ListKind::Directory(uri);
        let last = match cursor {
            None => None,
            Some(cursor) => {
                let McpListCursor(_, last, _) =
                    kind.decode_cursor(cursor).ok_or(McpCallError::BadCursor)?;
                Some(last)
            }
        };

        let permit = self.acquire_call_permit().await?;
        let found = permit
            .catalog
            .resolve_uri(uri)
            .ok_or(FileError::NotADirectory)?;
        let children = files::list_children(&mut permit.daemon.client.clone(), &found).await?;

        let mut page = McpPage::default();
        let mut has_more = false;
        for child in children {
            if last.as_ref().is_some_and(|last| child.uri <= *last) {
                continue;
            }
            if !page.add(child) {
                has_more = true;
                break;
            }
        }

        let shown_last = page.items.last().filter(|_| has_more);
        let next = shown_last.map(|child| kind.encode_cursor((0, &child.uri, "")));
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = next;
        Ok(result)
    }

    /// `prompts/list`: the skills that only a person may start.
    pub fn list_prompts(
        &self,
        catalog: &McpCatalog,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, McpCallError> {
        let rest = skills_after_cursor(catalog, ListKind::Prompts, cursor)?;

        let mut page = McpPage::default();
        let mut passed = 0;
        for skill in rest {
            if let Some(name) = &skill.prompt_name
                && !page.add(Prompt::new(name, Some(description(catalog, skill)), None))
            {
                break;
            }
            passed += 1;
        }

        let mut result = ListPromptsResult::with_all_items(page.items);
        result.next_cursor = next_cursor(ListKind::Prompts, rest, passed);
        result.meta = meta_object([(OMISSIONS_META_KEY, self.omissions(catalog))]);
        Ok(result)
    }

    /// `prompts/get`: the whole SKILL.md, for a model that follows it now.
    pub async fn get_prompt(&self, name: &str) -> Result<GetPromptResult, McpCallError> {
        let permit = self.acquire_call_permit().await?;
        let skill = permit
            .catalog
            .skill_by_prompt(name)
            .ok_or(McpCallError::UnknownPrompt)?;

        let uri = skill.main_uri();
        let found = permit
            .catalog
            .resolve_uri(&uri)
            .ok_or(FileError::NotFound)?;

        let text = files::read_file(&permit.daemon, &uri, &found).await?;
        let head = format!(
            "Use the skill `{}`, which the user started. Its SKILL.md follows; it may name other files of \
             the skill, which are resources below {}/.",
            escape_hidden_chars(permit.catalog.listed_name(skill)),
            skill.uri()
        );

        let contents = [ContentBlock::text(head), ContentBlock::resource(text)];
        let messages = contents.map(|content| PromptMessage::new(Role::User, content));
        Ok(GetPromptResult::new(messages.into())
            .with_description(description(&permit.catalog, skill)))
    }

    async fn acquire_call_permit(&self) -> Result<CallPermit<'_>, McpCallError> {
        let waiting = self
            .waiting_permits
            .try_acquire()
            .map_err(|_| McpCallError::Busy("calls"))?;
        let daemon = self.synced_daemon().await?;
        let call = self
            .call_permits
            .acquire()
            .await
            .map_err(|_| McpCallError::Busy("calls"))?;

        // Both of one moment: the indexes of a catalog are those of its daemon's selection.
        let state = self.state.borrow();
        let daemon = state.daemon.clone().unwrap_or(daemon);
        Ok(CallPermit {
            daemon,
            catalog: state.catalog.clone(),
            _waiting: waiting,
            _call: call,
        })
    }
}

impl CallPermit<'_> {
    async fn list_item_for_models(&self, skill: &ServedSkill) -> Result<SkillListItem, CallError> {
        if !skill.is_offered() {
            return Ok(SkillListItem::HiddenFromModels);
        }
        self.list_item(skill).await
    }

    async fn list_item(&self, skill: &ServedSkill) -> Result<SkillListItem, CallError> {
        let (SkillAddress::Uri(_), Some(author)) =
            (&skill.address, self.catalog.author_texts(skill))
        else {
            return Ok(SkillListItem::Omitted);
        };
        let Some(found) = self.catalog.resolve_skill(skill) else {
            return Ok(SkillListItem::Gone);
        };

        let client = &mut self.daemon.client.clone();
        let files = match files::list_skill_files(client, &found).await? {
            SkillFiles::Files(files) => SkillResources::Files(files),
            SkillFiles::Omitted => return Ok(SkillListItem::Omitted),
            SkillFiles::Gone => return Ok(SkillListItem::Gone),
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

/// Returns a SKILL.md as a resource.
fn main_resource(catalog: &McpCatalog, skill: &ServedSkill) -> Resource {
    Resource::new(
        skill.main_uri(),
        escape_hidden_chars(catalog.listed_name(skill)),
    )
    .with_description(description(catalog, skill))
    .with_mime_type(MARKDOWN)
    .with_size(skill.skill.size_bytes)
}

/// Returns the skills after a cursor.
fn skills_after_cursor<'a>(
    catalog: &'a McpCatalog,
    list: ListKind<'_>,
    cursor: Option<&str>,
) -> Result<&'a [ServedSkill], McpCallError> {
    let Some(cursor) = cursor else {
        return Ok(catalog.skills_after(None));
    };
    let McpListCursor(root, name, package) =
        list.decode_cursor(cursor).ok_or(McpCallError::BadCursor)?;
    Ok(catalog.skills_after(Some((root, &name, &package))))
}

/// Returns the cursor after `passed` of the skills, if more skills follow.
fn next_cursor(list: ListKind<'_>, skills: &[ServedSkill], passed: usize) -> Option<String> {
    let passed_last = skills
        .get(passed.checked_sub(1)?)
        .filter(|_| passed < skills.len())?;
    Some(list.encode_cursor(passed_last.sort_key()))
}

fn meta_object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Option<MetaObject> {
    let fields: serde_json::Map<_, _> = entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect();
    (!fields.is_empty()).then_some(MetaObject(fields))
}

fn description(catalog: &McpCatalog, skill: &ServedSkill) -> String {
    escape_hidden_chars(catalog.description(skill)).into_owned()
}
