//! Joins the pages of a list of skills into one answer.

use super::call::{CallError, Client, Service, reason};
use super::pages::Pages;
use crate::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse};

/// How often a list is begun anew when its revision is gone.
const RESTARTS: usize = 3;

impl Client {
    /// All pages of a list as one answer without a page token. `request.page_token` must be empty.
    /// A list whose revision is gone is begun anew, three times at most.
    pub async fn list_skills(
        &mut self,
        request: &ListSkillsRequest,
    ) -> Result<ListSkillsResponse, CallError> {
        let mut restarts = 0;
        loop {
            match self.pages(request.clone()).await {
                Err(CallError::Status(status))
                    if restarts < RESTARTS
                        && reason(&status).as_deref() == Some("CATALOG_CHANGED") =>
                {
                    restarts += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn pages(&self, mut request: ListSkillsRequest) -> Result<ListSkillsResponse, CallError> {
        let mut list = Joined::default();
        loop {
            let call =
                |mut service: Service, request| async move { service.list_skills(request).await };
            let page = self.ask(request.clone(), call).await?;
            match list.add(page).map_err(CallError::Nonsense)? {
                Some(token) => request.page_token = token,
                None => return Ok(list.answer),
            }
        }
    }
}

/// What the pages so far come to.
#[derive(Default)]
struct Joined {
    answer: ListSkillsResponse,
    pages: Pages,
}

impl Joined {
    /// Adds a page; gives the token of the next, if there is one.
    fn add(&mut self, page: ListSkillsResponse) -> Result<Option<String>, &'static str> {
        let next = self.pages.next(&page, &page.next_page_token)?;
        if self.pages.is_first() {
            self.answer = ListSkillsResponse { next_page_token: String::new(), ..page };
        } else if (&page.epoch, page.revision) == (&self.answer.epoch, self.answer.revision) {
            self.answer.skills.extend(page.skills);
            self.answer.truncated |= page.truncated;
        } else {
            return Err("the pages of one list are of different revisions");
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::Joined;
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
    fn pages_become_one_answer() {
        let mut list = Joined::default();
        assert_eq!(list.add(page("a", "1")), Ok(Some("1".into())));
        assert_eq!(list.add(page("b", "2")), Ok(Some("2".into())));
        let third = ListSkillsResponse { truncated: true, ..page("c", "") };
        assert_eq!(list.add(third), Ok(None));
        let names: Vec<_> = list.answer.skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(list.answer.roots.len(), 1);
        assert!(list.answer.truncated);
        assert_eq!(list.answer.next_page_token, "");
    }

    #[test]
    fn no_list_goes_on_for_ever() {
        let mut list = Joined::default();
        assert!(list.add(page("a", "1")).is_ok());
        assert!(list.add(page("b", "2")).is_ok());
        assert!(list.add(page("c", "1")).is_err(), "a circle");

        let mut list = Joined::default();
        let ended = (1..=MAX_PAGES).find(|n| list.add(page("a", &n.to_string())).is_err());
        assert_eq!(ended, Some(MAX_PAGES));

        let mut list = Joined::default();
        assert!(list.add(page("a", "1")).is_ok());
        assert!(list.add(ListSkillsResponse { revision: 7, ..page("b", "2") }).is_err());
    }
}
