//! Task that follows the index of a site: requests it, and again after an interval or a refresh.

use super::SiteState;
use super::client::{IndexResponse, IndexValidators, SiteClient};
use super::index::{SiteLocation, parse_index};
use super::limits::{MAX_RETRY_DELAY, MIN_RETRY_DELAY, RELIST_INTERVAL};
use caproot_core::backoff::Backoff;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Site that is followed.
pub struct FollowedSite {
    pub location: SiteLocation,
    pub client: SiteClient,
    pub relist: Arc<Notify>,
}

/// Follows a site until the task is aborted.
pub async fn follow_site(site: FollowedSite, sender: watch::Sender<SiteState>) {
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    let mut validators = IndexValidators::default();
    loop {
        let requested_at = Instant::now();
        let delay = match site.update_state(&mut validators, &sender).await {
            Ok(()) => {
                backoff.reset();
                RELIST_INTERVAL
            }
            Err(reason) => {
                store_failure(&site.location.id, reason, &sender);
                backoff.next_delay()
            }
        };

        tokio::select! {
            () = site.relist.notified() => {}
            () = sleep(delay) => {}
        }
        sleep_until(requested_at + MIN_RETRY_DELAY).await;
    }
}

impl FollowedSite {
    /// Requests the index and stores a new list.
    async fn update_state(
        &self,
        validators: &mut IndexValidators,
        sender: &watch::Sender<SiteState>,
    ) -> Result<(), String> {
        match self.client.fetch_index(validators).await? {
            IndexResponse::Unchanged => {
                sender.send_if_modified(SiteState::mark_available);
            }

            IndexResponse::Changed {
                bytes,
                validators: new,
            } => {
                let before = sender.borrow().skills.clone();
                let listed = parse_index(&self.location, &bytes, &before)?;
                *validators = new;
                sender.send_if_modified(|state| state.store_list(listed));
            }
        }
        Ok(())
    }
}

/// Stores the reason why a site is unavailable. The skills stay, so that no other source takes their
/// names.
fn store_failure(site: &str, reason: String, sender: &watch::Sender<SiteState>) {
    sender.send_if_modified(|state| {
        let is_changed = state.unavailable_reason.as_ref() != Some(&reason) || !state.has_result;
        if is_changed {
            tracing::warn!(site, reason, "site is unavailable");
        }
        state.unavailable_reason = Some(reason);
        state.has_result = true;
        is_changed
    });
}
