//! `skills.read`: a page of one file of a skill, or of the list of its files.

use super::files::{
    ListedDirectory, MAX_FILES_CURSOR_BYTES, SkillFilesPage, is_files_cursor, list_directory,
};
use super::fitting::read_fitting;
use super::package_lookup::{FoundPackage, PackageQuery};
use crate::skills::result::{ToolError, ToolErrorCode, json_escaped_len, json_escaped_prefix_len};
use crate::skills::skill_source::{SkillSource, SourceKind, TextPage, TextPageRequest};
use crate::state::{AuthoritySource, Session};
use crate::text::resource_path::NamedResource;
use crate::uses::invocation::InvocationTarget;
use crate::view::arguments::{invalid_arguments, parse_arguments, read_text};
use caproot_client::MAX_CURSOR_BYTES;
use caproot_core::lock::ApprovedFiles;
use caproot_core::wire::limits::{MAX_HANDLE_BYTES, MAX_ROOT_ID_BYTES};
use caproot_core::wire::{ContentDigest, parse_file_name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes that are reserved for an unknown cursor; a cursor of caproot has about half.
const TYPICAL_CURSOR_BYTES: usize = 200;
/// Bytes of the digest of the skill in a result, with the name of the field.
const SKILL_DIGEST_BYTES: usize = r#","skill_digest":"""#.len() + "sha256:".len() + 64;
/// How long a read waits for the digests of all files, which the daemon may have to compute.
const SKILL_DIGEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `skills.read`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReadArguments {
    /// Authority of the package; needed only if several sources have the package.
    authority: Option<AuthorityArgument>,
    /// Handle or name of the skill.
    #[serde(deserialize_with = "read_text")]
    package: Option<String>,
    /// Path relative to the package, or handle, of a file or directory; absent: the main resource of
    /// the package.
    #[serde(deserialize_with = "read_text")]
    resource: Option<String>,
    #[serde(deserialize_with = "read_text")]
    cursor: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AuthorityArgument {
    #[serde(deserialize_with = "read_text")]
    kind: Option<String>,
    #[serde(deserialize_with = "read_text")]
    id: Option<String>,
}

/// Valid arguments of `skills.read`, with the package that they name.
pub struct FoundRead<'a> {
    found: FoundPackage<'a>,
    /// Path or handle; empty: the main resource.
    resource: String,
    cursor: String,
}

/// Result of `skills.read`.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ReadResult {
    File(SkillFilePage),
    Directory(SkillFilesPage),
}

/// Page of a file, as a model gets it.
#[derive(Serialize)]
pub struct SkillFilePage {
    resource: String,
    contents: String,
    next_cursor: Option<String>,
    truncated: bool,
    /// Digest of all files of the skill, so that `caproot exec` runs only the version that was read. Only
    /// in the first page of a session with scripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill_digest: Option<ContentDigest>,
}

impl SkillFilePage {
    fn new(page: TextPage, skill_digest: Option<ContentDigest>) -> Self {
        let next_cursor = Some(page.next_cursor).filter(|cursor| !cursor.is_empty());
        Self {
            resource: page.resource,
            contents: page.contents,
            truncated: next_cursor.is_some(),
            next_cursor,
            skill_digest,
        }
    }
}

impl<'a> FoundRead<'a> {
    /// Checks the arguments of a call, and finds the package that they name.
    pub fn find(session: &'a Session, arguments: &Value) -> Result<Self, ToolError> {
        let ReadArguments {
            authority,
            package,
            resource,
            cursor,
        } = parse_arguments(arguments)?;
        let AuthorityArgument { kind, id } = authority.unwrap_or_default();

        for (name, text, most) in [
            ("package", &package, MAX_HANDLE_BYTES),
            ("resource", &resource, MAX_HANDLE_BYTES),
            ("cursor", &cursor, MAX_FILES_CURSOR_BYTES),
            ("authority.id", &id, MAX_ROOT_ID_BYTES),
            ("authority.kind", &kind, MAX_ROOT_ID_BYTES),
        ] {
            if text.as_ref().is_some_and(|text| text.len() > most) {
                return Err(invalid_arguments(&format!("`{name}` is over {most} bytes")));
            }
        }

        // The handle of a file has its package.
        let handle = resource.as_deref().filter(|text| text.contains("://"));
        let Some(named) = package.as_deref().or(handle) else {
            let reason = "`package` is empty; pass the name or the package of a listed skill";
            return Err(invalid_arguments(reason));
        };
        let found = session.find_package(&PackageQuery {
            package: named,
            kind: kind.as_deref().unwrap_or_default(),
            id: id.as_deref().unwrap_or_default(),
            allows_file: package.is_none() || resource.is_none(),
        })?;

        // Without a package, the resource was the package.
        let resource = resource.filter(|_| package.is_some());
        let resource = resource.or_else(|| found.file.clone()).unwrap_or_default();

        // Texts name files of a plugin next to its skills by `${CLAUDE_PLUGIN_ROOT}`.
        let (found, resource) = match session.find_plugin_file(&found, &resource) {
            Some(found) => {
                let file = found.file.clone().unwrap_or_default();
                (found, file)
            }
            None => (found, resource),
        };
        Ok(Self {
            found,
            resource,
            cursor: cursor.unwrap_or_default(),
        })
    }

    /// Returns the source and the skill, for the span of the call.
    pub fn target(&self) -> InvocationTarget<'_> {
        InvocationTarget {
            is_continued: !self.cursor.is_empty(),
            ..self.found.invocation_target()
        }
    }

    /// Reads the largest page of a file that fits into a result, or lists the files of a directory.
    pub async fn read(&self, session: &Session) -> Result<ReadResult, ToolError> {
        let package = &self.found.package;
        let FoundPackage { owner, skill, .. } = &self.found;
        let checked = if self.found.is_plugin() {
            Ok(())
        } else {
            session.check_choice(owner.source, skill.as_ref())
        };

        let read = match checked.and_then(|()| NamedResource::parse(package, &self.resource)) {
            Err(error) => Err(error),
            Ok(NamedResource::Directory(directory)) => self.list_files(session, &directory).await,
            Ok(NamedResource::File(resource)) => self.read_named_file(session, resource).await,
        };
        read.map_err(|error| session.with_similar_names(error, package))
    }

    /// Reads a page of a file. A path that is a directory lists its files, as models omit the slash.
    async fn read_named_file(
        &self,
        session: &Session,
        resource: String,
    ) -> Result<ReadResult, ToolError> {
        let directory = format!("{resource}/");
        if !resource.is_empty() && is_files_cursor(&directory, &self.cursor) {
            return self.list_files(session, &directory).await;
        }

        let request = TextPageRequest {
            authority: self.found.owner.id.to_owned(),
            package: self.found.package.clone(),
            resource,
            cursor: self.cursor.clone(),
            max_bytes: 0,
        };
        let has_path = !request.resource.is_empty();
        match self.read_page(session, request).await {
            Err(error) if has_path && error.code() == ToolErrorCode::ResourceNotFound => {
                // The error of the file says more than the error of the directory.
                self.list_files(session, &directory)
                    .await
                    .map_err(|_| error)
            }
            read => read,
        }
    }

    /// Reads the largest page of a file that fits into a result.
    async fn read_page(
        &self,
        session: &Session,
        request: TextPageRequest,
    ) -> Result<ReadResult, ToolError> {
        let source = self.found.owner.source;
        if request.cursor.len() > MAX_CURSOR_BYTES {
            let reason = format!("`cursor` is over {MAX_CURSOR_BYTES} bytes");
            return Err(invalid_arguments(&reason));
        }

        let options = &session.inner.options;
        let had_cursor = !request.cursor.is_empty();
        let files = if options.scripts && self.found.skill.is_some() && !had_cursor {
            // Before the page: a page of a later version does not match the digests.
            list_skill_files(source, &request).await
        } else {
            None
        };
        let reserved = files.as_ref().map_or(0, |_| SKILL_DIGEST_BYTES);

        let room = ResultRoom(options.result_bytes.saturating_sub(reserved));
        // The handle of a main resource is the package and a file name.
        let handle_bytes = match request.resource.len() {
            0 => request.package.len() + 16,
            bytes => bytes,
        };
        let first_bytes = room.contents_room(handle_bytes, TYPICAL_CURSOR_BYTES);
        let fit = |page: &TextPage| room.fitting_bytes(page);
        let page = read_fitting(source, request, first_bytes, &fit).await;

        let page = page.map_err(|error| match error.code() {
            // The other arguments were just looked up, so the cursor is the invalid one.
            ToolErrorCode::InvalidArguments if had_cursor => {
                let message = "{read} returned no such cursor for this file";
                let message = options.tool_names.fill_placeholders(message);
                ToolError::from_code(ToolErrorCode::InvalidCursor, &message)
            }
            _ => error,
        })?;
        session.record_used(&self.found, &page);
        let files = files.filter(|files| has_page(files, &self.found.package, &page));
        let skill_digest = files.map(|files| files.content_digest());
        Ok(ReadResult::File(SkillFilePage::new(page, skill_digest)))
    }

    async fn list_files(
        &self,
        session: &Session,
        directory: &str,
    ) -> Result<ReadResult, ToolError> {
        let AuthoritySource { source, id } = self.found.owner;
        let listed = ListedDirectory {
            authority: id,
            package: &self.found.package,
            directory,
        };
        let max_bytes = session.inner.options.result_bytes;
        let page = list_directory(source, &listed, &self.cursor, max_bytes).await?;
        Ok(ReadResult::Directory(page))
    }
}

/// Returns the digests of all files of a skill of an executor, where `caproot exec` runs scripts.
async fn list_skill_files(
    source: &dyn SkillSource,
    request: &TextPageRequest,
) -> Option<ApprovedFiles> {
    if source.kind() != SourceKind::Executor {
        return None;
    }
    let listed = source.skill_files(&request.authority, &request.package);
    timeout(SKILL_DIGEST_TIMEOUT, listed).await.ok()?.ok()
}

/// Whether a page is of one of these files, in this version.
fn has_page(files: &ApprovedFiles, package: &str, page: &TextPage) -> bool {
    let below = page.resource.strip_prefix(package);
    let name = below.and_then(|rest| rest.strip_prefix('/'));
    let path = name.and_then(|name| parse_file_name(name).ok());
    let file = path.and_then(|path| files.get(&path));
    file.is_some_and(|file| Some(file.digest) == ContentDigest::parse(&page.digest))
}

/// Limit of a result in bytes.
#[derive(Clone, Copy)]
struct ResultRoom(usize);

impl ResultRoom {
    /// Returns the bytes that the contents of a page may have in a result. `null` stands for a missing
    /// cursor, as `null` is longer than two quotation marks.
    fn contents_room(self, resource: usize, cursor: usize) -> usize {
        let frame = r#"{"resource":"","contents":"","next_cursor":null,"truncated":false}"#;
        self.0.saturating_sub(frame.len() + resource + cursor)
    }

    /// Returns how many bytes of a page fit into a result.
    fn fitting_bytes(self, page: &TextPage) -> usize {
        let resource = json_escaped_len(&page.resource);
        let cursor = json_escaped_len(&page.next_cursor);
        if json_escaped_len(&page.contents) <= self.contents_room(resource, cursor) {
            return page.contents.len();
        }

        // A smaller page has a cursor, even if this page has none.
        let room = self.contents_room(resource, cursor.max(TYPICAL_CURSOR_BYTES));
        json_escaped_prefix_len(&page.contents, room)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ContentDigest, ReadResult, ResultRoom, SKILL_DIGEST_BYTES, SkillFilePage,
        TYPICAL_CURSOR_BYTES, TextPage,
    };
    use crate::ToolNames;
    use crate::skills::result::{DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, ResultForm, ToolResult};
    use proptest::prelude::*;

    /// Pages through a text as a daemon does, with the part of each page that fits; returns the
    /// contents of every result.
    fn page_through(text: &str, resource: &str, cursor: &str, max_bytes: usize) -> Vec<String> {
        let form = ResultForm {
            names: ToolNames::default(),
            max_bytes,
        };
        let (mut pages, mut at) = (Vec::new(), 0);
        loop {
            let room = ResultRoom(max_bytes);
            let mut bytes = room.contents_room(resource.len(), TYPICAL_CURSOR_BYTES);
            let page = loop {
                let end = text.floor_char_boundary(text.len().min(at + bytes));
                let next_cursor = if end < text.len() { cursor } else { "" }.to_owned();
                let contents = text[at..end].to_owned();
                let page = TextPage {
                    resource: resource.to_owned(),
                    contents,
                    next_cursor,
                    digest: String::new(),
                };
                let fits = room.fitting_bytes(&page);
                if fits >= page.contents.len() {
                    break page;
                }
                assert!(
                    fits >= 4 && fits < bytes,
                    "each page is smaller than the last and has a minimum size"
                );
                bytes = fits;
            };
            at += page.contents.len();
            pages.push(page.contents.clone());
            let is_last = page.next_cursor.is_empty();
            let read = ReadResult::File(SkillFilePage::new(page, None));
            let result = ToolResult::from_outcome(Ok(&read), form);
            assert!(result.success && result.json.len() <= max_bytes);
            if is_last {
                return pages;
            }
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let run = prop_oneof![
            Just("\u{1}"),
            Just("\""),
            Just("\\"),
            Just("\n"),
            Just("🦀"),
            Just("ä"),
            Just("x"),
            Just("\u{7f}"),
        ];
        prop::collection::vec((run, 0_usize..6_000), 0..12).prop_map(|runs| {
            runs.into_iter()
                .map(|(part, count)| part.repeat(count))
                .collect()
        })
    }

    #[test]
    fn a_page_with_the_digest_of_the_skill_fills_the_result() {
        let digest = ContentDigest([0xab; 32]);
        let whole = TextPage {
            resource: "skill://r/a/SKILL.md".to_owned(),
            contents: "x".repeat(2 * MAX_RESULT_BYTES),
            next_cursor: String::new(),
            digest: digest.to_string(),
        };
        let bytes = ResultRoom(MAX_RESULT_BYTES - SKILL_DIGEST_BYTES).fitting_bytes(&whole);
        let page = TextPage {
            contents: "x".repeat(bytes),
            next_cursor: "c".repeat(TYPICAL_CURSOR_BYTES),
            ..whole
        };
        let read = ReadResult::File(SkillFilePage::new(page, Some(digest)));
        let form = ResultForm {
            max_bytes: MAX_RESULT_BYTES,
            ..ResultForm::default()
        };
        let result = ToolResult::from_outcome(Ok(&read), form);
        let room = MAX_RESULT_BYTES - result.json.len();
        assert!(result.success && room < 16, "{room} bytes left");
    }

    #[test]
    fn a_last_page_may_fill_the_result() {
        for part in ["x", "\""] {
            for length in 7_900..DEFAULT_RESULT_BYTES {
                let text = part.repeat(length / part.escape_default().count());
                let pages = page_through(&text, "r", "cursor", DEFAULT_RESULT_BYTES);
                assert_eq!(pages.concat(), text);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn pages_join_to_the_file(
            text in text(),
            resource in "[a-z/]{1,2000}",
            cursor in "[A-Za-z0-9_-]{1,200}",
            max_bytes in DEFAULT_RESULT_BYTES..=MAX_RESULT_BYTES,
        ) {
            prop_assert_eq!(page_through(&text, &resource, &cursor, max_bytes).concat(), text);
        }
    }
}
