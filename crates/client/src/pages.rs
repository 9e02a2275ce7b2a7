//! Paged responses: requests page after page and joins the pages into one response. A daemon
//! cannot send pages without end.

use super::call::{CallError, Client};
use super::grpc_call::{ResponseTooLarge, ServiceRequest};
use crate::connect::response_budget::MAX_LIST_MEMORY;
use caproot_core::proto::NamedMessage;
use caproot_core::proto::caproot::v1::{
    ErrorReason, ListResourcesRequest, ListResourcesResponse, ListSkillsRequest,
    ListSkillsResponse, Plugin, ResolveRootsRequest, ResolveRootsResponse, Skill,
};
use caproot_core::wire::handle::{format_server_handle, is_canonical_of_root};
use caproot_core::wire::limits::MAX_PAGE_SIZE;
use std::collections::HashSet;

/// How often a response starts again if its revision or version is gone.
const MAX_RESTARTS: usize = 3;
/// Maximum number of pages of one list: ten million entries at the daemon's default page size.
const MAX_PAGES: usize = 10_000;
/// How much smaller the pages get if one takes too much memory.
const SHRINK_FACTOR: usize = 32;
/// Maximum size of a page token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Page of a list.
pub trait ListPage: NamedMessage {
    type Request: ServiceRequest<Response = Self>;

    fn set_token(request: &mut Self::Request, token: String);

    fn next_token(&mut self) -> &mut String;

    /// Checks that the page belongs to the request. The error is the violation of the protocol.
    fn check_page(&self, request: &Self::Request) -> Result<(), &'static str>;

    /// Appends the next page. The error states why the pages do not belong together.
    fn append_page(&mut self, page: Self) -> Result<(), &'static str>;

    /// Returns the size of the pages, if the list may have smaller pages.
    fn page_size_mut(request: &mut Self::Request) -> Option<&mut i32>;
}

/// Restarts of one response.
#[derive(Default)]
pub struct RestartCounter(usize);

/// Joiner of the pages of a list.
struct ListJoiner<P: ListPage, E> {
    request: P::Request,
    response: P,
    /// Whether no further page is needed.
    has_enough: E,
    /// Tokens so far, because a token that repeats would lead in a circle.
    tokens: HashSet<String>,
    pages: usize,
    /// Memory of the pages so far.
    memory: usize,
}

impl RestartCounter {
    /// Counts a restart. Returns whether the response may start again.
    pub fn try_restart(&mut self) -> bool {
        self.0 += 1;
        self.0 <= MAX_RESTARTS
    }
}

/// Requests a list, and joins its pages into one response without a page token. If `has_enough`
/// is true for the pages so far, the response has the token of the next page instead.
///
/// If a page takes too much memory, the list starts again with smaller pages: an author can make
/// skills that are costly in memory, and a page may have many of them.
pub async fn collect_list<P: ListPage>(
    client: &Client,
    request: &P::Request,
    has_enough: impl Fn(&P) -> bool,
) -> Result<P, CallError> {
    let mut sized_request = request.clone();
    let mut restarts = RestartCounter::default();
    loop {
        let mut list = ListJoiner::new(&sized_request, &has_enough);
        match list.request_pages(client).await {
            Ok(()) => return Ok(list.response),
            Err(error)
                if error.reason() == Some(ErrorReason::CatalogChanged)
                    && restarts.try_restart() => {}
            Err(CallError::Status(status))
                if ResponseTooLarge::is_cause_of(&status)
                    && shrink_pages::<P>(&mut sized_request) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the pages of a request smaller. Returns whether they can be smaller.
fn shrink_pages<P: ListPage>(request: &mut P::Request) -> bool {
    let Some(size) = P::page_size_mut(request) else {
        return false;
    };
    let before = match usize::try_from(*size) {
        Ok(size @ 1..=MAX_PAGE_SIZE) => size,
        _ => MAX_PAGE_SIZE,
    };
    let smaller = (before / SHRINK_FACTOR).max(1);
    *size = i32::try_from(smaller).unwrap_or(1);
    smaller < before
}

impl<P: ListPage, E: Fn(&P) -> bool> ListJoiner<P, E> {
    fn new(request: &P::Request, has_enough: E) -> Self {
        Self {
            request: request.clone(),
            response: P::default(),
            has_enough,
            tokens: HashSet::new(),
            pages: 0,
            memory: 0,
        }
    }

    /// Requests pages and adds them, up to the last page.
    async fn request_pages(&mut self, client: &Client) -> Result<(), CallError> {
        loop {
            let page = client.call_with_retries(self.request.clone()).await?;
            let added = self.add_page(page.message, page.memory);
            let Some(token) = added.map_err(CallError::InvalidResponse)? else {
                return Ok(());
            };
            P::set_token(&mut self.request, token);
        }
    }

    /// Adds a page. Returns the token of the next page; `None` after the last page.
    fn add_page(&mut self, mut page: P, memory: usize) -> Result<Option<String>, &'static str> {
        self.pages += 1;
        self.memory = self.memory.saturating_add(memory);
        if self.memory > MAX_LIST_MEMORY {
            return Err(
                "the list takes over 256 MiB of memory; list fewer roots, or list with \
                 SKILL_VIEW_BASIC",
            );
        }

        page.check_page(&self.request)?;
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

    fn check_page(&self, request: &ListSkillsRequest) -> Result<(), &'static str> {
        if self.skills.len() > MAX_PAGE_SIZE {
            return Err("a page has over 1,000 skills");
        }
        let roots = &request.selected_capability_roots;
        if self.roots.len() > roots.len() {
            return Err("a page has the states of more roots than were selected");
        }
        let is_selected = |skill| roots.iter().any(|root| is_skill_of_root(skill, &root.id));
        if !self.skills.iter().all(is_selected) {
            return Err("a skill is of a root that was not selected, or has an invalid handle");
        }
        Ok(())
    }

    fn page_size_mut(request: &mut ListSkillsRequest) -> Option<&mut i32> {
        Some(&mut request.page_size)
    }
}

/// Whether a skill belongs to a root, with canonical handles.
pub fn is_skill_of_root(skill: &Skill, root: &str) -> bool {
    let authority = skill.authority.as_ref();
    authority.is_some_and(|authority| authority.id == root)
        && is_canonical_of_root(&skill.package, root)
        && is_canonical_of_root(&skill.main_resource, root)
}

/// Whether a plugin belongs to a root, with canonical handles and a name without a slash.
pub fn is_plugin_of_root(plugin: &Plugin, root: &str) -> bool {
    is_canonical_of_root(&plugin.package, root)
        && !plugin.name.contains('/')
        && plugin
            .mcp_servers
            .iter()
            .all(|server| server.handle == format_server_handle(&plugin.package, &server.name))
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

    fn check_page(&self, request: &ResolveRootsRequest) -> Result<(), &'static str> {
        if self.roots.len() > request.selected_capability_roots.len() {
            return Err("a page has more roots than were selected");
        }
        let mut plugins = self
            .roots
            .iter()
            .flat_map(|root| root.plugins.iter().map(|plugin| (&root.id, plugin)));
        if !plugins.all(|(root, plugin)| is_plugin_of_root(plugin, root)) {
            return Err("a plugin is of another root, or has an invalid name or handle");
        }
        Ok(())
    }

    fn page_size_mut(request: &mut ResolveRootsRequest) -> Option<&mut i32> {
        Some(&mut request.page_size)
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
        self.withheld.extend(page.withheld);
        self.truncated |= page.truncated;
        Ok(())
    }

    fn check_page(&self, _: &ListResourcesRequest) -> Result<(), &'static str> {
        if self.resources.len() + self.withheld.len() > MAX_PAGE_SIZE {
            return Err("a page has over 1,000 files");
        }
        Ok(())
    }

    fn page_size_mut(_: &mut ListResourcesRequest) -> Option<&mut i32> {
        // A thousand files are cheap.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{ListJoiner, ListPage, MAX_LIST_MEMORY, MAX_PAGES, shrink_pages};
    use caproot_core::proto::caproot::v1::{
        Authority, ListResourcesRequest, ListResourcesResponse, ListSkillsRequest,
        ListSkillsResponse, Plugin, ResolveRootsRequest, ResolveRootsResponse, ResolvedRoot,
        Resource, RootStatus, SelectedCapabilityRoot, Skill,
    };

    /// Request for the roots `r` and `other`.
    trait TestRequest {
        fn for_roots() -> Self;
    }

    fn selected_roots() -> Vec<SelectedCapabilityRoot> {
        let root = |id: &str| SelectedCapabilityRoot {
            id: id.into(),
            ..SelectedCapabilityRoot::default()
        };
        vec![root("r"), root("other")]
    }

    impl TestRequest for ListSkillsRequest {
        fn for_roots() -> Self {
            Self {
                selected_capability_roots: selected_roots(),
                ..Self::default()
            }
        }
    }

    impl TestRequest for ResolveRootsRequest {
        fn for_roots() -> Self {
            Self {
                selected_capability_roots: selected_roots(),
                ..Self::default()
            }
        }
    }

    impl TestRequest for ListResourcesRequest {
        fn for_roots() -> Self {
            Self::default()
        }
    }

    fn skill(root: &str, package: &str) -> Skill {
        Skill {
            authority: Some(Authority {
                kind: "executor".into(),
                id: root.into(),
            }),
            package: package.into(),
            main_resource: format!("{package}/SKILL.md"),
            ..Skill::default()
        }
    }

    fn skills(name: &str, next: &str) -> ListSkillsResponse {
        ListSkillsResponse {
            skills: vec![Skill {
                name: name.into(),
                ..skill("r", "skill://r/a")
            }],
            roots: vec![RootStatus::default()],
            next_page_token: next.into(),
            ..ListSkillsResponse::default()
        }
    }

    fn plugins(root: &str, plugin: &str, next: &str) -> ResolveRootsResponse {
        let plugin = Plugin {
            name: plugin.into(),
            package: format!("skill://{root}/{plugin}"),
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
    ) -> Result<P, &'static str>
    where
        P::Request: TestRequest,
    {
        let mut list = ListJoiner::new(&P::Request::for_roots(), has_enough);
        for mut page in pages {
            let token = page.next_token().clone();
            match list.add_page(page, 1)? {
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

    #[test]
    fn skills_of_other_roots_are_rejected() {
        for (root, package) in [
            ("q", "skill://q/a"),
            ("r", "skill://q/a"),
            ("r", ""),
            ("", "skill://r/a"),
        ] {
            let page = ListSkillsResponse {
                skills: vec![skill("r", "skill://r/a"), skill(root, package)],
                ..ListSkillsResponse::default()
            };
            assert!(join([page], |_| false).is_err(), "{root:?} {package:?}");
        }
        let empty = ListSkillsResponse {
            skills: vec![Skill::default()],
            ..ListSkillsResponse::default()
        };
        assert!(join([empty], |_| false).is_err());
        let many = ListSkillsResponse {
            skills: vec![skill("r", "skill://r/a"); 1_001],
            ..ListSkillsResponse::default()
        };
        assert!(join([many], |_| false).is_err());
    }

    #[test]
    fn lists_over_the_memory_limit_are_rejected() {
        let request = ListSkillsRequest::for_roots();
        let mut list = ListJoiner::new(&request, |_: &ListSkillsResponse| false);
        let half = MAX_LIST_MEMORY / 2;
        for token in ["1", "2"] {
            assert!(list.add_page(skills("a", token), half).is_ok());
        }
        let error = list
            .add_page(skills("a", ""), 1)
            .expect_err("over the limit");
        assert!(error.contains("list fewer roots"), "{error}");
    }

    #[test]
    fn pages_shrink_to_one_skill() {
        let mut request = ListSkillsRequest::for_roots();
        let mut sizes = Vec::new();
        while shrink_pages::<ListSkillsResponse>(&mut request) {
            sizes.push(request.page_size);
        }
        assert_eq!(sizes, [31, 1]);
        assert!(!shrink_pages::<ListResourcesResponse>(
            &mut ListResourcesRequest::default()
        ));
    }
}
