//! Paged responses: requests page after page and joins the pages into one response. A daemon
//! cannot send pages without end.

use super::call::{CallError, Client, ServiceClient};
use crate::proto::caproot::v1::{
    ErrorReason, ListResourcesRequest, ListResourcesResponse, ListSkillsRequest,
    ListSkillsResponse, ResolveRootsRequest, ResolveRootsResponse,
};
use prost::Message;
use std::collections::HashSet;
use tonic::{Request, Response, Status};

/// How often a response starts again if its revision or version is gone.
const MAX_RESTARTS: usize = 3;
/// Maximum number of pages of one list: ten million entries at the daemon's default page size.
const MAX_PAGES: usize = 10_000;
/// Maximum size of one list: 20,000 skills of 50 KiB.
const MAX_BYTES: usize = 1 << 30;
/// Maximum size of a page token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Joiner of the pages of one response.
pub trait PageJoiner {
    type Request: Clone;
    type Page;

    fn set_token(request: &mut Self::Request, token: String);

    /// Adds a page. Returns the token of the next page; `None` after the last page.
    fn add_page(&mut self, page: Self::Page) -> Result<Option<String>, CallError>;
}

/// Page of a list.
pub trait ListPage: Message + Default {
    type Request: Clone;

    fn set_token(request: &mut Self::Request, token: String);

    fn next_token(&mut self) -> &mut String;

    /// Appends the next page. The error states why the pages do not belong together.
    fn append_page(&mut self, page: Self) -> Result<(), &'static str>;
}

/// Restarts of one response.
#[derive(Default)]
pub struct RestartCounter(usize);

/// Joiner of the pages of a list.
struct ListJoiner<P, E> {
    response: P,
    /// Whether no further page is needed.
    has_enough: E,
    /// Tokens so far, because a token that repeats would lead in a circle.
    tokens: HashSet<String>,
    pages: usize,
    bytes: usize,
}

impl RestartCounter {
    /// Counts a restart if the call failed for this reason. Returns whether the response starts
    /// again.
    pub fn restarts_after(&mut self, error: &CallError, reason: ErrorReason) -> bool {
        if error.reason() != Some(reason) || self.0 == MAX_RESTARTS {
            return false;
        }
        self.0 += 1;
        true
    }
}

/// Requests pages and adds them to the joiner, up to the last page.
pub async fn join_pages<J: PageJoiner, F: Future<Output = Result<J::Page, CallError>>>(
    joiner: &mut J,
    mut request: J::Request,
    call: impl Fn(J::Request) -> F,
) -> Result<(), CallError> {
    while let Some(token) = joiner.add_page(call(request.clone()).await?)? {
        J::set_token(&mut request, token);
    }
    Ok(())
}

/// Requests a list, and joins its pages into one response without a page token. If `has_enough`
/// is true for the pages so far, the response has the token of the next page instead.
pub async fn collect_list<P: ListPage, F: Future<Output = Result<Response<P>, Status>>>(
    client: &Client,
    request: &P::Request,
    call: impl Fn(ServiceClient, Request<P::Request>) -> F,
    has_enough: impl Fn(&P) -> bool,
) -> Result<P, CallError> {
    let call = &call;
    let call_page = |request| async move {
        Ok(client
            .call_with_retries::<P::Request, P, F>(request, call)
            .await?)
    };
    let mut restarts = RestartCounter::default();
    loop {
        let mut list = ListJoiner::new(&has_enough);
        match join_pages(&mut list, request.clone(), call_page).await {
            Ok(()) => return Ok(list.response),
            Err(error) if restarts.restarts_after(&error, ErrorReason::CatalogChanged) => {}
            Err(error) => return Err(error),
        }
    }
}

impl<P: ListPage, E: Fn(&P) -> bool> ListJoiner<P, E> {
    fn new(has_enough: E) -> Self {
        Self {
            response: P::default(),
            has_enough,
            tokens: HashSet::new(),
            pages: 0,
            bytes: 0,
        }
    }

    fn try_add_page(&mut self, mut page: P) -> Result<Option<String>, &'static str> {
        self.pages += 1;
        self.bytes = self.bytes.saturating_add(page.encoded_len());
        if self.bytes > MAX_BYTES {
            return Err("the list is over 1 GiB");
        }
        let token = std::mem::take(page.next_token());
        if self.pages == 1 {
            self.response = page;
        } else {
            self.response.append_page(page)?;
        }
        if token.is_empty() {
            return Ok(None);
        }
        if self.pages == MAX_PAGES {
            return Err("the list has more than 10,000 pages");
        }
        if token.len() > MAX_TOKEN_BYTES || !self.tokens.insert(token.clone()) {
            return Err("a page token repeats, or is over 16 KiB");
        }
        if (self.has_enough)(&self.response) {
            *self.response.next_token() = token;
            return Ok(None);
        }
        Ok(Some(token))
    }
}

impl<P: ListPage, E: Fn(&P) -> bool> PageJoiner for ListJoiner<P, E> {
    type Request = P::Request;
    type Page = P;

    fn set_token(request: &mut P::Request, token: String) {
        P::set_token(request, token);
    }

    fn add_page(&mut self, page: P) -> Result<Option<String>, CallError> {
        self.try_add_page(page).map_err(CallError::InvalidResponse)
    }
}

impl ListPage for ListSkillsResponse {
    type Request = ListSkillsRequest;

    fn set_token(request: &mut ListSkillsRequest, token: String) {
        request.page_token = token;
    }

    fn next_token(&mut self) -> &mut String {
        &mut self.next_page_token
    }

    fn append_page(&mut self, page: Self) -> Result<(), &'static str> {
        if (&page.epoch, page.revision) != (&self.epoch, self.revision) {
            return Err("the pages of one list are of different revisions");
        }
        self.skills.extend(page.skills);
        self.truncated |= page.truncated;
        Ok(())
    }
}

impl ListPage for ResolveRootsResponse {
    type Request = ResolveRootsRequest;

    fn set_token(request: &mut ResolveRootsRequest, token: String) {
        request.page_token = token;
    }

    fn next_token(&mut self) -> &mut String {
        &mut self.next_page_token
    }

    fn append_page(&mut self, page: Self) -> Result<(), &'static str> {
        let is_same = (&page.epoch, page.revision) == (&self.epoch, self.revision)
            && self
                .roots
                .iter()
                .map(|root| &root.id)
                .eq(page.roots.iter().map(|root| &root.id));
        if !is_same {
            return Err("the pages of one response are of different revisions or roots");
        }
        for (root, more) in self.roots.iter_mut().zip(page.roots) {
            root.plugins.extend(more.plugins);
            root.marketplaces.extend(more.marketplaces);
        }
        Ok(())
    }
}

impl ListPage for ListResourcesResponse {
    type Request = ListResourcesRequest;

    fn set_token(request: &mut ListResourcesRequest, token: String) {
        request.page_token = token;
    }

    fn next_token(&mut self) -> &mut String {
        &mut self.next_page_token
    }

    fn append_page(&mut self, page: Self) -> Result<(), &'static str> {
        let last = self.resources.last().map(|resource| &resource.resource);
        let first = page.resources.first().map(|resource| &resource.resource);
        if last.zip(first).is_some_and(|(last, first)| last >= first) {
            return Err("the pages of one list are not in order");
        }
        self.resources.extend(page.resources);
        self.truncated |= page.truncated;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ListJoiner, ListPage, MAX_PAGES};
    use crate::proto::caproot::v1::{
        ListResourcesResponse, ListSkillsResponse, Plugin, ResolveRootsResponse, ResolvedRoot,
        Resource, RootStatus, Skill,
    };

    fn skills(name: &str, next: &str) -> ListSkillsResponse {
        ListSkillsResponse {
            skills: vec![Skill {
                name: name.into(),
                ..Skill::default()
            }],
            roots: vec![RootStatus::default()],
            next_page_token: next.into(),
            ..ListSkillsResponse::default()
        }
    }

    fn plugins(root: &str, plugin: &str, next: &str) -> ResolveRootsResponse {
        let plugin = Plugin {
            name: plugin.into(),
            ..Plugin::default()
        };
        let root = ResolvedRoot {
            id: root.into(),
            plugins: vec![plugin],
            ..ResolvedRoot::default()
        };
        let next_page_token = next.into();
        ResolveRootsResponse {
            roots: vec![root],
            next_page_token,
            ..Default::default()
        }
    }

    fn resources(name: &str, next: &str) -> ListResourcesResponse {
        ListResourcesResponse {
            resources: vec![Resource {
                resource: name.into(),
                ..Resource::default()
            }],
            next_page_token: next.into(),
            ..ListResourcesResponse::default()
        }
    }

    /// Joins pages, and checks that each page but the last asks for the next.
    fn join<P: ListPage>(
        pages: impl IntoIterator<Item = P>,
        has_enough: impl Fn(&P) -> bool,
    ) -> Result<P, &'static str> {
        let mut list = ListJoiner::new(has_enough);
        for mut page in pages {
            let token = page.next_token().clone();
            match list.try_add_page(page)? {
                Some(next) => assert_eq!(next, token),
                None => break,
            }
        }
        Ok(list.response)
    }

    #[test]
    fn pages_are_joined() {
        let third = ListSkillsResponse {
            truncated: true,
            ..skills("c", "")
        };
        let list = join([skills("a", "1"), skills("b", "2"), third], |_| false).expect("a list");
        let names: Vec<_> = list
            .skills
            .iter()
            .map(|skill| skill.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!((list.roots.len(), list.truncated), (1, true));
        assert_eq!(list.next_page_token, "");

        let end = ListResourcesResponse {
            truncated: true,
            revision: 9,
            ..resources("b", "")
        };
        let list = join([resources("a", "1"), end], |_| false).expect("a list");
        let names: Vec<_> = list.resources.iter().map(|r| r.resource.as_str()).collect();
        assert_eq!((names, list.truncated), (vec!["a", "b"], true));
        assert_eq!((list.revision, list.next_page_token.as_str()), (0, ""));

        let list = join([plugins("r", "a", "1"), plugins("r", "b", "")], |_| false);
        let list = list.expect("a list");
        let names: Vec<_> = list.roots[0]
            .plugins
            .iter()
            .map(|p| p.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_list_with_enough_entries_has_the_next_token() {
        let pages = [resources("a", "1"), resources("b", "2"), resources("c", "")];
        let list = join(pages, |list| list.resources.len() > 1).expect("a list");
        assert_eq!(
            (list.resources.len(), list.next_page_token.as_str()),
            (2, "2")
        );
    }

    #[test]
    fn endless_lists_are_rejected() {
        let circle = [skills("a", "1"), skills("b", "2"), skills("c", "1")];
        assert!(join(circle, |_| false).is_err());
        let pages = (1..MAX_PAGES).map(|n| skills("a", &n.to_string()));
        assert!(join(pages.clone().chain([skills("a", "")]), |_| false).is_ok());
        assert!(join(pages.chain([skills("a", "last")]), |_| false).is_err());
    }

    #[test]
    fn pages_of_different_responses_are_rejected() {
        let other = ListSkillsResponse {
            revision: 7,
            ..skills("b", "2")
        };
        assert!(join([skills("a", "1"), other], |_| false).is_err());
        for (second, token) in [("b", "1"), ("a", "2"), ("", "2")] {
            let pages = [resources("a", "1"), resources(second, token)];
            assert!(join(pages, |_| false).is_err(), "{second:?} {token}");
        }
        let other = ResolveRootsResponse {
            revision: 7,
            ..plugins("r", "b", "")
        };
        for second in [plugins("other", "b", ""), other] {
            assert!(join([plugins("r", "a", "1"), second], |_| false).is_err());
        }
    }
}
