//! Joins the pages of a list of skills into one answer, and stops a daemon that never ends one.

use super::call::{CallError, Client, reason, within};
use crate::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse};
use prost::Message as _;
use std::collections::HashSet;

/// How often a list is begun anew when its revision is gone.
const RESTARTS: usize = 3;
/// The most pages of one list: ten million skills at the daemon's default of a page.
const MAX_PAGES: usize = 10_000;
/// The most bytes of one list: what 20,000 skills of 50 KiB each take.
const MAX_BYTES: usize = 1 << 30;
/// The most bytes of a page token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

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

    async fn pages(
        &mut self,
        mut request: ListSkillsRequest,
    ) -> Result<ListSkillsResponse, CallError> {
        let mut list = Joined::default();
        loop {
            let call = self.request(request.clone());
            let page = within(self.timeout(), self.service.list_skills(call)).await?;
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
    tokens: HashSet<String>,
    pages: usize,
    bytes: usize,
}

impl Joined {
    /// Adds a page; gives the token of the next, if there is one.
    fn add(&mut self, page: ListSkillsResponse) -> Result<Option<String>, &'static str> {
        self.pages += 1;
        self.bytes = self.bytes.saturating_add(page.encoded_len());
        if self.bytes > MAX_BYTES {
            return Err("the list is over 1 GiB");
        }
        let token = page.next_page_token.clone();
        if self.pages == 1 {
            self.answer = ListSkillsResponse { next_page_token: String::new(), ..page };
        } else if (&page.epoch, page.revision) == (&self.answer.epoch, self.answer.revision) {
            self.answer.skills.extend(page.skills);
            self.answer.truncated |= page.truncated;
        } else {
            return Err("the pages of one list are of different revisions");
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
        Ok(Some(token))
    }
}

#[cfg(test)]
mod tests {
    use super::{Joined, MAX_PAGES};
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
