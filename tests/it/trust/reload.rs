//! Changes of the lock while the daemon runs.

use std::fs;

use caproot_core::proto::caproot::v1::{ListSkillsRequest, TrustStatus};
use tonic::Code;

use super::{LockedDaemon, TREE, lock_skills, states};
use crate::harness::watch_harness::skill_text;
use crate::harness::{assert_rpc_error, list_request, published, short_or_long};

impl LockedDaemon {
    async fn trust_status(&self) -> TrustStatus {
        self.daemon.executor().await.trust.expect("a lock")
    }

    /// Asks for the status until a condition holds.
    async fn wait_for_status(&self, holds: impl Fn(&TrustStatus) -> bool) -> TrustStatus {
        loop {
            let status = self.trust_status().await;
            if holds(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_new_lock_applies_without_a_reload_of_the_config() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    assert_eq!(locked.trust_status().await.lock_skills, 2);
    locked.fixture.write("r/pdf/references/steps.md", "Two.\n");
    locked.wait_for_list(|list| list.skills.len() == 1).await;
    lock_skills(&locked.fixture, "--update pdf --out caproot.lock").await;
    locked.wait_for_list(|list| list.skills.len() == 2).await;
    lock_skills(&locked.fixture, "--remove mail --out caproot.lock").await;
    let list = locked.wait_for_list(|list| list.skills.len() == 1).await;
    assert_eq!(states(&list)[0].0, "pdf");
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_narrowed_lock_ends_page_tokens() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let request = |page_token: &str| ListSkillsRequest {
        page_size: 1,
        page_token: page_token.to_owned(),
        ..list_request(&[published("r")])
    };
    let first = locked.daemon.try_list(request("")).await.expect("a page");
    assert_eq!(states(&first)[0].0, "mail");

    lock_skills(&locked.fixture, "--remove pdf --out caproot.lock").await;
    locked.wait_for_list(|list| list.skills.len() == 1).await;
    let next = locked.daemon.try_list(request(&first.next_page_token));
    assert_rpc_error(next.await, Code::Aborted, "CATALOG_CHANGED", None);
    locked.daemon.stop().await;
}

#[tokio::test]
async fn an_invalid_or_missing_lock_keeps_the_last_one() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let good = fs::read(locked.fixture.path("caproot.lock")).expect("the lock");
    let before = locked.trust_status().await;

    locked.fixture.replace("caproot.lock", "{\"version\": 2}\n");
    let status = locked
        .wait_for_status(|status| status.last_rejection.is_some())
        .await;
    assert_eq!(status.lock_digest, before.lock_digest);
    let rejection = status.last_rejection.expect("a rejection");
    assert_eq!(rejection.errors, ["1:13 version"]);
    assert_eq!(locked.list().await.skills.len(), 2);

    locked.fixture.replace("caproot.lock", &good);
    locked
        .wait_for_status(|status| status.last_rejection.is_none())
        .await;
    fs::remove_file(locked.fixture.path("caproot.lock")).expect("removed");
    locked
        .wait_for_status(|status| status.last_rejection.is_some())
        .await;
    assert_eq!(locked.list().await.skills.len(), 2);
    let log = locked.daemon.stop().await;
    assert!(
        log.contains("version: this version of caproot reads version 1; keeping the previous lock"),
        "{log}"
    );
}

#[tokio::test]
async fn a_list_never_has_a_skill_that_neither_lock_approves() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    locked
        .fixture
        .write("r/never/SKILL.md", skill_text("never", "Never."));
    let both = fs::read(locked.fixture.path("caproot.lock")).expect("the lock");
    lock_skills(&locked.fixture, "--remove mail --out caproot.lock").await;
    let one = fs::read(locked.fixture.path("caproot.lock")).expect("the lock");
    for turn in 0..short_or_long(60, 1_000) {
        let content: &[u8] = match turn % 3 {
            0 => &both,
            1 => b"{",
            _ => &one,
        };
        locked.fixture.replace("caproot.lock", content);
        let list = locked.list().await;
        let names: Vec<_> = states(&list).into_iter().map(|(name, _)| name).collect();
        assert!(names == ["mail", "pdf"] || names == ["pdf"], "{names:?}");
    }
    locked.fixture.replace("caproot.lock", &one);
    locked.wait_for_list(|list| list.skills.len() == 1).await;
    locked.daemon.stop().await;
}
