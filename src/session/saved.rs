//! What of a session is kept: a small JSON of a version, without any text of a skill. Pure: leaves making
//! a session of it to `restore`, and keeping it to whoever has a place.

use crate::client::ResumePoint;
use crate::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most bytes of a saved state.
pub const MAX_SAVED_BYTES: usize = 4 << 20;
/// What every saved state says that it is.
const FORMAT: &str = "caproot-session";
/// What is written, and read in full.
const VERSION: u64 = 1;
/// The most bytes of a token that is kept, and of a daemon's epoch; caproot's are far shorter.
const MAX_TOKEN_BYTES: usize = 1_024;
/// The most bytes of a session's id.
const MAX_ID_BYTES: usize = 128;

/// Why a text is no saved state, or none can be made. Displays as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// It is not what `save` writes; with the place.
    #[error("the saved session cannot be read: {0}")]
    Corrupt(String),
    /// It is over [`MAX_SAVED_BYTES`].
    #[error("the saved session has {0} bytes, over the {MAX_SAVED_BYTES} that one may have")]
    TooLarge(usize),
}

/// A state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SavedSession {
    format: String,
    version: u64,
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) product: String,
    selection: Vec<SavedRoot>,
    executors: Vec<SavedExecutor>,
}

/// A selected root, in the JSON that platforms write.
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
    fingerprints: BTreeMap<String, String>,
}

impl SavedSession {
    pub(super) fn new(
        id: &str,
        product: &str,
        selection: &[SelectedCapabilityRoot],
        points: impl IntoIterator<Item = (String, ResumePoint)>,
    ) -> Self {
        let short = |text: String| if text.len() > MAX_TOKEN_BYTES { String::new() } else { text };
        let executor = |(environment_id, point): (String, ResumePoint)| SavedExecutor {
            environment_id,
            resume_token: short(point.token),
            epoch: short(point.epoch),
            revision: point.revision,
            fingerprints: point.fingerprints,
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            id: id.to_owned(),
            product: product.to_owned(),
            selection: selection.iter().map(SavedRoot::from_selected).collect(),
            executors: points.into_iter().map(executor).collect(),
        }
    }

    /// As text, if it is within the bound.
    pub(super) fn to_json(&self) -> Result<String, SavedError> {
        let text = serde_json::to_string(self);
        let text = text.map_err(|error| SavedError::Corrupt(error.to_string()))?;
        if text.len() > MAX_SAVED_BYTES { Err(SavedError::TooLarge(text.len())) } else { Ok(text) }
    }

    /// Reads a state, and warnings of what of it is left out. Of another version, that is all but what
    /// every version has: its id and its selection.
    pub(super) fn parse(text: &str) -> Result<(Self, Vec<String>), SavedError> {
        if text.len() > MAX_SAVED_BYTES {
            return Err(SavedError::TooLarge(text.len()));
        }
        let corrupt = |error: serde_json::Error| SavedError::Corrupt(error.to_string());
        let header: SavedHeader = serde_json::from_str(text).map_err(corrupt)?;
        if header.format != FORMAT {
            let is = &header.format.chars().take(64).collect::<String>();
            let why = format!("`format` is {is:?}, and not {FORMAT:?}");
            return Err(SavedError::Corrupt(why));
        }
        if header.version == VERSION {
            let saved: Self = serde_json::from_str(text).map_err(corrupt)?;
            check_session_id(&saved.id).map_err(SavedError::Corrupt)?;
            return Ok((saved, Vec::new()));
        }
        let mut warnings = vec![format!(
            "the session was saved in version {} of the format, and this is version {VERSION}: what \
             changed since is not known",
            header.version
        )];
        let selection = serde_json::from_value(header.selection).unwrap_or_else(|error| {
            warnings
                .push(format!("its selection cannot be read, and nothing is selected: {error}"));
            Vec::new()
        });
        let id = header
            .id
            .as_str()
            .filter(|id| check_session_id(id).is_ok())
            .unwrap_or_default()
            .to_owned();
        if id.is_empty() {
            warnings.push("its id cannot be read, and it gets another".to_owned());
        }
        Ok((Self { id, selection, ..Self::default() }, warnings))
    }

    pub(super) fn selection(&self) -> Vec<SelectedCapabilityRoot> {
        self.selection.iter().map(SavedRoot::to_selected).collect()
    }

    /// Where each executor was, by environment.
    pub(super) fn resume_points(&self) -> BTreeMap<String, ResumePoint> {
        let point = |executor: &SavedExecutor| {
            let SavedExecutor { environment_id, resume_token, epoch, revision, fingerprints } =
                executor.clone();
            let point = ResumePoint { token: resume_token, epoch, revision, fingerprints };
            (environment_id, point)
        };
        self.executors.iter().map(point).collect()
    }
}

/// What every version has.
#[derive(Deserialize)]
struct SavedHeader {
    format: String,
    version: u64,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    selection: Value,
}

/// Whether this can be a session's id, or what is wrong with it.
pub(super) fn check_session_id(id: &str) -> Result<(), String> {
    let is = !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(|b| b.is_ascii_graphic());
    if is {
        Ok(())
    } else {
        Err(format!("a session's id is 1 to {MAX_ID_BYTES} visible ASCII characters"))
    }
}

impl SavedRoot {
    fn from_selected(root: &SelectedCapabilityRoot) -> Self {
        let location = root.location.clone();
        let location = location.map(|CapabilityRootLocation { r#type, environment_id, path }| {
            SavedLocation { r#type, environment_id, path }
        });
        Self { id: root.id.clone(), location }
    }

    fn to_selected(&self) -> SelectedCapabilityRoot {
        let location = self.location.clone();
        let location = location.map(|SavedLocation { r#type, environment_id, path }| {
            CapabilityRootLocation { r#type, environment_id, path }
        });
        SelectedCapabilityRoot { id: self.id.clone(), location }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SAVED_BYTES, MAX_TOKEN_BYTES, SavedError, SavedSession};
    use crate::client::ResumePoint;
    use crate::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
    use proptest::prelude::*;

    fn saved(token: &str) -> SavedSession {
        let location = CapabilityRootLocation {
            r#type: "environment".into(),
            environment_id: "e".into(),
            path: "published:r".into(),
        };
        let roots = [
            SelectedCapabilityRoot { id: "r".into(), location: Some(location) },
            SelectedCapabilityRoot { id: "nowhere".into(), location: None },
        ];
        let point = ResumePoint {
            token: token.into(),
            epoch: "0123".into(),
            revision: 7,
            fingerprints: [("r".to_owned(), "ab".to_owned())].into(),
        };
        SavedSession::new("s1", "codex", &roots, [("e".to_owned(), point)])
    }

    #[test]
    fn the_saved_json_is_stable() {
        let text = saved("t").to_json().expect("it is small");
        assert_eq!(
            text,
            r#"{"format":"caproot-session","version":1,"id":"s1","product":"codex","selection":[{"id":"r","location":{"type":"environment","environmentId":"e","path":"published:r"}},{"id":"nowhere"}],"executors":[{"environmentId":"e","resumeToken":"t","epoch":"0123","revision":7,"fingerprints":{"r":"ab"}}]}"#
        );
        assert_eq!(SavedSession::parse(&text), Ok((saved("t"), vec![])));
        let kept = saved(&"x".repeat(MAX_TOKEN_BYTES + 1));
        assert_eq!(kept.resume_points()["e"].token, "", "no token of any size");
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let text = saved("t").to_json().expect("it is small");
        for (bad, part) in [
            (String::new(), "line 1 column 0"),
            (text[..text.len() - 9].to_owned(), "column"),
            (text.replace("\"id\":\"s1\"", "\"id\":1"), "invalid type: integer `1`"),
            (text.replace("\"id\":\"s1\"", "\"id\":\"\""), "visible ASCII"),
            (text.replace("\"revision\"", "\"more\":1,\"revision\""), "unknown field `more`"),
            (text.replace("\"revision\":7", "\"revision\":-7"), "integer `-7`"),
            (text.replace("caproot-session", "other"), "`format` is \"other\""),
            (text.replace("\"version\":1,", ""), "missing field `version`"),
            (text.replace("environmentId", "environment"), "unknown field `environment`"),
        ] {
            let error = SavedSession::parse(&bad).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        let large = " ".repeat(MAX_SAVED_BYTES + 1);
        assert_eq!(SavedSession::parse(&large), Err(SavedError::TooLarge(large.len())));
    }

    #[test]
    fn of_another_version() {
        let text = saved("t").to_json().expect("it is small");
        let newer = text.replace("\"version\":1", "\"version\":2").replace("product", "more");
        let (read, warnings) = SavedSession::parse(&newer).expect("what it has in common");
        assert_eq!((read.id.as_str(), read.selection()), ("s1", saved("t").selection()));
        assert!(read.resume_points().is_empty() && warnings.len() == 1, "{warnings:?}");
        let newer = newer.replace("\"selection\":[", "\"selection\":[7,").replace("\"s1\"", "null");
        let (read, warnings) = SavedSession::parse(&newer).expect("nothing in common");
        assert!(read.selection().is_empty() && read.id.is_empty());
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    proptest! {
        /// Whatever becomes of a text, it is read or refused.
        #[test]
        fn garbage(at in 0_usize..300, byte in any::<char>(), cut in 0_usize..400, any in "(?s).{0,80}") {
            let text = saved("t").to_json().expect("it is small");
            let mut chars: Vec<char> = text.chars().collect();
            chars[at.min(text.len() - 1)] = byte;
            let one: String = chars.into_iter().collect();
            for bad in [&one, &text[..cut.min(text.len())], &any] {
                drop(SavedSession::parse(bad));
            }
        }
    }
}
