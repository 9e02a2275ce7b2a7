//! Follows one stream for ever, and shows each whole state. Leaves applying events to `held`, and what
//! changed since an earlier mirror to `meeting`.

use super::held::{Held, Told};
use super::meeting::{Meeting, State};
use super::{Catalog, MirrorState, ResumePoint, Selection, Since, Snapshot};
use crate::client::call::Client;
use crate::client::watch::{Heard, SkillWatch};
use crate::proto::caproot::v1::WatchSkillsRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a mirror waits after a daemon refused it for good, or broke its promises. Somebody may have
/// mended what was wrong.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

/// Shows what is held.
pub(super) struct Teller {
    pub(super) tell: watch::Sender<Snapshot>,
    pub(super) count: watch::Sender<u64>,
}

/// Keeps the copy, for ever.
pub(super) async fn follow(
    client: Client,
    selection: Selection,
    from: Option<ResumePoint>,
    teller: Teller,
) {
    let request = WatchSkillsRequest {
        selected_capability_roots: selection.roots.clone(),
        product: selection.product.clone(),
        view: selection.view.into(),
        bookmark_interval: selection.bookmark_interval.try_into().ok(),
        ..WatchSkillsRequest::default()
    };
    let mut meeting = from.map(|from| Meeting::new(&client, &request, from, selection.max_bytes));
    loop {
        let mut held = Held::new(&selection);
        let mut watch = client.watch_skills(request.clone());
        let why = listen(&mut watch, &mut held, &mut meeting, &teller).await;
        drop(watch);
        teller.lose(&why, true);
        tokio::time::sleep(REFUSED_WAIT).await;
    }
}

/// Applies what comes until it can no longer be gone on; why not.
async fn listen(
    watch: &mut SkillWatch,
    held: &mut Held,
    meeting: &mut Option<Meeting>,
    teller: &Teller,
) -> String {
    // Whether what is held is another state than the one that is shown.
    let mut news = false;
    loop {
        match watch.next().await {
            Ok(Heard::Event(event)) => match held.hear(*event) {
                Ok(Told::Nothing) => {}
                Ok(Told::State { epoch, revision, token, changed }) => {
                    news |= changed;
                    let catalog = news.then(|| Arc::new(held.catalog()));
                    let state = State { epoch, revision, token };
                    let mut since = None;
                    if let Some(with) = meeting {
                        since = with.meet(&state, catalog.as_deref()).await;
                        if since.is_none() {
                            // The two are of different revisions: this one asks where it is by now.
                            watch.reopen();
                            continue;
                        }
                        *meeting = None;
                    }
                    news = false;
                    teller.publish(catalog, state, since);
                }
                Err(why) => return why,
            },
            Ok(Heard::Lost { cause, .. }) => {
                held.lose();
                teller.lose(&cause.to_string(), cause.is_connection_refused());
            }
            Err(cause) => return cause.to_string(),
        }
    }
}

impl Teller {
    /// Shows a whole state; `None`: the catalog of the one before.
    fn publish(&self, catalog: Option<Arc<Catalog>>, state: State, since: Option<Since>) {
        self.tell.send_if_modified(|held| {
            let news = catalog.is_some() || held.state != MirrorState::Live;
            if let Some(catalog) = catalog {
                held.moved |= held.since.is_some();
                held.catalog = catalog;
            }
            if let Some(since) = since {
                held.since = Some(Arc::new(since));
            }
            (held.epoch, held.revision, held.state) =
                (state.epoch, state.revision, MirrorState::Live);
            held.resume_token = state.token;
            news
        });
        self.count.send_modify(|count| *count += 1);
    }

    /// Shows that the executor is lost; the first reason since it was there stays. `has_failed`: an
    /// executor that was never there is not expected now.
    fn lose(&self, why: &str, has_failed: bool) {
        self.tell.send_if_modified(|held| {
            let lost = match &held.state {
                MirrorState::Stale { .. } => return false,
                MirrorState::Live => MirrorState::Stale { since: Instant::now(), why: why.into() },
                MirrorState::Connecting(_) | MirrorState::Failed(_) if has_failed => {
                    MirrorState::Failed(why.into())
                }
                MirrorState::Connecting(_) | MirrorState::Failed(_) => {
                    MirrorState::Connecting(Some(why.into()))
                }
            };
            let news = held.state != lost;
            held.state = lost;
            news
        });
    }
}
