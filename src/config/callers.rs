//! The `callers` of a config file: who may ask, and for what. Leaves what the rules mean to
//! `domain::callers`.

use super::accounts;
use super::address;
use super::error::ConfigError;
use super::section::{ConfigReader, ConfigValue};
use super::settings::parse_directory;
use crate::bearer::TokenFile;
use crate::domain::callers::{CallerRule, SanPattern};
use crate::domain::{AccessScope, CallerPolicy, PublishedRoot, RootId};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Keys of one rule.
pub(super) const KEYS: [&str; 6] = ["name", "uids", "gids", "sans", "token_file", "roots"];

/// The most rules: each costs time in every call.
const MAX_RULES: usize = 256;
const MAX_NAME_CHARS: usize = 64;

/// Who may ask.
#[derive(Debug, Clone, Default)]
pub struct CallerRules {
    /// The rules.
    pub callers: CallerPolicy,
    /// Of each rule, where its token is, if it wants one.
    pub token_files: Vec<Option<TokenFile>>,
}

/// What the file says of a rule.
#[derive(Debug)]
pub(super) struct RuleDraft {
    rule: CallerRule,
    token_file: Option<TokenFile>,
    /// What the caller is bound to, if it is.
    roots: Option<Vec<RuleRoot>>,
}

/// One of the roots that a caller is bound to.
#[derive(Debug)]
enum RuleRoot {
    Published(RootId),
    /// A directory, and what to say if it turns out to be nowhere near an allowed one.
    Directory(PathBuf, ConfigError),
}

/// Reads the rules. `known` are the roots that a rule may name.
pub(super) fn read(
    item: &ConfigValue<'_>,
    base: Option<&Path>,
    known: impl Fn(&RootId) -> bool,
    checker: &mut ConfigReader<'_>,
) -> Vec<RuleDraft> {
    let empty = "names nobody; leave the key out to let in whoever can connect";
    let rules = checker.list_unless_empty(item, empty);
    if rules.len() > MAX_RULES {
        checker.report_error(item, format!("has over {MAX_RULES} rules"));
        return Vec::new();
    }
    let mut lines: HashMap<Box<str>, u32> = HashMap::new();
    let mut drafts = Vec::new();
    for entry in rules {
        let Some(section) = checker.section(&entry, &KEYS) else { continue };
        let Some(name) = checker.required(&section, "name") else { continue };
        let line = name.line();
        let taken = |name: Box<str>| match lines.get(&name) {
            Some(line) => Err(format!("is taken by the rule in line {line}; give each its own")),
            None => Ok(name),
        };
        let name = checker.parsed(&name, |text| rule_name(text).and_then(taken));
        let empty = "names none; leave the key out";
        let [uids, gids, sans] = ["uids", "gids", "sans"].map(|key| section.get(key));
        let uids = uids.map(|item| checker.unique_numbers_or_texts(&item, empty, accounts::uid));
        let gids = gids.map(|item| checker.unique_numbers_or_texts(&item, empty, accounts::gid));
        let sans = sans.map(|item| checker.unique_texts(&item, Some(empty), SanPattern::parse));
        let secret = section.get("token_file");
        let roots = section.get("roots").map(|item| roots(&item, base, &known, checker));
        if uids.is_none() && gids.is_none() && sans.is_none() && secret.is_none() {
            checker.report_error(&entry, "names nobody; give uids, gids, sans or a token_file");
        }
        let needs_token = secret.is_some();
        let token_file = secret.and_then(|item| token_file(&item, base, checker));
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
        drafts.push(RuleDraft { rule, token_file, roots });
    }
    drafts
}

/// Binds callers to their roots, now that it is known what is published and allowed.
pub(super) fn resolve_rules(
    drafts: Vec<RuleDraft>,
    published: &[PublishedRoot],
    allowed: &[PathBuf],
) -> Result<CallerRules, Vec<ConfigError>> {
    let bytes = |dir: &Path| -> Box<[u8]> { dir.as_os_str().as_bytes().into() };
    let all = AccessScope::Directories(allowed.iter().map(|dir| bytes(dir)).collect());
    let mut mistakes = Vec::new();
    let mut rules = CallerRules::default();
    for RuleDraft { mut rule, token_file, roots } in drafts {
        if let Some(roots) = roots {
            let dirs = roots.into_iter().filter_map(|root| match root {
                // A root that a flag took away gives nothing.
                RuleRoot::Published(id) => {
                    published.iter().find(|root| root.id == id).map(|root| root.path.clone())
                }
                RuleRoot::Directory(dir, mistake) => {
                    let dir = bytes(&dir);
                    let own = AccessScope::Directories([dir.clone()].into());
                    let holds_one =
                        || allowed.iter().any(|a| own.contains_path(a.as_os_str().as_bytes()));
                    if !all.contains_path(&dir) && !holds_one() {
                        mistakes.push(mistake);
                    }
                    Some(dir)
                }
            });
            rule.access_scope = AccessScope::Directories(dirs.collect());
        }
        rules.callers.rules.push(rule);
        rules.token_files.push(token_file);
    }
    if mistakes.is_empty() { Ok(rules) } else { Err(mistakes) }
}

fn rule_name(text: &str) -> Result<Box<str>, String> {
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(format!("is over {MAX_NAME_CHARS} characters"));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err("has white space around it, or a control character in it".to_owned());
    }
    Ok(text.into())
}

fn roots(
    item: &ConfigValue<'_>,
    base: Option<&Path>,
    known: impl Fn(&RootId) -> bool,
    checker: &mut ConfigReader<'_>,
) -> Vec<RuleRoot> {
    let empty = "names none, so that the rule would give nothing; leave the key out for all";
    let mut roots = Vec::new();
    for item in checker.list_unless_empty(item, empty) {
        let Some(text) = checker.text(&item) else { continue };
        match RootId::new(text) {
            Ok(id) if known(&id) => roots.push(RuleRoot::Published(id)),
            _ if text.starts_with('/') => {
                let why = "lies neither in an allowed directory nor above one";
                let unless_allowed = checker.error_for(&item, why);
                let dir = checker.parsed(&item, |text| parse_directory(text, base));
                roots.extend(dir.map(|dir| RuleRoot::Directory(dir, unless_allowed)));
            }
            _ => {
                checker.report_error(&item, "is the id of no published root, and no absolute path")
            }
        }
    }
    roots
}

fn token_file(
    item: &ConfigValue<'_>,
    base: Option<&Path>,
    checker: &mut ConfigReader<'_>,
) -> Option<TokenFile> {
    checker.parsed(item, |text| {
        let file = TokenFile::new(address::absolute_path(text.as_ref(), base)?);
        file.check().map_err(|fault| fault.to_string())?;
        Ok::<_, String>(file)
    })
}
