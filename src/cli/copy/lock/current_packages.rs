//! Current skills and plugins of directories, of a daemon or of a fleet, as the entries of a lock.

use crate::cli::ask::report::{diagnostic_line, skills_report};
use crate::cli::copy::lock::LockArgs;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::fleet::{fleet_failure, omitted_line, read_fleet};
use crate::cli::handle_arg::{find_root, list_plugins, list_request};
use crate::cli::output::print_stderr;
use crate::cli::spinner::DelayedSpinner;
use crate::daemon::local_source::LocalDaemon;
use caproot_client::pull::{PackageLocation, PullError, PullLimits, hash_plugin, hash_skill};
use caproot_client::{Client, declaration_digest};
use caproot_core::lock::{
    ApprovedPlugin, ApprovedSkill, EntryKind, Lock, SkillDescription, TextList,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsResponse, NotOffered, Plugin, RootState, RootStatus,
    SelectedCapabilityRoot, Severity, Skill,
};
use caproot_core::wire::ContentDigest;
use caproot_core::wire::handle::is_within;
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

/// Current skills and plugins.
#[derive(Default)]
pub struct CurrentPackages {
    /// Skills and plugins that can be approved.
    pub lock: Lock,
    /// Each package. Packages that can be approved come first.
    pub packages: Vec<CurrentPackage>,
}

/// Package of a skill or plugin.
pub struct CurrentPackage {
    pub kind: EntryKind,
    pub name: String,
    /// Handle of the package.
    pub handle: Box<str>,
    /// Digest, or the reason in one sentence if the package cannot be approved.
    pub content_digest: Result<ContentDigest, String>,
}

/// Daemon to ask, and its roots.
struct ConnectedDaemon {
    client: Client,
    roots: Vec<SelectedCapabilityRoot>,
}

/// Reason why a package is not read.
enum ReadFailure {
    /// The package cannot be approved.
    Package(String),
    Command(CommandFailure),
}

impl From<CommandFailure> for ReadFailure {
    fn from(failure: CommandFailure) -> Self {
        Self::Command(failure)
    }
}

impl From<PullError> for ReadFailure {
    fn from(error: PullError) -> Self {
        Self::Package(match error {
            PullError::Call(_) | PullError::InvalidResponse(_) => {
                return Self::Command(error.into());
            }
            PullError::Unapprovable(reason) => format!("it {reason}"),
            PullError::NotDigested(files) => format!(
                "the daemon does not read {}, which may hold keys, leads out of the plugin, or is \
                 unreadable; move it out of the plugin",
                files.join(", ")
            ),
            PullError::TooLarge(limit) => format!("it has over {limit}, the limit of a lock"),
            error => error.to_string(),
        })
    }
}

/// Reads and hashes all skills and plugins that the arguments select.
pub async fn read_current_packages(
    args: &LockArgs,
    env: &ProcessEnv,
) -> Result<CurrentPackages, CommandFailure> {
    // The daemon in this process must outlive its client.
    let local_daemon;
    let origins = if !args.dirs.is_empty() {
        local_daemon = start_local_daemon(&args.dirs).await?;
        vec![ConnectedDaemon {
            client: local_daemon.client.clone(),
            roots: local_daemon.roots.clone(),
        }]
    } else if let Some(file) = args.connection.whole_fleet() {
        find_executors(args, file).await?
    } else {
        let mut executor = args.connection.connect(env).await?;
        let roots = args.selection.selected_roots(&mut executor, env).await?;
        let client = executor.client;
        vec![ConnectedDaemon { client, roots }]
    };

    let spinner = DelayedSpinner::new("listing the skills");
    spinner.run(read_origins(&origins, &spinner)).await
}

async fn start_local_daemon(dirs: &[PathBuf]) -> Result<LocalDaemon, CommandFailure> {
    let mut directories = Vec::new();
    for (id, dir) in (1..).zip(dirs) {
        if !dir.is_dir() {
            let sentence = format!("{} is no directory", dir.display());
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence));
        }
        directories.push((id.to_string(), dir.clone()));
    }

    let started = LocalDaemon::start(directories).await;
    started.or_exit(exit::BAD_CONFIG)
}

/// Connects to each executor of a fleet. A missing executor is an error: its skills would be gone.
async fn find_executors(
    args: &LockArgs,
    file: &Path,
) -> Result<Vec<ConnectedDaemon>, CommandFailure> {
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
        let id = root.location.as_ref().map(|at| at.environment_id.clone());
        let id = id.unwrap_or_default();
        by_environment.entry(id).or_default().push(root);
    }

    let mut found = Vec::new();
    for (id, roots) in by_environment {
        let client = fleet.connect(&id).await;
        let client = client.map_err(|error| fleet_failure(error, &fleet, file))?;
        found.push(ConnectedDaemon { client, roots });
    }
    Ok(found)
}

async fn read_origins(
    origins: &[ConnectedDaemon],
    spinner: &DelayedSpinner,
) -> Result<CurrentPackages, CommandFailure> {
    let mut current = CurrentPackages::default();
    let mut skills = Vec::new();
    let mut plugins = Vec::new();
    for origin in origins {
        let list = origin.list_all().await?;
        let reads = list.skills.iter().map(|skill| origin.read_skill(skill));
        let reads = run_reads(reads, "skills", spinner).await?;
        for (skill, read) in list.skills.into_iter().zip(reads) {
            current.packages.push(CurrentPackage {
                kind: EntryKind::Skill,
                name: skill.name,
                handle: skill.package.into(),
                content_digest: read
                    .as_ref()
                    .map(|entry| entry.content_digest)
                    .map_err(Clone::clone),
            });
            skills.extend(read);
        }

        let mut client = origin.client.clone();
        let list = list_plugins(&mut client, origin.roots.clone(), Consistency::Fresh).await?;
        let reads = list.iter().map(|plugin| origin.read_plugin(plugin));
        let reads = run_reads(reads, "plugins", spinner).await?;
        for (plugin, read) in list.into_iter().zip(reads) {
            current.packages.push(CurrentPackage {
                kind: EntryKind::Plugin,
                name: plugin.name,
                handle: plugin.package.into(),
                content_digest: read
                    .as_ref()
                    .map(|entry| entry.content_digest)
                    .map_err(Clone::clone),
            });
            plugins.extend(read);
        }
    }

    // Each `extend` sorts all entries, so that there is one for all daemons.
    current.lock.extend(skills);
    current.lock.extend(plugins);
    let packages = &mut current.packages;
    packages.sort_by_key(|package| package.content_digest.is_err());
    Ok(current)
}

/// Runs reads, a few at once, and shows how many are done. Returns the results in order, each with the
/// reason if the package cannot be approved.
async fn run_reads<T>(
    reads: impl ExactSizeIterator<Item: Future<Output = Result<T, ReadFailure>>>,
    noun: &str,
    spinner: &DelayedSpinner,
) -> Result<Vec<Result<T, String>>, CommandFailure> {
    let total = reads.len();
    let mut running = stream::iter(reads).buffered(CONCURRENT_PACKAGES);
    let mut results = Vec::new();

    while let Some(read) = running.next().await {
        results.push(match read {
            Ok(entry) => Ok(entry),
            Err(ReadFailure::Package(reason)) => Err(reason),
            Err(ReadFailure::Command(failure)) => return Err(failure),
        });
        spinner.set_message(format!("{} of {total} {noun} read", results.len()));
    }
    Ok(results)
}

impl CurrentPackage {
    /// Whether the handle of the package is one of these handles.
    pub fn is_in(&self, handles: &[String]) -> bool {
        handles.iter().any(|handle| **handle == *self.handle)
    }
}

impl CurrentPackages {
    /// Returns the names of the skills in the packages of a plugin, also of those that cannot be approved.
    pub fn skills_of_plugin(&self, plugin: &str, chosen: &[String]) -> Vec<String> {
        let plugins: Vec<_> = self
            .packages
            .iter()
            .filter(|package| {
                package.kind == EntryKind::Plugin
                    && package.name == plugin
                    && package.content_digest.is_ok()
                    && (chosen.is_empty() || package.is_in(chosen))
            })
            .collect();

        let skills = self.packages.iter().filter(|package| {
            let mut plugins = plugins.iter();
            package.kind == EntryKind::Skill
                && plugins.any(|plugin| is_within(&package.handle, &plugin.handle))
        });
        skills.map(|package| package.name.clone()).collect()
    }
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
            let sentence = "the list of skills and plugins is incomplete, so a lock cannot be compared or written";
            return Err(CommandFailure::new(exit::TRY_LATER, sentence));
        }
        let errors = list.diagnostics.iter();
        let errors = errors.filter(|found| found.severity() == Severity::Error);
        print_stderr(&errors.filter_map(diagnostic_line).collect::<Vec<_>>());
        Ok(list)
    }

    /// Reads all files of a skill.
    async fn read_skill(&self, skill: &Skill) -> Result<ApprovedSkill, ReadFailure> {
        let reject = |reason: &str| Err(ReadFailure::Package(reason.to_owned()));
        if skill.stale {
            return reject("its SKILL.md is not valid");
        }
        let root = find_root(&skill.package, self.roots.clone())?;
        let location = PackageLocation {
            root: &root,
            package: &skill.package,
        };
        let files = hash_skill(&self.client, location, PullLimits::default()).await?;

        let Some(products) = TextList::new(&skill.products) else {
            return reject("a product has no valid name");
        };
        let description = SkillDescription {
            description: skill.description.as_str().into(),
            short_description: skill.short_description.as_str().into(),
            model_invocable: skill.not_offered() != NotOffered::PeopleOnly,
            user_invocable: skill.user_invocable,
            products,
        };
        Ok(ApprovedSkill::new(&skill.name, description, files))
    }

    /// Reads all files of a plugin.
    async fn read_plugin(&self, plugin: &Plugin) -> Result<ApprovedPlugin, ReadFailure> {
        let reject = |reason: &str| Err(ReadFailure::Package(reason.to_owned()));
        if plugin.stale {
            return reject("a file that declares its parts is not valid");
        }
        if plugin.truncated {
            return reject("it declares more parts than a daemon reports");
        }

        let root = find_root(&plugin.package, self.roots.clone())?;
        let location = PackageLocation {
            root: &root,
            package: &plugin.package,
        };
        let hashed = hash_plugin(&self.client, location, PullLimits::default()).await?;
        Ok(ApprovedPlugin {
            name: plugin.name.as_str().into(),
            version: plugin.version.as_str().into(),
            content_digest: hashed.files.content_digest(),
            declaration_digest: declaration_digest(plugin),
            files: hashed.files,
            withheld: hashed.withheld.into(),
        })
    }
}
