//! Mirrors that the sessions of a process share, by environment and selection.

use crate::mirror::{Mirror, MirrorSelection, MirrorTask};
use caproot_core::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Weak;

/// Number of environments from which ended mirrors are removed.
const MIN_SWEEP_LEN: usize = 64;

/// Mirrors in use. A mirror ends with its last clone, and then only its selection stays here until
/// the next sweep.
#[derive(Debug, Default)]
pub struct MirrorPool(Mutex<MirrorPoolState>);

#[derive(Debug, Default)]
struct MirrorPoolState {
    mirrors: BTreeMap<String, Vec<(MirrorSelection, Weak<MirrorTask>)>>,
    /// Number of environments at which the next sweep removes ended mirrors.
    next_sweep_len: usize,
}

impl MirrorPool {
    /// Returns the mirror of an environment with this selection, which `start` returns if there is
    /// none. A mirror that waits for its next attempt to connect tries at once. The roots of the
    /// selection must be sorted.
    pub fn find_or_start(
        &self,
        environment_id: &str,
        selection: MirrorSelection,
        start: impl FnOnce(MirrorSelection) -> Mirror,
    ) -> Mirror {
        let mut state = self.0.lock();
        let mut mirrors = state.mirrors.get(environment_id).into_iter().flatten();
        let found = mirrors.find(|(other, _)| *other == selection);
        if let Some(task) = found.and_then(|(_, task)| task.upgrade()) {
            let mirror = Mirror::from_task(task);
            mirror.request_retry();
            return mirror;
        }

        let mirror = start(selection.clone());
        let mirrors = state.mirrors.entry(environment_id.to_owned()).or_default();
        mirrors.retain(|(_, task)| task.strong_count() > 0);
        mirrors.push((selection, mirror.downgrade()));

        // Doubling the length between two sweeps keeps the cost of a mirror constant.
        if state.mirrors.len() >= state.next_sweep_len.max(MIN_SWEEP_LEN) {
            state
                .mirrors
                .retain(|_, mirrors| mirrors.iter().any(|(_, task)| task.strong_count() > 0));
            state.next_sweep_len = 2 * state.mirrors.len();
        }
        mirror
    }

    /// Returns the number of shared mirrors in use.
    pub fn len(&self) -> usize {
        let state = self.0.lock();
        state
            .mirrors
            .values()
            .flatten()
            .filter(|(_, task)| task.strong_count() > 0)
            .count()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use crate::fleet::{ExecutorConfig, ExecutorRegistry, Fleet, RegistryFuture};
    use crate::mirror::{MirrorSelection, MirrorState};
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::time::sleep;

    /// Registry of an executor whose socket is missing. Counts the attempts to connect.
    #[derive(Clone, Default)]
    struct CountingRegistry(Arc<AtomicUsize>);

    impl CountingRegistry {
        fn attempts(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl ExecutorRegistry for CountingRegistry {
        fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let endpoint = "unix:/nonexistent/caproot.sock".parse().expect("a path");
            Box::pin(ready(Ok(Some(ExecutorConfig::new(endpoint)))))
        }
    }

    fn selection() -> MirrorSelection {
        MirrorSelection::new(Vec::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_user_ends_the_delay_of_a_mirror() {
        let registry = CountingRegistry::default();
        let fleet = Fleet::new(registry.clone());
        let first = fleet.mirror("dev", selection());
        // From here on, each delay is a random part of 10 s.
        sleep(Duration::from_mins(1)).await;
        assert!(matches!(first.snapshot().state, MirrorState::Failed(_)));

        for user in 0..20 {
            let before = registry.attempts();
            let mirror = fleet.mirror("dev", selection());
            mirror
                .wait_until_live_or_failed(Duration::from_secs(5))
                .await;
            assert!(registry.attempts() > before, "{user}");
            assert!(matches!(mirror.snapshot().state, MirrorState::Failed(_)));
            sleep(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_new_users_cause_one_early_attempt_a_second() {
        let registry = CountingRegistry::default();
        let fleet = Fleet::new(registry.clone());
        let first = fleet.mirror("dev", selection());
        sleep(Duration::from_mins(1)).await;

        let before = registry.attempts();
        for _ in 0..1_000 {
            drop(fleet.mirror("dev", selection()));
            sleep(Duration::from_millis(10)).await;
        }
        let attempts = registry.attempts() - before;
        // Ten early attempts. A delay that is under 1 s by chance ends before them.
        assert!((9..30).contains(&attempts), "{attempts}");
        drop(first);
    }
}
