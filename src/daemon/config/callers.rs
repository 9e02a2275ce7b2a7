//! Reads `callers` of a config file: rules that admit callers and limit them to roots.

use super::disabled_skills::plain_name;
use super::keys::KeyDefault::{Effect, Required};
use super::keys::KeyValue::{List, Text};
use super::keys::{self, ConfigKey, key_table};
use super::roots::{KnownRoots, parse_directory};
use super::{OfferedDirs, accounts, address, record_reading};
use crate::daemon::grpc::auth::{CallerPolicy, CallerRule, SanPattern, TokenFile};
use crate::daemon::model::AccessScope;
use caproot_core::document::{
    ConfigError, ConfigErrors, DocumentField, DocumentReader, DocumentSection,
};
use caproot_core::wire::RootId;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Effect of a reload that changes users or groups.
const ACCOUNTS: &str =
    "applied from the next call on; a user or group name that is new may need a restart";

// Keys of one rule.
key_table!(
    KEYS,
    NAME = ConfigKey::new(
        "callers[].name",
        Text("text of at most 64 characters"),
        Required {
            example: "orchestrator"
        },
        "Unique name of the rule in the log.",
    ),
    UIDS = ConfigKey::new(
        "callers[].uids",
        List("users, by number or name"),
        Effect {
            effect: "no users",
            example: "[1000]"
        },
        "Users of processes on this machine.",
    )
    .with_reload(ACCOUNTS),
    GIDS = ConfigKey::new(
        "callers[].gids",
        List("groups, by number or name"),
        Effect {
            effect: "no groups",
            example: "[1000, root]"
        },
        "Groups of processes on this machine, primary or supplementary.",
    )
    .with_reload(ACCOUNTS),
    SANS = ConfigKey::new(
        "callers[].sans",
        List("DNS names, SPIFFE IDs, and SPIFFE IDs that end with `/*`"),
        Effect {
            effect: "no names",
            example: "[orchestrator.example.org, \"spiffe://example.org/ci/*\"]",
        },
        "Names in verified client certificates. `/*` matches all SPIFFE IDs below a path.",
    ),
    TOKEN_FILE = ConfigKey::new(
        "callers[].token_file",
        Text("file"),
        Effect {
            effect: "no token",
            example: "/etc/caproot/token"
        },
        "File with a token, which the caller sends as `authorization: Bearer TOKEN`. Only the owner and \
         the group of the file may have access, and the group must not be the group of a Unix socket. \
         The daemon reads the file for each call that sends a token.",
    ),
    ROOTS = ConfigKey::new(
        "callers[].roots",
        List("ids of published roots, and directories inside or above allowed ones"),
        Effect {
            effect: "all roots",
            example: "[team, /opt/codex/plugins]"
        },
        "Accessible roots. Each includes everything below it.",
    ),
);

/// Most rules: each rule costs time in every call.
const MAX_RULES: usize = 256;
const MAX_NAME_CHARS: usize = 64;

/// Rules that callers must match, and their token files.
#[derive(Debug, Clone, Default)]
pub struct CallerRules {
    /// Rules.
    pub callers: CallerPolicy,
    /// Token file of each rule; `None` for rules without a token.
    pub token_files: Vec<Option<TokenFile>>,
}

/// Rule of the file whose roots are not resolved yet.
#[derive(Debug)]
pub struct RuleDraft {
    rule: CallerRule,
    token_file: Option<RuleTokenFile>,
    /// Roots that the rule grants; `None` for all.
    roots: Option<Vec<RuleRoot>>,
}

/// Token file of a rule that is not compared with the sockets yet.
#[derive(Debug)]
struct RuleTokenFile {
    file: TokenFile,
    /// Error to report, with a reason, if a socket makes the file unusable.
    rejection: ConfigError,
}

/// Root that a rule grants.
#[derive(Debug)]
enum RuleRoot {
    Published(RootId),
    /// Directory, and the error to report if the directory is neither inside nor above an allowed
    /// one.
    Directory(PathBuf, ConfigError),
}

/// Reads the rules.
pub fn read(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    known_roots: &KnownRoots<'_>,
    reader: &mut DocumentReader<'_>,
) -> Vec<RuleDraft> {
    let empty = "empty list; remove the key to admit every caller that can connect";
    let rules = reader.list_unless_empty(item, empty);
    if rules.len() > MAX_RULES {
        reader.report_error(item, format!("more than {MAX_RULES} rules"));
        return Vec::new();
    }

    let mut lines: HashMap<Box<str>, u32> = HashMap::new();
    let mut drafts = Vec::new();
    for entry in rules {
        let Some(section) = reader.section(&entry, keys::names(&KEYS)) else {
            continue;
        };
        let Some(name_item) = NAME.required_field(&section, reader) else {
            continue;
        };

        // All keys are read before a bad name skips the rule, so that all errors are reported.
        let name = reader.parsed(&name_item, |text| {
            let name = rule_name(text)?;
            match lines.get(&name) {
                Some(line) => Err(format!(
                    "the rule in line {line} has the same name; names must be unique"
                )),
                None => Ok(name),
            }
        });
        let mut draft = read_rule(&entry, &section, base, known_roots, reader);

        if let Some(name) = name {
            lines.insert(name.clone(), name_item.line());
            draft.rule.name = name;
            drafts.push(draft);
        }
    }
    drafts
}

/// Reads the keys of a rule other than its name.
fn read_rule(
    entry: &DocumentField<'_>,
    section: &DocumentSection<'_>,
    base: Option<&Path>,
    known_roots: &KnownRoots<'_>,
    reader: &mut DocumentReader<'_>,
) -> RuleDraft {
    const EMPTY: &str = "empty list; remove the key";
    let uids = UIDS
        .field(section)
        .map(|item| reader.unique_numbers_or_texts(&item, EMPTY, accounts::uid));
    let gids = GIDS
        .field(section)
        .map(|item| reader.unique_numbers_or_texts(&item, EMPTY, accounts::gid));
    let sans = SANS.list(section, reader, Some(EMPTY), SanPattern::parse);
    let roots = ROOTS
        .field(section)
        .map(|item| read_roots(&item, base, known_roots, reader));

    let token_item = TOKEN_FILE.field(section);
    let needs_token = token_item.is_some();
    if uids.is_none() && gids.is_none() && sans.is_none() && !needs_token {
        reader.report_error(
            entry,
            "the rule matches no caller; set uids, gids, sans or token_file",
        );
    }

    RuleDraft {
        rule: CallerRule {
            name: Box::default(),
            uids: uids.unwrap_or_default(),
            gids: gids.unwrap_or_default(),
            sans: sans.unwrap_or_default(),
            needs_token,
            access_scope: AccessScope::All,
        },
        token_file: token_item.and_then(|item| {
            let file = reader.parsed(&item, |text| {
                let file = TokenFile::new(address::absolute_path(text.as_ref(), base)?);
                record_reading(&[file.path()]);
                // The groups of the sockets are known later, so `resolve_rules` checks the file again.
                let checked = file.check(&BTreeSet::new());
                checked.map(|()| file).map_err(|error| error.to_string())
            })?;
            let rejection = reader.error_for(&item, "");
            Some(RuleTokenFile { file, rejection })
        }),
        roots,
    }
}

/// Resolves the roots of the rules to directories. Rejects token files that a group of
/// `socket_groups` may access.
pub fn resolve_rules(
    drafts: Vec<RuleDraft>,
    offered: &OfferedDirs,
    socket_groups: &BTreeSet<u32>,
) -> Result<CallerRules, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut rules = CallerRules::default();
    for draft in drafts {
        let mut rule = draft.rule;
        if let Some(roots) = draft.roots {
            let dirs = roots
                .into_iter()
                .filter_map(|root| resolve_root(root, offered, &mut errors));
            rule.access_scope = AccessScope::Directories(dirs.collect());
        }

        let token_file = draft.token_file.map(|RuleTokenFile { file, rejection }| {
            if let Err(error) = file.check(socket_groups) {
                errors.add(ConfigError {
                    reason: error.to_string(),
                    ..rejection
                });
            }
            file
        });

        rules.callers.rules.push(rule);
        rules.token_files.push(token_file);
    }
    errors.or_value(rules)
}

/// Returns the directory of a root that a rule grants. Reports a directory that is neither inside nor
/// above an allowed one.
fn resolve_root(
    root: RuleRoot,
    offered: &OfferedDirs,
    errors: &mut ConfigErrors,
) -> Option<Box<[u8]>> {
    match root {
        // If --root removed the root, the rule grants nothing.
        RuleRoot::Published(id) => offered
            .published_roots
            .iter()
            .find(|root| root.id == id)
            .map(|root| root.path.clone()),
        RuleRoot::Directory(dir, error) => {
            let dir = path_bytes(&dir);
            let granted = AccessScope::Directories([dir.clone()].into());
            let is_related = offered.allowed_dirs.iter().any(|allowed| {
                let allowed = path_bytes(allowed);
                granted.contains_path(&allowed)
                    || AccessScope::Directories([allowed].into()).contains_path(&dir)
            });
            if !is_related {
                errors.add(error);
            }
            Some(dir)
        }
    }
}

fn path_bytes(dir: &Path) -> Box<[u8]> {
    dir.as_os_str().as_bytes().into()
}

fn rule_name(text: &str) -> Result<Box<str>, String> {
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(format!("longer than {MAX_NAME_CHARS} characters"));
    }
    Ok(plain_name(text)?)
}

fn read_roots(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    known_roots: &KnownRoots<'_>,
    reader: &mut DocumentReader<'_>,
) -> Vec<RuleRoot> {
    let empty = "empty list, so the rule would grant nothing; remove the key to grant all roots";
    let mut roots = Vec::new();

    for item in reader.list_unless_empty(item, empty) {
        let Some(text) = reader.text(&item) else {
            continue;
        };

        // The ids come first, because an id may begin with `/`, too.
        match RootId::new(text) {
            Ok(id) if known_roots.contains(&id) => roots.push(RuleRoot::Published(id)),
            _ if text.starts_with('/') => {
                // The allowed directories are known later, so `resolve_root` reports this error.
                let reason = "neither inside an allowed directory nor above one";
                let not_allowed = reader.error_for(&item, reason);
                let dir = reader.parsed(&item, |text| parse_directory(text, base));
                roots.extend(dir.map(|dir| RuleRoot::Directory(dir, not_allowed)));
            }
            _ => {
                reader.report_error(
                    &item,
                    "neither the id of a published root nor an absolute path",
                );
            }
        }
    }
    roots
}
