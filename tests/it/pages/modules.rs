//! The modules at the top of `src` of each package, and their dependencies: which module may name
//! which, and which libraries a module must not name. The files of some folders are in an order, too.
//! Reads the sources as text; a dependency that is not in the table is an error. A module's name is
//! unique in all packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Sources of a package.
struct PackageSources {
    /// Name of the package in a path of Rust.
    crate_name: &'static str,
    /// Directory of the sources, below the top of the repository.
    dir: &'static str,
    /// Module to which the files at the top of the sources belong, if they are one module together.
    top_module: Option<&'static str>,
}

const PACKAGES: &[PackageSources] = &[
    PackageSources {
        crate_name: "caproot",
        dir: "src",
        top_module: None,
    },
    PackageSources {
        crate_name: "caproot_core",
        dir: "crates/core/src",
        top_module: None,
    },
    PackageSources {
        crate_name: "caproot_client",
        dir: "crates/client/src",
        top_module: Some("client"),
    },
    PackageSources {
        crate_name: "caproot_link",
        dir: "crates/link/src",
        top_module: Some("link"),
    },
    PackageSources {
        crate_name: "caproot_session",
        dir: "crates/session/src",
        top_module: Some("session"),
    },
];

/// Macros that a crate exports at its top, each with the module that defines the macro.
const EXPORTED_MACROS: &[(&str, &str)] = &[("delegate_async_write", "net")];

/// Folders at the top of `src` whose folders and files are the modules.
const FOLDERS_OF_MODULES: &[&str] = &["agent", "daemon"];

/// Modules, each with its allowed dependencies: a module (`scan`), or an item of one (`scan::ScanProgress`).
const DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "server",
        &[
            "backoff",
            "config",
            "model",
            "catalog",
            "grpc",
            "readiness",
            "scan::search",
            "telemetry",
            "file_watch",
            "net",
            "proto",
            "sync",
            "text",
        ],
    ),
    (
        "cli",
        &[
            "server",
            "call",
            "client",
            "config",
            "lint",
            "local",
            "log_config",
            "model",
            "scan::ScanProgress",
            "scan::ScanTarget",
            "link",
            "lock",
            "mcp",
            "local_source",
            "pull",
            "readiness::missing_in_process",
            "sandbox",
            "session",
            "telemetry::MetricWriter",
            "telemetry::ScrapeEndpoint",
            "telemetry::logs",
            "bounded_file",
            "document",
            "file_watch",
            "net",
            "proto",
            "sync",
            "text",
            "wire",
        ],
    ),
    (
        "client",
        &[
            "backoff",
            "link",
            "bounded_file",
            "document",
            "file_watch",
            "lock",
            "net",
            "proto",
            "sync",
            "text",
            "wire",
        ],
    ),
    (
        "lint",
        &[
            "fs",
            "model",
            "parse",
            "scan",
            "document",
            "mountinfo",
            "text",
            "wire",
        ],
    ),
    (
        "config",
        &[
            "grpc::auth",
            "model",
            "catalog::FaultInjector",
            "catalog::OpenMethod",
            "catalog::WatchTiming",
            "fs::path_resolution",
            "scan::search",
            "log_config",
            "bounded_file",
            "document",
            "file_watch",
            "lock",
            "net",
            "proto",
            "sync",
            "text",
            "wire",
        ],
    ),
    (
        "fs",
        &["model", "bounded_file", "lock", "sync", "text", "wire"],
    ),
    ("model", &["lock", "sync", "text", "wire"]),
    ("bounded_file", &["sync"]),
    ("net", &["bounded_file"]),
    ("parse", &["model", "text", "wire"]),
    (
        "scan",
        &["fs", "lock", "model", "parse", "sync", "text", "wire"],
    ),
    ("file_watch", &["sync"]),
    (
        "catalog",
        &["backoff", "fs", "model", "scan", "watch", "sync", "wire"],
    ),
    ("lib", &[]),
    ("agent", &[]),
    ("daemon", &[]),
    ("link", &["backoff", "document", "net", "proto", "sync"]),
    (
        "local_source",
        &[
            "client",
            "config",
            "server::EmbeddedDaemon",
            "session",
            "net::endpoint",
            "proto",
        ],
    ),
    ("main", &["cli", "net"]),
    (
        "mcp",
        &[
            "backoff", "client", "session", "proto", "sync", "text", "wire",
        ],
    ),
    ("proto", &[]),
    (
        "pull",
        &[
            "backoff",
            "bounded_file",
            "client",
            "lock",
            "mountinfo",
            "proto",
            "wire",
        ],
    ),
    (
        "grpc",
        &[
            "fs::PageBody",
            "fs::ListedFile",
            "fs::FileReadError",
            "fs::package_walk",
            "model",
            "readiness",
            "parse::json",
            "catalog",
            "telemetry::RateLimitedLog",
            "bounded_file",
            "proto",
            "sync",
            "text",
            "wire",
        ],
    ),
    ("readiness", &["file_watch", "model", "sync", "wire"]),
    ("sandbox", &["model"]),
    (
        "session",
        &[
            "backoff",
            "client",
            "document",
            "json",
            "lock",
            "net",
            "process_group",
            "proto",
            "pull",
            "sync",
            "text",
            "wire",
        ],
    ),
    (
        "telemetry",
        &[
            "log_config",
            "model",
            "catalog::PollReason",
            "catalog::CatalogStats",
            "catalog::RootStateCounts",
            "catalog::CatalogStore",
            "catalog::RootState",
            "catalog::WatchMode",
            "catalog::WatchStats",
            "proto",
            "sync",
            "text",
            "wire",
        ],
    ),
    (
        "call",
        &[
            "bounded_file",
            "cli::agents",
            "cli::args",
            "cli::executor",
            "cli::exit",
            "cli::failure",
            "cli::fleet",
            "cli::log_args",
            "cli::output",
            "cli::signals",
            "client",
            "local",
            "lock::LockFile",
            "net",
            "proto",
            "session",
            "sync",
            "text",
        ],
    ),
    (
        "local",
        &[
            "config::RootPreset",
            "local_source::LocalDirectories",
            "local_source::LocalSource",
            "session",
        ],
    ),
    ("log_config", &[]),
    ("sync", &[]),
    ("watch", &["mountinfo", "sync"]),
    ("document", &["bounded_file", "text"]),
    ("lock", &["bounded_file", "document", "text", "wire"]),
    ("wire", &["text"]),
    ("backoff", &[]),
    ("json", &[]),
    ("process_group", &[]),
    ("mountinfo", &[]),
    ("text", &[]),
];

/// Folder whose files and folders are modules in layers.
struct ModuleOrder {
    /// Name of the folder's module at the top of the package; empty for the top itself.
    module: &'static str,
    /// Folder below the top of the repository.
    dir: &'static str,
    /// Layers from the bottom up. A module names only modules of the layers below its own.
    layers: &'static [&'static [&'static str]],
}

const MODULE_ORDERS: &[ModuleOrder] = &[
    ModuleOrder {
        module: "",
        dir: "crates/session/src",
        layers: &[
            &["skills", "network"],
            &["text"],
            &["tools", "uses"],
            &["options"],
            &["sources", "view"],
            &["search", "storage"],
            &["servers"],
            &["state"],
            &["calls", "life"],
            &["prompt"],
            &["dispatch"],
        ],
    },
    ModuleOrder {
        module: "skills",
        dir: "crates/session/src/skills",
        layers: &[
            &["readiness", "selection", "skill", "tool_names"],
            &["equal_roots", "result"],
            &["skill_source"],
            &["authorities"],
        ],
    },
    ModuleOrder {
        module: "network",
        dir: "crates/session/src/network",
        layers: &[&["http_client"], &["address_check"], &["authorization"]],
    },
    ModuleOrder {
        module: "text",
        dir: "crates/session/src/text",
        layers: &[
            &["short_names"],
            &["fragment", "instructions", "placeholders", "resource_path"],
            &["notices"],
        ],
    },
    ModuleOrder {
        module: "uses",
        dir: "crates/session/src/uses",
        layers: &[&["usage"], &["invocation", "used"]],
    },
    ModuleOrder {
        module: "options",
        dir: "crates/session/src/options",
        layers: &[&["choice", "server_options"], &["session_options"]],
    },
    ModuleOrder {
        module: "view",
        dir: "crates/session/src/view",
        layers: &[&["view_cursor"], &["arguments", "session_view"], &["list"]],
    },
    ModuleOrder {
        module: "storage",
        dir: "crates/session/src/storage",
        layers: &[&["session_id", "store"], &["saved"]],
    },
    ModuleOrder {
        module: "calls",
        dir: "crates/session/src/calls",
        layers: &[
            &[
                "files",
                "fitting",
                "package_lookup",
                "search_tool",
                "server_tools",
            ],
            &["read"],
            &["tool_call", "whole_reads"],
        ],
    },
    ModuleOrder {
        module: "prompt",
        dir: "crates/session/src/prompt",
        layers: &[&["mentions", "name_list"], &["inject"], &["reinject"]],
    },
    ModuleOrder {
        module: "life",
        dir: "crates/session/src/life",
        layers: &[&["plugins", "start"], &["lifecycle"]],
    },
    ModuleOrder {
        module: "connect",
        dir: "crates/client/src/connect",
        layers: &[
            &["response_budget", "spiffe_verifier"],
            &["credentials", "tls_error"],
            &["auth_channel"],
            &["retry", "tls_probe"],
            &["dial", "executor_stream"],
            &["channel"],
            &["executor_channel"],
            &["fixed_executor"],
        ],
    },
];

/// Modules of the library of an orchestrator.
const CLIENT_MODULES: &[&str] = &["client", "link", "pull", "session"];

/// Modules of the daemon and its commands. The library of an orchestrator names none of them.
const DAEMON_MODULES: &[&str] = &[
    "call",
    "catalog",
    "cli",
    "config",
    "fs",
    "grpc",
    "lint",
    "local",
    "local_source",
    "log_config",
    "mcp",
    "model",
    "parse",
    "readiness",
    "sandbox",
    "scan",
    "server",
    "telemetry",
    "watch",
];

/// Runtimes, files, sockets and clocks, which a module of plain data does not name.
const NO_SIDE_EFFECTS: &[&str] = &[
    "tokio",
    "tonic",
    "prost",
    "rustix",
    "inotify::",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "Instant",
    "SystemTime",
];

/// Libraries and types that a module must not name outside its tests.
const BANNED_NAMES: &[(&str, &[&str])] = &[
    ("model", NO_SIDE_EFFECTS),
    ("wire", NO_SIDE_EFFECTS),
    ("text", NO_SIDE_EFFECTS),
    ("fs", &["tokio", "tonic", "prost", "inotify::"]),
    ("scan", &["tokio", "tonic", "prost", "inotify::"]),
    (
        "catalog",
        &["tonic", "prost", "rustix", "std::fs", "inotify::"],
    ),
    ("grpc", &["rustix", "std::fs", "inotify::"]),
    ("client", &["rustix", "std::fs", "inotify::"]),
    (
        "session",
        &["rustix", "std::fs", "std::net", "inotify::", "Path"],
    ),
    ("mcp", &["rustix", "std::fs", "inotify::"]),
];

/// A source file without its comments, and the module at the top of `src` that the file belongs to.
pub(super) struct Source {
    /// Path below the top of the repository.
    pub(super) path: PathBuf,
    crate_name: &'static str,
    module: String,
    /// How many `super` lead from the file's own module to the module at the top.
    depth: usize,
    code: String,
}

impl PackageSources {
    /// Returns a path below the crate with its module first, and at most two segments.
    fn path_from_module(&self, path: String) -> String {
        match self.top_module {
            Some(top_module) if !is_client_module(ident(&path)) => {
                format!("{top_module}::{}", ident(&path))
            }
            _ => path,
        }
    }
}

impl ModuleOrder {
    /// Returns the layer of a module.
    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    /// Returns the sources of the folder without tests.
    fn sources(&self) -> Vec<Source> {
        let mut files = sources();
        files.retain(|source| {
            let is_test = source.path.iter().any(|part| part == "tests");
            source.path.starts_with(self.dir) && !is_test && !source.path.ends_with("tests.rs")
        });
        files
    }

    /// Returns the names of the modules that lead from the folder to a file.
    fn modules_to(&self, source: &Source) -> Vec<String> {
        let below = source.path.strip_prefix(self.dir);
        let below = below.expect("a file of the folder").with_extension("");
        let mut modules: Vec<_> = below
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        modules.pop_if(|last| last == "mod" || last == "lib");
        modules
    }

    /// Returns the items that the folder's `mod.rs` or `lib.rs` exports, each with its module.
    fn exported_items(top: &Source) -> BTreeMap<String, String> {
        let exports = top.code.split("pub use ").skip(1).flat_map(paths);
        exports
            .filter_map(|path| {
                let (module, item) = path.split_once("::")?;
                Some((item.to_owned(), module.to_owned()))
            })
            .collect()
    }

    /// Returns the paths below the folder's module that a file names, as modules or items.
    fn named_paths(&self, source: &Source) -> BTreeSet<String> {
        let own_modules = self.modules_to(source);
        let code = source.without_tests();
        let by_crate = paths_below(code, "crate").into_iter();
        let mut named: BTreeSet<String> = if self.module.is_empty() {
            by_crate.collect()
        } else {
            let prefix = format!("{}::", self.module);
            by_crate
                .filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned))
                .collect()
        };

        for at in words(code, "super") {
            if code[..at].ends_with("::") {
                continue;
            }
            let chain = code[at..]
                .split("::")
                .take_while(|part| *part == "super")
                .count();
            // A shorter chain stays inside the module.
            if chain == own_modules.len() {
                named.extend(paths(&code[at + chain * "super::".len()..]));
            }
        }
        named.iter().map(|path| ident(path).to_owned()).collect()
    }
}

/// Whether a folder at the top of the client's sources is a module of its own.
fn is_client_module(name: &str) -> bool {
    CLIENT_MODULES.contains(&name)
}

/// Returns the sources of all packages.
pub(super) fn sources() -> Vec<Source> {
    PACKAGES.iter().flat_map(package_sources).collect()
}

fn package_sources(package: &PackageSources) -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut dirs = vec![top.join(package.dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory of sources") {
            let path = entry.expect("an entry of a directory").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }

    files.sort();
    files
        .into_iter()
        .map(|path| {
            read_source(
                package,
                path.strip_prefix(top).expect("a file below the top"),
            )
        })
        .collect()
}

/// Reads a file of a package. `path` is below the top of the repository.
fn read_source(package: &PackageSources, path: &Path) -> Source {
    let below = path
        .strip_prefix(package.dir)
        .expect("a file of the package")
        .with_extension("");
    let mut modules: Vec<_> = below
        .iter()
        .map(|s| s.to_string_lossy().into_owned())
        .collect();
    modules.pop_if(|last| last == "mod" || (package.top_module.is_some() && last == "lib"));
    if modules.len() > 1 && FOLDERS_OF_MODULES.contains(&modules[0].as_str()) {
        modules.remove(0);
    }
    if let Some(top_module) = package.top_module
        && !modules
            .first()
            .is_some_and(|module| is_client_module(module))
    {
        modules.insert(0, top_module.to_owned());
    }

    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let text = text.expect("a source file");
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    Source {
        path: path.to_owned(),
        crate_name: package.crate_name,
        module: modules[0].clone(),
        depth: modules.len() - 1,
        code: FOLDERS_OF_MODULES
            .iter()
            .fold(code.collect::<Vec<_>>().join("\n"), |code, folder| {
                code.replace(&format!("crate::{folder}::"), "crate::")
            }),
    }
}

impl Source {
    /// Returns the names that the file uses of other modules: `module`, or `module::item`.
    fn references(&self) -> BTreeSet<String> {
        // The binary sees the library from outside.
        let own_crate = if self.module == "main" {
            self.crate_name
        } else {
            "crate"
        };
        let own_module = format!("{}::", self.module);

        // No package depends on `caproot`, and `proto` has a module with that name.
        let packages = PACKAGES.iter().filter(|package| {
            package.crate_name == self.crate_name || package.crate_name != "caproot"
        });

        packages
            .flat_map(|package| {
                let is_own = package.crate_name == self.crate_name;
                let name = if is_own {
                    own_crate
                } else {
                    package.crate_name
                };
                let paths = paths_below(&self.code, name).into_iter();
                paths.map(|path| package.path_from_module(path))
            })
            .map(|path| module_of_macro(&path).map_or(path, str::to_owned))
            .filter(|path| *path != self.module && !path.starts_with(&own_module))
            .collect()
    }

    /// Whether a chain of `super` leads out of the module. An indented chain may be in a `mod tests`
    /// of the file, one level further down.
    fn climbs_out(&self) -> bool {
        self.code.lines().any(|line| {
            let inside = usize::from(line.starts_with(' '));
            line.match_indices("super::").any(|(at, _)| {
                let chain = line[at..].split("::").take_while(|s| *s == "super").count();
                chain > self.depth + inside
            })
        })
    }

    /// Returns the code before the file's tests. A file of tests has none.
    pub(super) fn without_tests(&self) -> &str {
        if self.path.ends_with("tests.rs") {
            return "";
        }
        self.code
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
    }
}

fn module_of_macro(path: &str) -> Option<&'static str> {
    let exported = EXPORTED_MACROS.iter().find(|(name, _)| *name == path)?;
    Some(exported.1)
}

/// Returns the paths in a text that begin with the name of a crate, without that name.
fn paths_below(code: &str, crate_name: &str) -> Vec<String> {
    words(code, crate_name)
        .filter_map(|at| {
            let before = &code[..at];
            let rest = code[at + crate_name.len()..].strip_prefix("::")?;
            (!before.ends_with("::")).then(|| paths(rest))
        })
        .flatten()
        .collect()
}

/// Returns the positions of a name in a text as a whole word.
fn words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .map(|(at, _)| at)
        .filter(move |at| {
            !text[..*at].ends_with(in_word) && !text[at + name.len()..].starts_with(in_word)
        })
}

/// Returns the paths at the start of a use tree or of a path in code, at most two segments of each.
fn paths(text: &str) -> Vec<String> {
    if let Some(group) = text.strip_prefix('{') {
        return members(group).into_iter().flat_map(paths).collect();
    }
    let module = ident(text);
    let Some(rest) = text[module.len()..].strip_prefix("::") else {
        return vec![module.to_owned()];
    };
    let items = match rest.strip_prefix('{') {
        Some(group) => members(group).into_iter().map(ident).collect(),
        None => vec![ident(rest)],
    };
    items
        .into_iter()
        .map(|item| format!("{module}::{item}"))
        .collect()
}

fn ident(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

/// Splits a group, without its `{`, into its members. Each member goes on to the end of the text.
fn members(group: &str) -> Vec<&str> {
    let mut members = vec![group.trim_start()];
    let mut depth = 0_usize;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(group[at + 1..].trim_start()),
            _ => {}
        }
    }
    members.retain(|member| !ident(member).is_empty());
    members
}

/// Returns the words between backticks in a cell of a table.
pub(super) fn quoted_names(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn is_allowed(path: &str, allowed: &[&str]) -> bool {
    let module = ident(path);
    allowed
        .iter()
        .any(|dependency| *dependency == module || *dependency == path)
}

#[test]
fn modules_depend_only_on_modules_of_the_table() {
    let table: BTreeMap<_, _> = DEPENDENCIES.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> = DEPENDENCIES
        .iter()
        .flat_map(|(from, to)| to.iter().map(|to| (*from, *to)))
        .collect();
    for source in sources() {
        let file = source.path.display();
        let Some(allowed) = table.get(source.module.as_str()) else {
            wrong.push(format!(
                "{file}: the module `{}` is not in the table",
                source.module
            ));
            continue;
        };
        for path in source.references() {
            unused.retain(|(from, to)| *from != source.module || !is_allowed(&path, &[to]));
            if !is_allowed(&path, allowed) {
                wrong.push(format!("{file}: `{}` may not name `{path}`", source.module));
            }
        }
        if source.climbs_out() {
            wrong.push(format!(
                "{file}: `super` leads out of the module; name it by `crate::`"
            ));
        }
    }
    wrong.extend(
        unused
            .iter()
            .map(|(from, to)| format!("the table: `{from}` names no `{to}`")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_of_a_folder_name_only_modules_of_lower_layers() {
    for order in MODULE_ORDERS {
        let files = order.sources();
        let top = files
            .iter()
            .find(|source| order.modules_to(source).is_empty());
        let top = top.expect("the module of the folder");
        let exported = ModuleOrder::exported_items(top);
        let mut unused: BTreeSet<&str> = order.layers.concat().into_iter().collect();
        let mut wrong = Vec::new();

        for source in &files {
            let modules = order.modules_to(source);
            let Some(module) = modules.first() else {
                continue;
            };
            let file = source.path.display();
            let Some(layer) = order.layer(module) else {
                wrong.push(format!("{file}: the module `{module}` is in no layer"));
                continue;
            };
            unused.remove(module.as_str());

            for name in order.named_paths(source) {
                let named = exported.get(&name).unwrap_or(&name);
                let is_below = order.layer(named).is_some_and(|other| other < layer);
                if named != module && !is_below {
                    wrong.push(format!(
                        "{file}: `{module}` may not name `{named}` ({name})"
                    ));
                }
            }
        }

        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(unused.is_empty(), "no file is of the modules {unused:?}");
    }
}

#[test]
fn the_module_of_an_ordered_folder_defines_nothing() {
    for order in MODULE_ORDERS {
        let files = order.sources();
        let top = files
            .iter()
            .find(|source| order.modules_to(source).is_empty());
        for line in top.expect("the module of the folder").code.lines() {
            let is_export = ["#[", "#!", "mod ", "pub mod ", "pub use ", "    ", "}"];
            let is_export = is_export.iter().any(|start| line.starts_with(start));
            assert!(is_export || line.trim().is_empty(), "{}: {line}", order.dir);
        }
    }
}

#[test]
fn names_of_modules_are_unique_in_all_packages() {
    let mut packages: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources() {
        let crates = packages.entry(source.module).or_default();
        crates.insert(source.crate_name);
    }

    packages.remove("lib");
    packages.retain(|_, crates| crates.len() > 1);
    assert!(packages.is_empty(), "in several packages: {packages:?}");
}

#[test]
fn the_client_names_nothing_of_the_daemon() {
    let table: BTreeMap<_, _> = DEPENDENCIES.iter().copied().collect();
    let shared = table
        .keys()
        .filter(|module| !DAEMON_MODULES.contains(module) && !["lib", "main"].contains(module));

    // What the client names, and what that names in turn, is no module of the daemon.
    for module in shared {
        let allowed = table[module].iter().map(|path| ident(path));
        let wrong: Vec<_> = allowed.filter(|to| DAEMON_MODULES.contains(to)).collect();
        assert!(wrong.is_empty(), "`{module}` may name {wrong:?}");
    }
    for module in CLIENT_MODULES.iter().chain(DAEMON_MODULES) {
        assert!(
            table.contains_key(module),
            "`{module}` has no row in the table"
        );
    }
}

#[test]
fn modules_do_not_name_banned_libraries() {
    let mut wrong = Vec::new();
    for source in sources() {
        let code = source.without_tests();
        let unknown = BANNED_NAMES
            .iter()
            .filter(|(module, _)| *module == source.module);
        for name in unknown.flat_map(|(_, names)| names.iter()) {
            // Token files are the only files that `grpc` reads.
            let reads_tokens = *name == "std::fs" && source.path.ends_with("grpc/auth/tokens.rs");
            // The timer needs the clock of the kernel.
            let is_timer = *name == "rustix" && source.path.ends_with("catalog/debounce_timer.rs");
            if words(code, name).next().is_some() && !reads_tokens && !is_timer {
                wrong.push(format!("{}: names `{name}`", source.path.display()));
            }
        }
        let library = words(code, "serde_yaml").next().is_some();
        if library && !source.path.ends_with("parse/yaml.rs") {
            wrong.push(format!("{}: names `serde_yaml`", source.path.display()));
        }
        let is_notify = words(code, "notify").any(|at| code[at..].starts_with("notify::"));
        if is_notify && source.module != "file_watch" {
            wrong.push(format!("{}: names `notify`", source.path.display()));
        }
        if code.contains("landlock::") && !source.path.ends_with("sandbox/ruleset.rs") {
            wrong.push(format!("{}: names `landlock`", source.path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_architecture_page_has_the_same_table() {
    const PAGE: &str = include_str!("../../../docs/design/architecture.md");
    let mut rows = Vec::new();
    let mut lines = PAGE.lines();
    while lines.any(|line| line.starts_with("| module | may name |")) {
        let table = lines.by_ref().skip(1);
        rows.extend(table.map_while(|line| line.strip_prefix("| ")));
    }
    let written: BTreeMap<String, BTreeSet<String>> = rows
        .into_iter()
        .map(|row| {
            let mut cells = row.split('|');
            let mut names = || quoted_names(cells.next().expect("a cell"));
            (names().concat(), names().into_iter().collect())
        })
        .collect();
    let modules = |allowed: &[&str]| allowed.iter().map(|path| ident(path).to_owned()).collect();
    let is_list = |module: &str| module == "lib" || FOLDERS_OF_MODULES.contains(&module);
    let real = DEPENDENCIES.iter().filter(|(module, _)| !is_list(module));
    let real: BTreeMap<String, BTreeSet<String>> = real
        .map(|(module, allowed)| ((*module).to_owned(), modules(allowed)))
        .collect();
    assert_eq!(written, real);
}

#[test]
fn references_are_recognized() {
    let read = |code: &str| {
        let source = Source {
            path: PathBuf::new(),
            crate_name: "caproot",
            module: "grpc".into(),
            depth: 1,
            code: code.to_owned(),
        };
        source.references().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(read("use crate::fs::Body;"), ["fs::Body"]);
    assert_eq!(
        read("use crate::proto::caproot::v1 as pb;"),
        ["proto::caproot"]
    );
    assert_eq!(read("use crate::catalog;"), ["catalog"]);
    assert_eq!(
        read("use caproot_core::wire::{RelPath, RootId};"),
        ["wire::RelPath", "wire::RootId"]
    );
    assert_eq!(read("use crate::grpc::limits; my_crate::fs::x()"), [""; 0]);
    assert_eq!(
        read("use crate::{\n    fs::{read::{A, B}, Body},\n    catalog::{self, View},\n};"),
        ["catalog::View", "catalog::self", "fs::Body", "fs::read"]
    );
    assert_eq!(
        read("let x = *y == crate::model::main_file();"),
        ["model::main_file"]
    );
}

#[test]
fn names_in_an_ordered_folder_are_recognized() {
    let order = &MODULE_ORDERS[0];
    let read = |file: &str, code: &str| {
        let source = Source {
            path: Path::new(order.dir).join(file),
            crate_name: "caproot_session",
            module: "session".to_owned(),
            depth: 1,
            code: code.to_owned(),
        };
        order.named_paths(&source).into_iter().collect::<Vec<_>>()
    };
    let code = "use super::{Session, choice::SkillChoice};\npub(super) fn f() {}";
    assert_eq!(read("view.rs", code), ["Session", "choice"]);
    let code = "use super::super::view::SessionView;\nuse super::SkillSource;";
    assert_eq!(read("sources/daemon.rs", code), ["view"]);
    let code = "use crate::{Session, result::ToolError};";
    assert_eq!(read("sources/mod.rs", code), ["Session", "result"]);
}
