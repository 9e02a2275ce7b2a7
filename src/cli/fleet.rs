//! `--fleet FILE`: the executors of a file, and the skills of all of them at once. Leaves asking to
//! `client::fleet`.

use super::exit;
use super::failure::CommandFailure;
use super::list::{location_header, print_skills, skill_row};
use super::output::{OutputFormat, print_json, print_stderr};
use super::report;
use super::text::escape_text;
use crate::client::fleet::{ExecutorConfig, ExecutorListing, Fleet, FleetFileError, ListStage};
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
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Reads the file, or tells everything that is wrong with it.
pub(super) async fn read_fleet(file: &Path) -> Result<Fleet, CommandFailure> {
    Fleet::from_file(file).await.map_err(|mistakes| {
        let sentences: Vec<_> = mistakes.0.iter().map(FleetFileError::to_string).collect();
        CommandFailure::from_messages(exit::BAD_CONFIG, &sentences)
    })
}

/// One executor, for whatever environments the roots name.
pub(super) fn single_executor_fleet(
    executor: &ExecutorConfig,
    roots: &[SelectedCapabilityRoot],
) -> Fleet {
    let environment = |root: &SelectedCapabilityRoot| {
        root.location.as_ref().map_or_else(String::new, |l| l.environment_id.clone())
    };
    let environments: HashSet<String> = roots.iter().map(environment).collect();
    Fleet::from_executors(environments.into_iter().map(|id| (id, executor.clone())))
}

/// Prints the skills of every executor, and how each is.
pub(super) async fn list_fleet(
    file: &Path,
    roots: Option<Vec<SelectedCapabilityRoot>>,
    request: &ListSkillsRequest,
    is_long: bool,
    output: OutputFormat,
) -> Result<u8, CommandFailure> {
    let fleet = read_fleet(file).await?;
    let progress = FleetProgress::default();
    let listed = {
        let told = |environment: &str, stage| progress.record_stage(environment, stage);
        let listing = fleet.list_skills(roots, request, &told);
        tokio::pin!(listing);
        if let Ok(listed) = tokio::time::timeout(PROGRESS_DELAY, &mut listing).await {
            listed
        } else {
            progress.show_bars();
            listing.await
        }
    };
    progress.clear_bars();
    match output {
        OutputFormat::Text => print_text(&listed, is_long)?,
        OutputFormat::Json => print_json(&fleet_json(&listed)?)?,
    }
    let is_well = |listed: &ExecutorListing| {
        let ready = |list: &ListSkillsResponse| {
            list.roots.iter().all(|root| root.state() == RootState::Ready)
        };
        listed.outcome.as_ref().is_ok_and(ready)
    };
    Ok(if listed.iter().all(is_well) { exit::OK } else { exit::PROBLEMS_FOUND })
}

fn print_text(listed: &[ExecutorListing], is_long: bool) -> Result<(), CommandFailure> {
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for ExecutorListing { environment_id, outcome } in listed {
        let environment = escape_text(environment_id);
        match outcome {
            Ok(list) => {
                rows.extend(list.skills.iter().map(|skill| {
                    let [name, place, description] = skill_row(skill, is_long);
                    [name, environment.clone(), place, description]
                }));
                lines.extend(
                    report::skills_report(list).iter().map(|l| format!("{environment}: {l}")),
                );
            }
            Err(why) => {
                lines.push(format!("error[UNAVAILABLE] {environment}: {}", escape_text(why)))
            }
        }
    }
    let head = ["NAME", "ENVIRONMENT", location_header(is_long), "DESCRIPTION"];
    print_skills(head, &rows, is_long)?;
    let answered = listed.iter().filter(|listed| listed.outcome.is_ok()).count();
    let all = report::count_with_noun(rows.len(), "skill");
    lines.push(format!(
        "{all} of {answered} of {}",
        report::count_with_noun(listed.len(), "executor")
    ));
    print_stderr(&lines);
    Ok(())
}

fn fleet_json(listed: &[ExecutorListing]) -> Result<Value, CommandFailure> {
    let one = |ExecutorListing { environment_id, outcome }: &ExecutorListing| {
        let nonsense =
            |error: &dyn std::fmt::Display| CommandFailure::invalid_response(&error.to_string());
        Ok(match outcome {
            Err(why) => json!({ "environmentId": environment_id, "error": why }),
            Ok(list) => {
                let list = json::to_dynamic(list).map_err(|error| nonsense(&error))?;
                let list = serde_json::to_value(&list).map_err(|error| nonsense(&error))?;
                json!({ "environmentId": environment_id, "list": list })
            }
        })
    };
    let executors: Vec<Value> = listed.iter().map(one).collect::<Result<_, CommandFailure>>()?;
    Ok(json!({ "executors": executors }))
}

/// How far each executor is, on stderr if that is a terminal.
#[derive(Default)]
struct FleetProgress(Mutex<ProgressState>);

#[derive(Default)]
struct ProgressState {
    stages: BTreeMap<String, ListStage>,
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

impl FleetProgress {
    fn record_stage(&self, environment: &str, stage: ListStage) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.stages.insert(environment.to_owned(), stage);
        seen.draw_bar(environment, stage);
    }

    fn show_bars(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bars = Some((MultiProgress::new(), BTreeMap::new()));
        for (environment, stage) in seen.stages.clone() {
            seen.draw_bar(&environment, stage);
        }
    }

    fn clear_bars(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((all, _)) = seen.bars.take() {
            // Nobody is left to tell when even this cannot be drawn.
            let _ = all.clear();
        }
    }
}

impl ProgressState {
    fn draw_bar(&mut self, environment: &str, stage: ListStage) {
        let Some((all, bars)) = &mut self.bars else { return };
        let bar = bars.entry(environment.to_owned()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}");
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(escape_text(environment));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let said = match stage {
            ListStage::Connecting => "connecting",
            ListStage::ListingRoots => "asking for its published roots",
            ListStage::ListingSkills => "listing skills",
            ListStage::Done => "done",
            ListStage::Failed => "does not answer",
        };
        if matches!(stage, ListStage::Done | ListStage::Failed) {
            bar.finish_with_message(said);
        } else {
            bar.set_message(said);
        }
    }
}
