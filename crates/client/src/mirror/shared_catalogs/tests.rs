//! Waits for transfers, and the limit of idle catalogs. The time is paused.

use super::{
    CatalogTransfer, MAX_TRANSFER_TIME, MAX_WAIT, ObtainedCatalogs, STALL_TIMEOUT,
    SharedCatalogKey, SharedCatalogs,
};
use crate::mirror::root_contents::RootContents;
use caproot_core::proto::caproot::v1::{Skill, SkillView};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};

fn key(root_id: &str) -> SharedCatalogKey {
    let (root_id, catalog_digest) = (root_id.to_owned(), format!("sha256:{root_id}"));
    SharedCatalogKey {
        root_id,
        catalog_digest,
        product: String::new(),
        view: SkillView::Basic,
    }
}

fn contents(text: &str) -> Arc<RootContents> {
    let mut contents = RootContents::default();
    let (package, description) = ("skill://r/a".to_owned(), text.to_owned());
    contents.insert_skill(Skill {
        package,
        description,
        ..Skill::default()
    });
    Arc::new(contents)
}

fn obtain(shared: &SharedCatalogs, roots: &[&str]) -> JoinHandle<ObtainedCatalogs> {
    let (shared, keys) = (
        shared.clone(),
        roots.iter().map(|id| key(id)).collect::<Vec<_>>(),
    );
    tokio::spawn(async move { shared.obtain(&keys).await })
}

/// Returns the transfer of a mirror that asked for one catalog.
async fn only_transfer(obtained: JoinHandle<ObtainedCatalogs>) -> CatalogTransfer {
    let mut obtained = obtained.await.expect("no panic");
    assert_eq!((obtained.stored.len(), obtained.transfers.len()), (0, 1));
    obtained.transfers.remove(0)
}

/// Runs all tasks until each waits.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn mirrors_wait_for_one_transfer() {
    let shared = SharedCatalogs::new(1 << 20);
    let transfer = only_transfer(obtain(&shared, &["r"])).await;
    let waiting: Vec<_> = (0..9).map(|_| obtain(&shared, &["r"])).collect();
    let other = only_transfer(obtain(&shared, &["other"])).await;
    // Progress renews the wait, which has a limit in total.
    for _ in 0..5 {
        settle().await;
        advance(STALL_TIMEOUT / 2).await;
        transfer.record_progress();
    }
    settle().await;
    assert!(waiting.iter().all(|wait| !wait.is_finished()));
    let stored = contents("text");
    assert!(Arc::ptr_eq(&shared.share(&key("r"), &stored), &stored));
    drop(transfer);
    for wait in waiting {
        let obtained = wait.await.expect("no panic");
        assert!(Arc::ptr_eq(&obtained.stored["r"], &stored) && obtained.transfers.is_empty());
    }
    // Equal contents of another executor are replaced.
    assert!(Arc::ptr_eq(
        &shared.share(&key("r"), &contents("text")),
        &stored
    ));
    assert_eq!(shared.counts().hits, 9);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn the_next_mirror_replaces_a_stalled_transfer() {
    let shared = SharedCatalogs::new(1 << 20);
    let stalled = only_transfer(obtain(&shared, &["r"])).await;
    let mut waiting: Vec<_> = (0..9).map(|_| obtain(&shared, &["r"])).collect();
    for _ in 0..3 {
        settle().await;
        advance(STALL_TIMEOUT).await;
        settle().await;
        // One mirror starts its own transfer, and the others wait for this one.
        let started: Vec<_> = waiting.extract_if(.., |wait| wait.is_finished()).collect();
        assert_eq!(started.len(), 1);
        for wait in started {
            let transfer = only_transfer(wait).await;
            // Stalls like the first one.
            std::mem::forget(transfer);
        }
    }
    // The end of a replaced transfer does not end the wait for the others.
    drop(stalled);
    settle().await;
    assert!(waiting.iter().all(|wait| !wait.is_finished()));
}

/// Each executor that sends an event from time to time delays the others by `MAX_TRANSFER_TIME`, and
/// all such executors together by `MAX_WAIT`. Meanwhile, the mirrors do not all start transfers.
#[tokio::test(start_paused = true)]
async fn slow_transfers_delay_others_for_a_limited_time() {
    let shared = SharedCatalogs::new(1 << 20);
    let began = Instant::now();
    let mut slow = vec![only_transfer(obtain(&shared, &["r"])).await];
    let mut waiting: Vec<_> = (0..19).map(|_| obtain(&shared, &["r"])).collect();
    while began.elapsed() + STALL_TIMEOUT < MAX_WAIT {
        settle().await;
        advance(STALL_TIMEOUT / 2).await;
        settle().await;
        for started in waiting.extract_if(.., |wait| wait.is_finished()) {
            slow.push(only_transfer(started).await);
        }
        let ended = began.elapsed().as_secs() / MAX_TRANSFER_TIME.as_secs();
        assert_eq!(slow.len() as u64, 1 + ended);
        slow.iter().for_each(CatalogTransfer::record_progress);
    }
    settle().await;
    advance(STALL_TIMEOUT).await;
    settle().await;
    assert!(waiting.iter().all(JoinHandle::is_finished));
}

/// The end of an early transfer is noticed by the mirrors that wait for a later one.
#[tokio::test(start_paused = true)]
async fn the_first_of_several_transfers_ends_the_wait() {
    let shared = SharedCatalogs::new(1 << 20);
    let first = only_transfer(obtain(&shared, &["r"])).await;
    let next = obtain(&shared, &["r"]);
    settle().await;
    advance(STALL_TIMEOUT).await;
    let second = only_transfer(next).await;
    let waiting = obtain(&shared, &["r"]);
    settle().await;
    let stored = shared.share(&key("r"), &contents("text"));
    drop(first);
    second.record_progress();
    let obtained = waiting.await.expect("no panic");
    assert!(Arc::ptr_eq(&obtained.stored["r"], &stored) && obtained.transfers.is_empty());
}

/// Mirrors of several roots hold no transfer while they wait, so that they never wait for each other.
#[tokio::test(start_paused = true)]
async fn mirrors_of_several_roots_do_not_wait_for_each_other() {
    let shared = SharedCatalogs::new(1 << 20);
    let began = Instant::now();
    let transfer = only_transfer(obtain(&shared, &["b"])).await;
    let both = obtain(&shared, &["a", "b"]);
    settle().await;
    let first = only_transfer(obtain(&shared, &["a"])).await;
    drop((transfer, first));
    assert_eq!(both.await.expect("no panic").transfers.len(), 2);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// A failed transfer leaves the catalog to the next mirror at once.
#[tokio::test(start_paused = true)]
async fn the_next_mirror_follows_a_failed_transfer() {
    let shared = SharedCatalogs::new(1 << 20);
    let began = Instant::now();
    for _ in 0..3 {
        let transfer = only_transfer(obtain(&shared, &["r"])).await;
        let next = obtain(&shared, &["r"]);
        settle().await;
        drop(transfer);
        drop(only_transfer(next).await);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn idle_catalogs_are_limited_in_bytes() {
    let catalogs: Vec<_> = (0..10).map(|n| contents(&n.to_string())).collect();
    let shared = SharedCatalogs::new(3 * catalogs[0].bytes());
    let keys: Vec<_> = (0..10).map(|n| key(&n.to_string())).collect();
    for (key, contents) in keys.iter().zip(&catalogs) {
        shared.share(key, contents);
        shared.retain(key, contents);
        // A use keeps the first catalog.
        shared.share(&keys[0], &catalogs[0]);
    }
    assert_eq!(shared.counts().catalogs, 10, "catalogs in use are found");
    assert_eq!(shared.counts().retained_bytes, 3 * catalogs[0].bytes());
    drop(catalogs);
    assert_eq!(shared.counts().catalogs, 3);
    let obtained = shared.obtain(&keys).await;
    let mut found: Vec<_> = obtained.stored.into_keys().collect();
    found.sort();
    assert_eq!(found, ["0", "8", "9"]);
    let none = SharedCatalogs::new(0);
    none.retain(&keys[0], &contents("x"));
    assert_eq!(
        (none.counts().catalogs, none.counts().retained_bytes),
        (0, 0)
    );
}
