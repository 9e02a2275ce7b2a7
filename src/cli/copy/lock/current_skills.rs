//! Current skills of directories, of a daemon or of a fleet, as the entries of a lock.

use crate::cli::ask::report::{diagnostic_line, skills_report};
use crate::cli::copy::lock::LockArgs;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::fleet::{fleet_failure, omitted_line, read_fleet};
use crate::cli::handle_arg::{find_root, list_request};
use crate::cli::output::print_stderr;
use crate::cli::spinner::DelayedSpinner;
use crate::daemon::local_source::LocalDaemon;
use caproot_client::Client;
use caproot_client::pull::{PackageLocation, PullError, PullLimits, hash_package};
use caproot_core::lock::{ApprovedSkill, Lock, SkillDescription, TextList};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsResponse, NotOffered, RootState, RootStatus, SelectedCapabilityRoot,
    Severity, Skill,
};
use caproot_core::wire::ContentDigest;
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Packages that are read at the same time.
const CONCURRENT_PACKAGES: usize = 4;
/// How often a list is requested until the first scan of each root has ended.
const MAX_LISTS: usize = 20;
/// Time for the roots of an executor of a fleet.
const FLEET_TIMEOUT: Duration = Duration::from_secs(30);

/// Current skills.
#[derive(Default)]
pub struct CurrentSkills {
    /// Skills that can be approved.
    pub lock: Lock,
    /// Skills that cannot be approved.
    pub rejected: Vec<RejectedSkill>,
    /// Package of each skill that can be approved.
    pub packages: Vec<CurrentPackage>,
}

/// Package of a skill.
pub struct CurrentPackage {
    pub name: Box<str>,
    /// Handle of the package.
    pub handle: Box<str>,
    pub content_digest: ContentDigest,
}

/// Skill that cannot be approved.
pub struct RejectedSkill {
    pub name: String,
    /// Reason in one sentence.
    pub reason: String,
}

/// Daemons to ask, and the roots of each.
#[derive(Default)]
struct ConnectedDaemons {
    origins: Vec<ConnectedDaemon>,
    /// Daemon in this process, which must outlive its client.
    _daemon: Option<LocalDaemon>,
}

struct ConnectedDaemon {
    client: Client,
    roots: Vec<SelectedCapabilityRoot>,
}

/// Reads and hashes all skills that the arguments select.
pub async fn read_current_skills(
    args: &LockArgs,
    env: &ProcessEnv,
) -> Result<CurrentSkills, CommandFailure> {
    let origins = if !args.dirs.is_empty() {
        start_local_daemon(&args.dirs).await?
    } else if let Some(file) = args.connection.whole_fleet() {
        find_executors(args, file).await?
    } else {
        let mut executor = args.connection.connect(env).await?;
        let roots = args.selection.selected_roots(&mut executor, env).await?;
        let client = executor.client;
        ConnectedDaemons {
            origins: vec![ConnectedDaemon { client, roots }],
            _daemon: None,
        }
    };

    let spinner = DelayedSpinner::new("listing the skills");
    let work = read_origins(&origins.origins, &spinner);
    spinner.run(work).await
}

async fn start_local_daemon(dirs: &[PathBuf]) -> Result<ConnectedDaemons, CommandFailure> {
    let mut directories = Vec::new();
    for (at, dir) in dirs.iter().enumerate() {
        if !dir.is_dir() {
            let sentence = format!("{} is no directory", dir.display());
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence));
        }
        directories.push(((at + 1).to_string(), dir.clone()));
    }

    let daemon = LocalDaemon::start(directories)
        .await
        .or_exit(exit::BAD_CONFIG)?;
    let origin = ConnectedDaemon {
        client: daemon.client.clone(),
        roots: daemon.roots.clone(),
    };
    Ok(ConnectedDaemons {
        origins: vec![origin],
        _daemon: Some(daemon),
    })
}

/// Connects to each executor of a fleet. A missing executor is an error: its skills would be gone.
async fn find_executors(args: &LockArgs, file: &Path) -> Result<ConnectedDaemons, CommandFailure> {
    let fleet = read_fleet(file).await?;
    let roots = if let Some(roots) = args.selection.roots_from_file()? {
        roots
    } else {
        let published = fleet.published_roots(FLEET_TIMEOUT).await;
        if !published.omitted.is_empty() {
            let lines: Vec<_> = published.omitted.iter().map(omitted_line).collect();
            return Err(CommandFailure::from_messages(exit::TRY_LATER, &lines));
        }
        published.roots
    };

    let mut by_environment = BTreeMap::<String, Vec<_>>::new();
    for root in roots {
        let location = root.location.as_ref();
        let id = location.map(|location| location.environment_id.clone());
        by_environment
            .entry(id.unwrap_or_default())
            .or_default()
            .push(root);
    }

    let mut found = ConnectedDaemons::default();
    for (id, roots) in by_environment {
        let client = fleet.connect(&id).await;
        let client = client.map_err(|error| fleet_failure(error, &fleet, file))?;
        found.origins.push(ConnectedDaemon { client, roots });
    }
    Ok(found)
}

async fn read_origins(
    origins: &[ConnectedDaemon],
    spinner: &DelayedSpinner,
) -> Result<CurrentSkills, CommandFailure> {
    let mut skills = Vec::new();
    let mut packages = Vec::new();
    let mut rejected = Vec::new();
    for origin in origins {
        let list = origin.list_all().await?;
        let total = list.skills.len();
        let reads = list.skills.iter().map(|skill| origin.read_skill(skill));
        let mut reads = stream::iter(reads).buffered(CONCURRENT_PACKAGES);

        let mut count = 0;
        while let Some(read) = reads.next().await {
            match read? {
                Ok(skill) => {
                    packages.push(CurrentPackage {
                        name: skill.name.clone(),
                        handle: list.skills[count].package.as_str().into(),
                        content_digest: skill.content_digest,
                    });
                    skills.push(skill);
                }
                Err(reject) => rejected.push(reject),
            }
            count += 1;
            spinner.set_message(format!("{count} of {total} skills read"));
        }
    }
    Ok(CurrentSkills {
        lock: skills.into_iter().collect(),
        rejected,
        packages,
    })
}

impl ConnectedDaemon {
    /// Lists the skills of all roots. An incomplete list is an error.
    async fn list_all(&self) -> Result<ListSkillsResponse, CommandFailure> {
        let mut client = self.client.clone();
        let request = list_request(self.roots.clone(), Consistency::Fresh);
        let mut list = client.list_skills(&request).await?;
        for _ in 1..MAX_LISTS {
            let mut states = list.roots.iter().map(RootStatus::state);
            if states.all(|state| state != RootState::Pending) {
                break;
            }
            list = client.list_skills(&request).await?;
        }

        let mut states = list.roots.iter().map(RootStatus::state);
        if states.any(|state| state != RootState::Ready) || list.truncated {
            print_stderr(&skills_report(&list));
            let sentence =
                "the list of skills is incomplete, so a lock cannot be compared or written";
            return Err(CommandFailure::new(exit::TRY_LATER, sentence));
        }
        let errors = list.diagnostics.iter();
        let errors = errors.filter(|found| found.severity() == Severity::Error);
        print_stderr(&errors.filter_map(diagnostic_line).collect::<Vec<_>>());
        Ok(list)
    }

    /// Reads all files of a skill. The inner error is about the skill alone.
    async fn read_skill(
        &self,
        skill: &Skill,
    ) -> Result<Result<ApprovedSkill, RejectedSkill>, CommandFailure> {
        if skill.stale {
            return Ok(Err(RejectedSkill::new(skill, "its SKILL.md is not valid")));
        }
        let root = find_root(&skill.package, self.roots.clone())?;
        let location = PackageLocation {
            root: &root,
            package: &skill.package,
        };
        let files = match hash_package(&self.client, location, PullLimits::default()).await {
            Ok(files) => files,
            Err(error @ (PullError::Call(_) | PullError::InvalidResponse(_))) => {
                return Err(error.into());
            }
            Err(error) => return Ok(Err(RejectedSkill::new(skill, &rejection_reason(&error)))),
        };

        let Some(products) = TextList::new(&skill.products) else {
            return Ok(Err(RejectedSkill::new(
                skill,
                "a product has no valid name",
            )));
        };
        let description = SkillDescription {
            description: skill.description.as_str().into(),
            short_description: skill.short_description.as_str().into(),
            model_invocable: skill.not_offered() != NotOffered::PeopleOnly,
            user_invocable: skill.user_invocable,
            products,
        };
        Ok(Ok(ApprovedSkill::new(&skill.name, description, files)))
    }
}

impl RejectedSkill {
    fn new(skill: &Skill, reason: &str) -> Self {
        Self {
            name: skill.name.clone(),
            reason: reason.to_owned(),
        }
    }
}

fn rejection_reason(error: &PullError) -> String {
    match error {
        PullError::Unapprovable(reason) => format!("it {reason}"),
        PullError::TooLarge(limit) => format!("it has over {limit}, the limit of a lock"),
        error => error.to_string(),
    }
}
