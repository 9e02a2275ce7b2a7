//! Saved state of a session: versioned JSON without any text of a skill.

use super::session_id::check_session_id;
use crate::options::choice::SkillChoice;
use crate::skills::skill::mirrored_view;
use crate::text::short_names::{ShortName, ShortNames};
use crate::uses::used::{UsedFile, UsedFiles};
use caproot_client::ResumePoint;
use caproot_core::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot, SkillView};
use caproot_core::text::quote_value;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Limit of a saved state in bytes.
const MAX_SAVED_BYTES: usize = 4 << 20;
/// Value of `format` in every saved state.
const FORMAT: &str = "caproot-session";
/// Version that is written, and the only version that is read in full.
const VERSION: u64 = 1;
/// Limit of a saved token and of an epoch in bytes; caproot's are far shorter.
const MAX_TOKEN_BYTES: usize = 1_024;

/// Error of a saved state. Displays as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// The text was not written by `save`; with the line and column.
    #[error("the saved session cannot be read: {0}")]
    Corrupt(String),
    /// The text has more than 4 MiB; with its bytes.
    #[error("the saved session has {0} bytes; the limit is {MAX_SAVED_BYTES}")]
    TooLarge(usize),
}

impl From<serde_json::Error> for SavedError {
    fn from(error: serde_json::Error) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Saved state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedSession {
    format: String,
    version: u64,
    id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    product: String,
    #[serde(default, skip_serializing_if = "SkillChoice::is_empty")]
    choice: SkillChoice,
    selection: Vec<SavedRoot>,
    executors: Vec<SavedExecutor>,
    /// Files that the model read or was given, the most recently used first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    used: Vec<UsedFile>,
    /// Names that texts gave to skills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<ShortName>,
    /// MCP servers of plugins whose tools the session had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mcp_servers: Vec<SavedServer>,
}

/// MCP server of a plugin, without its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedServer {
    /// Kind and id of the source.
    pub source: String,
    /// Handle of the server.
    pub handle: String,
    /// Digest of its URL and of the definitions of its tools.
    pub digest: String,
}

#[cfg(feature = "mcp")]
impl SavedServer {
    /// Returns whether another saved server is the same, maybe with other tools.
    pub fn is_same_server(&self, other: &Self) -> bool {
        self.source == other.source && self.handle == other.handle
    }
}

/// Selected root, in the JSON of platforms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedRoot {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<SavedLocation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SavedLocation {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    environment_id: String,
    #[serde(default)]
    path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SavedExecutor {
    environment_id: String,
    #[serde(default)]
    resume_token: String,
    #[serde(default)]
    epoch: String,
    #[serde(default)]
    revision: u64,
    #[serde(default)]
    catalog_digests: BTreeMap<String, String>,
    /// Whether the token and the digests are of a session with plugins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    plugins: bool,
}

/// Saved state that was parsed, with warnings for the omitted parts.
#[derive(Debug, PartialEq)]
pub struct ParsedSession {
    pub session: SavedSession,
    pub warnings: Vec<String>,
}

impl SavedSession {
    pub fn new(
        id: &str,
        product: &str,
        choice: &SkillChoice,
        selection: &[SelectedCapabilityRoot],
        points: BTreeMap<String, ResumePoint>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            id: id.to_owned(),
            product: product.to_owned(),
            choice: choice.clone(),
            selection: selection.iter().map(SavedRoot::from_selected).collect(),
            executors: points
                .into_iter()
                .map(|(environment_id, point)| SavedExecutor::new(environment_id, point))
                .collect(),
            ..Self::default()
        }
    }

    /// Returns the state with the MCP servers of plugins.
    #[cfg(feature = "mcp")]
    pub fn with_mcp_servers(mut self, servers: Vec<SavedServer>) -> Self {
        self.mcp_servers = servers;
        self
    }

    /// Returns the MCP servers of plugins whose tools the session had.
    #[cfg(feature = "mcp")]
    pub fn mcp_servers(&self) -> &[SavedServer] {
        &self.mcp_servers
    }

    /// Returns the state with the files that the model read or was given.
    pub fn with_used_files(mut self, used: &UsedFiles) -> Self {
        self.used = used.files().to_vec();
        self
    }

    /// Returns the files that the model read or was given.
    pub fn used_files(&self) -> Result<UsedFiles, SavedError> {
        UsedFiles::restore(self.used.clone()).map_err(SavedError::Corrupt)
    }

    /// Returns the state with the names that texts gave to skills.
    pub fn with_short_names(mut self, names: &ShortNames) -> Self {
        self.names = names.entries().to_vec();
        self
    }

    /// Returns the names that texts gave to skills.
    pub fn short_names(&self) -> ShortNames {
        ShortNames::restore(self.names.clone())
    }

    /// Returns the state as JSON, if the JSON is within the limit.
    pub fn to_json(&self) -> Result<String, SavedError> {
        let text = serde_json::to_string(self)?;
        if text.len() > MAX_SAVED_BYTES {
            return Err(SavedError::TooLarge(text.len()));
        }
        Ok(text)
    }

    /// Parses a state. Only the id, the choice and the selection of another version are read.
    pub fn parse(text: &str) -> Result<ParsedSession, SavedError> {
        if text.len() > MAX_SAVED_BYTES {
            return Err(SavedError::TooLarge(text.len()));
        }

        let header: SavedHeader = serde_json::from_str(text)?;
        if header.format != FORMAT {
            return Err(SavedError::Corrupt(format!(
                "`format` is {}; expected {FORMAT:?}",
                quote_value(&header.format)
            )));
        }
        if header.version != VERSION {
            return Ok(header.into_session());
        }

        let session: Self = serde_json::from_str(text)?;
        check_session_id(&session.id).map_err(SavedError::Corrupt)?;
        session.used_files()?;
        Ok(ParsedSession {
            session,
            warnings: Vec::new(),
        })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn product(&self) -> &str {
        &self.product
    }

    pub fn choice(&self) -> &SkillChoice {
        &self.choice
    }

    pub fn selection(&self) -> Vec<SelectedCapabilityRoot> {
        self.selection.iter().map(SavedRoot::to_selected).collect()
    }

    /// Returns the resume point of each executor, by environment.
    pub fn resume_points(&self) -> BTreeMap<String, ResumePoint> {
        self.executors
            .iter()
            .map(|executor| (executor.environment_id.clone(), executor.resume_point()))
            .collect()
    }
}

/// Fields of every version.
#[derive(Deserialize)]
struct SavedHeader {
    format: String,
    version: u64,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    selection: Value,
    #[serde(default = "empty_object")]
    choice: Value,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

impl SavedHeader {
    /// Returns the parts of a state of another version that can be read.
    fn into_session(self) -> ParsedSession {
        let mut warnings = vec![format!(
            "the session was saved in version {} of the format, and this is version {VERSION}: the \
             changes since the save are unknown",
            self.version
        )];

        let mut selection: Vec<SavedRoot> =
            serde_json::from_value(self.selection).unwrap_or_else(|error| {
                warnings.push(format!(
                    "the saved selection cannot be read, and nothing is selected: {error}"
                ));
                Vec::new()
            });

        let choice = serde_json::from_value(self.choice).unwrap_or_else(|error| {
            warnings.push(format!(
                "the saved choice cannot be read, and nothing is selected: {error}"
            ));
            // Without its choice, the session would have skills that it did not have before.
            selection.clear();
            SkillChoice::default()
        });

        let id = self.id.as_str().unwrap_or_default();
        let has_id = check_session_id(id).is_ok();
        if !has_id {
            warnings
                .push("the saved id cannot be read, and the session gets another id".to_owned());
        }

        ParsedSession {
            session: SavedSession {
                id: if has_id { id.to_owned() } else { String::new() },
                choice,
                selection,
                ..SavedSession::default()
            },
            warnings,
        }
    }
}

impl SavedExecutor {
    fn new(environment_id: String, point: ResumePoint) -> Self {
        Self {
            environment_id,
            resume_token: limit_token(point.token),
            epoch: limit_token(point.epoch),
            revision: point.revision,
            catalog_digests: point.catalog_digests,
            plugins: point.view == SkillView::Full,
        }
    }

    fn resume_point(&self) -> ResumePoint {
        ResumePoint {
            view: mirrored_view(self.plugins),
            token: self.resume_token.clone(),
            epoch: self.epoch.clone(),
            revision: self.revision,
            catalog_digests: self.catalog_digests.clone(),
        }
    }
}

/// Returns a token or an epoch, or an empty text if the text exceeds the limit.
fn limit_token(text: String) -> String {
    Some(text)
        .filter(|text| text.len() <= MAX_TOKEN_BYTES)
        .unwrap_or_default()
}

impl SavedRoot {
    fn from_selected(root: &SelectedCapabilityRoot) -> Self {
        Self {
            id: root.id.clone(),
            location: root.location.clone().map(|location| SavedLocation {
                r#type: location.r#type,
                environment_id: location.environment_id,
                path: location.path,
            }),
        }
    }

    fn to_selected(&self) -> SelectedCapabilityRoot {
        SelectedCapabilityRoot {
            id: self.id.clone(),
            location: self
                .location
                .clone()
                .map(|location| CapabilityRootLocation {
                    r#type: location.r#type,
                    environment_id: location.environment_id,
                    path: location.path,
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_SAVED_BYTES, MAX_TOKEN_BYTES, ParsedSession, SavedError, SavedSession, SkillChoice,
    };
    use caproot_client::ResumePoint;
    use caproot_core::proto::caproot::v1::{
        CapabilityRootLocation, SelectedCapabilityRoot, SkillView,
    };
    use proptest::prelude::*;

    fn saved(token: &str) -> SavedSession {
        let location = CapabilityRootLocation {
            r#type: "environment".into(),
            environment_id: "e".into(),
            path: "published:r".into(),
        };
        let roots = [
            SelectedCapabilityRoot {
                id: "r".into(),
                location: Some(location),
            },
            SelectedCapabilityRoot {
                id: "nowhere".into(),
                location: None,
            },
        ];
        let choice = SkillChoice {
            include: vec!["source:mcp/docs".parse().expect("a rule")],
            ..SkillChoice::default()
        };
        let point = ResumePoint {
            token: token.into(),
            epoch: "0123".into(),
            revision: 7,
            catalog_digests: [("r".to_owned(), "ab".to_owned())].into(),
            view: SkillView::Full,
        };
        SavedSession::new(
            "s1",
            "codex",
            &choice,
            &roots,
            [("e".to_owned(), point)].into(),
        )
    }

    #[test]
    fn the_saved_json_is_stable() {
        let text = saved("t").to_json().expect("a small state");
        assert_eq!(
            text,
            r#"{"format":"caproot-session","version":1,"id":"s1","product":"codex","choice":{"include":["source:mcp/docs"]},"selection":[{"id":"r","location":{"type":"environment","environmentId":"e","path":"published:r"}},{"id":"nowhere"}],"executors":[{"environmentId":"e","resumeToken":"t","epoch":"0123","revision":7,"catalogDigests":{"r":"ab"},"plugins":true}]}"#
        );
        let parsed = SavedSession::parse(&text).expect("a saved state");
        assert_eq!((parsed.session, parsed.warnings), (saved("t"), vec![]));
        let kept = saved(&"x".repeat(MAX_TOKEN_BYTES + 1));
        assert_eq!(
            kept.resume_points()["e"].token,
            "",
            "a token over the limit is dropped"
        );
    }

    #[test]
    fn errors_have_a_position() {
        let text = saved("t").to_json().expect("a small state");
        for (bad, part) in [
            (String::new(), "line 1 column 0"),
            (text[..text.len() - 9].to_owned(), "column"),
            (
                text.replace("\"id\":\"s1\"", "\"id\":1"),
                "invalid type: integer `1`",
            ),
            (
                text.replace("\"id\":\"s1\"", "\"id\":\"\""),
                "visible ASCII",
            ),
            (
                text.replace("\"revision\"", "\"more\":1,\"revision\""),
                "unknown field `more`",
            ),
            (
                text.replace("\"revision\":7", "\"revision\":-7"),
                "integer `-7`",
            ),
            (
                text.replace("caproot-session", "other"),
                "`format` is \"other\"",
            ),
            (
                text.replace("\"version\":1,", ""),
                "missing field `version`",
            ),
            (text.replace("source:mcp", "tag:mcp"), "invalid rule"),
            (
                text.replace("environmentId", "environment"),
                "unknown field `environment`",
            ),
        ] {
            let error = SavedSession::parse(&bad).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        let large = " ".repeat(MAX_SAVED_BYTES + 1);
        assert_eq!(
            SavedSession::parse(&large),
            Err(SavedError::TooLarge(large.len()))
        );
    }

    #[test]
    fn another_version_keeps_id_and_selection() {
        let text = saved("t").to_json().expect("a small state");
        let newer = text
            .replace("\"version\":1", "\"version\":2")
            .replace("product", "more");
        let ParsedSession {
            session: read,
            warnings,
        } = SavedSession::parse(&newer).expect("the common fields");
        assert_eq!(
            (read.id.as_str(), read.selection()),
            ("s1", saved("t").selection())
        );
        assert!(
            read.resume_points().is_empty() && warnings.len() == 1,
            "{warnings:?}"
        );
        assert_eq!(read.choice(), saved("t").choice());
        let unread = newer.replace("source:mcp", "tag:mcp");
        let ParsedSession {
            session: read,
            warnings,
        } = SavedSession::parse(&unread).expect("the common fields");
        assert!(
            read.selection().is_empty() && warnings.len() == 2,
            "{warnings:?}"
        );
        let newer = newer
            .replace("\"selection\":[", "\"selection\":[7,")
            .replace("\"s1\"", "null");
        let ParsedSession {
            session: read,
            warnings,
        } = SavedSession::parse(&newer).expect("no common field");
        assert!(read.selection().is_empty() && read.id.is_empty());
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    proptest! {
        /// A damaged text is parsed or rejected.
        #[test]
        fn garbage_does_not_panic(at in 0_usize..300, byte in any::<char>(), cut in 0_usize..400, any in "(?s).{0,80}") {
            let text = saved("t").to_json().expect("a small state");
            let mut chars: Vec<char> = text.chars().collect();
            chars[at.min(text.len() - 1)] = byte;
            let one: String = chars.into_iter().collect();
            for bad in [&one, &text[..cut.min(text.len())], &any] {
                drop(SavedSession::parse(bad));
            }
        }
    }
}
