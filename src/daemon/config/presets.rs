//! Presets of roots: the directories in which a tool keeps skills, in a project and at home.

use super::flags::root;
use super::project_roots::{ProjectPlace, project_root_ids, project_roots};
use crate::daemon::model::{PublishedRoot, RootScope};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::RootId;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Tool whose directories of skills are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootPreset {
    /// `.agents/skills`, which many tools share.
    Agents,
    /// `.claude/skills` of Claude Code.
    Claude,
    /// `.codex/skills` of Codex.
    Codex,
}

/// Roots of a configuration, and warnings about omitted directories.
#[derive(Debug, Default)]
pub struct FoundRoots {
    pub roots: Vec<PublishedRoot>,
    pub warnings: Vec<String>,
}

/// Directories of one preset.
struct PresetPlaces {
    /// Name of the preset, and id of the root at home.
    name: &'static str,
    /// Directory in the home directory and in each directory of a project.
    project: ProjectPlace,
}

/// Places of each preset. Each tool searches the directories of a project up to the root of the
/// repository.
const PLACES: [PresetPlaces; RootPreset::ALL.len()] = [
    // https://agentskills.io/client-implementation/adding-skills-support
    // https://developers.openai.com/codex/skills
    PresetPlaces {
        name: "agents",
        project: ProjectPlace {
            directory: ".agents/skills",
            nearest_id: "agents-repo",
        },
    },
    // https://code.claude.com/docs/en/skills
    PresetPlaces {
        name: "claude",
        project: ProjectPlace {
            directory: ".claude/skills",
            nearest_id: "claude-repo",
        },
    },
    // https://github.com/openai/codex/blob/main/codex-rs/core-skills/src/loader.rs
    PresetPlaces {
        name: "codex",
        project: ProjectPlace {
            directory: ".codex/skills",
            nearest_id: "codex-repo",
        },
    },
];

impl RootPreset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Agents, Self::Claude, Self::Codex];

    /// Names of the presets in the config file and on the command line.
    pub const NAMES: [&'static str; Self::ALL.len()] =
        [PLACES[0].name, PLACES[1].name, PLACES[2].name];

    /// Parses the name of a preset.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Returns the name of the preset.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.places().name
    }

    /// Whether a root of the preset can have the id.
    #[must_use]
    pub fn can_have_root(self, id: &RootId) -> bool {
        let places = self.places();
        id.as_str() == places.name
            || project_root_ids(&places.project).any(|known| known == id.as_str())
    }

    /// Returns the roots of the preset: those of the project that contains the working directory, and
    /// the directory at home. Directories that do not exist may be created later.
    #[must_use]
    pub fn find_roots(self, env: &ProcessEnv) -> FoundRoots {
        let places = self.places();
        let mut found = project_roots(&places.project, env);

        if let Some(dir) = self.home_dir(env)
            && let Ok(id) = RootId::new(places.name)
        {
            let link_dirs = Self::other_home_dirs(&dir, env);
            found.roots.push(PublishedRoot {
                is_optional: true,
                link_dirs,
                ..root(id, &dir, RootScope::User)
            });
        }
        found
    }

    /// Returns the existing directories of skills at home, except for one of them. The installers of
    /// skills keep the files in one of the directories, and links in the others.
    #[must_use]
    pub fn other_home_dirs(own: &Path, env: &ProcessEnv) -> Box<[Box<[u8]>]> {
        let presets = Self::ALL.into_iter();
        let dirs = presets.filter_map(|preset| preset.home_dir(env));
        let others = dirs.filter(|dir| dir != own && dir.is_dir());
        others
            .map(|dir| dir.as_os_str().as_bytes().into())
            .collect()
    }

    /// Returns the directory at home. `CODEX_HOME` replaces `~/.codex`, as for Codex.
    fn home_dir(self, env: &ProcessEnv) -> Option<PathBuf> {
        match (self, &env.codex_home) {
            (Self::Codex, Some(codex)) => Some(codex.join("skills")),
            _ => Some(env.home.as_deref()?.join(self.places().project.directory)),
        }
    }

    fn places(self) -> &'static PresetPlaces {
        // The table has the order of the variants.
        &PLACES[self as usize]
    }
}
