//! Skill that a call names: by its handle, by its name, or by a name after the id of its authority.

use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::{AuthorityRef, SharedSkill, is_hidden};
use crate::skills::skill_source::{SkillSource, TextPage};
use crate::state::{AuthoritySource, Session};
use crate::text::resource_path::NamedResource;
use crate::text::short_names::{ShortName, is_repeatable, split_qualified};
use crate::uses::invocation::InvocationTarget;
use crate::uses::used::UsedFile;
use crate::view::arguments::invalid_arguments;
use crate::view::list::is_listed;
use crate::view::session_view::SessionView;
use caproot_core::text::quote_value;
use caproot_core::text::similar::suggest_skill_names;
use caproot_core::wire::handle::{HANDLE_SCHEME, enclosing_package, is_within};

/// File name that models add to a package.
const MAIN_FILE_SUFFIX: &str = "/SKILL.md";
/// Maximum number of handles in an error.
const MAX_HANDLES: usize = 8;
/// Bytes of a name beyond which no similar names are searched, which takes the product of both lengths.
const MAX_COMPARED_BYTES: usize = 128;

/// Package as a call names it, with the parts of the authority that the call gives.
pub struct PackageQuery<'a> {
    pub package: &'a str,
    /// Kind and id of the authority; empty: any.
    pub kind: &'a str,
    pub id: &'a str,
    /// Whether the handle of a file may stand for its package.
    pub allows_file: bool,
}

/// Package that a call names, with its source.
pub struct FoundPackage<'a> {
    pub owner: AuthoritySource<'a>,
    pub package: String,
    /// Skill of the package, if the source lists it.
    pub skill: Option<SharedSkill>,
    /// Handle of a file of the package, if the call gave the handle in place of the package.
    pub file: Option<String>,
}

impl FoundPackage<'_> {
    /// Returns the source and the skill, for the span of a call.
    pub fn invocation_target(&self) -> InvocationTarget<'_> {
        InvocationTarget::of_skill(self.owner.source, &self.package, self.skill.as_ref())
    }

    /// Whether the package is a plugin, of which only files that a call names are read.
    pub fn is_plugin(&self) -> bool {
        self.skill.is_none() && self.file.is_some()
    }
}

impl PackageQuery<'_> {
    /// Returns whether the query can mean a package of an authority.
    fn allows(&self, kind: &str, id: &str) -> bool {
        (self.kind.is_empty() || self.kind == kind) && (self.id.is_empty() || self.id == id)
    }
}

impl Session {
    /// Records that the model has the file of a page.
    pub(crate) fn record_used(&self, found: &FoundPackage<'_>, page: &TextPage) {
        if let Some(skill) = &found.skill {
            let used = UsedFile::of_page(skill, page);
            self.inner.used.lock().record(used);
        }
    }

    /// Returns the handle of a skill's plugin, if the rules of the session include the plugin.
    pub(crate) fn readable_plugin<'a>(
        &self,
        source: &dyn SkillSource,
        skill: &'a SharedSkill,
    ) -> Option<&'a str> {
        let choice = &self.inner.options.choice;
        let package = skill.plugin_package();
        package.filter(|package| choice.includes(source, &skill.plugin, package))
    }

    /// Finds a file outside of the skill that a call names: in the plugin of the skill or, if no skill has the
    /// handle, in the plugin of any skill of the session. A file of another skill is found as such, so that the
    /// rules for the other skill apply. `None` if there is no such plugin.
    pub(crate) fn find_plugin_file<'a>(
        &'a self,
        named: &FoundPackage<'a>,
        resource: &str,
    ) -> Option<FoundPackage<'a>> {
        let handle = match NamedResource::parse(&named.package, resource).ok()? {
            NamedResource::File(handle) if handle.is_empty() => named.package.clone(),
            NamedResource::File(handle) => handle,
            NamedResource::Directory(_) => return None,
        };
        let skill = named.skill.as_ref();
        if skill.is_some_and(|skill| is_within(&handle, &skill.package)) {
            return None;
        }

        let view = self.current_view();
        let owner = named.owner;
        let plugins = view
            .skills
            .iter()
            .filter(|listed| {
                let AuthorityRef { kind, id } = AuthorityRef::of_skill(listed);
                kind == owner.source.kind().name() && id == owner.id
            })
            .filter(|listed| skill.is_none_or(|skill| skill.package == listed.package))
            .filter_map(|listed| self.readable_plugin(owner.source, listed))
            .filter(|plugin| *plugin != handle);
        let plugin = enclosing_package(&handle, plugins)?.to_owned();

        let mut enclosing = enclosing_packages(&[owner], &handle);
        let skill = enclosing.pop().map(|(_, skill)| skill);
        Some(FoundPackage {
            owner,
            package: skill.as_ref().map_or(plugin, |skill| skill.package.clone()),
            skill,
            file: Some(handle),
        })
    }

    /// Finds the package that a call names. A handle that is not listed is found, too, if one source
    /// has it: the source then reports the reason.
    pub(crate) fn find_package(
        &self,
        query: &PackageQuery<'_>,
    ) -> Result<FoundPackage<'_>, ToolError> {
        // Checked first, as a name may be of another authority.
        let named_owner = match (query.kind, query.id) {
            ("", _) | (_, "") => None,
            (kind, id) => Some(self.find_authority(kind, id)?),
        };

        let named = query.package.trim();
        if !named.contains("://") {
            return self.find_named_package(query, trim_package(named.trim_start_matches('$')));
        }
        let find = |handle| {
            let owners: Vec<_> = match named_owner {
                Some(owner) => vec![owner],
                None => self
                    .authority_sources()
                    .filter(|owner| {
                        query.allows(owner.source.kind().name(), owner.id)
                            && owner.source.owns_handle(owner.id, handle)
                    })
                    .collect(),
            };
            let enclosing = enclosing_packages(&owners, handle);
            (owners, enclosing)
        };

        let (mut owners, mut enclosing) = find(named);
        let trimmed = trim_package(named);
        let mut text = named;
        // A listed package may end as models end packages.
        if trimmed != named && enclosing.iter().all(|(_, skill)| skill.package != named) {
            text = trimmed;
            (owners, enclosing) = find(text);
        }
        if owners.is_empty() && query.id.is_empty() {
            let name = text.strip_prefix(HANDLE_SCHEME);
            if let Some(name) = name.filter(|name| is_repeatable(name)) {
                return self.find_named_package(query, name);
            }
        }

        if !query.allows_file {
            enclosing.retain(|(_, skill)| skill.package == text);
        }
        select_package(&owners, &enclosing, text)
    }

    /// Records that the short names of these skills, which a text shows, keep their skills.
    pub(crate) fn bind_short_names(&self, view: &SessionView, shown: &[&SharedSkill]) {
        let mut short_names = self.inner.short_names.lock();
        let chooser = short_names.chooser(&view.skills, &view.equal_roots);
        let chosen: Vec<_> = shown
            .iter()
            .filter_map(|skill| Some((chooser.choose(skill)?, skill)))
            .collect();
        for (name, skill) in chosen {
            short_names.bind_name(&name, skill);
        }
    }

    /// Returns the error of a missing package with the similar names; another error as it is.
    pub(crate) fn with_similar_names(&self, error: ToolError, package: &str) -> ToolError {
        if error.code() == ToolErrorCode::PackageNotFound {
            error.with_note(&similar_names(&self.current_view(), package))
        } else {
            error
        }
    }

    /// Finds the skill with a name, which is free of the parts that models add.
    fn find_named_package(
        &self,
        query: &PackageQuery<'_>,
        name: &str,
    ) -> Result<FoundPackage<'_>, ToolError> {
        if name.is_empty() {
            let reason = "`package` is empty; pass the name or the package of a listed skill";
            return Err(invalid_arguments(reason));
        }

        let view = self.current_view();

        // A name that a text showed keeps its skill, even if other skills have the name now.
        let bound = self.inner.short_names.lock().find(name).cloned();
        if let Some(bound) = bound.filter(|bound| query.allows(&bound.kind, &bound.root)) {
            return self.find_bound_package(&view, query, &bound);
        }

        match find_by_name(&view, query, name).as_slice() {
            [] => {
                let message = format!(
                    "no skill of this session has the name {}",
                    quote_value(name)
                );
                Err(package_not_found(&(message + &similar_names(&view, name))))
            }
            [skill] => {
                // With an authority, the bare name may still mean several skills.
                if query.id.is_empty() {
                    self.inner.short_names.lock().bind_name(name, skill);
                }
                self.found_skill(skill)
            }
            several => {
                let message = format!(
                    "{} skills have the name {}: {}",
                    several.len(),
                    quote_value(name),
                    join_handles(several)
                );
                Err(ToolError::from_code(ToolErrorCode::AmbiguousName, &message))
            }
        }
    }

    /// Returns the skill of a short name. If another skill has the name now, returns an error that says so.
    fn find_bound_package(
        &self,
        view: &SessionView,
        query: &PackageQuery<'_>,
        bound: &ShortName,
    ) -> Result<FoundPackage<'_>, ToolError> {
        if let Some(skill) = view.skills.iter().find(|skill| bound.is_of(skill)) {
            return self.found_skill(skill);
        }

        let name = quote_value(&bound.name);
        let others = find_by_name(view, query, &bound.name);
        if !others.is_empty() {
            return Err(ToolError::with_hint(
                ToolErrorCode::PackageNotFound,
                &format!(
                    "the skill {name} that you know, {}, is gone, and the name now means another skill: {}",
                    bound.package,
                    join_handles(&others)
                ),
                "Pass the handle as `package` if you want the other skill.",
            ));
        }

        let owner = self.find_authority(&bound.kind, &bound.root);
        let owner = owner.map_err(|_| {
            package_not_found(&format!("the session does not have the skill {name} now"))
        })?;
        Ok(FoundPackage {
            owner,
            skill: owner.find_skill(&bound.package),
            package: bound.package.clone(),
            file: None,
        })
    }

    /// Returns the package of a skill of a view.
    fn found_skill(&self, skill: &SharedSkill) -> Result<FoundPackage<'_>, ToolError> {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        Ok(FoundPackage {
            owner: self.find_authority(kind, id)?,
            package: skill.package.clone(),
            skill: Some(skill.clone()),
            file: None,
        })
    }
}

/// Returns a question for the skills whose names are similar to the last part of a name or handle, as the
/// end of a sentence; an empty text if there are none.
pub fn similar_names(view: &SessionView, named: &str) -> String {
    let word = trim_package(named).rsplit('/').next().unwrap_or_default();
    if word.len() > MAX_COMPARED_BYTES {
        return String::new();
    }

    let listed = view.skills.iter().filter(|skill| is_listed(view, skill));
    let known = listed
        .map(|skill| skill.name.as_str())
        .filter(|name| name.len() <= MAX_COMPARED_BYTES);
    suggest_skill_names(word, known)
        .map(|question| format!("; {question}"))
        .unwrap_or_default()
}

/// Returns the text without the parts that models add to a package: a slash, and the name of its main
/// file.
fn trim_package(text: &str) -> &str {
    let text = text.trim_end_matches('/');
    let text = text.strip_suffix(MAIN_FILE_SUFFIX).unwrap_or(text);
    text.trim_end_matches('/')
}

/// Returns the innermost listed skill of each owner that has the handle, or whose file the handle is.
fn enclosing_packages<'a>(
    owners: &[AuthoritySource<'a>],
    handle: &str,
) -> Vec<(AuthoritySource<'a>, SharedSkill)> {
    let found = owners.iter().filter_map(|owner| {
        let listing = owner.source.snapshot().listing;
        let own = listing
            .skills
            .iter()
            .filter(|skill| AuthorityRef::of_skill(skill).id == owner.id);
        let package = enclosing_package(handle, own.map(|skill| skill.package.as_str()))?;
        Some((*owner, owner.find_skill(package)?))
    });
    let mut found: Vec<_> = found.collect();

    // A source that lists the handle itself has the package, however the packages of others nest.
    if found.iter().any(|(_, skill)| skill.package == handle) {
        found.retain(|(_, skill)| skill.package == handle);
    }
    found
}

/// Selects the package of a call among its owners and their listed skills. `text` is the handle that the
/// call gives.
fn select_package<'a>(
    owners: &[AuthoritySource<'a>],
    enclosing: &[(AuthoritySource<'a>, SharedSkill)],
    text: &str,
) -> Result<FoundPackage<'a>, ToolError> {
    match (owners, enclosing) {
        ([only], []) => Ok(FoundPackage {
            owner: *only,
            package: text.to_owned(),
            skill: None,
            file: None,
        }),
        (_, []) => Err(package_not_found(
            "no source of this session has such a package",
        )),

        (_, [(owner, skill)]) => Ok(FoundPackage {
            owner: *owner,
            package: skill.package.clone(),
            file: (skill.package != text).then(|| text.to_owned()),
            skill: Some(skill.clone()),
        }),
        (_, several) => {
            let owners: Vec<_> = several.iter().map(|(owner, _)| owner.to_json()).collect();
            Err(ToolError::from_code(
                ToolErrorCode::AmbiguousAuthority,
                &format!("several sources have the package: {}", owners.join(", ")),
            ))
        }
    }
}

/// Returns the skills with a name, or with an id and a name.
fn find_by_name(view: &SessionView, query: &PackageQuery<'_>, name: &str) -> Vec<SharedSkill> {
    let found = find_exact_name(view, query, name);
    match split_qualified(name) {
        Some((id, bare)) if found.is_empty() && query.id.is_empty() => {
            find_exact_name(view, &PackageQuery { id, ..*query }, bare)
        }
        _ => found,
    }
}

/// Returns the skills with this name. Equal skills of several environments are one, unless the query has an
/// authority. A skill that is hidden from models is found only if no other skill has the name, as the model
/// knows the other one.
fn find_exact_name(view: &SessionView, query: &PackageQuery<'_>, name: &str) -> Vec<SharedSkill> {
    let named = view.skills.iter().filter(|skill| {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        skill.name == name
            && query.allows(kind, id)
            && (!query.id.is_empty() || view.equal_roots.is_in_texts(skill))
    });
    let (hidden, shown): (Vec<_>, Vec<_>) = named.cloned().partition(is_hidden);
    if shown.is_empty() { hidden } else { shown }
}

fn join_handles(skills: &[SharedSkill]) -> String {
    let handles: Vec<_> = skills
        .iter()
        .take(MAX_HANDLES)
        .map(|skill| skill.package.as_str())
        .collect();
    let text = handles.join(", ");
    match skills.len() - handles.len() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn package_not_found(message: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::PackageNotFound, message)
}
