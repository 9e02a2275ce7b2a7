//! The whole list of the skills and whole files, joined from the pages of the tools.

use super::answer::{FileText, ListedSkill, RequestError};
use super::request::{FileRequest, SkillAuthority};
use caproot_client::session::{Session, ToolNames};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Attempts to join the pages of a list or a file that changes meanwhile.
const MAX_ATTEMPTS: usize = 3;
/// Maximum size of a joined file in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Reader of the skills of a session.
pub struct SkillReader<'a> {
    pub session: &'a Session,
    pub names: ToolNames,
}

/// Page of the tool that lists skills.
#[derive(Deserialize)]
struct JoinedListPage {
    skills: Vec<ListedSkill>,
    next_cursor: Option<String>,
}

/// Page of the tool that reads a file.
#[derive(Deserialize)]
struct JoinedTextPage {
    /// Missing if the resource is a directory.
    contents: Option<String>,
    next_cursor: Option<String>,
}

/// Result of a tool that failed.
#[derive(Deserialize)]
struct FailedResult {
    error: FailedCall,
}

#[derive(Deserialize)]
struct FailedCall {
    code: String,
    message: String,
    next: String,
}

impl SkillReader<'_> {
    /// Returns all listed skills. Lists again if the skills change meanwhile.
    pub async fn list(&self) -> Result<Vec<ListedSkill>, RequestError> {
        for _ in 1..MAX_ATTEMPTS {
            match self.join_list().await {
                Err(error) if error.code == "CATALOG_CHANGED" => {}
                joined => return joined,
            }
        }
        self.join_list().await
    }

    /// Returns a whole file. Reads again if the file changes meanwhile.
    pub async fn read(&self, request: &FileRequest) -> Result<FileText, RequestError> {
        let named = self.find_skill(request).await?;
        for _ in 1..MAX_ATTEMPTS {
            match self.join_file(&named).await {
                Err(error) if error.code == "RESOURCE_CHANGED" => {}
                joined => return joined,
            }
        }
        self.join_file(&named).await
    }

    async fn join_list(&self) -> Result<Vec<ListedSkill>, RequestError> {
        let mut skills = Vec::new();
        let mut cursor = None;
        loop {
            let arguments = json!({ "cursor": cursor });
            let page: JoinedListPage = self.call(self.names.list(), &arguments).await?;
            skills.extend(page.skills);

            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(skills);
            }
        }
    }

    async fn join_file(&self, file: &NamedFile<'_>) -> Result<FileText, RequestError> {
        let mut text = String::new();
        let mut cursor = None;
        loop {
            let arguments = json!({
                "authority": file.authority,
                "package": file.package,
                "resource": file.path,
                "cursor": cursor,
            });
            let page: JoinedTextPage = self.call(self.names.read(), &arguments).await?;
            let Some(contents) = page.contents else {
                return Err(refused(
                    "RESOURCE_NOT_FOUND",
                    "the path is a directory".to_owned(),
                    "Pass the path of a file, or list the directory with `call`.",
                ));
            };

            text.push_str(&contents);
            if text.len() > MAX_FILE_BYTES {
                return Err(refused(
                    "TOO_LARGE",
                    format!("the file is over {MAX_FILE_BYTES} bytes"),
                    "Read the file page by page with `call`.",
                ));
            }

            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(FileText { text });
            }
        }
    }

    /// Finds the skill of a request by its name or handle, unless the request has its authority.
    async fn find_skill<'r>(
        &self,
        request: &'r FileRequest,
    ) -> Result<NamedFile<'r>, RequestError> {
        let path = request.path.as_str();
        if let Some(authority) = request.authority.clone() {
            return Ok(NamedFile {
                authority,
                package: request.skill.clone(),
                path,
            });
        }

        let name = request.skill.strip_suffix("/SKILL.md");
        let name = name.unwrap_or(&request.skill);
        let mut found = self.list().await?;
        found.retain(|skill| skill.name == name || skill.package == name);

        match found.as_slice() {
            [skill] => Ok(NamedFile {
                authority: skill.authority.clone(),
                package: skill.package.clone(),
                path,
            }),
            [] => Err(refused(
                "PACKAGE_NOT_FOUND",
                format!("no listed skill has the name or handle {name:?}"),
                "List the skills again.",
            )),
            several => {
                let handles: Vec<_> = several.iter().map(|skill| skill.package.as_str()).collect();
                let message = format!("{name:?} is the name of {} skills", several.len());
                let next = format!("Pass one of {}.", handles.join(", "));
                Err(refused("AMBIGUOUS_NAME", message, &next))
            }
        }
    }

    /// Calls a tool, and returns its parsed result or its error.
    async fn call<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<T, RequestError> {
        let result = self.session.call(tool, arguments).await;
        if result.success {
            return serde_json::from_str(&result.json)
                .map_err(|error| RequestError::failed(&error));
        }

        let failed: FailedResult =
            serde_json::from_str(&result.json).map_err(|error| RequestError::failed(&error))?;
        let FailedCall {
            code,
            message,
            next,
        } = failed.error;
        Err(RequestError {
            next: Some(next),
            ..RequestError::new(code, message)
        })
    }
}

/// File with the authority of its skill.
struct NamedFile<'a> {
    authority: SkillAuthority,
    package: String,
    path: &'a str,
}

fn refused(code: &'static str, message: String, next: &str) -> RequestError {
    RequestError {
        next: Some(next.to_owned()),
        ..RequestError::new(code, message)
    }
}
