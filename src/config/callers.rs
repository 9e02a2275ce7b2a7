//! Reads `callers` of a config file: rules that admit callers and limit them to roots.

use super::keys::{self, ConfigKey, KeyDefault, KeyReload, KeyValue};
use super::roots::parse_directory;
use super::{accounts, address, record_reading};
use crate::grpc::auth::{CallerPolicy, CallerRule, SanPattern, TokenFile};
use crate::model::{AccessScope, PublishedRoot};
use caproot_core::document::{ConfigError, ConfigErrors, DocumentField, DocumentReader};
use caproot_core::wire::RootId;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Effect of a reload that changes users or groups.
const ACCOUNTS: &str =
    "applied from the next call on; a user or group name that is new may need a restart";

/// Keys of one rule.
pub const KEYS: [ConfigKey; 6] = [
    ConfigKey::new(
        "callers[].name",
        KeyValue::Text("text of at most 64 characters"),
        KeyDefault::Required { example: "orchestrator" },
        "Unique name of the rule in the log.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "callers[].uids",
        KeyValue::List("users, by number or name"),
        KeyDefault::Effect { effect: "no users", example: "[1000]" },
        "Users of processes on this machine.",
    )
    .with_reload(KeyReload::Applied(ACCOUNTS)),
    ConfigKey::new(
        "callers[].gids",
        KeyValue::List("groups, by number or name"),
        KeyDefault::Effect { effect: "no groups", example: "[1000, root]" },
        "Groups of processes on this machine, primary or supplementary.",
    )
    .with_reload(KeyReload::Applied(ACCOUNTS)),
    ConfigKey::new(
        "callers[].sans",
        KeyValue::List("DNS names, SPIFFE IDs, and SPIFFE IDs that end with `/*`"),
        KeyDefault::Effect {
            effect: "no names",
            example: "[orchestrator.example.org, \"spiffe://example.org/ci/*\"]",
        },
        "Names in verified client certificates. `/*` matches all SPIFFE IDs below a path.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "callers[].token_file",
        KeyValue::Text("file"),
        KeyDefault::Effect { effect: "no token", example: "/etc/caproot/token" },
        "File with a token, which the caller sends as `authorization: Bearer TOKEN`. Only the owner and \
         the group of the file may have access, and the group must not be the group of a Unix socket. \
         The daemon reads the file for each call that sends a token.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "callers[].roots",
        KeyValue::List("ids of published roots, and directories inside or above allowed ones"),
        KeyDefault::Effect { effect: "all roots", example: "[team, /opt/codex/plugins]" },
        "Accessible roots. Each includes everything below it.",
    )
    .with_reload(KeyReload::Section),
];

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

/// Reads the rules. `is_root` returns whether a root with this id is published.
pub fn read(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    is_root: impl Fn(&RootId) -> bool,
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
        let Some(name) = reader.required(&section, "name") else {
            continue;
        };
        let line = name.line();
        let taken = |name: Box<str>| match lines.get(&name) {
            Some(line) => Err(format!(
                "the rule in line {line} has the same name; names must be unique"
            )),
            None => Ok(name),
        };
        let name = reader.parsed(&name, |text| rule_name(text).and_then(taken));
        let empty = "empty list; remove the key";
        let [uids, gids, sans] = ["uids", "gids", "sans"].map(|key| section.get(key));
        let uids = uids.map(|item| reader.unique_numbers_or_texts(&item, empty, accounts::uid));
        let gids = gids.map(|item| reader.unique_numbers_or_texts(&item, empty, accounts::gid));
        let sans = sans.map(|item| reader.unique_texts(&item, Some(empty), SanPattern::parse));
        let token_item = section.get("token_file");
        let roots = section
            .get("roots")
            .map(|item| roots(&item, base, &is_root, reader));
        if uids.is_none() && gids.is_none() && sans.is_none() && token_item.is_none() {
            reader.report_error(
                &entry,
                "the rule matches no caller; set uids, gids, sans or token_file",
            );
        }
        let needs_token = token_item.is_some();
        let token_file = token_item.and_then(|item| token_file(&item, base, reader));
        let Some(name) = name else { continue };
        lines.insert(name.clone(), line);
        let rule = CallerRule {
            name,
            uids: uids.unwrap_or_default(),
            gids: gids.unwrap_or_default(),
            sans: sans.unwrap_or_default(),
            needs_token,
            access_scope: AccessScope::All,
        };
        drafts.push(RuleDraft {
            rule,
            token_file,
            roots,
        });
    }
    drafts
}

/// Resolves the roots of the rules to directories. Rejects token files that a group of
/// `socket_groups` may access.
pub fn resolve_rules(
    drafts: Vec<RuleDraft>,
    published: &[PublishedRoot],
    allowed: &[PathBuf],
    socket_groups: &BTreeSet<u32>,
) -> Result<CallerRules, ConfigErrors> {
    let bytes = |dir: &Path| -> Box<[u8]> { dir.as_os_str().as_bytes().into() };
    let all = AccessScope::Directories(allowed.iter().map(|dir| bytes(dir)).collect());
    let mut errors = ConfigErrors::default();
    let mut rules = CallerRules::default();
    for RuleDraft {
        mut rule,
        token_file,
        roots,
    } in drafts
    {
        if let Some(roots) = roots {
            let dirs = roots.into_iter().filter_map(|root| match root {
                // If --root removed the root, the rule grants nothing.
                RuleRoot::Published(id) => published
                    .iter()
                    .find(|root| root.id == id)
                    .map(|root| root.path.clone()),
                RuleRoot::Directory(dir, error) => {
                    let dir = bytes(&dir);
                    let own = AccessScope::Directories([dir.clone()].into());
                    let holds_one = || {
                        allowed
                            .iter()
                            .any(|a| own.contains_path(a.as_os_str().as_bytes()))
                    };
                    if !all.contains_path(&dir) && !holds_one() {
                        errors.add(error);
                    }
                    Some(dir)
                }
            });
            rule.access_scope = AccessScope::Directories(dirs.collect());
        }
        let token_file = token_file.map(|RuleTokenFile { file, rejection }| {
            if let Err(error) = file.check(socket_groups) {
                let reason = error.to_string();
                errors.add(ConfigError {
                    reason,
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

fn rule_name(text: &str) -> Result<Box<str>, String> {
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(format!("longer than {MAX_NAME_CHARS} characters"));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(
            "must not start or end with white space or contain a control character".to_owned(),
        );
    }
    Ok(text.into())
}

fn roots(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    is_root: impl Fn(&RootId) -> bool,
    reader: &mut DocumentReader<'_>,
) -> Vec<RuleRoot> {
    let empty = "empty list, so the rule would grant nothing; remove the key to grant all roots";
    let mut roots = Vec::new();
    for item in reader.list_unless_empty(item, empty) {
        let Some(text) = reader.text(&item) else {
            continue;
        };
        match RootId::new(text) {
            Ok(id) if is_root(&id) => roots.push(RuleRoot::Published(id)),
            _ if text.starts_with('/') => {
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

fn token_file(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> Option<RuleTokenFile> {
    let rejection = reader.error_for(item, "");
    let file = reader.parsed(item, |text| {
        let file = TokenFile::new(address::absolute_path(text.as_ref(), base)?);
        record_reading(&[file.path()]);
        file.check(&BTreeSet::new())
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(file)
    })?;
    Some(RuleTokenFile { file, rejection })
}
