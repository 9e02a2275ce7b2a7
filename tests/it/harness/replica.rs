//! Client of `WatchSkills` that applies all events and checks the rules of the stream.

use std::collections::BTreeMap;
use std::mem::take;

use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Authority, Diagnostic, KnownCatalog, ListSkillsRequest, ListSkillsResponse, Marketplace,
    Plugin, RemovalReason, ResetReason, RootState, RootStatus, Skill, SkillReadiness, SkillView,
    WatchSkillsRequest, WatchSkillsResponse,
};
use tonic::{Status, Streaming};

use crate::calls::catalog_digests::digest_messages;
use crate::harness::{Daemon, in_time};

/// State that the events of a stream built up.
#[derive(Default)]
pub(crate) struct Replica {
    request: WatchSkillsRequest,
    stream: Option<Streaming<WatchSkillsResponse>>,
    /// Status by root id.
    pub roots: BTreeMap<String, RootStatus>,
    /// Skills by package.
    pub skills: BTreeMap<String, Skill>,
    /// Diagnostics by root id.
    pub diagnostics: BTreeMap<String, Vec<Diagnostic>>,
    /// Readiness that the stream sent, by package.
    pub readiness: BTreeMap<String, SkillReadiness>,
    /// Plugins by package.
    pub plugins: BTreeMap<String, Plugin>,
    /// Marketplaces by root id.
    pub marketplaces: BTreeMap<String, Vec<Marketplace>>,
    /// Revision of the last `synced` or `bookmark`.
    pub revision: u64,
    /// Resume token of the last `synced` or `bookmark`.
    pub token: String,
    /// Epoch of the last event.
    pub epoch: String,
    /// State before the first `reset` of the stream, to which `known_catalogs` refers until each root
    /// is first ready. Absent after another `reset`.
    earlier: Option<Box<Replica>>,
    /// Whether the stream had an event.
    had_event: bool,
}

/// Events up to a `synced` or `bookmark`.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    /// Reason of the `reset`, if there was one.
    pub reset: Option<ResetReason>,
    /// Packages in the order of their events.
    pub upserted: Vec<String>,
    /// Packages and reasons in the order of their events.
    pub removed: Vec<(String, RemovalReason)>,
    /// Packages of plugins in the order of their events.
    pub upserted_plugins: Vec<String>,
    /// Packages of plugins in the order of their events.
    pub removed_plugins: Vec<String>,
    /// Number of deltas.
    pub deltas: usize,
    /// Packages whose readiness the daemon sent.
    pub readiness: Vec<String>,
    /// Number of events with readiness.
    pub readiness_events: usize,
    /// Ids of roots with a status event.
    pub statuses: Vec<String>,
    /// Ids of roots whose catalogs the request named.
    pub unchanged: Vec<String>,
    /// Whether the batch is a bookmark. A bookmark contains no other event.
    pub is_bookmark: bool,
}

impl Replica {
    /// Creates a replica without state and stream.
    pub(crate) fn new(request: WatchSkillsRequest) -> Self {
        Self {
            request,
            ..Self::default()
        }
    }

    /// Opens a stream.
    pub(crate) async fn open(daemon: &Daemon, request: WatchSkillsRequest) -> Self {
        let mut replica = Self::new(request);
        replica.resume(daemon).await;
        replica
    }

    /// Opens a stream and applies its first batch.
    pub(crate) async fn synced(daemon: &Daemon, request: WatchSkillsRequest) -> Self {
        let mut replica = Self::open(daemon, request).await;
        replica.next_batch().await;
        replica
    }

    /// Opens a stream with a resume token from elsewhere.
    pub(crate) async fn open_at(
        daemon: &Daemon,
        request: WatchSkillsRequest,
        token: String,
    ) -> Self {
        let mut replica = Self {
            request,
            token,
            ..Self::default()
        };
        replica.resume(daemon).await;
        replica
    }

    /// Copies the state without the stream.
    pub(crate) fn fork(&self) -> Self {
        Self {
            request: self.request.clone(),
            stream: None,
            roots: self.roots.clone(),
            skills: self.skills.clone(),
            diagnostics: self.diagnostics.clone(),
            readiness: self.readiness.clone(),
            plugins: self.plugins.clone(),
            marketplaces: self.marketplaces.clone(),
            revision: self.revision,
            token: self.token.clone(),
            epoch: self.epoch.clone(),
            earlier: None,
            had_event: false,
        }
    }

    /// Creates an empty replica for the same request.
    pub(crate) fn forget(&self) -> Self {
        Self::new(self.request.clone())
    }

    /// Reverses the order of the roots in the requests for later streams.
    pub(crate) fn reverse_roots(&mut self) {
        self.request.selected_capability_roots.reverse();
    }

    /// Closes the stream and keeps the state.
    pub(crate) fn close_stream(&mut self) {
        self.stream = None;
    }

    /// Opens a new stream with the stored resume token.
    pub(crate) async fn resume(&mut self, daemon: &Daemon) {
        self.try_resume(daemon).await.expect("a stream");
    }

    /// Resumes like [`Self::resume`], on a daemon that may be shutting down.
    pub(crate) async fn try_resume(&mut self, daemon: &Daemon) -> Result<(), Status> {
        self.stream = None;
        self.request.resume_token.clone_from(&self.token);
        self.request.known_catalogs = self.known_catalogs();
        (self.earlier, self.had_event) = (None, false);
        self.readiness.clear();
        let mut client = daemon.client.clone();
        let opened = in_time(client.watch_skills(self.request.clone())).await?;
        self.stream = Some(opened.into_inner());
        Ok(())
    }

    /// Reads the next event. Returns `None` at the end of the stream.
    async fn next_event(&mut self) -> Result<Option<WatchSkillsResponse>, Status> {
        in_time(self.stream.as_mut().expect("an open stream").message()).await
    }

    /// Applies all events up to the next `synced` or `bookmark`. Returns the status if the stream
    /// ends first.
    pub(crate) async fn try_next_batch(&mut self) -> Result<EventBatch, Option<Status>> {
        let mut step = EventBatch::default();
        loop {
            let response = self.next_event().await.map_err(Some)?.ok_or(None)?;
            let is_reset = matches!(response.event, Some(Event::Reset(_)));
            let is_first = !std::mem::replace(&mut self.had_event, true);
            assert!(
                is_reset || (response.epoch == self.epoch && response.revision >= self.revision),
                "revisions only increase within an epoch"
            );
            match response.event.expect("an event") {
                Event::Reset(reset) => {
                    step.reset = Some(reset.reason());
                    self.readiness.clear();
                    let earlier = Self {
                        roots: take(&mut self.roots),
                        skills: take(&mut self.skills),
                        diagnostics: take(&mut self.diagnostics),
                        plugins: take(&mut self.plugins),
                        marketplaces: take(&mut self.marketplaces),
                        ..Self::default()
                    };
                    self.earlier = is_first.then(|| Box::new(earlier));
                    (self.epoch, self.revision) = (response.epoch, 0);
                }
                Event::RootStatus(mut status) => {
                    step.statuses.push(status.id.clone());
                    if take(&mut status.unchanged) {
                        self.copy_earlier(&status);
                        step.unchanged.push(status.id.clone());
                    }
                    let before = self.roots.insert(status.id.clone(), status.clone());
                    assert_ne!(before, Some(status), "no event where nothing changed");
                }
                Event::Delta(delta) => self.apply(delta, &mut step),
                Event::Diagnostics(list) => {
                    let diagnostics = self.diagnostics.entry(list.root_id).or_default();
                    if !list.continued {
                        diagnostics.clear();
                    }
                    diagnostics.extend(list.diagnostics);
                }
                Event::Readiness(list) => {
                    step.readiness_events += 1;
                    for skill in list.skills {
                        assert!(
                            skill
                                .package
                                .starts_with(&format!("skill://{}/", list.root_id))
                        );
                        let before = match skill.readiness {
                            Some(now) => self.readiness.insert(skill.package.clone(), now),
                            None => self.readiness.remove(&skill.package),
                        };
                        let now = self.readiness.get(&skill.package);
                        assert_ne!(before.as_ref(), now, "no event where nothing changed");
                        step.readiness.push(skill.package);
                    }
                }
                Event::Synced(synced) => {
                    assert!(
                        response.revision > self.revision
                            || step.reset.is_some()
                            || step.is_empty()
                    );
                    (self.revision, self.token) = (response.revision, synced.resume_token);
                    // A root that is not ready yet can be unchanged later.
                    if self
                        .roots
                        .values()
                        .all(|root| root.state() == RootState::Ready)
                    {
                        self.earlier = None;
                    }
                    for id in &step.unchanged {
                        assert_eq!(self.digest(id), self.roots[id].catalog_digest);
                    }
                    return Ok(step);
                }
                Event::Bookmark(bookmark) => {
                    assert!(step.is_empty(), "a bookmark comes between states: {step:?}");
                    (self.revision, self.token) = (response.revision, bookmark.resume_token);
                    step.is_bookmark = true;
                    return Ok(step);
                }
            }
        }
    }

    /// Digest of the catalog of a root in this state.
    pub(crate) fn digest(&self, id: &str) -> String {
        let is_its = |authority: &Option<Authority>| authority.as_ref().is_some_and(|a| a.id == id);
        digest_messages(
            self.skills
                .values()
                .filter(|skill| is_its(&skill.authority)),
            self.plugins
                .values()
                .filter(|plugin| is_its(&plugin.authority)),
            self.marketplaces.get(id).into_iter().flatten(),
            self.diagnostics.get(id).into_iter().flatten(),
        )
    }

    /// Catalogs of this state.
    pub(crate) fn known_catalogs(&self) -> Vec<KnownCatalog> {
        let known = |id: &String| KnownCatalog {
            root_id: id.clone(),
            catalog_digest: self.digest(id),
        };
        self.roots.keys().map(known).collect()
    }

    /// Copies a root that the daemon did not send.
    fn copy_earlier(&mut self, status: &RootStatus) {
        let (id, earlier) = (
            &status.id,
            self.earlier.as_mut().expect("a state before the reset"),
        );
        assert_eq!(
            earlier.digest(id),
            status.catalog_digest,
            "the replica holds no such catalog"
        );
        let is_its =
            |authority: &Option<Authority>| authority.as_ref().is_some_and(|a| a.id == *id);
        self.skills.extend(
            earlier
                .skills
                .extract_if(.., |_, skill| is_its(&skill.authority)),
        );
        self.plugins.extend(
            earlier
                .plugins
                .extract_if(.., |_, plugin| is_its(&plugin.authority)),
        );
        self.marketplaces
            .extend(earlier.marketplaces.remove_entry(id));
        self.diagnostics
            .extend(earlier.diagnostics.remove_entry(id));
    }

    /// Reads like [`Self::try_next_batch`], on a stream that must not end.
    pub(crate) async fn next_batch(&mut self) -> EventBatch {
        self.try_next_batch().await.expect("an open stream")
    }

    /// Reads changes while a condition holds.
    pub(crate) async fn wait_while(&mut self, condition: impl Fn(&Self) -> bool) {
        while condition(self) {
            self.next_change().await;
        }
    }

    /// Reads batches like [`Self::next_batch`] and skips bookmarks.
    pub(crate) async fn next_change(&mut self) -> EventBatch {
        loop {
            let step = self.next_batch().await;
            if !step.is_bookmark {
                return step;
            }
        }
    }

    fn apply(
        &mut self,
        delta: caproot_core::proto::caproot::v1::SkillDelta,
        step: &mut EventBatch,
    ) {
        for removed in delta.removed {
            let reason = removed.reason();
            assert!(
                self.skills.remove(&removed.package).is_some(),
                "{} was held",
                removed.package
            );
            step.removed.push((removed.package, reason));
        }
        for skill in delta.upserted {
            let package = skill.package.clone();
            let before = self.skills.insert(package.clone(), skill);
            assert_ne!(
                before.as_ref(),
                self.skills.get(&package),
                "no event where nothing changed"
            );
            step.upserted.push(package);
        }
        for package in delta.removed_plugins {
            assert!(
                self.plugins.remove(&package).is_some(),
                "{package} was held"
            );
            step.removed_plugins.push(package);
        }
        for plugin in delta.upserted_plugins {
            let package = plugin.package.clone();
            let before = self.plugins.insert(package.clone(), plugin);
            assert_ne!(
                before.as_ref(),
                self.plugins.get(&package),
                "no event where nothing changed"
            );
            step.upserted_plugins.push(package);
        }
        if let Some(lists) = delta.marketplaces {
            let before = self
                .marketplaces
                .insert(delta.root_id, lists.marketplaces.clone());
            assert_ne!(
                before,
                Some(lists.marketplaces),
                "no event where nothing changed"
            );
        }
        step.deltas += 1;
    }

    /// Asserts that the plugins match `ResolveRoots` at the same revision. Does nothing for another
    /// revision or for a stream without plugins.
    pub(crate) async fn assert_plugins_match(&self, daemon: &Daemon) {
        let answer = daemon
            .resolve(&self.request.selected_capability_roots)
            .await;
        let comparable = answer.revision == self.revision
            && answer.next_page_token.is_empty()
            && self.request.view() != SkillView::Basic;
        if !comparable {
            return;
        }
        let plugins = answer.roots.iter().flat_map(|root| &root.plugins);
        let plugins: BTreeMap<_, _> = plugins.map(|p| (p.package.clone(), p.clone())).collect();
        assert_eq!(self.plugins, plugins);
        for root in answer.roots {
            let marketplaces = self.marketplaces.get(&root.id).cloned().unwrap_or_default();
            assert_eq!(marketplaces, root.marketplaces);
        }
    }

    /// Returns a skill as a list has it.
    fn skill_with_readiness(&self, package: &str) -> Option<Skill> {
        let readiness = self.readiness.get(package).cloned();
        let skill = self.skills.get(package)?.clone();
        Some(Skill { readiness, ..skill })
    }

    /// Whether the state matches a list, diagnostics included.
    pub(crate) fn matches(&self, list: &ListSkillsResponse) -> bool {
        self.skills.len() == list.skills.len()
            && list
                .skills
                .iter()
                .all(|s| self.skill_with_readiness(&s.package).as_ref() == Some(s))
            && list.roots.iter().all(|r| self.roots.get(&r.id) == Some(r))
            && self.ordered_diagnostics(list) == list.diagnostics
    }

    /// Diagnostics of the state in the order of the roots of a list.
    fn ordered_diagnostics(&self, list: &ListSkillsResponse) -> Vec<Diagnostic> {
        let of_root =
            |root: &RootStatus| self.diagnostics.get(&root.id).cloned().unwrap_or_default();
        list.roots.iter().flat_map(of_root).collect()
    }

    /// Asserts that the state matches a list.
    pub(crate) fn assert_matches(&self, list: &ListSkillsResponse) {
        let skills: BTreeMap<_, _> = list
            .skills
            .iter()
            .map(|s| (s.package.clone(), s.clone()))
            .collect();
        let own = self.skills.keys().map(|package| {
            let skill = self.skill_with_readiness(package).expect("the skill");
            (package.clone(), skill)
        });
        assert_eq!(own.collect::<BTreeMap<_, _>>(), skills);
        let roots: BTreeMap<_, _> = list
            .roots
            .iter()
            .map(|r| (r.id.clone(), r.clone()))
            .collect();
        assert_eq!(self.roots, roots);
        for root in self
            .roots
            .values()
            .filter(|root| root.state() == RootState::Ready)
        {
            assert_eq!(root.catalog_digest, self.digest(&root.id), "{}", root.id);
        }
        assert_eq!(self.ordered_diagnostics(list), list.diagnostics);
    }

    /// Reads the stream until the state and a fresh list have the same revision, and compares them.
    pub(crate) async fn catch_up(&mut self, daemon: &Daemon) {
        loop {
            let list = self.fresh_list(daemon).await;
            while self.revision < list.revision {
                let before = self.revision;
                if self.matches(&list) {
                    // Later changes are changes of other roots.
                    break;
                }
                let step = self.next_batch().await;
                // A resumed stream begins with a `synced` without changes.
                assert!(self.revision > before || step.is_empty());
            }
            if self.revision <= list.revision {
                self.assert_matches(&list);
                return self.assert_plugins_match(daemon).await;
            }
        }
    }

    /// Reads all pages of a fresh list of the watched roots and joins them.
    async fn fresh_list(&self, daemon: &Daemon) -> ListSkillsResponse {
        let request = ListSkillsRequest {
            selected_capability_roots: self.request.selected_capability_roots.clone(),
            product: self.request.product.clone(),
            view: self.request.view,
            consistency: caproot_core::proto::caproot::v1::Consistency::Fresh.into(),
            ..ListSkillsRequest::default()
        };
        let mut list = daemon.try_list(request.clone()).await.expect("a list");
        while !list.next_page_token.is_empty() {
            let page_token = list.next_page_token;
            let page = daemon
                .try_list(ListSkillsRequest {
                    page_token,
                    ..request.clone()
                })
                .await;
            let page = page.expect("the next page");
            list.skills.extend(page.skills);
            list.next_page_token = page.next_page_token;
        }
        list
    }
}

impl EventBatch {
    fn is_empty(&self) -> bool {
        self.upserted.is_empty()
            && self.removed.is_empty()
            && self.deltas == 0
            && self.statuses.is_empty()
    }
}
