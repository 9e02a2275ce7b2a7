//! Lists the files of a package: joins the pages into one response.

use super::call::{CallError, Client, ServiceClient};
use super::pages::PageTracker;
use crate::proto::caproot::v1::{ListResourcesRequest, ListResourcesResponse};

pub async fn list_resources_until(
    client: &Client,
    request: &ListResourcesRequest,
    enough: usize,
) -> Result<ListResourcesResponse, CallError> {
    let mut request = request.clone();
    let mut list = ResourcePageAssembler::default();
    loop {
        let call = |mut service: ServiceClient, request| async move {
            service.list_resources(request).await
        };
        let page = client.call_with_retries(request.clone(), call).await?;
        match list.add_page(page).map_err(CallError::InvalidResponse)? {
            Some(token) if list.response.resources.len() > enough => {
                return Ok(ListResourcesResponse { next_page_token: token, ..list.response });
            }
            Some(token) => request.page_token = token,
            None => return Ok(list.response),
        }
    }
}

/// Pages so far, joined.
#[derive(Default)]
struct ResourcePageAssembler {
    response: ListResourcesResponse,
    pages: PageTracker,
}

impl ResourcePageAssembler {
    /// Adds a page. Returns the token of the next page, if there is one.
    fn add_page(&mut self, page: ListResourcesResponse) -> Result<Option<String>, &'static str> {
        let next = self.pages.record_page(&page, &page.next_page_token)?;
        if self.pages.is_first() {
            self.response = ListResourcesResponse { next_page_token: String::new(), ..page };
            return Ok(next);
        }
        let last = self.response.resources.last().map(|resource| &resource.resource);
        let first = page.resources.first().map(|resource| &resource.resource);
        if last.zip(first).is_some_and(|(last, first)| last >= first) {
            return Err("the pages of one list are not in order");
        }
        self.response.resources.extend(page.resources);
        self.response.truncated |= page.truncated;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourcePageAssembler;
    use crate::proto::caproot::v1::{ListResourcesResponse, Resource};

    fn page(name: &str, next: &str) -> ListResourcesResponse {
        ListResourcesResponse {
            resources: vec![Resource { resource: name.into(), ..Resource::default() }],
            next_page_token: next.into(),
            ..ListResourcesResponse::default()
        }
    }

    #[test]
    fn pages_are_joined() {
        let mut list = ResourcePageAssembler::default();
        assert_eq!(list.add_page(page("a", "1")), Ok(Some("1".into())));
        let end = ListResourcesResponse { truncated: true, revision: 9, ..page("b", "") };
        assert_eq!(list.add_page(end), Ok(None));
        let names: Vec<_> = list.response.resources.iter().map(|r| r.resource.as_str()).collect();
        assert_eq!((names, list.response.truncated), (vec!["a", "b"], true));
        assert_eq!((list.response.revision, list.response.next_page_token.as_str()), (0, ""));
    }

    #[test]
    fn repeated_or_unordered_pages_are_rejected() {
        for (second, token) in [("b", "1"), ("a", "2"), ("", "2")] {
            let mut list = ResourcePageAssembler::default();
            assert!(list.add_page(page("a", "1")).is_ok());
            assert!(list.add_page(page(second, token)).is_err(), "{second:?} {token}");
        }
    }
}
