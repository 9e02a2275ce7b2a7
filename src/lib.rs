//! The daemon caproot and its commands. caproot resolves the directories that a platform selected on
//! an executor, discovers the skills and plugins below them, and serves catalogs, changes and bounded
//! reads over gRPC.
//!
//! A program that calls daemons needs [`caproot_client`] instead of this crate, and [`caproot_session`]
//! to give a model the skills. A program that has a daemon inside uses two modules of this crate:
//! [`daemon::server::build_daemon`] makes the daemon, and [`daemon::local_source::LocalSource`] makes
//! directories of this machine a source of a session.
//!
//! # How caproot is built
//!
//! The rest of this page is the map of the code. [`daemon`] has the modules that look at the files of an
//! executor, and needs Linux. `agent` and `cli` have the rest of the program, also on macOS and Windows.
//! The packages [`caproot_client`] in `crates/client` and [`caproot_session`] in `crates/session` are
//! the library of an orchestrator, and `caproot_link` in `crates/link` has the tunnels to executors
//! that dial out. The package [`caproot_core`] in `crates/core` has the modules that all share, such as
//! [`caproot_core::wire`] and [`caproot_core::document`]. `docs/design/architecture.md` has the picture
//! of the modules and the tables of their dependencies, which `tests/it/pages/modules.rs` compares with
//! the code.
//!
//! # Glossary
//!
//! | term | meaning |
//! | --- | --- |
//! | accepted call | call whose caller the rules of `callers` accept; without rules, each call |
//! | allowed directory | directory of the config key `allow`; no file outside the allowed directories is opened |
//! | bookmark | event of a stream without a change; its token resumes the stream later |
//! | caller | client of a call as authenticated: a Unix user, the names of a certificate, or the holder of a token |
//! | catalog | immutable, sorted list of the skills and plugins of one root |
//! | catalog digest | SHA-256 of the messages of a root's catalog; equal messages have equal digests on every executor |
//! | change notice | short text for a model that names the skills that came, changed or went since an instruction text |
//! | checksum file | file with the digests of a pulled package, in the directory of the package |
//! | component | part of a plugin: a hook, an MCP server, an LSP server, a command, an app |
//! | cursor, page token | opaque position in a list or file; it carries the revision or version that it belongs to |
//! | debounce | delay until a root has had no event for `watch.debounce`, at most `watch.max_debounce` |
//! | diagnostic | problem of a skill, plugin or root as data: code, severity, path, text |
//! | environment | name of the executor's file system in a selection; a daemon answers for one or more |
//! | epoch | random number of a daemon's process; revisions of different epochs cannot be compared |
//! | executor | machine on which a daemon runs and on which the files are |
//! | frontmatter | YAML between the `---` lines at the start of a SKILL.md |
//! | full scan | periodic rescan of a root that finds changes for which inotify had no event |
//! | handle | `skill://` URI of a resource of a skill or plugin, valid for the selection of its root |
//! | known catalog | catalog that a caller holds and names in a request, so that the daemon does not send it |
//! | lock | file with the approved skills and plugins: the name, description and files of each |
//! | manager | platform that keeps the pending calls of a model until a client answers them |
//! | manifest | file that describes a plugin, such as `plugin.json` |
//! | mirror | copy of a daemon's catalogs in a client, kept current by `WatchSkills`; sessions, `caproot mcp` and `caproot watch` have one |
//! | omitted | found but not in the response; a diagnostic gives the reason |
//! | orchestrator | program that selects roots and calls the daemons; it has no access to their files |
//! | package | directory of a skill or plugin, with its resources |
//! | published root | directory that the operator gave an id, for selections such as `published:ID` |
//! | pull | writing a package of a daemon to a directory of this machine, as a whole |
//! | quota, permit | limit of concurrent calls, streams or connections of a caller; the right to one of them |
//! | readiness | whether an executor has what a skill declares to need: ready, missing or unknown |
//! | redacted | replaced by `<redacted>` because the value is a secret |
//! | reload | reading the config file again, on SIGHUP; a reload is applied whole or rejected whole |
//! | resolved path | allowed directory and relative path to which a path leads, all links followed |
//! | resource | file of a package that may be read |
//! | resume token | position of a stream; a new stream with the token gets only the changes since |
//! | revision | number of a published snapshot; it grows with each change |
//! | root | directory that the platform selected, with its id |
//! | scan, rescan | reading the directories and files of a root; of its changed directories only |
//! | scope | roots and directories that the rules of a caller allow |
//! | selection | the roots of a request (`selectedCapabilityRoots`) |
//! | sidecar | `agents/openai.yaml` next to a SKILL.md: interface, policy, dependencies |
//! | skill | directory with a SKILL.md |
//! | skipped | not scanned, because the directory's name is in `search.excluded_dirs` |
//! | snapshot | published state of one root: catalog, revision, diagnostics |
//! | source | origin of skills in a session: a daemon, a local directory, an MCP server |
//! | verified copy | files of a package that `caproot exec` copied and compared with their digests |
//! | version | identity of a file's content: device, inode, size and times |
//! | wait budget | time that a call may wait for a scan |
//!
//! # How a call travels
//!
//! 1. `server` accepts the connection into the pool of connections without an accepted call, and
//!    authenticates the peer by its certificate or by `SO_PEERCRED`.
//! 2. The layers count the call, admit the connection with its first accepted call, check the
//!    caller's quota, match the caller with the rules of `callers`, and attach the authenticated
//!    caller to the request. `server/layers.rs` has their order, with the reason for each.
//! 3. `grpc` turns the request into types of `model`. A bad field ends the call with
//!    `INVALID_ARGUMENT`.
//! 4. [`daemon::catalog::CatalogStore`] returns the snapshot of each root in the caller's scope. If a root
//!    has no snapshot, or the request wants a fresh one, the call waits for the root's task within
//!    its wait budget.
//! 5. The root's task resolves the root with `fs` below the allowed directories. `scan::search`
//!    decides which directories are listed next, `scan` lists them on a few threads, and
//!    joins the parsed files into skills. If the catalog differs from the last one, it is published as a
//!    new revision.
//! 6. `grpc` takes what the caller may see of each root (`VisibleView`), cuts the page and encodes it. A
//!    page that was encoded a moment before is sent again from the page cache if nothing changed.
//!
//! # How a file change reaches a stream
//!
//! 1. `watch` reads the inotify event and finds the listeners of the directory: `dispatch_event`. The
//!    listener of a root records the token of the directory: `PendingChanges::on_dir_changed`.
//! 2. The `RootTask` waits until the root has been quiet for the debounce time:
//!    `PendingChanges::take_due`.
//! 3. `RootIndex::rescan_dirty` finds the places of the tokens in `RootWatches`. `DirLister` lists the
//!    changed directories again and reads the changed files, and `ScannedDir::replace_listing`
//!    compares each new listing with the last one. If only the content of a SKILL.md changed,
//!    `CatalogBuilder::replace_skill` makes the new skill, and a copy of the catalog gets it.
//!    Otherwise the root is searched again with the listings of all other directories. Below a
//!    moved directory nothing is reused: a file that was read by its path during the move may have
//!    been another file.
//! 4. `CatalogStore::publish_snapshot` stores the new catalog as a new revision. Skills and plugins
//!    are published together, so a renamed plugin and its skills are one revision.
//! 5. Each `WatchStream` compares the new revision with the catalog that its caller has
//!    (`change_events`, `diff_catalogs`), and encodes one event at a time, when the connection has
//!    room (`EncodedEvent`). Streams with the same difference share the encoded event.
//!
//! If inotify is not available or the limit of watches is reached, the root is polled: a contained
//! scan at an interval. The full scan finds changes for which no event came.
//!
//! Roots are watched with the `inotify` crate instead of `notify`, because a watch must be set
//! through the descriptor of a directory that was opened below an allowed directory, and must stay
//! with that directory after a rename. `notify` identifies watches by path: if two directories had
//! the same path at different times, one of them loses its watch. Events must also be ordered with
//! reads: the barrier adds a watch on an anonymous file and removes it, and the kernel queues its
//! `IN_IGNORED` after all earlier events.
//!
//! # How a read travels
//!
//! 1. `grpc` checks the handle and the cursor.
//! 2. `catalog` finds the package in the published snapshot. If the file's pages are in the
//!    kernel's cache, the read is done at once; otherwise it waits for a permit and runs on a
//!    blocking thread.
//! 3. `fs` opens the file below the allowed directory with openat2(2), or component by component
//!    if the kernel has no openat2(2). It checks that the file is a regular file of the expected
//!    version, takes its digest from a bounded cache or computes it, reads one page, and compares
//!    the version again. If the page is the whole file, the digest of the page replaces another
//!    digest in the cache.
//! 4. `grpc` encodes the page into an HTTP body with fewer copies than tonic's codec makes.
//!
//! # How the daemon starts and reloads
//!
//! Landlock restricts the calling thread and the threads that it starts. So `cli` does the first
//! half of `serve` on one thread: it takes inherited sockets, loads the config, binds the other
//! listeners, and applies the sandbox. Then `main` starts the runtime, and
//! [`daemon::server::build_daemon_on`] builds the daemon.
//!
//! On SIGHUP the config file is read by the function that read it at the start. If everything that
//! can fail has succeeded, the new rules and the new policy of the store are applied together, so
//! that no response mixes old and new. Each root is scanned again, and each open stream's caller is
//! checked again. If a changed key needs a new process and a service manager runs the daemon, the
//! daemon exits with code 75.
//!
//! # How a tool call of a session travels
//!
//! A session asks its sources through one trait, [`caproot_session::SkillSource`]. The source
//! of an executor holds a [`caproot_client::Mirror`], the source of local directories runs a daemon in
//! the process, and the source of an MCP server follows the server. A read whose JSON is larger than
//! the tool's limit is repeated with a smaller page. A custom tool's arguments are checked against its
//! schema, and the tool runs in its own task that ends with the call. `session::dispatch` takes pending
//! calls of a platform and runs each call once, however often the platform shows it.
//!
//! # Two YAML readers
//!
//! `serde_yaml` reads skills and plugins; only `parse/yaml.rs` names it, with the limits on
//! nesting and aliases. `parse/yaml/fast_path.rs` reads plain `key: value` lines in a fraction of
//! the time, and tests compare both. `saphyr-parser` reads the files of operators and
//! orchestrators, where each error needs its line; only [`caproot_core::document`] names it.

// Commands that need Linux share code with the others.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

pub mod agent;
pub mod cli;
#[cfg(target_os = "linux")]
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod lint;
pub mod log_config;

/// Programs of the guides of orchestrators, as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/orchestrate/rust.md")]
#[doc = include_str!("../docs/orchestrate/manager.md")]
#[doc = include_str!("../docs/orchestrate/search.md")]
#[doc = include_str!("../docs/orchestrate/trust.md")]
#[doc = include_str!("../docs/orchestrate/mcp-sources.md")]
#[doc = include_str!("../docs/orchestrate/sites.md")]
mod guides {}
