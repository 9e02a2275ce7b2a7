//! Pages of `ListSkills`: bounds, order, and the revision that a token pins.

use std::collections::BTreeSet;

use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, SkillView,
};
use prost::Message as _;
use tonic::{Code, Status};

use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::watch_request;
use crate::harness::{Daemon, Setup, assert_rpc_error, list_request, rpc_error, selected};

/// Daemon with a root of `count` skills named `s000`, `s001` …
async fn serve_skills(count: usize) -> (Fixture, Daemon, ListSkillsRequest) {
    let tree = format!("repeat {count} skill root/s{{}}");
    let (fixture, daemon, root) = Setup::default().serve(&tree).await;
    (fixture, daemon, list_request(&[root]))
}

/// Skills named as for `serve_skills`, with a request for pages of `page_size` and the first page.
struct FirstPage {
    fixture: Fixture,
    daemon: Daemon,
    request: ListSkillsRequest,
    page: ListSkillsResponse,
}

impl FirstPage {
    async fn serve(count: usize, page_size: i32) -> Self {
        let (fixture, daemon, request) = serve_skills(count).await;
        let request = ListSkillsRequest {
            page_size,
            ..request
        };
        let page = daemon.try_list(request.clone()).await.expect("a page");
        Self {
            fixture,
            daemon,
            request,
            page,
        }
    }

    /// Returns the request for the page that a token names.
    fn request_after(&self, page_token: &str) -> ListSkillsRequest {
        ListSkillsRequest {
            page_token: page_token.to_owned(),
            ..self.request.clone()
        }
    }

    /// Returns the request for the second page.
    fn next_request(&self) -> ListSkillsRequest {
        self.request_after(&self.page.next_page_token)
    }
}

/// Reads all pages from the first, or returns the error that ended them.
async fn read_pages(
    daemon: &Daemon,
    mut request: ListSkillsRequest,
) -> Result<Vec<ListSkillsResponse>, Status> {
    let mut pages = Vec::new();
    loop {
        let page = daemon.try_list(request.clone()).await?;
        assert!(
            page.encoded_len() < 1 << 20,
            "a page of {} bytes",
            page.encoded_len()
        );
        request.page_token.clone_from(&page.next_page_token);
        pages.push(page);
        if request.page_token.is_empty() {
            return Ok(pages);
        }
    }
}

/// Reads all pages of this size from the first.
async fn all_pages(
    daemon: &Daemon,
    request: &ListSkillsRequest,
    page_size: i32,
) -> Vec<ListSkillsResponse> {
    let request = ListSkillsRequest {
        page_size,
        ..request.clone()
    };
    read_pages(daemon, request)
        .await
        .unwrap_or_else(|status| panic!("page_size {page_size}: {status:?}"))
}

fn names_in_pages(pages: &[ListSkillsResponse]) -> Vec<String> {
    pages
        .iter()
        .flat_map(|p| p.skills.iter().map(|s| s.name.clone()))
        .collect()
}

fn sizes(pages: &[ListSkillsResponse]) -> Vec<usize> {
    pages.iter().map(|p| p.skills.len()).collect()
}

#[tokio::test]
async fn page_sizes_are_limited_to_a_thousand() {
    let (_fixture, daemon, request) = serve_skills(1_001).await;
    let mut first_list = None;
    for (page_size, expected) in [
        (0, vec![1_000, 1]),
        (1_000, vec![1_000, 1]),
        (1_001, vec![1_000, 1]),
        (i32::MAX, vec![1_000, 1]),
        (600, vec![600, 401]),
    ] {
        let all = all_pages(&daemon, &request, page_size).await;
        assert_eq!(sizes(&all), expected, "page_size {page_size}");
        let names = names_in_pages(&all);
        assert!(
            names.is_sorted_by(|a, b| a < b),
            "page_size {page_size}: in order, each once"
        );
        // The first page of a new catalog takes the messages that its digest has encoded.
        let skills: Vec<_> = all.into_iter().flat_map(|page| page.skills).collect();
        let first = first_list.get_or_insert_with(|| skills.clone());
        assert_eq!(skills, *first, "page_size {page_size}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn pages_of_one_skill_give_the_same_list() {
    let (_fixture, daemon, request) = serve_skills(12).await;
    let whole = all_pages(&daemon, &request, 0).await;
    let single = all_pages(&daemon, &request, 1).await;
    assert_eq!((whole.len(), single.len()), (1, 12));
    let in_single: Vec<_> = single.iter().flat_map(|page| &page.skills).collect();
    assert_eq!(whole[0].skills.iter().collect::<Vec<_>>(), in_single);
    for page in &single {
        assert_eq!(
            (&page.epoch, page.revision),
            (&whole[0].epoch, whole[0].revision)
        );
        assert_eq!(page.roots, whole[0].roots, "the roots are on every page");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn diagnostics_and_warnings_are_on_the_first_page() {
    let fixture = Fixture::new("repeat 3 skill root/s{}\nfile root/bad/SKILL.md\n| broken");
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let roots = ["root", "root/gone"].map(|dir| selected(dir, fixture.path(dir)));
    let all = all_pages(&daemon, &list_request(&roots), 1).await;
    assert_eq!(sizes(&all), [1, 1, 1]);
    assert_eq!(all[0].diagnostics.len(), 1);
    assert!(
        !all[0].warnings.is_empty(),
        "a root that cannot be used causes a warning"
    );
    for page in &all[1..] {
        assert!(
            page.diagnostics.is_empty() && page.warnings.is_empty(),
            "{page:?}"
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn pages_go_across_roots_in_request_order() {
    let fixture = Fixture::new("repeat 3 skill z/s{}\nrepeat 3 skill a/s{}");
    let dirs = [fixture.path("z"), fixture.path("a")];
    let daemon = Daemon::start(Setup::allowing(&dirs)).await;
    let request = list_request(&[selected("z", &dirs[0]), selected("a", &dirs[1])]);
    let all = all_pages(&daemon, &request, 2).await;
    let packages: Vec<_> = all
        .iter()
        .flat_map(|p| p.skills.iter().map(|s| &*s.package))
        .collect();
    assert_eq!(
        packages,
        [
            "skill://z/s0",
            "skill://z/s1",
            "skill://z/s2",
            "skill://a/s0",
            "skill://a/s1",
            "skill://a/s2"
        ]
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_token_is_valid_for_the_same_request_only() {
    let first = FirstPage::serve(3, 1).await;
    let next = first.next_request();
    let with_roots = |ids: &[&str]| ListSkillsRequest {
        selected_capability_roots: ids
            .iter()
            .map(|id| selected(id, first.fixture.path("root")))
            .collect(),
        ..next.clone()
    };
    let mut of_product = next.clone();
    of_product.product = "codex".into();
    let mut basic = next.clone();
    basic.set_view(SkillView::Basic);

    for (case, other) in [
        ("another root", with_roots(&["s"])),
        ("one more root", with_roots(&["r", "s"])),
        ("no root", with_roots(&[])),
        ("a product", of_product),
        ("a view", basic),
    ] {
        let refused = first.daemon.try_list(other).await.expect_err(case);
        let refused = rpc_error(&refused);
        assert_eq!(
            (refused.code, &*refused.reason, refused.fields.as_slice()),
            (
                Code::InvalidArgument,
                "INVALID_ARGUMENT",
                ["page_token".to_owned()].as_slice()
            ),
            "{case}"
        );
    }
    let next = first.daemon.try_list(next).await;
    assert_eq!(names_in_pages(&[next.expect("the same request")]), ["s1"]);
    first.daemon.stop().await;
}

#[tokio::test]
async fn a_changed_page_token_is_rejected() {
    let first = FirstPage::serve(3, 1).await;
    let token = &first.page.next_page_token;
    for at in 0..token.len() {
        let mut changed = vec![token[..at].to_owned()];
        let mut flipped = token.clone().into_bytes();
        flipped[at] ^= 1;
        changed.extend(String::from_utf8(flipped));
        for page_token in changed.into_iter().filter(|t| !t.is_empty()) {
            let answer = first
                .daemon
                .try_list(first.request_after(&page_token))
                .await;
            let refused = match answer {
                // A changed token that is still valid must name a position in this list.
                Ok(page) => {
                    assert!(
                        page.skills.iter().all(|s| s.name.starts_with('s')),
                        "{page_token}"
                    );
                    continue;
                }
                Err(status) => rpc_error(&status),
            };
            let expected = [
                (Code::InvalidArgument, "INVALID_ARGUMENT"),
                (Code::Aborted, "CATALOG_CHANGED"),
            ];
            assert!(
                expected.contains(&(refused.code, &refused.reason)),
                "{page_token}: {refused:?}"
            );
        }
    }
    first.daemon.stop().await;
}

#[tokio::test]
async fn a_page_token_pins_its_revision() {
    let mut first = FirstPage::serve(6, 2).await;
    let old: BTreeSet<String> = (0..6).map(|n| format!("s{n}")).collect();
    let revision = first.page.revision;

    std::fs::remove_dir_all(first.fixture.path("root/s3")).expect("remove");
    first.fixture.add("skill root/s35");
    let fresh = ListSkillsRequest {
        page_size: 0,
        consistency: Consistency::Fresh.into(),
        ..first.request.clone()
    };
    let fresh = first.daemon.try_list(fresh).await.expect("a fresh list");
    assert!(fresh.revision > revision, "a change is a revision");
    assert_eq!(
        names_in_pages(std::slice::from_ref(&fresh)),
        ["s0", "s1", "s2", "s35", "s4", "s5"]
    );

    match read_pages(&first.daemon, first.next_request()).await {
        Ok(rest) => {
            assert!(rest.iter().all(|p| p.revision == revision), "one revision");
            let all = names_in_pages(&[vec![first.page], rest].concat());
            assert_eq!(
                all.into_iter().collect::<BTreeSet<_>>(),
                old,
                "the complete old list"
            );
        }
        Err(status) => {
            assert_rpc_error::<()>(Err(status), Code::Aborted, "CATALOG_CHANGED", None);
        }
    }
    first.daemon.stop().await;
}

#[tokio::test]
async fn a_page_token_does_not_outlive_the_daemon() {
    let first = FirstPage::serve(3, 1).await;
    let next = first.next_request();
    first.daemon.stop().await;
    let daemon = Daemon::start(Setup::allowing([first.fixture.path("root")])).await;
    let answer = daemon.try_list(next).await;
    assert_rpc_error(answer, Code::Aborted, "CATALOG_CHANGED", None);
    daemon.stop().await;
}

#[tokio::test]
async fn pages_of_fat_skills_stay_under_a_mebibyte() {
    let fixture = Fixture::new(
        "repeat 2000 file root/s{}/SKILL.md\n\
         | ---\n\
         | description: \\{1000*d}\n\
         | license: \\{2000*l}\n\
         | ---",
    );
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let roots = vec![selected("r", fixture.path("root"))];
    let request = list_request(&roots);
    // On a busy machine, the scan may take longer than a list waits.
    let mut replica = Replica::synced(&daemon, watch_request(roots)).await;
    replica
        .wait_while(|replica| replica.skills.len() < 2_000)
        .await;
    // `read_pages` checks the size of each page.
    let all = all_pages(&daemon, &request, 0).await;
    let found = names_in_pages(&all);
    assert_eq!(found.len(), 2_000);
    assert!(found.is_sorted_by(|a, b| a < b), "in order, each once");
    assert!(all.len() > 5, "{} pages", all.len());
    let basic = ListSkillsRequest {
        view: SkillView::Basic.into(),
        ..request
    };
    let basic = all_pages(&daemon, &basic, 0).await;
    assert_eq!(names_in_pages(&basic), found);
    assert!(basic.len() < all.len(), "the basic view takes fewer pages");
    daemon.stop().await;
}

#[tokio::test]
async fn an_empty_selection_gives_an_empty_answer() {
    let (_fixture, daemon, _) = serve_skills(1).await;
    let answer = daemon.list(&[]).await;
    assert!(answer.skills.is_empty() && answer.roots.is_empty() && !answer.truncated);
    assert!(!answer.epoch.is_empty());
    daemon.stop().await;
}
