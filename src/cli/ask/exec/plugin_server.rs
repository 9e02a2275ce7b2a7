//! `caproot exec --server`: starts the stdio MCP server that a plugin declares, from a verified copy of the
//! plugin, with the directory, the arguments and the variables of the declaration.

use super::exec_rules::ExecRules;
use super::prepared_script::{
    INTERPRETERS, PreparedScript, Surroundings, find_program, start_failure,
};
use super::{CopySource, ExecArgs, copy_failure, is_version_of, open_store, split_name_handle};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::{find_root, list_plugins};
use caproot_client::pull::{PackageCopy, PackageStore};
use caproot_client::{ApprovedVersions, Client, LockView};
use caproot_core::lock::Lock;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    Consistency, McpServer, McpTransport, NamedValue, Plugin, SelectedCapabilityRoot,
};
use caproot_core::text::quote_word;
use caproot_core::text::variables::{PLUGIN_DIR_VARIABLES, ValuePart, split_variables};
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::{BTreeMap, BTreeSet};
use std::env::{split_paths, var_os};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Variables that a server gets without a declaration: those of the MCP SDKs, and the language.
const INHERITED_VARIABLES: [&str; 10] = [
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];
/// Variables for the directory that the server may write.
const DATA_DIR_VARIABLES: [&str; 2] = ["CLAUDE_PLUGIN_DATA", "PLUGIN_DATA"];
/// Variables by which a program loads code.
const CODE_VARIABLES: [&str; 14] = [
    "BASH_ENV",
    "ENV",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
];
/// Letters of the name of a data directory that come from the name of the plugin.
const MAX_DATA_NAME: usize = 40;

/// Server as its plugin declares it.
#[derive(PartialEq)]
struct FoundServer {
    plugin: Plugin,
    server: McpServer,
}

/// Replaces this process by the server. Returns only the reason why it does not run.
pub async fn start(handle: &str, args: &ExecArgs, env: &ProcessEnv) -> Result<(), CommandFailure> {
    let rules = ExecRules::load(args.lock.as_deref(), args.signers.as_deref(), env)?;
    let mut executor = rules.connect(&args.daemon.connection, env).await?;
    let selection = &args.daemon.selection;
    let roots = selection.selected_roots(&mut executor, env).await?;
    let mut client = executor.client;
    let root = find_root(handle.split('#').next().unwrap_or_default(), roots)?;

    let mut found = find_servers(&mut client, &root, handle).await?;
    // Only the lock or a digest can tell which of the plugins with a name is meant.
    if rules.lock.is_none() && args.digest.is_empty() {
        found.retain(|server| server.server.handle == handle);
    }
    let source = CopySource {
        args,
        client: &client,
        store: open_store(args, env)?,
        root: &root,
        lock: rules.lock.as_ref(),
    };

    let mut first_failure = None;
    for server in &found {
        match server.copy(&source).await {
            Ok(copy) => return server.replace_process(copy, source.store, args, env),
            Err(failure) => first_failure = first_failure.or(Some(failure)),
        }
    }
    Err(first_failure.unwrap_or_else(|| {
        let sentence = format!("{handle} is no MCP server of a listed plugin");
        CommandFailure::new(exit::NOT_RUNNABLE, sentence)
            .with_hint("`caproot resolve` lists the plugins with their servers")
    }))
}

/// Returns the servers that a handle may mean. A session with a lock shows the name of a plugin in place of its
/// path, and the lock or `--digest` decides if a path and a name are equal.
async fn find_servers(
    client: &mut Client,
    root: &SelectedCapabilityRoot,
    handle: &str,
) -> Result<Vec<FoundServer>, CommandFailure> {
    let (named, below) = split_name_handle(handle);
    let plugins = list_plugins(client, vec![root.clone()], Consistency::Fresh).await?;
    let mut found = Vec::new();
    for plugin in plugins {
        let is_named = plugin.name == named || is_version_of(&named, &plugin.name);
        let by_name =
            (is_named && below.starts_with('#')).then(|| format!("{}{below}", plugin.package));
        let mut servers = plugin.mcp_servers.iter();
        let server = servers
            .find(|server| server.handle == handle || by_name.as_ref() == Some(&server.handle));
        let Some(server) = server.cloned() else {
            continue;
        };
        let at = if server.handle == handle {
            0
        } else {
            found.len()
        };
        found.insert(at, FoundServer { plugin, server });
    }
    Ok(found)
}

impl FoundServer {
    /// Copies the plugin. With a lock, the declaration and each file must be approved.
    async fn copy(&self, source: &CopySource<'_>) -> Result<PackageCopy, CommandFailure> {
        self.check_startable()?;
        let approved = match source.lock {
            None => None,
            Some(lock) => {
                let versions = LockView::new(lock).plugin(&self.plugin);
                if versions.is_empty() {
                    return Err(self.not_approved(lock));
                }
                Some(ApprovedVersions::Plugin(
                    versions.into_iter().cloned().collect(),
                ))
            }
        };

        let copied = source.copy(&self.plugin.package, None, approved).await;
        let copy = copied.map_err(|error| copy_failure(error, true))?;
        // The declaration must be that of the copied files.
        let mut client = source.client.clone();
        let again = find_servers(&mut client, source.root, &self.server.handle).await?;
        if !again.contains(self) {
            let sentence = "the plugin changed while it was copied; try again";
            return Err(CommandFailure::new(exit::SCRIPT_CHANGED, sentence));
        }
        copy.make_read_only()?;
        Ok(copy)
    }

    /// Returns the failure of a plugin whose declarations a lock does not approve.
    fn not_approved(&self, lock: &Lock) -> CommandFailure {
        let Plugin { name, version, .. } = &self.plugin;
        let (name, version) = (quote_word(name), quote_word(version));
        let versions = lock.plugin_versions(&self.plugin.name);
        let mut known = versions.iter().map(|known| &*known.version);
        let is_known = known.any(|known| known == self.plugin.version);
        let sentence = if versions.is_empty() {
            format!("the lock does not approve the plugin {name}")
        } else if is_known {
            format!("the plugin {name} declares other parts than the lock approves")
        } else {
            let approved = quote_word(&versions[0].version);
            format!("the plugin {name} has the version {version}, and the lock approves {approved}")
        };
        CommandFailure::new(exit::SCRIPT_CHANGED, sentence)
            .with_hint("review the plugin, then approve it with `caproot lock --update NAME`")
    }

    /// Replaces this process by the server in a copy. Returns only the reason why it does not run.
    fn replace_process(
        &self,
        copy: PackageCopy,
        store: Arc<PackageStore>,
        args: &ExecArgs,
        env: &ProcessEnv,
    ) -> Result<(), CommandFailure> {
        let data_dir = self.create_data_dir(env)?;
        let mut setup = ServerSetup::new(copy.dir(), self.working_dir()?, &data_dir);
        let variables = setup.environment(&self.server.environment);
        let command = setup.expand(&self.server.command);
        let mut all: Vec<_> = self
            .server
            .args
            .iter()
            .map(|arg| setup.expand(arg))
            .collect();

        // A command without a slash is a program of the PATH, as for execvp(3).
        let has_path = command.as_bytes().contains(&b'/');
        let own_file = has_path.then(|| setup.file_of_plugin(&command)).flatten();
        let is_file_of_plugin = own_file.is_some();
        let mut interpreters = INTERPRETERS.iter().flat_map(|(_, programs)| *programs);
        let is_interpreter = interpreters.any(|program| command == *program);
        let script = all.first().filter(|_| is_interpreter);
        if !is_file_of_plugin && script.is_none_or(|script| setup.file_of_plugin(script).is_none())
        {
            setup
                .unverified
                .push(format!("it runs `{}`", command.to_string_lossy()));
        }
        setup.check(args.allow_program)?;

        let path = match own_file {
            Some(path) => path,
            None if has_path => setup.dir.join(&command),
            None => find_program(&command.to_string_lossy()).ok_or_else(|| {
                let sentence = format!("the PATH has no {}", command.to_string_lossy());
                CommandFailure::new(exit::NOT_RUNNABLE, sentence)
            })?,
        };
        let surroundings = Surroundings::Server {
            dir: setup.dir,
            variables,
        };

        all.extend(args.script_args.iter().cloned());
        let script = PreparedScript {
            path,
            copy,
            store,
            surroundings,
        };
        // The extension of a file of the copy may decide how the file runs.
        Err(if is_file_of_plugin {
            script.replace_process(&all)
        } else {
            script.replace_process_by_program(&all)
        })
    }

    fn check_startable(&self) -> Result<(), CommandFailure> {
        let Self { plugin, server } = self;
        let fail = |sentence: String| Err(CommandFailure::new(exit::NOT_RUNNABLE, sentence));
        if server.transport() != McpTransport::Stdio {
            return fail(format!(
                "the server is not a process, but at {}",
                server.url
            ));
        }
        if server.enabled == Some(false) {
            return fail("the declaration disables the server".to_owned());
        }
        if plugin.stale {
            return fail("a file that declares parts of the plugin is not valid now".to_owned());
        }
        if server.redacted {
            let sentence = format!(
                "the declaration of the server in {} has a value that may be a secret, which the daemon \
                 does not send",
                server.declared_by
            );
            return Err(CommandFailure::new(exit::NOT_RUNNABLE, sentence).with_hint(
                "an author writes `${NAME}` in its place, and you set the variable NAME",
            ));
        }
        Ok(())
    }

    /// Returns the working directory below the plugin.
    fn working_dir(&self) -> Result<PathBuf, CommandFailure> {
        let cwd = &self.server.cwd;
        if cwd.is_empty() {
            return Ok(PathBuf::new());
        }
        let path = RelPath::new(cwd.as_bytes())
            .ok_or_else(|| CommandFailure::invalid_response(&"the working directory is no path"))?;
        Ok(OsStr::from_bytes(path.as_bytes()).into())
    }

    /// Creates the directory that the server may write. The plugins of one handle share it, in each of
    /// their versions.
    fn create_data_dir(&self, env: &ProcessEnv) -> Result<PathBuf, CommandFailure> {
        let data = env.xdg_data_home.clone().or(env.home.as_ref().map(|home| home.join(".local/share"))).ok_or_else(|| {
            let sentence =
                "the server has no directory for its data: neither HOME nor XDG_DATA_HOME is set";
            CommandFailure::new(exit::NOT_STARTED, sentence)
        })?;

        // An author chooses the name, so that only plain characters become a part of the path.
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let name: String = self
            .plugin
            .name
            .chars()
            .filter(is_plain)
            .take(MAX_DATA_NAME)
            .collect();

        // Plugins of different handles may have one name.
        let digest = ContentDigest::of(self.plugin.package.as_bytes()).to_string();
        let digits = digest.trim_start_matches("sha256:");
        let dir = data.join(format!("caproot/plugins/{name}-{}", &digits[..8]));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| start_failure(&dir, &error))?;
        Ok(dir)
    }
}

/// Values in place of the variables of a declaration, and the reasons not to start the server.
struct ServerSetup<'a> {
    /// Directory of the copy.
    copy: &'a Path,
    /// Working directory.
    dir: PathBuf,
    /// Directories of the plugin, by variable.
    places: BTreeMap<&'static str, &'a Path>,
    /// Variables without a value.
    missing: BTreeSet<String>,
    /// Parts that are no file of the plugin, as the end of a sentence about the server.
    unverified: Vec<String>,
}

impl<'a> ServerSetup<'a> {
    fn new(copy: &'a Path, working_dir: PathBuf, data_dir: &'a Path) -> Self {
        let of_copy = PLUGIN_DIR_VARIABLES.map(|name| (name, copy));
        let of_data = DATA_DIR_VARIABLES.map(|name| (name, data_dir));
        Self {
            copy,
            dir: copy.join(working_dir),
            places: of_copy.into_iter().chain(of_data).collect(),
            missing: BTreeSet::new(),
            unverified: Vec::new(),
        }
    }

    /// Replaces the variables of a declared value by the places and the variables of this process.
    fn expand(&mut self, declared: &str) -> OsString {
        let mut expanded = OsString::new();
        for part in split_variables(declared) {
            let (name, default) = match part {
                ValuePart::Text(text) => {
                    expanded.push(text);
                    continue;
                }
                ValuePart::Variable { name, default } => (name, default),
            };
            let value = self
                .places
                .get(name)
                .map(|place| OsString::from(*place))
                .or_else(|| var_os(name));
            match value.or_else(|| default.map(OsString::from)) {
                Some(value) => expanded.push(value),
                None => drop(self.missing.insert(name.to_owned())),
            }
        }
        expanded
    }

    /// Returns the whole environment of the server.
    fn environment(&mut self, declared: &[NamedValue]) -> BTreeMap<String, OsString> {
        let mut variables = BTreeMap::new();
        for name in INHERITED_VARIABLES {
            variables.extend(var_os(name).map(|value| (name.to_owned(), value)));
        }

        for NamedValue {
            name,
            value,
            from_variable,
        } in declared
        {
            let value = match value {
                Some(value) => Some(self.expand(value)),
                // Codex passes such a variable on if it is set.
                None => var_os(from_variable),
            };
            let Some(value) = value else { continue };
            if CODE_VARIABLES.contains(&&**name)
                && !split_paths(&value).all(|path| is_below(&path, self.copy))
            {
                self.unverified
                    .push(format!("its variable {name} names code"));
            }
            variables.insert(name.clone(), value);
        }

        // The places come last, so that no declaration replaces them.
        for (name, place) in &self.places {
            variables.insert((*name).to_owned(), OsString::from(*place));
        }
        variables
    }

    /// Returns the path of a file of the copy.
    fn file_of_plugin(&self, text: &OsStr) -> Option<PathBuf> {
        let path = self.dir.join(text);
        (is_below(&path, self.copy) && path.is_file()).then_some(path)
    }

    /// Returns an error if a part is not verified, unless the caller allows it, or if a value is missing.
    fn check(&self, allows_program: bool) -> Result<(), CommandFailure> {
        let fail = |sentence: String, hint: &'static str| {
            Err(CommandFailure::new(exit::NOT_RUNNABLE, sentence).with_hint(hint))
        };
        if let (Some(reason), false) = (self.unverified.first(), allows_program) {
            return fail(
                format!("the server is not verified: {reason}, which is no file of the plugin"),
                "review the declaration with `caproot resolve --output json`, then add --allow-program",
            );
        }
        if !self.missing.is_empty() {
            let names: Vec<_> = self.missing.iter().map(String::as_str).collect();
            let names = names.join(", ");
            return fail(
                format!("the server needs {names}, which the environment lacks"),
                "set the variables, for example before the command or in `ssh -o SetEnv`",
            );
        }
        Ok(())
    }
}

/// Whether an absolute path is below a directory, without `..`.
fn is_below(path: &Path, dir: &Path) -> bool {
    path.starts_with(dir) && !path.components().any(|part| part == Component::ParentDir)
}
