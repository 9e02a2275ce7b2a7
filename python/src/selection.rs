//! Options of a new session, as Python passes them.

use crate::fleet::parse_seconds;
use caproot_client::{Trust, parse_selected_roots};
use caproot_client::session::{ChoiceRule, SessionOptions, SkillChoice, ToolNames, ToolRegistry};
use caproot_core::lock::LockFile;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of a new session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionsSpec {
    product: String,
    /// Seconds.
    start_timeout: f64,
    grace_period: f64,
    id: Option<String>,
    choice: ChoiceSpec,
    plugins: bool,
    scripts: bool,
    ready_only: bool,
    /// Lock of approved skills.
    lock: Option<PathBuf>,
    /// Keys that may sign the lock.
    signers: Option<PathBuf>,
}

/// Rules of a choice, as Python passes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceSpec {
    include: Vec<String>,
    exclude: Vec<String>,
    pin: Vec<String>,
    name_only: Vec<String>,
    manual: Vec<String>,
}

impl OptionsSpec {
    /// Returns the options, and adds the mistakes.
    pub fn to_options(&self, tools: ToolRegistry, mistakes: &mut Vec<String>) -> SessionOptions {
        let start_timeout = check_seconds("start_timeout", self.start_timeout, mistakes);
        let grace_period = check_seconds("grace_period", self.grace_period, mistakes);
        let choice = self.choice.parse(mistakes);

        SessionOptions {
            product: self.product.clone(),
            start_timeout,
            grace_period,
            id: self.id.clone(),
            choice,
            plugins: self.plugins,
            scripts: self.scripts,
            ready_only: self.ready_only,
            trust: self.read_trust(mistakes),
            // Model platforms reject a dot in the name of a tool.
            tool_names: ToolNames::Flat,
            tools,
        }
    }
}

impl OptionsSpec {
    /// Reads the lock, and adds the mistakes.
    fn read_trust(&self, mistakes: &mut Vec<String>) -> Trust {
        let Some(lock) = &self.lock else {
            if self.signers.is_some() {
                mistakes.push("signers: set `lock`, too".to_owned());
            }
            return Trust::All;
        };
        match LockFile::read(lock, self.signers.as_deref()) {
            Ok(file) => Trust::Lock(Arc::new(file.lock)),
            Err(error) => {
                mistakes.push(format!("lock: {error}"));
                Trust::All
            }
        }
    }
}

/// Returns the selected roots of a JSON text, or `None` without a text or after a mistake.
pub fn parse_roots(
    text: Option<&str>,
    mistakes: &mut Vec<String>,
) -> Option<Vec<SelectedCapabilityRoot>> {
    let parsed = parse_selected_roots(text?);
    parsed
        .map_err(|error| mistakes.push(format!("roots: {error}")))
        .ok()
}

impl ChoiceSpec {
    /// Returns the choice, and adds the mistakes.
    pub fn parse(&self, mistakes: &mut Vec<String>) -> SkillChoice {
        SkillChoice {
            include: ChoiceRule::parse_all(&self.include, mistakes),
            exclude: ChoiceRule::parse_all(&self.exclude, mistakes),
            pin: ChoiceRule::parse_all(&self.pin, mistakes),
            name_only: ChoiceRule::parse_all(&self.name_only, mistakes),
            manual: ChoiceRule::parse_all(&self.manual, mistakes),
            within: None,
        }
    }
}

/// Returns a duration, and adds a mistake if the number is not valid.
pub fn check_seconds(name: &str, seconds: f64, mistakes: &mut Vec<String>) -> Duration {
    parse_seconds(seconds).unwrap_or_else(|reason| {
        mistakes.push(format!("{name}: {reason}"));
        Duration::ZERO
    })
}
