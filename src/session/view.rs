//! All that a session may show at one moment, in the order of the selection. Views are kept while nothing
//! changes, and a few old ones for those who page through them.

use super::one_line::{cut, one_line};
use super::{Session, SharedSkill, lock};
use crate::client::Catalog;
use crate::proto::caproot::v1::{RootState, RootStatus};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// The views that pages can go on from.
const KEPT: usize = 8;
/// The most warnings, and the most bytes of each.
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_BYTES: usize = 256;

/// What an executor shows, or why it shows nothing.
type Source = Result<Arc<Catalog>, String>;

/// What there is.
#[derive(Debug)]
pub(super) struct View {
    /// Random, so that a cursor of another session is known for what it is.
    pub(super) id: u64,
    /// Roots as selected, then by name, then by package; hidden ones too.
    pub(super) skills: Vec<SharedSkill>,
    /// How many of them only a person may call.
    pub(super) hidden: usize,
    /// What a model should know, each on one line.
    pub(super) warnings: Vec<String>,
    /// Whether a limit cut a search short.
    pub(super) truncated: bool,
}

/// The view of now, and those before it.
#[derive(Debug, Default)]
pub(super) struct Views {
    kept: VecDeque<Arc<View>>,
    /// What the first of them was made of.
    sources: Vec<Source>,
}

/// Whether only a person may call a skill, by its name.
pub(super) fn is_hidden(skill: &SharedSkill) -> bool {
    skill.policy.as_ref().is_some_and(|policy| policy.allow_implicit_invocation == Some(false))
}

impl Session {
    /// What there is now.
    pub(super) fn view(&self) -> Arc<View> {
        let sources: Vec<_> = self.parts.iter().map(super::Part::catalog).collect();
        let mut views = lock(&self.views);
        if let Some(view) = views.kept.front()
            && same(&views.sources, &sources)
        {
            return view.clone();
        }
        let view = Arc::new(self.look(&sources));
        views.sources = sources;
        views.kept.push_front(view.clone());
        views.kept.truncate(KEPT);
        view
    }

    /// A view that was shown not long ago.
    pub(super) fn view_before(&self, id: u64) -> Option<Arc<View>> {
        lock(&self.views).kept.iter().find(|view| view.id == id).cloned()
    }

    fn look(&self, sources: &[Source]) -> View {
        let mut by_root: HashMap<&str, &[SharedSkill]> = HashMap::new();
        let mut statuses: HashMap<&str, &RootStatus> = HashMap::new();
        let mut warnings = Vec::new();
        for (part, source) in self.parts.iter().zip(sources) {
            match source {
                Ok(catalog) => {
                    let of = |skill: &SharedSkill| skill.authority.as_ref().map(|a| a.id.clone());
                    for run in catalog.skills().chunk_by(|a, b| of(a) == of(b)) {
                        let id = run[0].authority.as_ref().map_or("", |authority| &authority.id);
                        by_root.insert(id, run);
                    }
                    statuses.extend(catalog.roots().iter().map(|root| (root.id.as_str(), root)));
                }
                Err(why) => warnings.push(format!(
                    "the executor of environment {:?} cannot be used, and its skills are left out: {why}",
                    part.environment_id()
                )),
            }
        }
        let mut skills = Vec::new();
        let mut truncated = false;
        for (id, _) in &self.roots {
            skills.extend(by_root.get(id.as_str()).copied().unwrap_or_default().iter().cloned());
            let Some(status) = statuses.get(id.as_str()) else { continue };
            truncated |= status.truncated;
            if status.state() != RootState::Ready {
                warnings.push(format!("root {id:?} is not ready: {}", status.message));
            }
        }
        View {
            id: RandomState::new().hash_one(self.parts.len()),
            hidden: skills.iter().filter(|skill| is_hidden(skill)).count(),
            skills,
            warnings: bounded(&warnings),
            truncated,
        }
    }
}

/// A few warnings, each on one line.
fn bounded(warnings: &[String]) -> Vec<String> {
    let line = |warning: &String| cut(&one_line(warning), MAX_WARNING_BYTES);
    if warnings.len() <= MAX_WARNINGS {
        return warnings.iter().map(line).collect();
    }
    let mut bounded: Vec<_> = warnings[..MAX_WARNINGS - 1].iter().map(line).collect();
    bounded.push(format!("{} warnings more", warnings.len() - bounded.len()));
    bounded
}

fn same(a: &[Source], b: &[Source]) -> bool {
    let both = |pair: (&Source, &Source)| match pair {
        (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
        (Err(a), Err(b)) => a == b,
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(both)
}
