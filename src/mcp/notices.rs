//! What clients are told of changes: that lists are others now, and that a SKILL.md they named is
//! another. Looks at whole revisions only; one who is slow is told of several as of one.

use super::catalog::Catalog;
use super::feed::{Standing, State};
use std::sync::Arc;
use tokio::sync::watch;

/// Follows the revisions for one client.
pub(super) struct Notices {
    state: watch::Receiver<State>,
    /// What the client was told of; `None` until there was anything.
    told: Option<Arc<Catalog>>,
}

/// What changed from one revision to another.
#[derive(Debug)]
pub(super) struct Change {
    before: Arc<Catalog>,
    after: Arc<Catalog>,
}

impl Notices {
    /// From the current revision on.
    pub(super) fn new(mut state: watch::Receiver<State>) -> Self {
        let now = state.borrow_and_update();
        let told = (now.standing != Standing::Begun).then(|| now.catalog.clone());
        drop(now);
        Self { state, told }
    }

    /// The next change; `None` once there will be none. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<Change> {
        loop {
            self.state.changed().await.ok()?;
            let now = self.state.borrow_and_update();
            if now.standing != Standing::InStep {
                continue;
            }
            let after = now.catalog.clone();
            drop(now);
            let before = self.told.replace(after.clone());
            if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, &after)) {
                return Some(Change { before, after });
            }
        }
    }
}

impl Change {
    /// Whether lists of resources show other names, descriptions or fields.
    pub(super) fn lists(&self) -> bool {
        !self.before.shows_as(&self.after)
    }

    /// Whether lists of prompts show other names or descriptions.
    pub(super) fn prompts(&self) -> bool {
        !self.before.prompts_as(&self.after)
    }

    /// Whether the SKILL.md at that URI is another, is new or is gone.
    pub(super) fn updates(&self, uri: &str) -> bool {
        let version = |catalog: &Catalog| {
            catalog.main(uri).map(|skill| (skill.entry.digest.clone(), skill.entry.size))
        };
        version(&self.before) != version(&self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::{Notices, Standing, State};
    use crate::mcp::catalog::Catalog;
    use crate::mcp::entry::Entry;
    use crate::mcp::entry::tests::skill;
    use crate::proto::caproot::v1::{SelectedCapabilityRoot, Skill};
    use std::sync::Arc;
    use tokio::sync::watch;

    fn state(skills: Vec<Skill>) -> State {
        let entries: Vec<_> =
            skills.into_iter().map(|skill| Arc::new(Entry::of(0, skill))).collect();
        let roots = vec![SelectedCapabilityRoot { id: "r".into(), location: None }];
        let catalog = Catalog::new(roots.into(), entries.iter(), [].iter(), false);
        State { catalog: Arc::new(catalog), standing: Standing::InStep }
    }

    #[tokio::test]
    async fn changes_are_told_apart() {
        let (sender, receiver) = watch::channel(State::default());
        let mut notices = Notices::new(receiver.clone());
        sender.send_replace(state(vec![skill("skill://r/a", "a")]));
        let mut later = Notices::new(receiver);
        let edited = Skill { digest: "sha256:2".into(), ..skill("skill://r/a", "a") };
        let uri = "skill://r/a/SKILL.md";

        assert!(tokio::time::timeout(std::time::Duration::ZERO, notices.next()).await.is_err());
        sender.send_replace(state(vec![edited.clone()]));
        for notices in [&mut notices, &mut later] {
            let change = notices.next().await.expect("a change");
            assert!(
                change.updates(uri) && !change.lists() && !change.updates("skill://r/b/SKILL.md")
            );
        }
        sender.send_replace(State { standing: Standing::Lost("x".into()), ..state(vec![]) });
        sender.send_replace(state(vec![edited, skill("skill://r/b", "b")]));
        let change = notices.next().await.expect("a change");
        assert!(change.lists() && change.updates("skill://r/b/SKILL.md") && !change.updates(uri));
        drop(sender);
        assert!(notices.next().await.is_none());
    }
}
