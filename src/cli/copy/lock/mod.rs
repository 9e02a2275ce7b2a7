//! `caproot lock`: records and compares approved skills and plugins.

mod current_packages;
mod out_file;
mod report;

use crate::cli::args::{ConnectionArgs, SelectionArgs, read_lock};
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::handle_arg::join_candidates;
use crate::cli::output::{OutputFormat, is_plain_word, print_json, print_stderr, write_stdout};
use caproot_core::lock::{EntryChange, EntryDifference, EntryKind, Lock, LockDifference};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::text::similar::suggest_names;
use caproot_core::text::{SentenceResult as _, escape_text};
use caproot_core::wire::ContentDigest;
use clap::{ArgGroup, Args};
use current_packages::{CurrentPackage, CurrentPackages, read_current_packages};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Next step after a name that means several packages.
const TWIN_HINT: &str = "review them, and name each one to approve with --package HANDLE";
/// Maximum number of names in a hint.
const MAX_HINT_NAMES: usize = 10;

/// Record approved skills and plugins, or compare them
///
/// A lock has the name, and the digest, size and mode of each file of the approved skills and plugins, the
/// descriptions of the skills, and the versions of the plugins. Reads the skills and plugins of directories
/// exactly like a daemon that publishes them, or of the daemons of the connection options, and hashes each
/// file. The daemon computes the digest of a file whose values it withholds.
///
/// If the file in --out does not exist, the command approves all skills and plugins. Afterwards those to
/// approve are named; the name of a plugin also means its skills. Exits with 1 if they differ from the lock
/// and no name is given, or if a skill or plugin cannot be approved.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("lock_file").args(["out", "check"]).required(true)))]
#[command(group(ArgGroup::new("changes").args(["update", "add", "remove", "prune"]).multiple(true)))]
#[command(after_help = "\
Examples:
  caproot lock ./skills --out caproot.lock      # approve all skills and plugins
  caproot lock ./skills --check caproot.lock    # for CI
  caproot lock ./skills --update pdf --out caproot.lock
  caproot lock ./skills --check caproot.lock --signers allowed_signers
  caproot lock --fleet fleet.yaml --check caproot.lock")]
pub struct LockArgs {
    /// Skill, plugin or directory of skills and plugins; repeat for more [default: the skills of a
    /// daemon]
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Lock to write
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Lock to compare; writes nothing
    #[arg(long, value_name = "FILE", conflicts_with = "changes")]
    check: Option<PathBuf>,
    /// Require an SSH signature of the lock in FILE.sig by a key of this file, which has the format of
    /// `allowed_signers` in ssh-keygen(1)
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    signers: Option<PathBuf>,
    /// Replace the entries of these skills, by qualified name, and of these plugins with their skills
    #[arg(long, value_name = "NAME", num_args = 1..)]
    update: Vec<String>,
    /// Approve the current version of these skills and plugins in addition to the versions of the lock
    #[arg(long, value_name = "NAME", num_args = 1..)]
    add: Vec<String>,
    /// With --update or --add: of several packages with one name, approve only this one. The message about
    /// them, and --check, have the handles
    #[arg(long, value_name = "HANDLE", num_args = 1.., conflicts_with = "check")]
    package: Vec<String>,
    /// Remove the entries of these skills and plugins. The skills of a plugin have their own names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    remove: Vec<String>,
    /// Remove the entries of all skills and plugins that do not exist
    #[arg(long)]
    prune: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Connection options")]
    pub connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    pub selection: SelectionArgs,
}

/// Writes or compares the lock.
pub async fn run(args: LockArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if let Some(file) = &args.check {
        let lock = read_lock(file, args.signers.as_deref())?;
        let current = read_current_packages(&args, env).await?;
        return report_check(&args, file, &lock, &current);
    }

    let Some(file) = &args.out else {
        return Err(CommandFailure::new(
            exit::USAGE,
            "--out or --check is required",
        ));
    };
    if args.has_changes() {
        return change_lock(&args, file, env).await;
    }

    if !file.exists() {
        let current = read_current_packages(&args, env).await?;
        return create_lock(&args, file, &current);
    }
    let lock = Lock::read(file)?;
    let current = read_current_packages(&args, env).await?;
    report_existing(&args, file, &lock, &current)
}

impl LockArgs {
    fn has_changes(&self) -> bool {
        self.prune || self.needs_skills() || !self.remove.is_empty()
    }

    /// Whether skills are approved by their names.
    fn needs_skills(&self) -> bool {
        !self.update.is_empty() || !self.add.is_empty()
    }
}

/// Writes a new lock with all skills.
fn create_lock(
    args: &LockArgs,
    file: &Path,
    current: &CurrentPackages,
) -> Result<u8, CommandFailure> {
    let lock = &current.lock;
    write_lock(file, lock)?;
    let difference = Lock::default().difference(lock);
    let mut lines = report::entry_lines(lock);
    // A new lock approves all packages, so that twins are only named.
    lines.extend(report::difference_lines(&current.twins()));
    print_written(args, file, lock, &difference, lines)?;
    Ok(finish_report(current, true))
}

/// Reports the differences from a lock that exists, and leaves it as it is.
fn report_existing(
    args: &LockArgs,
    file: &Path,
    lock: &Lock,
    current: &CurrentPackages,
) -> Result<u8, CommandFailure> {
    let difference = current.difference_from(lock);
    if !difference.is_empty() {
        let code = report_check(args, file, lock, current)?;
        print_stderr(&[format!(
            "caproot: nothing is written: {} exists; name the skills to approve",
            file.display()
        )]);
        return Ok(code);
    }

    let unchanged = vec![format!("{} is unchanged", file.display())];
    match args.output {
        OutputFormat::Text => print_lines(&unchanged)?,
        OutputFormat::Json => print_report(file, lock, &difference, current, false)?,
    }
    Ok(finish_report(current, true))
}

/// Prints the differences from a lock.
fn report_check(
    args: &LockArgs,
    file: &Path,
    lock: &Lock,
    current: &CurrentPackages,
) -> Result<u8, CommandFailure> {
    let difference = current.difference_from(lock);
    match args.output {
        OutputFormat::Json => print_report(file, lock, &difference, current, false)?,
        OutputFormat::Text => print_lines(&report::difference_lines(&difference))?,
    }

    if !difference.is_empty() {
        let counts = report::count_differences(&difference);
        let mut lines = vec![format!("caproot: {counts}")];
        lines.push(change_hint(args, file, &difference));
        print_stderr(&lines);
    } else if args.output == OutputFormat::Text {
        let count = report::count_names(lock);
        print_lines(&[format!(
            "{}: {count} approved, no difference",
            file.display()
        )])?;
    }
    Ok(finish_report(current, difference.is_empty()))
}

/// Reports the skills and plugins that cannot be approved. Returns the exit code.
fn finish_report(current: &CurrentPackages, is_equal: bool) -> u8 {
    let rejected = &current.rejected;
    print_stderr(
        &rejected
            .iter()
            .map(report::rejection_line)
            .collect::<Vec<_>>(),
    );
    exit::code_for_result(is_equal && rejected.is_empty())
}

impl CurrentPackages {
    /// Compares the skills and plugins with a lock. One that cannot be approved is not gone.
    fn difference_from(&self, lock: &Lock) -> LockDifference {
        let mut difference = lock.difference(&self.lock);
        difference.entries.retain(|entry| {
            let mut rejected = self.rejected.iter();
            let is_rejected =
                rejected.any(|other| other.kind == entry.kind && *other.name == *entry.name);
            entry.change != EntryChange::Gone || !is_rejected
        });

        for entry in &mut difference.entries {
            if self.lock.approved_files(entry.kind, &entry.name).count() > 1 {
                let packages = self.packages_of(entry.kind, &entry.name);
                let packages = packages.map(|package| package.handle.clone()).collect();
                entry.change = EntryChange::Twin { packages };
            }
        }
        // Each version of a name is a difference of its own.
        difference.entries.dedup();
        difference
    }

    /// Returns the names that several packages with different files have.
    fn twins(&self) -> LockDifference {
        let mut twins = self.difference_from(&Lock::default());
        let is_twin = |entry: &EntryDifference| matches!(entry.change, EntryChange::Twin { .. });
        twins.entries.retain(is_twin);
        twins
    }

    fn packages_of(&self, kind: EntryKind, name: &str) -> impl Iterator<Item = &CurrentPackage> {
        let packages = self.packages_named(name);
        packages.filter(move |package| package.kind == kind)
    }

    fn packages_named(&self, name: &str) -> impl Iterator<Item = &CurrentPackage> {
        let packages = self.packages.iter();
        packages.filter(move |package| *package.name == *name)
    }
}

/// Approves and removes the named skills and plugins.
async fn change_lock(args: &LockArgs, file: &Path, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let old = Lock::read(file)?;
    // A removal needs only the lock, and no daemon.
    let current = if args.needs_skills() || args.prune {
        read_current_packages(args, env).await?
    } else {
        CurrentPackages::default()
    };

    let lock = args.changed_lock(&old, &current)?;
    write_lock(file, &lock)?;
    let difference = old.difference(&lock);
    let lines = report::difference_lines(&difference);
    print_written(args, file, &lock, &difference, lines)?;
    Ok(exit::OK)
}

impl LockArgs {
    /// Returns a lock with the changes of the flags.
    fn changed_lock(&self, old: &Lock, current: &CurrentPackages) -> Result<Lock, CommandFailure> {
        let mut lock = old.clone();
        for name in &self.remove {
            let skill = lock.remove(EntryKind::Skill, name);
            let plugin = lock.remove(EntryKind::Plugin, name);
            if !skill && !plugin {
                return Err(unknown_name(name, old, "the lock has no skill or plugin"));
            }
        }

        self.check_packages(current)?;
        for entry in current.chosen_entries(&self.update, &self.package)? {
            lock.remove(entry.kind, &entry.name);
            entry.approve_in(&mut lock, &current.lock);
        }
        for entry in current.chosen_entries(&self.add, &self.package)? {
            entry.approve_in(&mut lock, &current.lock);
        }
        if self.prune {
            for entry in current.difference_from(old).entries {
                if entry.change == EntryChange::Gone {
                    lock.remove(entry.kind, &entry.name);
                }
            }
        }

        Ok(lock)
    }

    /// Checks that each chosen package has one of the names to approve, or is a skill of a plugin with such a
    /// name.
    fn check_packages(&self, current: &CurrentPackages) -> Result<(), CommandFailure> {
        let names: Vec<_> = self.update.iter().chain(&self.add).collect();
        let of_plugins = names.iter();
        let of_plugins = of_plugins.flat_map(|name| current.skills_of_plugin(name, &[]));
        let of_plugins: Vec<_> = of_plugins.collect();
        let known: Vec<_> = names
            .into_iter()
            .chain(&of_plugins)
            .flat_map(|name| current.packages_named(name))
            .map(|package| &*package.handle)
            .collect();
        let mut unknown = self.package.iter();
        match unknown.find(|handle| !known.contains(&handle.as_str())) {
            None => Ok(()),
            Some(handle) => {
                let handle = escape_text(handle);
                let sentence = format!("no package of the named skills has the handle {handle}");
                Err(
                    CommandFailure::new(exit::REJECTED, sentence).with_hint(format!(
                        "the packages are {}",
                        join_handles(known.into_iter())
                    )),
                )
            }
        }
    }
}

/// Joins the first handles, and counts the others.
fn join_handles<'a>(handles: impl ExactSizeIterator<Item = &'a str>) -> String {
    escape_text(&join_candidates(handles))
}

/// Versions of a name to approve.
struct ChosenEntry {
    kind: EntryKind,
    name: String,
    /// Digests of the chosen packages.
    digests: Vec<ContentDigest>,
}

impl ChosenEntry {
    /// Adds the versions to a lock.
    fn approve_in(&self, lock: &mut Lock, current: &Lock) {
        let is_chosen = |digest: &ContentDigest| self.digests.contains(digest);
        match self.kind {
            EntryKind::Skill => {
                let versions = current.versions(&self.name).iter();
                let chosen = versions.filter(|skill| is_chosen(&skill.content_digest));
                lock.extend(chosen.cloned());
            }
            EntryKind::Plugin => {
                let versions = current.plugin_versions(&self.name).iter();
                let chosen = versions.filter(|plugin| is_chosen(&plugin.content_digest));
                lock.extend(chosen.cloned());
            }
        }
    }
}

impl CurrentPackages {
    /// Returns the entries of named skills and plugins to approve. The name of a plugin also means its skills.
    fn chosen_entries(
        &self,
        names: &[String],
        chosen: &[String],
    ) -> Result<Vec<ChosenEntry>, CommandFailure> {
        let mut entries = Vec::new();
        for name in names {
            let kinds = self.kinds_of(name, chosen)?;
            for kind in &kinds {
                entries.push(self.chosen_versions(*kind, name, chosen)?);
            }
            if kinds.contains(&EntryKind::Plugin) {
                for skill in self.skills_of_plugin(name, chosen) {
                    entries.push(self.chosen_versions(EntryKind::Skill, &skill, chosen)?);
                }
            }
        }
        Ok(entries)
    }

    /// Returns the kinds of the packages that a name means. If a skill and a plugin have the name, only the
    /// chosen packages count, because an author could have added one of them.
    fn kinds_of(&self, name: &str, chosen: &[String]) -> Result<Vec<EntryKind>, CommandFailure> {
        // A package that cannot be approved counts, so that its name does not mean the other kind.
        let rejected = self.rejected.iter();
        let rejected = rejected.filter(|other| other.name == name);
        let packages = self.packages_named(name);
        let packages: Vec<(EntryKind, &str)> = packages
            .map(|package| (package.kind, &*package.handle))
            .chain(rejected.map(|other| (other.kind, &*other.handle)))
            .collect();

        let kinds: BTreeSet<_> = packages.iter().map(|(kind, _)| *kind).collect();
        match kinds.len() {
            0 => {
                return Err(unknown_name(
                    name,
                    &self.lock,
                    "no skill or plugin has the qualified name",
                ));
            }
            1 => return Ok(kinds.into_iter().collect()),
            _ => {}
        }

        let of_chosen = packages.iter();
        let of_chosen = of_chosen.filter(|(_, handle)| chosen.iter().any(|other| other == handle));
        let of_chosen: BTreeSet<_> = of_chosen.map(|(kind, _)| *kind).collect();
        if of_chosen.is_empty() {
            let sentence = format!(
                "a skill and a plugin are named `{}`: {}",
                escape_text(name),
                join_handles(packages.iter().map(|(_, handle)| *handle))
            );
            return Err(CommandFailure::new(exit::REJECTED, sentence).with_hint(TWIN_HINT));
        }
        Ok(of_chosen.into_iter().collect())
    }

    /// Returns the versions of a named skill or plugin to approve. If several packages have different files, only
    /// the chosen ones are approved, because an author could have added the others.
    fn chosen_versions(
        &self,
        kind: EntryKind,
        name: &str,
        chosen: &[String],
    ) -> Result<ChosenEntry, CommandFailure> {
        let mut rejected = self.rejected.iter();
        let rejected = rejected.find(|other| other.kind == kind && other.name == name);
        if let Some(rejected) = rejected {
            let line = report::rejection_line(rejected);
            let sentence = line.trim_start_matches("caproot: ");
            return Err(CommandFailure::new(exit::PROBLEMS_FOUND, sentence));
        }

        let packages: Vec<_> = self.packages_of(kind, name).collect();
        let all: BTreeSet<_> = packages
            .iter()
            .map(|package| package.content_digest)
            .collect();
        let is_chosen = |package: &&&CurrentPackage| chosen.iter().any(|c| **c == *package.handle);
        let of_chosen = packages.iter().filter(is_chosen);
        let mut digests: Vec<_> = of_chosen.map(|package| package.content_digest).collect();
        if all.len() > 1 && digests.is_empty() {
            let sentence = format!(
                "{} packages with different files are named `{}`: {}",
                packages.len(),
                escape_text(name),
                join_handles(packages.iter().map(|package| &*package.handle))
            );
            return Err(CommandFailure::new(exit::REJECTED, sentence).with_hint(TWIN_HINT));
        }
        if digests.is_empty() {
            digests.extend(all);
        }
        Ok(ChosenEntry {
            kind,
            name: name.to_owned(),
            digests,
        })
    }
}

fn unknown_name(name: &str, known: &Lock, what: &str) -> CommandFailure {
    let skills = known.skills().iter().map(|skill| &*skill.name);
    let plugins = known.plugins().iter().map(|plugin| &*plugin.name);
    let names: BTreeSet<&str> = skills.chain(plugins).collect();
    let question = suggest_names(name, names, |name| name);
    let question = question.map(|text| format!("; {text}")).unwrap_or_default();
    CommandFailure::new(exit::REJECTED, format!("{what} `{name}`{question}"))
}

fn write_lock(file: &Path, lock: &Lock) -> Result<(), CommandFailure> {
    let text = lock.to_text().context("the lock would not be valid");
    let text = text.or_exit(exit::BAD_CONFIG)?;
    out_file::replace_file(file, &text)
}

/// Prints the changes of a written lock, and the number of its skills.
fn print_written(
    args: &LockArgs,
    file: &Path,
    lock: &Lock,
    difference: &LockDifference,
    mut lines: Vec<String>,
) -> Result<(), CommandFailure> {
    match args.output {
        OutputFormat::Json => {
            print_report(file, lock, difference, &CurrentPackages::default(), true)
        }
        OutputFormat::Text => {
            let count = report::count_names(lock);
            lines.push(format!("{}: {count} approved", file.display()));
            print_lines(&lines)
        }
    }
}

fn print_report(
    file: &Path,
    lock: &Lock,
    difference: &LockDifference,
    current: &CurrentPackages,
    is_written: bool,
) -> Result<(), CommandFailure> {
    print_json(&json!({
        "lock": file.to_string_lossy(),
        "entries": lock.skills().len(),
        "plugins": lock.plugins().len(),
        "written": is_written,
        "differences": report::difference_json(difference),
        "unapprovable": report::rejections_json(&current.rejected),
    }))
}

fn print_lines(lines: &[String]) -> Result<(), CommandFailure> {
    write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
}

/// Returns the hint with the command that approves the differences. Names and paths that a shell could
/// read as something else are placeholders, because authors choose the names.
fn change_hint(args: &LockArgs, file: &Path, difference: &LockDifference) -> String {
    let differing: BTreeSet<&str> = difference
        .names(|change| *change != EntryChange::Gone)
        .collect();
    let file = shell_word(&file.to_string_lossy(), "FILE");
    if differing.is_empty() {
        let flag = format!("--prune --out {file}");
        return format!(
            "hint: to remove them from the lock, run: {}",
            args.command(&flag)
        );
    }

    let are_plain =
        differing.len() <= MAX_HINT_NAMES && differing.iter().all(|name| is_plain_word(name));
    let names = if are_plain {
        differing.into_iter().collect::<Vec<_>>().join(" ")
    } else {
        "NAME".to_owned()
    };
    let has_twins = difference.names(|change| matches!(change, EntryChange::Twin { .. }));
    let package = match has_twins.count() {
        0 => "",
        _ => " --package HANDLE",
    };
    let flags = format!("--update {names}{package} --out {file}");
    format!("hint: review the files, then run: {}", args.command(&flags))
}

impl LockArgs {
    /// Returns the command line with the same skills and other flags.
    fn command(&self, flags: &str) -> String {
        let dirs = self.dirs.iter();
        let dirs = dirs.map(|dir| shell_word(&dir.to_string_lossy(), "DIR") + " ");
        let connection = if self.dirs.is_empty() {
            " (with the same connection options)"
        } else {
            ""
        };
        format!(
            "caproot lock {}{flags}{connection}",
            dirs.collect::<String>()
        )
    }
}

fn shell_word(text: &str, placeholder: &str) -> String {
    if is_plain_word(text) {
        text.to_owned()
    } else {
        placeholder.to_owned()
    }
}
