//! Directories of this machine as a source of a session. They need Linux, where a daemon in the process watches
//! them; elsewhere a start fails.

#[cfg(target_os = "linux")]
pub use crate::daemon::config::RootPreset;
#[cfg(target_os = "linux")]
pub use crate::daemon::local_source::{LocalDirectories, LocalSource};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{
    NoLocalSource as LocalSource, PresetName as RootPreset, UnusedDirectories as LocalDirectories,
};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use caproot_session::SessionOptions;
    use caproot_session::sources::DaemonSource;
    use std::path::PathBuf;

    /// Valid name of a preset of roots.
    #[derive(Debug, Clone, Copy)]
    pub struct PresetName;

    /// Directories that cannot be a source.
    pub struct UnusedDirectories {
        pub named: Vec<(String, PathBuf)>,
        pub presets: Vec<PresetName>,
        pub project: Option<PathBuf>,
    }

    /// Source that cannot be started.
    pub struct NoLocalSource;

    impl PresetName {
        pub const NAMES: [&str; 3] = ["agents", "claude", "codex"];

        pub fn parse(name: &str) -> Option<Self> {
            Self::NAMES.contains(&name).then_some(Self)
        }
    }

    impl NoLocalSource {
        /// Fails. The error is the end of a sentence.
        pub async fn start(
            _id: &str,
            _directories: UnusedDirectories,
            _options: &SessionOptions,
        ) -> Result<DaemonSource, &'static str> {
            Err("they need Linux; use a daemon on another machine")
        }
    }
}
