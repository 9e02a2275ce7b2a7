//! Lists skills: joins the pages into one response.

use super::call::{CallError, Client, ServiceClient, error_reason};
use super::pages::PageTracker;
use crate::proto::caproot::v1::{ErrorReason, ListSkillsRequest, ListSkillsResponse};

/// How often a list starts again if its revision is gone.
const MAX_RESTARTS: usize = 3;

pub async fn list_skills(
    client: &Client,
    request: &ListSkillsRequest,
) -> Result<ListSkillsResponse, CallError> {
    let mut restarts = 0;
    loop {
        match list_pages(client, request.clone()).await {
            Err(CallError::Status(status))
                if restarts < MAX_RESTARTS
                    && error_reason(&status) == Some(ErrorReason::CatalogChanged) =>
            {
                restarts += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn list_pages(
    client: &Client,
    mut request: ListSkillsRequest,
) -> Result<ListSkillsResponse, CallError> {
    let mut list = SkillPageAssembler::default();
    loop {
        let call =
            |mut service: ServiceClient, request| async move { service.list_skills(request).await };
        let page = client.call_with_retries(request.clone(), call).await?;
        match list.add_page(page).map_err(CallError::InvalidResponse)? {
            Some(token) => request.page_token = token,
            None => return Ok(list.response),
        }
    }
}

/// Pages so far, joined.
#[derive(Default)]
struct SkillPageAssembler {
    response: ListSkillsResponse,
    pages: PageTracker,
}

impl SkillPageAssembler {
    /// Adds a page. Returns the token of the next page, if there is one.
    fn add_page(&mut self, page: ListSkillsResponse) -> Result<Option<String>, &'static str> {
        let next = self.pages.record_page(&page, &page.next_page_token)?;
        if self.pages.is_first() {
            self.response = ListSkillsResponse { next_page_token: String::new(), ..page };
        } else if (&page.epoch, page.revision) == (&self.response.epoch, self.response.revision) {
            self.response.skills.extend(page.skills);
            self.response.truncated |= page.truncated;
        } else {
            return Err("the pages of one list are of different revisions");
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::SkillPageAssembler;
    use crate::client::pages::MAX_PAGES;
    use crate::proto::caproot::v1::{ListSkillsResponse, RootStatus, Skill};

    fn page(name: &str, next: &str) -> ListSkillsResponse {
        ListSkillsResponse {
            skills: vec![Skill { name: name.into(), ..Skill::default() }],
            roots: vec![RootStatus::default()],
            next_page_token: next.into(),
            ..ListSkillsResponse::default()
        }
    }

    #[test]
    fn pages_are_joined() {
        let mut list = SkillPageAssembler::default();
        assert_eq!(list.add_page(page("a", "1")), Ok(Some("1".into())));
        assert_eq!(list.add_page(page("b", "2")), Ok(Some("2".into())));
        let third = ListSkillsResponse { truncated: true, ..page("c", "") };
        assert_eq!(list.add_page(third), Ok(None));
        let names: Vec<_> = list.response.skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(list.response.roots.len(), 1);
        assert!(list.response.truncated);
        assert_eq!(list.response.next_page_token, "");
    }

    #[test]
    fn endless_lists_are_rejected() {
        let mut list = SkillPageAssembler::default();
        assert!(list.add_page(page("a", "1")).is_ok());
        assert!(list.add_page(page("b", "2")).is_ok());
        assert!(list.add_page(page("c", "1")).is_err(), "a circle");

        let mut list = SkillPageAssembler::default();
        let ended = (1..=MAX_PAGES).find(|n| list.add_page(page("a", &n.to_string())).is_err());
        assert_eq!(ended, Some(MAX_PAGES));

        let mut list = SkillPageAssembler::default();
        assert!(list.add_page(page("a", "1")).is_ok());
        assert!(list.add_page(ListSkillsResponse { revision: 7, ..page("b", "2") }).is_err());
    }
}
