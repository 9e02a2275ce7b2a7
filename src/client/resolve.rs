//! Resolves roots: joins the pages into one response.

use super::call::{CallError, Client, ServiceClient, error_reason};
use super::pages::PageTracker;
use crate::proto::caproot::v1::{ErrorReason, ResolveRootsRequest, ResolveRootsResponse};

/// How often the call starts again if its revision is gone.
const MAX_RESTARTS: usize = 3;

pub async fn resolve_roots(
    client: &Client,
    request: ResolveRootsRequest,
) -> Result<ResolveRootsResponse, CallError> {
    let mut restarts = 0;
    loop {
        match resolve_pages(client, request.clone()).await {
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

async fn resolve_pages(
    client: &Client,
    mut request: ResolveRootsRequest,
) -> Result<ResolveRootsResponse, CallError> {
    let (mut answer, mut pages) = (ResolveRootsResponse::default(), PageTracker::default());
    loop {
        let call = |mut service: ServiceClient, request| async move {
            service.resolve_roots(request).await
        };
        let page = client.call_with_retries(request.clone(), call).await?;
        let next =
            pages.record_page(&page, &page.next_page_token).map_err(CallError::InvalidResponse)?;
        if pages.is_first() {
            answer = ResolveRootsResponse { next_page_token: String::new(), ..page };
        } else {
            append_page(&mut answer, page).map_err(CallError::InvalidResponse)?;
        }
        match next {
            Some(token) => request.page_token = token,
            None => return Ok(answer),
        }
    }
}

fn append_page(
    answer: &mut ResolveRootsResponse,
    page: ResolveRootsResponse,
) -> Result<(), &'static str> {
    let is_same = (&page.epoch, page.revision) == (&answer.epoch, answer.revision)
        && answer.roots.iter().map(|root| &root.id).eq(page.roots.iter().map(|root| &root.id));
    if !is_same {
        return Err("the pages of one response are of different revisions or roots");
    }
    for (root, more) in answer.roots.iter_mut().zip(page.roots) {
        root.plugins.extend(more.plugins);
        root.marketplaces.extend(more.marketplaces);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::append_page;
    use crate::proto::caproot::v1::{Plugin, ResolveRootsResponse, ResolvedRoot};

    fn page(root: &str, plugin: &str) -> ResolveRootsResponse {
        let plugin = Plugin { name: plugin.into(), ..Plugin::default() };
        let root =
            ResolvedRoot { id: root.into(), plugins: vec![plugin], ..ResolvedRoot::default() };
        ResolveRootsResponse { roots: vec![root], ..ResolveRootsResponse::default() }
    }

    #[test]
    fn pages_are_joined() {
        let mut answer = page("r", "a");
        assert_eq!(append_page(&mut answer, page("r", "b")), Ok(()));
        let names: Vec<_> = answer.roots[0].plugins.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(append_page(&mut answer, page("other", "c")).is_err());
        assert!(
            append_page(&mut answer, ResolveRootsResponse { revision: 7, ..page("r", "c") })
                .is_err()
        );
    }
}
