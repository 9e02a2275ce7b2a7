//! Joins the pages of a list of files into one answer.

use super::call::{CallError, Client, Service};
use super::pages::Pages;
use crate::proto::caproot::v1::{ListResourcesRequest, ListResourcesResponse};

impl Client {
    /// All pages of a list of files as one answer without a page token, with the epoch and revision
    /// of the first. `request.page_token` must be empty.
    pub async fn list_resources(
        &mut self,
        request: &ListResourcesRequest,
    ) -> Result<ListResourcesResponse, CallError> {
        self.list_resources_over(request, usize::MAX).await
    }

    /// The same, but asks for no further page once there are more than `enough` files. The answer
    /// then has the token of the next page, if there is one.
    pub async fn list_resources_over(
        &mut self,
        request: &ListResourcesRequest,
        enough: usize,
    ) -> Result<ListResourcesResponse, CallError> {
        let mut request = request.clone();
        let mut list = Joined::default();
        loop {
            let call = |mut service: Service, request| async move {
                service.list_resources(request).await
            };
            let page = self.ask(request.clone(), call).await?;
            match list.add(page).map_err(CallError::Nonsense)? {
                Some(token) if list.answer.resources.len() > enough => {
                    return Ok(ListResourcesResponse { next_page_token: token, ..list.answer });
                }
                Some(token) => request.page_token = token,
                None => return Ok(list.answer),
            }
        }
    }
}

/// What the pages so far come to.
#[derive(Default)]
struct Joined {
    answer: ListResourcesResponse,
    pages: Pages,
}

impl Joined {
    /// Adds a page; gives the token of the next, if there is one.
    fn add(&mut self, page: ListResourcesResponse) -> Result<Option<String>, &'static str> {
        let next = self.pages.next(&page, &page.next_page_token)?;
        if self.pages.is_first() {
            self.answer = ListResourcesResponse { next_page_token: String::new(), ..page };
            return Ok(next);
        }
        let last = self.answer.resources.last().map(|resource| &resource.resource);
        let first = page.resources.first().map(|resource| &resource.resource);
        if last.zip(first).is_some_and(|(last, first)| last >= first) {
            return Err("the pages of one list are not in order");
        }
        self.answer.resources.extend(page.resources);
        self.answer.truncated |= page.truncated;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::Joined;
    use crate::proto::caproot::v1::{ListResourcesResponse, Resource};

    fn page(name: &str, next: &str) -> ListResourcesResponse {
        ListResourcesResponse {
            resources: vec![Resource { resource: name.into(), ..Resource::default() }],
            next_page_token: next.into(),
            ..ListResourcesResponse::default()
        }
    }

    #[test]
    fn pages_become_one_answer() {
        let mut list = Joined::default();
        assert_eq!(list.add(page("a", "1")), Ok(Some("1".into())));
        let end = ListResourcesResponse { truncated: true, revision: 9, ..page("b", "") };
        assert_eq!(list.add(end), Ok(None));
        let names: Vec<_> = list.answer.resources.iter().map(|r| r.resource.as_str()).collect();
        assert_eq!((names, list.answer.truncated), (vec!["a", "b"], true));
        assert_eq!((list.answer.revision, list.answer.next_page_token.as_str()), (0, ""));
    }

    #[test]
    fn no_list_goes_on_for_ever() {
        for (second, token) in [("b", "1"), ("a", "2"), ("", "2")] {
            let mut list = Joined::default();
            assert!(list.add(page("a", "1")).is_ok());
            assert!(list.add(page(second, token)).is_err(), "{second:?} {token}");
        }
    }
}
