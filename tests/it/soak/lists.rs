//! Complete lists, and checks that hold for each.

use std::collections::BTreeMap;

use caproot_core::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse};
use tonic::Status;

use super::shared_state::assert_skill_of_its_root;
use crate::harness::Daemon;

/// Reads all pages of a list. Checks each page against the first.
pub(super) async fn list_all_pages(
    daemon: &Daemon,
    request: &ListSkillsRequest,
) -> Result<ListSkillsResponse, Status> {
    let mut list = daemon.try_list(request.clone()).await?;
    while !list.next_page_token.is_empty() {
        let page_token = list.next_page_token.clone();
        let page = daemon
            .try_list(ListSkillsRequest {
                page_token,
                ..request.clone()
            })
            .await?;
        assert_eq!(
            (&page.epoch, page.revision),
            (&list.epoch, list.revision),
            "of one revision"
        );
        assert_eq!(page.roots, list.roots, "the roots are on every page");
        assert!(!page.skills.is_empty(), "a page goes on");
        list.skills.extend(page.skills);
        list.next_page_token = page.next_page_token;
    }
    assert_list_is_valid(&list, request);
    Ok(list)
}

/// Asserts that skills are sorted, unique, of requested roots, and as many as the roots report.
fn assert_list_is_valid(list: &ListSkillsResponse, request: &ListSkillsRequest) {
    let requested_ids = request
        .selected_capability_roots
        .iter()
        .map(|root| &root.id);
    assert!(
        requested_ids.eq(list.roots.iter().map(|root| &root.id)),
        "{:?}",
        list.roots
    );
    let place: BTreeMap<_, _> = list
        .roots
        .iter()
        .zip(0..)
        .map(|(r, n)| (&*r.id, n))
        .collect();
    let mut counts = vec![0; list.roots.len()];
    let keys = list.skills.iter().map(|skill| {
        assert_skill_of_its_root(skill);
        let root: usize = place[&*skill.authority.as_ref().expect("an authority").id];
        counts[root] += 1;
        (root, &skill.name, &skill.package)
    });
    let keys: Vec<_> = keys.collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "in order, each once");
    let reported = list
        .roots
        .iter()
        .map(|root| root.counts.as_ref().map_or(0, |c| c.skills));
    assert!(
        reported.eq(counts),
        "as many as the roots say: {:?}",
        list.roots
    );
}
