//! `caproot lock`: records and compares approved skills and plugins.

mod current_packages;
mod out_file;
mod report;

use crate::cli::args::{ConnectionArgs, SelectionArgs, read_lock};
use crate::cli::copy::print_lines;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::handle_arg::join_candidates;
use crate::cli::output::{OutputFormat, is_plain_word, print_json, print_stderr};
use caproot_core::lock::{EntryChange, EntryKind, Lock, LockDifference};
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
    let Some(file) = args.check.as_ref().or(args.out.as_ref()) else {
        let sentence = "--out or --check is required";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    };
    if args.prune || args.needs_skills() || !args.remove.is_empty() {
        return change_lock(&args, file, env).await;
    }

    if args.check.is_none() && !file.exists() {
        let current = read_current_packages(&args, env).await?;
        return create_lock(&args, file, &current);
    }
    // Only --check may have signers.
    let lock = read_lock(file, args.signers.as_deref())?;
    let current = read_current_packages(&args, env).await?;
    report_check(&args, file, &lock, &current)
}

impl LockArgs {
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
    let mut lines = report::entry_lines(&current.lock);
    // A new lock approves all packages, so that twins are only named.
    lines.extend(report::difference_lines(&current.twins()));
    write_lock(args, file, &Lock::default(), &current.lock, lines)?;
    Ok(finish_report(current, true))
}

/// Prints the differences from a lock, and leaves it as it is.
fn report_check(
    args: &LockArgs,
    file: &Path,
    lock: &Lock,
    current: &CurrentPackages,
) -> Result<u8, CommandFailure> {
    let difference = current.difference_from(lock);
    let is_equal = difference.is_empty();
    match args.output {
        OutputFormat::Json => print_report(file, lock, &difference, current, false)?,
        OutputFormat::Text => print_lines(&report::difference_lines(&difference))?,
    }

    let name = file.display();
    if !is_equal {
        let counts = report::count_differences(&difference);
        print_stderr(&[
            format!("caproot: {counts}"),
            change_hint(args, file, &difference),
        ]);
    } else if args.output == OutputFormat::Text {
        print_lines(&[match args.check {
            Some(_) => {
                let count = report::count_names(lock);
                format!("{name}: {count} approved, no difference")
            }
            None => format!("{name} is unchanged"),
        }])?;
    }

    let code = finish_report(current, is_equal);
    if !is_equal && args.check.is_none() {
        print_stderr(&[format!(
            "caproot: nothing is written: {name} exists; name the skills to approve"
        )]);
    }
    Ok(code)
}

/// Reports the skills and plugins that cannot be approved. Returns the exit code.
fn finish_report(current: &CurrentPackages, is_equal: bool) -> u8 {
    let packages = current.packages.iter();
    let lines: Vec<_> = packages.filter_map(report::rejection_line).collect();
    print_stderr(&lines);
    exit::code_for_result(is_equal && lines.is_empty())
}

impl CurrentPackages {
    /// Compares the skills and plugins with a lock. One that cannot be approved is not gone.
    fn difference_from(&self, lock: &Lock) -> LockDifference {
        let mut difference = lock.difference(&self.lock);
        difference.entries.retain(|entry| {
            let mut packages = self.packages_of(entry.kind, &entry.name);
            entry.change != EntryChange::Gone || packages.all(|other| other.content_digest.is_ok())
        });

        for entry in &mut difference.entries {
            if self.lock.approved_files(entry.kind, &entry.name).count() > 1 {
                let packages = self.packages_of(entry.kind, &entry.name);
                let packages = packages.filter(|package| package.content_digest.is_ok());
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
        twins
            .entries
            .retain(|entry| matches!(entry.change, EntryChange::Twin { .. }));
        twins
    }

    fn packages_of(&self, kind: EntryKind, name: &str) -> impl Iterator<Item = &CurrentPackage> {
        let packages = self.packages_named(name);
        packages.filter(move |package| package.kind == kind)
    }

    fn packages_named(&self, name: &str) -> impl Iterator<Item = &CurrentPackage> {
        let packages = self.packages.iter();
        packages.filter(move |package| package.name == name)
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
    let lines = report::difference_lines(&old.difference(&lock));
    write_lock(args, file, &old, &lock, lines)?;
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
        let updated = current.chosen_entries(&self.update, &self.package)?;
        for skill in updated.skills() {
            lock.remove(EntryKind::Skill, &skill.name);
        }
        for plugin in updated.plugins() {
            lock.remove(EntryKind::Plugin, &plugin.name);
        }
        let added = current.chosen_entries(&self.add, &self.package)?;
        for entries in [updated, added] {
            lock.extend(entries.skills().iter().cloned());
            lock.extend(entries.plugins().iter().cloned());
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
        let names = self.update.iter().chain(&self.add);
        let of_plugins = names.clone();
        let of_plugins = of_plugins.flat_map(|name| current.skills_of_plugin(name, &[]));
        let of_plugins: Vec<_> = of_plugins.collect();
        let known: Vec<_> = names
            .chain(&of_plugins)
            .flat_map(|name| current.packages_named(name))
            .filter(|package| package.content_digest.is_ok())
            .map(|package| &*package.handle)
            .collect();

        let mut chosen = self.package.iter();
        let Some(handle) = chosen.find(|handle| !known.contains(&handle.as_str())) else {
            return Ok(());
        };
        let handle = escape_text(handle);
        let sentence = format!("no package of the named skills has the handle {handle}");
        let hint = format!("the packages are {}", join_handles(known.into_iter()));
        Err(CommandFailure::new(exit::REJECTED, sentence).with_hint(hint))
    }
}

/// Joins the first handles, and counts the others.
fn join_handles<'a>(handles: impl ExactSizeIterator<Item = &'a str>) -> String {
    escape_text(&join_candidates(handles))
}

impl CurrentPackages {
    /// Returns the entries of named skills and plugins to approve. The name of a plugin also means its skills.
    fn chosen_entries(&self, names: &[String], chosen: &[String]) -> Result<Lock, CommandFailure> {
        let mut entries = Lock::default();
        for name in names {
            let kinds = self.kinds_of(name, chosen)?;
            for kind in &kinds {
                self.add_versions(&mut entries, *kind, name, chosen)?;
            }
            if kinds.contains(&EntryKind::Plugin) {
                for skill in self.skills_of_plugin(name, chosen) {
                    self.add_versions(&mut entries, EntryKind::Skill, &skill, chosen)?;
                }
            }
        }
        Ok(entries)
    }

    /// Returns the kinds of the packages that a name means. If a skill and a plugin have the name, only the
    /// chosen packages count, because an author could have added one of them.
    fn kinds_of(
        &self,
        name: &str,
        chosen: &[String],
    ) -> Result<BTreeSet<EntryKind>, CommandFailure> {
        // A package that cannot be approved counts, so that its name does not mean the other kind.
        let packages: Vec<_> = self.packages_named(name).collect();
        let kinds: BTreeSet<_> = packages.iter().map(|package| package.kind).collect();
        if kinds.is_empty() {
            let what = "no skill or plugin has the qualified name";
            return Err(unknown_name(name, &self.lock, what));
        }
        if kinds.len() == 1 {
            return Ok(kinds);
        }

        let of_chosen = packages.iter().filter(|package| package.is_in(chosen));
        let of_chosen: BTreeSet<_> = of_chosen.map(|package| package.kind).collect();
        if of_chosen.is_empty() {
            let what = "a skill and a plugin are";
            return Err(ambiguous_name(what, name, &packages));
        }
        Ok(of_chosen)
    }

    /// Adds the versions of a named skill or plugin to approve. If several packages have different files, only
    /// the chosen ones are approved, because an author could have added the others.
    fn add_versions(
        &self,
        entries: &mut Lock,
        kind: EntryKind,
        name: &str,
        chosen: &[String],
    ) -> Result<(), CommandFailure> {
        let packages: Vec<_> = self.packages_of(kind, name).collect();
        let mut rejected = packages.iter().copied();
        if let Some(line) = rejected.find_map(report::rejection_line) {
            let sentence = line.trim_start_matches("caproot: ");
            return Err(CommandFailure::new(exit::PROBLEMS_FOUND, sentence));
        }

        let all: BTreeSet<_> = packages.iter().map(|other| &other.content_digest).collect();
        let of_chosen = packages.iter().filter(|package| package.is_in(chosen));
        let mut digests: BTreeSet<_> = of_chosen.map(|package| &package.content_digest).collect();
        if all.len() > 1 && digests.is_empty() {
            let what = format!("{} packages with different files are", packages.len());
            return Err(ambiguous_name(&what, name, &packages));
        }
        if digests.is_empty() {
            digests = all;
        }

        let is_chosen = |digest: ContentDigest| digests.contains(&Ok(digest));
        match kind {
            EntryKind::Skill => {
                let versions = self.lock.versions(name).iter();
                let chosen = versions.filter(|skill| is_chosen(skill.content_digest));
                entries.extend(chosen.cloned());
            }
            EntryKind::Plugin => {
                let versions = self.lock.plugin_versions(name).iter();
                let chosen = versions.filter(|plugin| is_chosen(plugin.content_digest));
                entries.extend(chosen.cloned());
            }
        }
        Ok(())
    }
}

fn ambiguous_name(what: &str, name: &str, packages: &[&CurrentPackage]) -> CommandFailure {
    let handles = join_handles(packages.iter().map(|package| &*package.handle));
    let sentence = format!("{what} named `{}`: {handles}", escape_text(name));
    CommandFailure::new(exit::REJECTED, sentence).with_hint(TWIN_HINT)
}

fn unknown_name(name: &str, known: &Lock, what: &str) -> CommandFailure {
    let skills = known.skills().iter().map(|skill| &*skill.name);
    let plugins = known.plugins().iter().map(|plugin| &*plugin.name);
    let names: BTreeSet<&str> = skills.chain(plugins).collect();
    let question = suggest_names(name, names, |name| name);
    let question = question.map(|text| format!("; {text}")).unwrap_or_default();
    CommandFailure::new(exit::REJECTED, format!("{what} `{name}`{question}"))
}

/// Writes a lock. Prints the changes of the lock, and the number of its skills.
fn write_lock(
    args: &LockArgs,
    file: &Path,
    old: &Lock,
    lock: &Lock,
    mut lines: Vec<String>,
) -> Result<(), CommandFailure> {
    let text = lock.to_text().context("the lock would not be valid");
    out_file::replace_file(file, &text.or_exit(exit::BAD_CONFIG)?)?;

    match args.output {
        OutputFormat::Json => {
            let none = CurrentPackages::default();
            print_report(file, lock, &old.difference(lock), &none, true)
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
        "unapprovable": report::rejections_json(&current.packages),
    }))
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
    let names: &str = if are_plain {
        &differing.into_iter().collect::<Vec<_>>().join(" ")
    } else {
        "NAME"
    };
    let mut twins = difference.names(|change| matches!(change, EntryChange::Twin { .. }));
    let package = match twins.next() {
        None => "",
        Some(_) => " --package HANDLE",
    };
    let flags = format!("--update {names}{package} --out {file}");
    format!("hint: review the files, then run: {}", args.command(&flags))
}

impl LockArgs {
    /// Returns the command line with the same skills and other flags.
    fn command(&self, flags: &str) -> String {
        if self.dirs.is_empty() {
            return format!("caproot lock {flags} (with the same connection options)");
        }
        let dirs = self.dirs.iter();
        let dirs = dirs.map(|dir| shell_word(&dir.to_string_lossy(), "DIR") + " ");
        format!("caproot lock {}{flags}", dirs.collect::<String>())
    }
}

fn shell_word(text: &str, placeholder: &str) -> String {
    if is_plain_word(text) {
        text.to_owned()
    } else {
        placeholder.to_owned()
    }
}
