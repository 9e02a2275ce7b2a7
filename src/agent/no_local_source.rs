//! Replaces the source of local directories on systems without a daemon: directories are no source there.

use caproot_client::session::SessionOptions;
use caproot_client::session::sources::DaemonSource;
use std::path::PathBuf;

/// Name of a preset of roots, which no directory of this system has.
#[derive(Debug, Clone, Copy)]
pub struct RootPreset;

/// Directories that would be a source.
pub struct LocalDirectories {
    pub named: Vec<(String, PathBuf)>,
    pub presets: Vec<RootPreset>,
    pub project: Option<PathBuf>,
}

/// Source that cannot be started.
pub struct LocalSource;

impl RootPreset {
    pub const NAMES: [&str; 3] = ["agents", "claude", "codex"];

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.contains(&name).then_some(Self)
    }
}

impl LocalSource {
    /// Returns the reason why there is no source.
    pub async fn start(
        _id: &str,
        _directories: LocalDirectories,
        _options: &SessionOptions,
    ) -> Result<DaemonSource, &'static str> {
        Err(
            "they need Linux, where a daemon in the process watches them; use a daemon on another machine",
        )
    }
}
