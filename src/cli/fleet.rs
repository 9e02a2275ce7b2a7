//! `--fleet FILE`: the executors of a file, and the skills of all of them at once. Leaves asking to
//! `client::fleet`.

use super::exit;
use super::failure::Failure;
use super::list::{place_head, print_skills, row};
use super::output::{Output, print_json, say};
use super::report;
use super::text::shown;
use crate::client::fleet::{Executor, Fleet, FleetMistake, Listed, Stage};
use crate::client::json;
use crate::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, RootState, SelectedCapabilityRoot,
};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// After how long it is said that something goes on.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Reads the file, or tells everything that is wrong with it.
pub(super) async fn read(file: &Path) -> Result<Fleet, Failure> {
    Fleet::from_file(file).await.map_err(|mistakes| {
        let sentences: Vec<_> = mistakes.0.iter().map(FleetMistake::to_string).collect();
        Failure::all(exit::CONFIG, &sentences)
    })
}

/// One executor, for whatever environments the roots name.
pub(super) fn of_one(executor: &Executor, roots: &[SelectedCapabilityRoot]) -> Fleet {
    let environment = |root: &SelectedCapabilityRoot| {
        root.location.as_ref().map_or_else(String::new, |l| l.environment_id.clone())
    };
    let environments: HashSet<String> = roots.iter().map(environment).collect();
    Fleet::of(environments.into_iter().map(|id| (id, executor.clone())))
}

/// Prints the skills of every executor, and how each is.
pub(super) async fn list(
    file: &Path,
    roots: Option<Vec<SelectedCapabilityRoot>>,
    request: &ListSkillsRequest,
    is_long: bool,
    output: Output,
) -> Result<u8, Failure> {
    let fleet = read(file).await?;
    let progress = Progress::default();
    let listed = {
        let told = |environment: &str, stage| progress.note(environment, stage);
        let listing = fleet.list(roots, request, &told);
        tokio::pin!(listing);
        if let Ok(listed) = tokio::time::timeout(SHOWN_AFTER, &mut listing).await {
            listed
        } else {
            progress.show();
            listing.await
        }
    };
    progress.clear();
    match output {
        Output::Text => print_text(&listed, is_long)?,
        Output::Json => print_json(&as_json(&listed)?)?,
    }
    let is_well = |listed: &Listed| {
        let ready = |list: &ListSkillsResponse| {
            list.roots.iter().all(|root| root.state() == RootState::Ready)
        };
        listed.outcome.as_ref().is_ok_and(ready)
    };
    Ok(if listed.iter().all(is_well) { exit::OK } else { exit::WRONG })
}

fn print_text(listed: &[Listed], is_long: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for Listed { environment_id, outcome } in listed {
        let environment = shown(environment_id);
        match outcome {
            Ok(list) => {
                rows.extend(list.skills.iter().map(|skill| {
                    let [name, place, description] = row(skill, is_long);
                    [name, environment.clone(), place, description]
                }));
                lines.extend(report::lines(list).iter().map(|l| format!("{environment}: {l}")));
            }
            Err(why) => lines.push(format!("error[UNAVAILABLE] {environment}: {}", shown(why))),
        }
    }
    let head = ["NAME", "ENVIRONMENT", place_head(is_long), "DESCRIPTION"];
    print_skills(head, &rows, is_long)?;
    let answered = listed.iter().filter(|listed| listed.outcome.is_ok()).count();
    let all = report::counted(rows.len(), "skill");
    lines.push(format!("{all} of {answered} of {}", report::counted(listed.len(), "executor")));
    say(&lines);
    Ok(())
}

fn as_json(listed: &[Listed]) -> Result<Value, Failure> {
    let one = |Listed { environment_id, outcome }: &Listed| {
        let nonsense = |error: &dyn std::fmt::Display| Failure::nonsense(&error.to_string());
        Ok(match outcome {
            Err(why) => json!({ "environmentId": environment_id, "error": why }),
            Ok(list) => {
                let list = json::dynamic(list).map_err(|error| nonsense(&error))?;
                let list = serde_json::to_value(&list).map_err(|error| nonsense(&error))?;
                json!({ "environmentId": environment_id, "list": list })
            }
        })
    };
    let executors: Vec<Value> = listed.iter().map(one).collect::<Result<_, Failure>>()?;
    Ok(json!({ "executors": executors }))
}

/// How far each executor is, on stderr if that is a terminal.
#[derive(Default)]
struct Progress(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    stages: BTreeMap<String, Stage>,
    shown: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

impl Progress {
    fn note(&self, environment: &str, stage: Stage) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.stages.insert(environment.to_owned(), stage);
        seen.draw(environment, stage);
    }

    fn show(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.shown = Some((MultiProgress::new(), BTreeMap::new()));
        for (environment, stage) in seen.stages.clone() {
            seen.draw(&environment, stage);
        }
    }

    fn clear(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((all, _)) = seen.shown.take() {
            // Nobody is left to tell when even this cannot be drawn.
            let _ = all.clear();
        }
    }
}

impl Seen {
    fn draw(&mut self, environment: &str, stage: Stage) {
        let Some((all, bars)) = &mut self.shown else { return };
        let bar = bars.entry(environment.to_owned()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}");
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(shown(environment));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let said = match stage {
            Stage::Connecting => "connecting",
            Stage::Roots => "asking for its published roots",
            Stage::Skills => "listing skills",
            Stage::Done => "done",
            Stage::Failed => "does not answer",
        };
        if matches!(stage, Stage::Done | Stage::Failed) {
            bar.finish_with_message(said);
        } else {
            bar.set_message(said);
        }
    }
}
