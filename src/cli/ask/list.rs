//! `caproot list`: the skills below roots, of one daemon or of a fleet.

use super::report;
use crate::cli::args::{LockFileArgs, ProductArgs, TargetArgs};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::fleet::read_fleet;
use crate::cli::output::{OutputFormat, print_full_table, print_json, print_stderr, print_table};
use caproot_client::fleet::{ExecutorListing, ListStage};
use caproot_client::json::SkillListJson;
use caproot_client::{LockView, Trust};
use caproot_core::lock::Lock;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, NotOffered, RootState, Skill, SkillView,
    TrustState,
};
use caproot_core::sync::Mutex;
use caproot_core::text::escape_text;
use caproot_session::missing_notes;
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Delay until progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// List the skills below roots
///
/// Prints the skills to stdout. Roots that are not ready, diagnostics and a summary go to stderr.
/// Exits with 1 if a root is not ready, or if an executor of --fleet does not respond.
///
/// Lists the skills that models are offered. With --all, the column FOR says of each other skill why not:
/// `people` (only people may choose the skill), `none` (neither may), `unlisted` (the plugin lists other
/// skills), `off` (switched off by default) or `unapproved` (by the lock of --lock). The column HOST NEEDS has the
/// capabilities that the manifest of a plugin requires of a host. With --long, the column TRUST has the approval
/// of each skill, if the daemon has a lock.
///
/// With --fleet, asks many executors at once: the executors of the roots of --selected, or every
/// executor for its published roots. With --environment-id as well, asks one executor.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot list                                  # every published root
  caproot list --long                           # with handles
  caproot list --all                            # also skills hidden from models
  caproot list --root ./skills --fresh          # a directory, scanned again
  caproot list --root published:team --product codex
  caproot list --selected thread-start.json     # roots that a platform selected
  caproot list --fleet fleet.yaml               # many executors
  caproot list --fleet fleet.yaml --environment-id build-farm     # one of them
  caproot list --output json | jq -r '.skills[].package'")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct ListArgs {
    #[command(flatten)]
    product: ProductArgs,
    #[command(flatten)]
    lock: LockFileArgs,
    /// Also list skills that are not offered to models
    #[arg(long)]
    all: bool,
    /// Include every change before the call
    #[arg(long)]
    fresh: bool,
    /// Show the handle of each skill instead of its root, and truncate nothing; json always has
    /// handles
    #[arg(long)]
    long: bool,
    /// Show each problem on a line of its own; by default, more than ten problems are one line for each
    /// code. json always has all
    #[arg(long)]
    problems: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints the skills.
pub async fn run(args: ListArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let view = match args.output {
        OutputFormat::Text => SkillView::Basic,
        OutputFormat::Json => SkillView::Full,
    };
    let mut request = ListSkillsRequest {
        product: args.product.product.clone(),
        view: view.into(),
        consistency: consistency(args.fresh).into(),
        ..ListSkillsRequest::default()
    };

    let lock = args.lock.read()?;
    let TargetArgs {
        connection,
        selection,
    } = &args.target;
    if let Some(file) = connection.whole_fleet() {
        return list_fleet(file, &request, lock, &args).await;
    }

    let mut executor = connection.connect(env).await?;
    request.selected_capability_roots = selection.selected_roots(&mut executor, env).await?;
    let mut list = executor.client.list_skills(&request).await?;
    print_stderr(&filter_list(&mut list, lock.as_deref(), &args).lines());

    match args.output {
        OutputFormat::Text => print_list(&list, &args)?,
        OutputFormat::Json => print_json(&SkillListJson::new(&list)?)?,
    }
    Ok(exit::code_for_result(is_ready(&list)))
}

fn print_list(list: &ListSkillsResponse, args: &ListArgs) -> Result<(), CommandFailure> {
    let mut table = SkillTable::new(args.long, false);
    for skill in &list.skills {
        table.add_skill("", skill);
    }
    table.print()?;

    let mut lines = report_of(list, args.problems);
    if list.roots.is_empty() && args.target.selection.selects_published() {
        lines.push(report::NOTHING_PUBLISHED.to_owned());
    }
    print_stderr(&lines);
    Ok(())
}

/// Numbers of skills that a list does not show.
#[derive(Default)]
struct UnlistedSkills {
    unapproved: usize,
    not_offered: usize,
}

impl UnlistedSkills {
    fn lines(&self) -> Vec<String> {
        let whys = [
            (self.unapproved, "because the lock does not approve them"),
            (
                self.not_offered,
                "because models are not offered them; --all lists them",
            ),
        ];
        let omitted = whys.into_iter().filter(|(count, _)| *count > 0);
        let lines = omitted.map(|(count, why)| {
            let skills = report::count_with_noun(count, "skill");
            format!("caproot: {skills} omitted, {why}")
        });
        lines.collect()
    }
}

/// Applies a lock to a list, and removes the skills that are not offered to models. With `--all`, such
/// skills stay, and an unapproved skill stays without the texts of its executor.
fn filter_list(
    list: &mut ListSkillsResponse,
    lock: Option<&Lock>,
    args: &ListArgs,
) -> UnlistedSkills {
    let mut omitted = UnlistedSkills::default();
    if let Some(view) = lock.map(LockView::new) {
        // The unapproved skills are copied first, because the view removes them from the list.
        let skills = list.skills.iter().filter(|_| args.all);
        let unapproved: Vec<_> = skills
            .filter(|skill| view.skill(skill).is_none())
            .map(unapproved_skill)
            .collect();
        let removed = view.retain_approved(&args.product.product, list);
        if args.all {
            list.skills.extend(unapproved);
        } else {
            omitted.unapproved = removed;
        }
    }

    let before = list.skills.len();
    list.skills.retain(|skill| args.all || skill.is_offered());
    omitted.not_offered = before - list.skills.len();
    omitted
}

/// Returns the identity of a skill that a lock does not approve.
fn unapproved_skill(skill: &Skill) -> Skill {
    Skill {
        authority: skill.authority.clone(),
        package: skill.package.clone(),
        name: skill.name.clone(),
        not_offered: NotOffered::Unapproved.into(),
        user_invocable: skill.user_invocable,
        ..Skill::default()
    }
}

/// Returns the report of a list, for `--problems` with a line for each problem.
fn report_of(list: &ListSkillsResponse, shows_problems: bool) -> Vec<String> {
    if shows_problems {
        report::full_skills_report(list)
    } else {
        report::skills_report(list)
    }
}

/// Whether all roots of a list are ready.
fn is_ready(list: &ListSkillsResponse) -> bool {
    let mut roots = list.roots.iter();
    roots.all(|root| root.state() == RootState::Ready)
}

/// Returns the consistency for `--fresh`.
pub fn consistency(fresh: bool) -> Consistency {
    if fresh {
        Consistency::Fresh
    } else {
        Consistency::Cached
    }
}

/// Table of skills. With `--long`, the location of a skill is its handle, otherwise its root.
pub struct SkillTable {
    is_long: bool,
    has_environments: bool,
    /// Escaped cells of each skill. The print leaves out the columns that no skill needs.
    rows: Vec<[String; 9]>,
    /// Locations of the skills so far, by environment, name and digest of the SKILL.md.
    locations: HashMap<[String; 3], String>,
}

impl SkillTable {
    pub fn new(is_long: bool, has_environments: bool) -> Self {
        Self {
            is_long,
            has_environments,
            rows: Vec::new(),
            locations: HashMap::new(),
        }
    }

    pub fn add_skill(&mut self, environment: &str, skill: &Skill) {
        let location = match (self.is_long, &skill.authority) {
            (true, _) => skill.package.as_str(),
            (false, Some(authority)) => authority.id.as_str(),
            (false, None) => "",
        };
        let key = [environment, &skill.name, &skill.digest].map(str::to_owned);
        // The location of an earlier row with the same SKILL.md.
        let same_as = match self.locations.entry(key) {
            Entry::Occupied(first) => escape_text(first.get()),
            Entry::Vacant(new) => {
                new.insert(location.to_owned());
                String::new()
            }
        };
        self.rows.push([
            escape_text(&skill.name),
            escape_text(environment),
            trust_word(skill.trust()).to_owned(),
            escape_text(location),
            same_as,
            invokers_of(skill).to_owned(),
            escape_text(&missing_notes(skill).join(", ")),
            escape_text(&skill.host_capabilities.join(", ")),
            escape_text(&skill.description),
        ]);
    }

    /// Prints the table. A long table is not truncated, so that handles can be copied.
    pub fn print(self) -> Result<(), CommandFailure> {
        let rows = &self.rows;
        let is_needed =
            |column: usize, unused: &str| rows.iter().any(|cells| cells[column] != unused);
        let columns = [
            ("NAME", true),
            ("ENVIRONMENT", self.has_environments),
            ("TRUST", self.is_long && is_needed(2, "")),
            (if self.is_long { "HANDLE" } else { "ROOT" }, true),
            ("SAME AS", is_needed(4, "")),
            ("FOR", is_needed(5, FOR_ALL)),
            ("MISSING", is_needed(6, "")),
            ("HOST NEEDS", is_needed(7, "")),
            ("DESCRIPTION", true),
        ];

        let head: Vec<_> = columns
            .iter()
            .filter(|(_, is_shown)| *is_shown)
            .map(|(name, _)| *name)
            .collect();
        let rows = self.rows.into_iter().map(|cells| {
            cells
                .into_iter()
                .zip(columns)
                .filter(|(_, (_, is_shown))| *is_shown)
                .map(|(cell, _)| cell)
                .collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();

        if self.is_long {
            print_full_table(&head, &rows)
        } else {
            print_table(&head, &rows)
        }
    }
}

/// Cell of a skill that models and persons may choose.
const FOR_ALL: &str = "all";

/// Returns who may choose a skill, or why models are not offered it.
fn invokers_of(skill: &Skill) -> &'static str {
    match (skill.not_offered(), skill.user_invocable) {
        (NotOffered::Unspecified, true) => FOR_ALL,
        (NotOffered::Unspecified, false) => "models",
        (NotOffered::PeopleOnly, true) => "people",
        (NotOffered::PeopleOnly, false) => "none",
        (NotOffered::Unlisted, _) => "unlisted",
        (NotOffered::SwitchedOff, _) => "off",
        (NotOffered::Unapproved, _) => "unapproved",
        (NotOffered::Choice, _) => "hidden",
    }
}

/// Returns the word for an approval; empty if no lock applies.
pub fn trust_word(trust: TrustState) -> &'static str {
    match trust {
        TrustState::Unspecified => "",
        TrustState::Approved => "approved",
        TrustState::Changed => "changed",
        TrustState::Unknown => "unknown",
    }
}

/// Prints the skills and the result of each executor.
async fn list_fleet(
    file: &Path,
    request: &ListSkillsRequest,
    lock: Option<Arc<Lock>>,
    args: &ListArgs,
) -> Result<u8, CommandFailure> {
    let roots = args.target.selection.roots_from_file()?;
    let fleet = read_fleet(file).await?;
    let lock = match (lock, fleet.trust()) {
        (None, Trust::Lock(lock)) => Some(lock),
        (lock, _) => lock,
    };
    let progress = FleetProgress::default();
    let mut listed = {
        let on_progress = |environment: &str, stage| progress.record_stage(environment, stage);
        let listing = fleet.list_skills(roots, request, &on_progress);
        tokio::pin!(listing);

        if let Ok(listed) = tokio::time::timeout(PROGRESS_DELAY, &mut listing).await {
            listed
        } else {
            progress.show_bars();
            listing.await
        }
    };
    progress.clear_bars();
    let mut omitted = UnlistedSkills::default();
    for list in listed.iter_mut().flat_map(|listed| &mut listed.outcome) {
        let of_list = filter_list(list, lock.as_deref(), args);
        omitted.unapproved += of_list.unapproved;
        omitted.not_offered += of_list.not_offered;
    }
    print_stderr(&omitted.lines());

    match args.output {
        OutputFormat::Text => print_text(&listed, args)?,
        OutputFormat::Json => print_json(&fleet_json(&listed)?)?,
    }

    let is_well = listed
        .iter()
        .all(|listed| listed.outcome.as_ref().is_ok_and(is_ready));
    Ok(exit::code_for_result(is_well))
}

fn print_text(listed: &[ExecutorListing], args: &ListArgs) -> Result<(), CommandFailure> {
    let mut table = SkillTable::new(args.long, true);
    let mut lines = Vec::new();
    let mut answered = 0;

    for executor in listed {
        let environment = escape_text(&executor.environment_id);
        match &executor.outcome {
            Ok(list) => {
                answered += 1;
                for skill in &list.skills {
                    table.add_skill(&executor.environment_id, skill);
                }
                let report = report_of(list, args.problems);
                lines.extend(report.iter().map(|line| format!("{environment}: {line}")));
            }
            Err(why) => {
                let why = escape_text(why);
                lines.push(format!("error[UNAVAILABLE] {environment}: {why}"));
            }
        }
    }

    let skills = report::count_with_noun(table.rows.len(), "skill");
    table.print()?;
    let executors = report::count_with_noun(listed.len(), "executor");
    lines.push(format!("{skills} of {answered} of {executors}"));
    print_stderr(&lines);
    Ok(())
}

fn fleet_json(listed: &[ExecutorListing]) -> Result<Value, CommandFailure> {
    let mut executors = Vec::new();
    for ExecutorListing {
        environment_id,
        outcome,
    } in listed
    {
        executors.push(match outcome {
            Err(why) => json!({ "environmentId": environment_id, "error": why }),
            Ok(list) => {
                let list = serde_json::to_value(SkillListJson::new(list)?)?;
                json!({ "environmentId": environment_id, "list": list })
            }
        });
    }
    Ok(json!({ "executors": executors }))
}

/// Progress of each executor, on stderr if stderr is a terminal.
#[derive(Default)]
struct FleetProgress(Mutex<ProgressState>);

#[derive(Default)]
struct ProgressState {
    stages: BTreeMap<String, ListStage>,
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

impl FleetProgress {
    fn record_stage(&self, environment: &str, stage: ListStage) {
        let mut seen = self.0.lock();
        seen.stages.insert(environment.to_owned(), stage);
        seen.draw_bar(environment, stage);
    }

    fn show_bars(&self) {
        let mut seen = self.0.lock();
        seen.bars = Some((MultiProgress::new(), BTreeMap::new()));
        for (environment, stage) in seen.stages.clone() {
            seen.draw_bar(&environment, stage);
        }
    }

    fn clear_bars(&self) {
        let mut seen = self.0.lock();
        if let Some((all, _)) = seen.bars.take() {
            // A write error of the progress display is ignored.
            let _ = all.clear();
        }
    }
}

impl ProgressState {
    fn draw_bar(&mut self, environment: &str, stage: ListStage) {
        let Some((all, bars)) = &mut self.bars else {
            return;
        };

        let bar = bars.entry(environment.to_owned()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}");
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(escape_text(environment));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });

        let text = match stage {
            ListStage::Connecting => "connecting",
            ListStage::ListingRoots => "listing its published roots",
            ListStage::ListingSkills => "listing skills",
            ListStage::Done => "done",
            ListStage::Failed => "does not respond",
        };

        if matches!(stage, ListStage::Done | ListStage::Failed) {
            bar.finish_with_message(text);
        } else {
            bar.set_message(text);
        }
    }
}
