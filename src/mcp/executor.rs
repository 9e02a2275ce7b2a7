//! The executor behind the server: its catalog and its files, with a place for each call. What each
//! method of the protocol answers is made here; leaves the protocol itself to `handler`.

use super::address::Place;
use super::catalog::{Catalog, Listed, key};
use super::cursor::{self, List};
use super::fault::CallFault;
use super::feed::{Standing, State};
use super::files::{self, FileError, Manifest};
use super::limits::{
    CATALOG_WAIT, MAX_CALLS, MAX_ENTRY_BYTES, MAX_LISTENS, MAX_PAGE_BYTES, MAX_PAGE_ITEMS,
    MAX_WAITING_CALLS, PAGE_TIME,
};
use crate::client::{CallError, Client};
use crate::hidden::escape_hidden;
use crate::session::Session;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use rmcp::model::{
    ListResourcesResult, ListSkillsResult, MetaObject, Resource, ResourceContents, Skill,
    SkillFrontmatter, SkillResources,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};

/// Skills of a page whose files are asked for at once.
const ABREAST: usize = 8;
/// The media type of a SKILL.md.
const MARKDOWN: &str = "text/markdown";
/// In `_meta` of lists: what is not in them.
pub(super) const UNSEEN: &str = "caproot/unseen";
/// In `_meta` of lists: how many skills of this page's stretch are left out, and why.
const LEFT_OUT: &str = "caproot/leftOut";

/// A daemon's skills, for any number of sessions.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) client: Client,
    state: watch::Receiver<State>,
    tools: Option<Session>,
    waiting: Semaphore,
    calls: Semaphore,
    listens: Arc<Semaphore>,
}

/// The right of a call to be answered, with the catalog to answer it from. Given back when dropped.
pub(super) struct Turn<'a> {
    pub(super) catalog: Arc<Catalog>,
    _waiting: SemaphorePermit<'a>,
    _call: SemaphorePermit<'a>,
}

/// What `skills/list` has for one skill.
enum Shown {
    Skill(Box<Skill>, usize),
    LeftOut,
    /// Its policy forbids implicit invocation.
    OnlyToPersons,
    Gone,
}

impl Executor {
    pub(super) fn new(
        client: Client,
        state: watch::Receiver<State>,
        tools: Option<Session>,
    ) -> Self {
        Self {
            client,
            state,
            tools,
            waiting: Semaphore::new(MAX_WAITING_CALLS),
            calls: Semaphore::new(MAX_CALLS),
            listens: Arc::new(Semaphore::new(MAX_LISTENS)),
        }
    }

    /// The states from now on.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Whose tools are served, where they are.
    pub(super) fn tools(&self) -> Option<&Session> {
        self.tools.as_ref()
    }

    /// A place for one `subscriptions/listen`.
    pub(super) fn listen(&self) -> Result<OwnedSemaphorePermit, CallFault> {
        self.listens.clone().try_acquire_owned().map_err(|_| CallFault::Busy("subscriptions"))
    }

    /// `resources/list`: the SKILL.md of every skill that a model may use by itself.
    pub(super) async fn resources(
        &self,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, CallFault> {
        let turn = self.turn().await?;
        let rest = rest(&turn.catalog, List::Resources, cursor)?;
        let (mut page, mut bytes, mut policy) = (Vec::new(), 0, 0);
        for skill in rest.iter().take(MAX_PAGE_ITEMS) {
            if skill.prompt.is_some() {
                policy += 1;
                continue;
            }
            let resource = main_resource(skill);
            bytes += json_bytes(&resource);
            if bytes > MAX_PAGE_BYTES && !page.is_empty() {
                break;
            }
            page.push(resource);
        }
        let next = next(List::Resources, rest, page.len() + policy);
        let mut result = ListResourcesResult::with_all_items(page);
        result.next_cursor = next;
        let left_out = (policy > 0).then(|| json!({"policy": policy}));
        result.meta = meta([(UNSEEN, turn.catalog.unseen()), (LEFT_OUT, left_out)]);
        Ok(result)
    }

    /// `skills/list`: the skills that the standard allows, each with its files.
    pub(super) async fn skills(&self, cursor: Option<&str>) -> Result<ListSkillsResult, CallFault> {
        let turn = self.turn().await?;
        let rest = rest(&turn.catalog, List::Skills, cursor)?;
        let until = Instant::now() + PAGE_TIME;
        let catalog = &turn.catalog;
        let mut ahead = rest.iter().take(MAX_PAGE_ITEMS);
        let show = |skill| self.show_to_models(catalog, skill);
        let mut shown = FuturesOrdered::new();
        for skill in ahead.by_ref().take(ABREAST) {
            shown.push_back(show(skill));
        }
        let (mut page, mut bytes, mut passed) = (Vec::new(), 0, 0);
        let (mut names, mut taken, mut files, mut policy) = (0, 0, 0, 0);
        while let Some(one) = shown.next().await {
            if let Some(skill) = ahead.next() {
                shown.push_back(show(skill));
            }
            match one? {
                Shown::Skill(_, more) if bytes + more > MAX_PAGE_BYTES && !page.is_empty() => break,
                Shown::Skill(skill, more) => {
                    bytes += more;
                    page.push(*skill);
                }
                Shown::LeftOut => match rest[passed].place {
                    Place::BadName => names += 1,
                    Place::Taken => taken += 1,
                    Place::Skill(_) => files += 1,
                },
                Shown::OnlyToPersons => policy += 1,
                Shown::Gone => {}
            }
            passed += 1;
            if Instant::now() > until {
                break;
            }
        }
        let mut result = ListSkillsResult::with_all_items(page);
        result.next_cursor = next(List::Skills, rest, passed);
        let left_out = json!({"name": names, "uriTaken": taken, "files": files, "policy": policy});
        let left_out = (names + taken + files + policy > 0).then_some(left_out);
        result.meta = meta([(UNSEEN, catalog.unseen()), (LEFT_OUT, left_out)]);
        Ok(result)
    }

    /// `skills/get`: one of these.
    pub(super) async fn skill(&self, uri: &str) -> Result<Skill, CallFault> {
        let turn = self.turn().await?;
        let skill = turn.catalog.main(uri).ok_or(FileError::NotFound)?;
        match self.show(&turn.catalog, skill).await? {
            Shown::Skill(skill, _) => Ok(*skill),
            Shown::LeftOut | Shown::OnlyToPersons | Shown::Gone => Err(FileError::NotFound.into()),
        }
    }

    /// `resources/read`: any file of any skill.
    pub(super) async fn read(&self, uri: &str) -> Result<ResourceContents, CallFault> {
        let turn = self.turn().await?;
        let found = turn.catalog.find(uri).ok_or(FileError::NotFound)?;
        Ok(files::read(&mut self.client.clone(), uri, &found).await?)
    }

    /// `resources/directory/read`: the children of a skill's directory, or of one below it.
    pub(super) async fn directory(
        &self,
        uri: &str,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, CallFault> {
        let last = cursor.map(|cursor| {
            let parsed = cursor::parse(List::Directory, cursor);
            let (_, name, _) = parsed.filter(|(_, _, of)| of == uri).ok_or(CallFault::BadCursor)?;
            Ok::<_, CallFault>(name)
        });
        let last = last.transpose()?;
        let turn = self.turn().await?;
        let found = turn.catalog.find(uri).ok_or(FileError::NotADirectory)?;
        let children = files::children(&mut self.client.clone(), &found).await?;
        let rest =
            children.into_iter().filter(|child| last.as_ref().is_none_or(|last| child.uri > *last));
        let (mut page, mut bytes, mut more) = (Vec::<Resource>::new(), 0, false);
        for child in rest {
            bytes += json_bytes(&child);
            if page.len() == MAX_PAGE_ITEMS || (bytes > MAX_PAGE_BYTES && !page.is_empty()) {
                more = true;
                break;
            }
            page.push(child);
        }
        let last = page.last().filter(|_| more);
        let next = last.map(|last| cursor::behind(List::Directory, (0, &last.uri, uri)));
        let mut result = ListResourcesResult::with_all_items(page);
        result.next_cursor = next;
        Ok(result)
    }

    async fn show_to_models(&self, catalog: &Catalog, skill: &Listed) -> Result<Shown, CallError> {
        if skill.prompt.is_some() {
            return Ok(Shown::OnlyToPersons);
        }
        self.show(catalog, skill).await
    }

    async fn show(&self, catalog: &Catalog, skill: &Listed) -> Result<Shown, CallError> {
        let (Place::Skill(_), Some(author)) = (&skill.place, &skill.entry.author) else {
            return Ok(Shown::LeftOut);
        };
        let root = catalog.root_of(&skill.entry);
        let files = match files::manifest(&mut self.client.clone(), root, skill).await? {
            Manifest::Files(files) => SkillResources::Files(files),
            Manifest::LeftOut => return Ok(Shown::LeftOut),
            Manifest::Gone => return Ok(Shown::Gone),
        };
        let description = escape_hidden(&author.description);
        let mut frontmatter = SkillFrontmatter::new(&author.name, description);
        frontmatter.extra = author.others();
        let shown = Skill::new(skill.main_uri(), frontmatter, files);
        let bytes = json_bytes(&shown);
        // One that cannot be right would spoil the list for all.
        let fits = bytes <= MAX_ENTRY_BYTES && shown.validate().is_ok();
        Ok(if fits { Shown::Skill(Box::new(shown), bytes) } else { Shown::LeftOut })
    }

    pub(super) async fn turn(&self) -> Result<Turn<'_>, CallFault> {
        let waiting = self.waiting.try_acquire().map_err(|_| CallFault::Busy("calls"))?;
        let catalog = self.catalog().await?;
        let call = self.calls.acquire().await.map_err(|_| CallFault::Busy("calls"))?;
        Ok(Turn { catalog, _waiting: waiting, _call: call })
    }

    /// The daemon's current catalog, as soon as there is one.
    async fn catalog(&self) -> Result<Arc<Catalog>, CallFault> {
        let mut state = self.state.clone();
        let in_step = state.wait_for(|state| state.standing == Standing::InStep);
        if let Ok(Ok(state)) = timeout(CATALOG_WAIT, in_step).await {
            return Ok(state.catalog.clone());
        }
        Err(CallFault::NoCatalog(match &self.state.borrow().standing {
            Standing::Lost(cause) => cause.clone(),
            Standing::Begun | Standing::InStep => "its first search goes on".to_owned(),
        }))
    }
}

/// A SKILL.md as a resource.
fn main_resource(skill: &Listed) -> Resource {
    Resource::new(skill.main_uri(), escape_hidden(skill.name()))
        .with_description(escape_hidden(skill.entry.description()))
        .with_mime_type(MARKDOWN)
        .with_size(skill.entry.size)
}

/// The skills behind a cursor.
pub(super) fn rest<'a>(
    catalog: &'a Catalog,
    list: List,
    cursor: Option<&str>,
) -> Result<&'a [Listed], CallFault> {
    let Some(cursor) = cursor else { return Ok(catalog.after(None)) };
    let (root, name, package) = cursor::parse(list, cursor).ok_or(CallFault::BadCursor)?;
    Ok(catalog.after(Some((root, &name, &package))))
}

/// The cursor behind as many of these, if there are more.
pub(super) fn next(list: List, skills: &[Listed], passed: usize) -> Option<String> {
    let passed_last = skills.get(passed.checked_sub(1)?).filter(|_| passed < skills.len())?;
    Some(cursor::behind(list, key(&passed_last.entry)))
}

pub(super) fn meta<const N: usize>(said: [(&str, Option<Value>); N]) -> Option<MetaObject> {
    let said = said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let said: serde_json::Map<_, _> = said.collect();
    (!said.is_empty()).then_some(MetaObject(said))
}

pub(super) fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}
