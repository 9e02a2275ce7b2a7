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
    /// Skills and plugins that cannot be approved.
    pub rejected: Vec<RejectedPackage>,
    /// Each package that can be approved.
    pub packages: Vec<CurrentPackage>,
}

/// Package of a skill or plugin.
pub struct CurrentPackage {
    pub kind: EntryKind,
    pub name: Box<str>,
    /// Handle of the package.
    pub handle: Box<str>,
    pub content_digest: ContentDigest,
}

/// Skill or plugin that cannot be approved.
pub struct RejectedPackage {
    pub kind: EntryKind,
    pub name: String,
    /// Handle of the package.
    pub handle: String,
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

/// Reads and hashes all skills and plugins that the arguments select.
pub async fn read_current_packages(
    args: &LockArgs,
    env: &ProcessEnv,
) -> Result<CurrentPackages, CommandFailure> {
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
) -> Result<CurrentPackages, CommandFailure> {
    let mut current = CurrentPackages::default();
    let mut skills = Vec::new();
    let mut plugins = Vec::new();
    for origin in origins {
        let list = origin.list_all().await?;
        let total = list.skills.len();
        let reads = list.skills.iter().map(|skill| origin.read_skill(skill));

        // The results have the order of the list, so that each result gets its own handle.
        let mut reads = stream::iter(reads).buffered(CONCURRENT_PACKAGES);
        let mut handles = list.skills.iter().map(|skill| &*skill.package);
        let mut count = 0;
        while let Some(read) = reads.next().await {
            let read = current.take(read?, handles.next().unwrap_or_default());
            skills.extend(read);
            count += 1;
            spinner.set_message(format!("{count} of {total} skills read"));
        }
        drop(reads);

        let mut client = origin.client.clone();
        let list = list_plugins(&mut client, origin.roots.clone(), Consistency::Fresh).await?;
        let total = list.len();
        let reads = list.iter().map(|plugin| origin.read_plugin(plugin));
        let mut reads = stream::iter(reads).buffered(CONCURRENT_PACKAGES);
        let mut handles = list.iter().map(|plugin| &*plugin.package);
        let mut count = 0;
        while let Some(read) = reads.next().await {
            let read = current.take(read?, handles.next().unwrap_or_default());
            plugins.extend(read);
            count += 1;
            spinner.set_message(format!("{count} of {total} plugins read"));
        }
    }

    // Each `extend` sorts all entries, so that there is one for all daemons.
    current.lock.extend(skills);
    current.lock.extend(plugins);
    Ok(current)
}

/// Entry of a lock, as a current package.
trait CurrentEntry {
    fn package(&self, handle: &str) -> CurrentPackage;
}

impl CurrentEntry for ApprovedSkill {
    fn package(&self, handle: &str) -> CurrentPackage {
        CurrentPackage {
            kind: EntryKind::Skill,
            name: self.name.clone(),
            handle: handle.into(),
            content_digest: self.content_digest,
        }
    }
}

impl CurrentEntry for ApprovedPlugin {
    fn package(&self, handle: &str) -> CurrentPackage {
        CurrentPackage {
            kind: EntryKind::Plugin,
            name: self.name.clone(),
            handle: handle.into(),
            content_digest: self.content_digest,
        }
    }
}

impl CurrentPackages {
    /// Records a read. Returns the entry if the package can be approved.
    fn take<T: CurrentEntry>(
        &mut self,
        read: Result<T, RejectedPackage>,
        handle: &str,
    ) -> Option<T> {
        match read {
            Ok(entry) => {
                self.packages.push(entry.package(handle));
                Some(entry)
            }
            Err(reject) => {
                self.rejected.push(reject);
                None
            }
        }
    }

    /// Returns the names of the skills in the packages of a plugin, also of those that cannot be approved.
    pub fn skills_of_plugin(&self, plugin: &str, chosen: &[String]) -> Vec<String> {
        let of_plugin = |package: &&CurrentPackage| {
            let is_chosen =
                chosen.is_empty() || chosen.iter().any(|handle| **handle == *package.handle);
            package.kind == EntryKind::Plugin && *package.name == *plugin && is_chosen
        };
        let plugins: Vec<_> = self.packages.iter().filter(of_plugin).collect();
        let is_inside = |handle: &str| {
            let mut plugins = plugins.iter();
            plugins.any(|plugin| is_within(handle, &plugin.handle))
        };

        let skills = self.packages.iter();
        let skills = skills
            .filter(|package| package.kind == EntryKind::Skill && is_inside(&package.handle))
            .map(|package| package.name.to_string());
        let rejected = self.rejected.iter();
        let rejected = rejected
            .filter(|package| package.kind == EntryKind::Skill && is_inside(&package.handle))
            .map(|package| package.name.clone());
        skills.chain(rejected).collect()
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

    /// Reads all files of a skill. The inner error is about the skill alone.
    async fn read_skill(
        &self,
        skill: &Skill,
    ) -> Result<Result<ApprovedSkill, RejectedPackage>, CommandFailure> {
        let reject = |reason: &str| {
            Ok(Err(RejectedPackage {
                kind: EntryKind::Skill,
                name: skill.name.clone(),
                handle: skill.package.clone(),
                reason: reason.to_owned(),
            }))
        };
        if skill.stale {
            return reject("its SKILL.md is not valid");
        }
        let root = find_root(&skill.package, self.roots.clone())?;
        let location = PackageLocation {
            root: &root,
            package: &skill.package,
        };
        let files = match hash_skill(&self.client, location, PullLimits::default()).await {
            Ok(files) => files,
            Err(error @ (PullError::Call(_) | PullError::InvalidResponse(_))) => {
                return Err(error.into());
            }
            Err(error) => return reject(&rejection_reason(&error)),
        };

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
        Ok(Ok(ApprovedSkill::new(&skill.name, description, files)))
    }

    /// Reads all files of a plugin. The inner error is about the plugin alone.
    async fn read_plugin(
        &self,
        plugin: &Plugin,
    ) -> Result<Result<ApprovedPlugin, RejectedPackage>, CommandFailure> {
        let reject = |reason: &str| {
            Ok(Err(RejectedPackage {
                kind: EntryKind::Plugin,
                name: plugin.name.clone(),
                handle: plugin.package.clone(),
                reason: reason.to_owned(),
            }))
        };
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
        match hash_plugin(&self.client, location, PullLimits::default()).await {
            Ok(hashed) => Ok(Ok(ApprovedPlugin {
                name: plugin.name.as_str().into(),
                version: plugin.version.as_str().into(),
                content_digest: hashed.files.content_digest(),
                declaration_digest: declaration_digest(plugin),
                files: hashed.files,
                withheld: hashed.withheld.into(),
            })),
            Err(error @ (PullError::Call(_) | PullError::InvalidResponse(_))) => Err(error.into()),
            Err(error) => reject(&rejection_reason(&error)),
        }
    }
}

fn rejection_reason(error: &PullError) -> String {
    match error {
        PullError::Unapprovable(reason) => format!("it {reason}"),
        PullError::NotDigested(files) => format!(
            "the daemon does not read {}, which may hold keys, leads out of the plugin, or is unreadable; \
             move it out of the plugin",
            files.join(", ")
        ),
        PullError::TooLarge(limit) => format!("it has over {limit}, the limit of a lock"),
        error => error.to_string(),
    }
}
