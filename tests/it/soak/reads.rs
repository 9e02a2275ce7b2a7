//! Clients that ask whatever can be asked, at random, while all changes, and judge each answer by
//! itself: what is whole, of one version, of the right root, and no older than what was said before.

use std::sync::Arc;
use std::time::Duration;

use caproot::proto::caproot::v1::{
    Consistency, GetExecutorRequest, ListResourcesRequest, ListRootsRequest, ListSkillsRequest,
    ReadResourceRequest, ResolveRootsRequest, SelectedCapabilityRoot,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::lists::whole_list;
use super::stage::{Mode, Stage, dir_of};
use super::texts::{Read, recognize};
use super::tree::{GROUPS, SKILLS};
use crate::rng::Rng;
use crate::harness::{Daemon, bytes_of, in_time, read_request};
use crate::reads::digest;

/// So many of them ask at once.
pub(super) const READERS: usize = 4;

/// The most milliseconds between two of one's calls, so that others have their turn.
const PAUSE: u64 = 50;

/// What the name of a file that is not there, not there any more, or taken away right now may give.
const GONE: [&str; 4] =
    ["PACKAGE_NOT_FOUND", "RESOURCE_NOT_FOUND", "RESOURCE_CHANGED", "ROOT_UNAVAILABLE"];

/// One client.
pub(super) struct Reader {
    stage: Arc<Stage>,
    dice: Rng,
    daemon: Daemon,
    /// Of `daemon`.
    life: u64,
    /// What the last answer said.
    said: (String, u64),
    mode: watch::Receiver<Mode>,
}

impl Reader {
    /// One that is connected.
    pub(super) async fn new(stage: Arc<Stage>, seed: u64) -> Self {
        let (life, daemon) = stage.connect(0, false).await;
        let (dice, mode, said) = (Rng::new(seed), stage.mode.subscribe(), (String::new(), 0));
        Self { stage, dice, daemon, life, said, mode }
    }

    /// Asks as long as the tree changes.
    pub(super) async fn run(mut self) {
        loop {
            let busy = |mode: &Mode| matches!(mode, Mode::Busy | Mode::End);
            let mode = self.mode.wait_for(busy).await.expect("the stage stays").clone();
            if matches!(mode, Mode::End) {
                return;
            }
            if self.stage.is_over(self.life) || self.dice.one_in(60) {
                let after = self.life - u64::from(!self.stage.is_over(self.life));
                let (life, daemon) = self.stage.connect(after, false).await;
                if life > self.life {
                    self.said = (String::new(), 0);
                }
                (self.life, self.daemon) = (life, daemon);
                self.stage.tally.add("call: connections made anew", 1);
            }
            let (kind, asked) = match self.dice.below(40) {
                0 => ("ListSkills cached", self.list(Consistency::Cached).await),
                1 => ("ListSkills fresh", self.list(Consistency::Fresh).await),
                2 => ("ResolveRoots", self.resolve().await),
                3 => ("GetExecutor", self.executor().await),
                4..=9 => ("ListResources", self.resources().await),
                10..=24 => ("ReadResource main", self.read("").await),
                25..=38 => ("ReadResource other", self.read("/references/notes").await),
                _ => ("left without waiting", self.leave().await),
            };
            self.stage.tally.add(&format!("call: {kind}"), 1);
            if let Err((status, may_be)) = asked {
                self.stage.judge(self.life, &status, may_be);
            }
            sleep(Duration::from_millis(self.dice.below(PAUSE))).await;
        }
    }

    /// Within a life nothing that is said is older than what was said.
    fn hear(&mut self, epoch: &str, revision: u64) {
        let (before, last) = &self.said;
        assert!(before.is_empty() || before == epoch, "one life is one epoch");
        assert!(revision >= *last, "revision {revision} after {last}");
        self.said = (epoch.to_owned(), revision);
    }

    fn ask(&mut self) -> usize {
        let asks = self.stage.asks.len() as u64;
        usize::try_from(self.dice.below(asks)).expect("a place in memory")
    }

    /// One of the roots, as one of the questions has it; and a package in it that may be there.
    fn package(&mut self) -> (SelectedCapabilityRoot, String) {
        let ask = self.ask();
        let root = self.dice.pick(self.stage.roots(ask)).clone();
        let (group, skill) = (self.dice.below(GROUPS), self.dice.below(SKILLS));
        let package = match self.dice.below(10) {
            0 => format!("moved/g{group:02}/s{skill:02}"),
            1 => format!("g{group:02}/x{}", skill % 9),
            2 => format!("current/t{}", skill % 2),
            3 => format!("g{group:02}/nobody"),
            _ => format!("g{group:02}/s{skill:02}"),
        };
        let package = format!("skill://{}/{package}", root.id);
        (root, package)
    }

    async fn list(&mut self, consistency: Consistency) -> Result<(), Refused> {
        let ask = self.ask();
        let request = ListSkillsRequest {
            consistency: consistency.into(),
            page_size: *self.dice.pick(&[0, 0, 100, 333]),
            ..self.stage.asks[ask].clone()
        };
        let list = whole_list(&self.daemon, &request).await;
        let list = list.map_err(may_be(&["CATALOG_CHANGED"]))?;
        self.hear(&list.epoch, list.revision);
        self.stage.note(self.life, ask, list.revision, list.skills.iter());
        Ok(())
    }

    async fn resolve(&mut self) -> Result<(), Refused> {
        let ask = self.ask();
        let roots = self.stage.roots(ask).to_vec();
        let ids: Vec<_> = roots.iter().map(|root| root.id.clone()).collect();
        let consistency = *self.dice.pick(&[Consistency::Cached, Consistency::Fresh]);
        let mut request = ResolveRootsRequest {
            selected_capability_roots: roots,
            consistency: consistency.into(),
            page_size: *self.dice.pick(&[0, 1]),
            page_token: String::new(),
        };
        let mut first = None;
        loop {
            let answer = in_time(self.daemon.client.resolve_roots(request.clone())).await;
            let answer = answer.map_err(may_be(&["CATALOG_CHANGED"]))?.into_inner();
            let shown = (answer.epoch.clone(), answer.revision);
            assert_eq!(first.get_or_insert_with(|| shown.clone()), &shown, "of one revision");
            assert!(answer.roots.iter().map(|root| &root.id).eq(&ids), "in request order");
            for (root, plugin) in
                answer.roots.iter().flat_map(|r| r.plugins.iter().map(move |p| (r, p)))
            {
                assert!(plugin.package.starts_with(&format!("skill://{}/", root.id)), "{plugin:?}");
            }
            request.page_token = answer.next_page_token;
            if request.page_token.is_empty() {
                self.hear(&shown.0, shown.1);
                return Ok(());
            }
        }
    }

    async fn executor(&mut self) -> Result<(), Refused> {
        let executor = in_time(self.daemon.client.get_executor(GetExecutorRequest {})).await;
        let executor = executor.map_err(may_be(&[]))?.into_inner();
        self.hear(&executor.epoch, executor.revision);
        let watch = executor.watch.expect("a watch status");
        assert_eq!(watch.backend, "inotify", "{watch:?}");
        let roots = in_time(self.daemon.client.list_roots(ListRootsRequest {})).await;
        let roots = roots.map_err(may_be(&[]))?.into_inner();
        assert!(roots.roots.is_empty(), "none is published: {roots:?}");
        self.hear(&roots.epoch, roots.revision);
        Ok(())
    }

    async fn resources(&mut self) -> Result<(), Refused> {
        let (root, package) = self.package();
        let mut request = ListResourcesRequest {
            root: Some(root),
            package: package.clone(),
            page_size: *self.dice.pick(&[0, 1]),
            include_digests: self.dice.one_in(2),
            ..ListResourcesRequest::default()
        };
        let mut last = String::new();
        loop {
            let page = in_time(self.daemon.client.list_resources(request.clone())).await;
            let page = page.map_err(may_be(&GONE))?.into_inner();
            self.hear(&page.epoch, page.revision);
            for resource in page.resources {
                assert!(resource.resource.starts_with(&format!("{package}/")), "{resource:?}");
                assert!(resource.resource > last, "in order, each once: {resource:?} after {last}");
                last = resource.resource;
            }
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads a file page by page, now and then with a pause, in which it may change.
    async fn read(&mut self, file: &str) -> Result<(), Refused> {
        let (root, package) = self.package();
        let resource = if file.is_empty() { String::new() } else { format!("{package}{file}") };
        let consistency = *self.dice.pick(&[Consistency::Cached, Consistency::Fresh]);
        let mut request = ReadResourceRequest {
            consistency: consistency.into(),
            max_bytes: *self.dice.pick(&[0, 500, 4_000, 100_000]),
            ..read_request(&root, &package, &resource)
        };
        let mut joined = Vec::new();
        loop {
            let page = self.daemon.read(request.clone()).await.map_err(may_be(&GONE))?;
            self.hear(&page.epoch, page.revision);
            joined.extend(bytes_of(&page));
            assert!(page.resource.starts_with(&format!("{package}/")), "{page:?}");
            request.cursor = page.next_cursor;
            if request.cursor.is_empty() {
                assert_eq!(joined.len() as u64, page.total_bytes, "pages joined are the file");
                assert_eq!(digest(&joined), page.digest, "pages joined are the file");
                let read = recognize(&joined, dir_of(&root.id));
                assert_ne!(read, Read::Mixed, "{}: {:?}", page.resource, joined.escape_ascii());
                let name = if read == Read::Begun { "half written" } else { "whole" };
                self.stage.tally.add(&format!("read: {name}"), 1);
                return Ok(());
            }
            if self.dice.one_in(8) {
                sleep(Duration::from_millis(self.dice.below(100))).await;
            }
        }
    }

    /// Asks for a list, and goes before it is there.
    async fn leave(&mut self) -> Result<(), Refused> {
        let consistency = Consistency::Fresh.into();
        let ask = self.ask();
        let request = ListSkillsRequest { consistency, ..self.stage.asks[ask].clone() };
        let patience = Duration::from_millis(self.dice.below(20));
        let asked = timeout(patience, whole_list(&self.daemon, &request)).await;
        asked.map_or(Ok(()), |list| list.map(drop)).map_err(may_be(&["CATALOG_CHANGED"]))
    }
}

/// What a call ended with, and the reasons that it may have.
type Refused = (Status, &'static [&'static str]);

fn may_be(reasons: &'static [&'static str]) -> impl Fn(Status) -> Refused {
    move |status| (status, reasons)
}
