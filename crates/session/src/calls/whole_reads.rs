//! The whole list of the skills and whole files, for a program. A model gets pages instead.

use super::fitting::read_fitting;
use super::package_lookup::{FoundPackage, PackageQuery};
use crate::skills::readiness::missing_notes;
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::SkillAuthority;
use crate::skills::skill_source::{TextPage, TextPageRequest};
use crate::state::{AuthoritySource, Session};
use crate::text::resource_path::NamedResource;
use crate::uses::invocation::{InvocationGuard, InvocationKind};
use crate::view::list::is_listed;
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::limits::MAX_READ_BYTES;
use serde::Serialize;
use std::collections::BTreeMap;
use tracing::Instrument as _;

/// Attempts to join the pages of a file that changes meanwhile.
const MAX_ATTEMPTS: usize = 3;
/// Limit of a joined file in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Skill that a model may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedSkill {
    /// Name, which may begin with the name of a plugin: `deploy-kit:deploy`.
    pub name: String,
    /// Description by the author of the skill.
    pub description: String,
    /// Handle of the skill.
    pub package: String,
    /// Handle of its SKILL.md.
    pub main_resource: String,
    /// Authority that lists the skill.
    pub authority: SkillAuthority,
    /// Package of the skill in each environment, if several environments have it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environments: BTreeMap<String, String>,
    /// Requirements that the executor does not have, such as `program jq`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Session {
    /// Returns all skills that a model may use, in the order of the list.
    ///
    /// # Errors
    ///
    /// [`ToolErrorCode::SessionClosed`].
    pub fn listed_skills(&self) -> Result<Vec<ListedSkill>, ToolError> {
        self.check_open()?;
        let view = self.current_view();
        let listed = view.skills.iter().filter(|skill| is_listed(&view, skill));
        Ok(listed
            .map(|skill| ListedSkill {
                name: escape_hidden_chars(&skill.name).into_owned(),
                description: escape_hidden_chars(&skill.description).into_owned(),
                package: skill.package.clone(),
                main_resource: skill.main_resource.clone(),
                authority: SkillAuthority::of_skill(skill),
                environments: view
                    .equal_roots
                    .packages(skill)
                    .into_iter()
                    .map(|(environment, package)| (environment.to_owned(), package))
                    .collect(),
                missing: missing_notes(skill),
            })
            .collect())
    }

    /// Returns a whole text file of a skill, at most 16 MiB. `skill` is a name or handle, with the
    /// authority if several sources have the handle. `path` is relative to the package, as the SKILL.md
    /// links to its files; empty: the SKILL.md. If the file changes meanwhile, it is read again.
    ///
    /// # Errors
    ///
    /// The errors of the tool that reads a file.
    pub async fn read_file(
        &self,
        skill: &str,
        authority: Option<&SkillAuthority>,
        path: &str,
    ) -> Result<String, ToolError> {
        self.check_open()?;
        let found = self.find_package(&PackageQuery {
            package: skill,
            kind: authority.map_or("", |authority| &authority.kind),
            id: authority.map_or("", |authority| &authority.id),
            allows_file: path.is_empty(),
        })?;
        let path = found.file.as_deref().unwrap_or(path);

        let target = found.invocation_target();
        let invocation = InvocationGuard::start(
            self.inner.invocation_session(),
            InvocationKind::Read,
            target,
        );

        let work = self.join_file(&found, path).instrument(invocation.span());
        let joined = self.inner.run_until_closed(work).await.flatten();
        if let Ok(file) = &joined {
            self.record_used(&found, file);
        }

        let text = joined
            .map(|file| file.contents)
            .map_err(|error| self.with_similar_names(error, &found.package));
        invocation.finish_with_text(text.as_deref());
        text
    }

    async fn join_file(&self, found: &FoundPackage<'_>, path: &str) -> Result<TextPage, ToolError> {
        let FoundPackage { owner, package, .. } = found;
        self.check_choice(owner.source, found.skill.as_ref())?;
        let NamedResource::File(resource) = NamedResource::parse(package, path)? else {
            return Err(ToolError::with_hint(
                ToolErrorCode::ResourceNotFound,
                "the path is a directory",
                "Pass the path of a file, or list the directory with `call`.",
            ));
        };
        let request = TextPageRequest {
            authority: owner.id.to_owned(),
            package: package.clone(),
            resource,
            ..TextPageRequest::default()
        };

        for _ in 1..MAX_ATTEMPTS {
            match join_pages(*owner, request.clone()).await {
                Err(error) if error.code() == ToolErrorCode::ResourceChanged => {}
                joined => return joined,
            }
        }
        join_pages(*owner, request).await
    }
}

/// Returns the last page of a file, with the contents of all pages.
async fn join_pages(
    owner: AuthoritySource<'_>,
    mut request: TextPageRequest,
) -> Result<TextPage, ToolError> {
    let mut text = String::new();
    loop {
        let fit = |page: &TextPage| page.contents.len();
        let page = read_fitting(owner.source, request.clone(), MAX_READ_BYTES, &fit).await?;
        text.push_str(&page.contents);
        if text.len() > MAX_FILE_BYTES {
            return Err(ToolError::with_hint(
                ToolErrorCode::TooLarge,
                &format!("the file is over {MAX_FILE_BYTES} bytes"),
                "Read the file page by page with `call`.",
            ));
        }

        if page.next_cursor.is_empty() {
            return Ok(TextPage {
                contents: text,
                ..page
            });
        }
        request.cursor = page.next_cursor;
    }
}
