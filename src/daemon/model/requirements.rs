//! Programs, variables and platforms that a skill declares to need, in the forms that skills use. The
//! text of `compatibility` is for people: no form of it names a program without doubt.

use super::value::compact::ValueRef;
use super::{CompactFrontmatter, SkillSidecar};
use std::fmt;
use std::path::PathBuf;

/// Maximum number of requirements of a skill. Further ones are not looked up.
pub const MAX_REQUIREMENTS: usize = 64;
/// Maximum length of the name of a program or a variable.
const MAX_NAME_BYTES: usize = 255;
/// Commands that a shell has itself, so that no file of a PATH need have the name.
const SHELL_BUILTINS: [&str; 14] = [
    ".", "alias", "cd", "command", "echo", "eval", "exec", "exit", "export", "read", "set",
    "source", "type", "unset",
];
/// Spellings of the platform of this daemon.
const OWN_PLATFORM: &str = "linux";
/// Names of other platforms in real skills.
const OTHER_PLATFORMS: [&str; 5] = ["darwin", "macos", "osx", "win32", "windows"];

/// Directories and variables that the operator lets the daemon look up for skills.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadinessConfig {
    /// Directories of programs, in the order of a PATH. Empty: each program is unknown.
    pub path: Vec<PathBuf>,
    /// Variables of the daemon's environment. Others are unknown.
    pub variables: Vec<String>,
}

/// One thing that a skill needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillRequirement {
    /// One of these programs.
    Program(Box<[Box<str>]>),
    /// A variable of the environment.
    Variable(Box<str>),
    /// One of these platforms, as written.
    Platform(Box<[Box<str>]>),
}

/// Requirements of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillRequirements {
    /// At most [`MAX_REQUIREMENTS`], each once.
    pub items: Vec<SkillRequirement>,
    /// Whether the skill declares something that has no valid name, or exceeds the limit.
    pub has_unknown: bool,
}

impl SkillRequirements {
    /// Reads the requirements of a skill. Returns `None` if the skill declares none.
    #[must_use]
    pub fn read(frontmatter: &CompactFrontmatter, sidecar: Option<&SkillSidecar>) -> Option<Self> {
        let mut found = Self::default();
        for (key, value) in frontmatter
            .all_fields()
            .into_iter()
            .flat_map(ValueRef::entries)
        {
            match key {
                "metadata" => found.read_metadata(value),
                "required_environment_variables" => found.add_variables(value),
                "platforms" => found.add_platforms(value),
                _ => {}
            }
        }
        for tool in frontmatter.allowed_tools() {
            found.add_allowed_tool(tool);
        }

        for dependency in sidecar.map_or(&[][..], |sidecar| &sidecar.dependencies) {
            match &*dependency.kind {
                "cli" => {
                    let first_word = dependency.value.split_whitespace().next();
                    found.add_program(vec![first_word.unwrap_or_default()]);
                }
                "env_var" => found.add_variable(&dependency.value),
                _ => {}
            }
        }
        (found != Self::default()).then_some(found)
    }

    /// Reads `requires` and `os` of `metadata` itself and of each vendor below.
    fn read_metadata(&mut self, metadata: ValueRef<'_>) {
        for (key, value) in metadata.entries() {
            if key == "requires" {
                self.read_requires(value);
                continue;
            }
            for (key, value) in value.entries() {
                match key {
                    "requires" => self.read_requires(value),
                    "os" => self.add_platforms(value),
                    _ => {}
                }
            }
        }
    }

    fn read_requires(&mut self, requires: ValueRef<'_>) {
        for (key, value) in requires.entries() {
            match key {
                "bins" => texts(value)
                    .into_iter()
                    .for_each(|name| self.add_program(vec![name])),
                "anyBins" => self.add_program(texts(value)),
                "env" => self.add_variables(value),
                _ => {}
            }
        }
    }

    /// Adds a list of names, or of mappings with `name`.
    fn add_variables(&mut self, list: ValueRef<'_>) {
        let ValueRef::List(items) = list else {
            return;
        };
        for item in items {
            let name = match item {
                ValueRef::Map(mut entries) => entries
                    .find(|(key, _)| *key == "name")
                    .and_then(|(_, name)| name.into_text()),
                item => item.into_text(),
            };
            // The empty text is no name.
            self.add_variable(name.unwrap_or_default());
        }
    }

    fn add_platforms(&mut self, list: ValueRef<'_>) {
        let names = texts(list);
        if !names.is_empty() {
            self.add(SkillRequirement::Platform(boxed(&names)));
        }
    }

    /// Adds the program of a rule such as `Bash(git add:*)`.
    fn add_allowed_tool(&mut self, tool: &str) {
        let inner = tool
            .strip_prefix("Bash(")
            .and_then(|rest| rest.strip_suffix(')'));
        let Some(inner) = inner else { return };
        let program = inner.split([' ', ':', '*']).next().unwrap_or_default();
        if !program.is_empty() && !SHELL_BUILTINS.contains(&program) {
            self.add_program(vec![program]);
        }
    }

    fn add_program(&mut self, mut names: Vec<&str>) {
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return;
        }
        if names.len() > MAX_REQUIREMENTS || !names.iter().all(|name| is_program_name(name)) {
            self.has_unknown = true;
            return;
        }
        self.add(SkillRequirement::Program(boxed(&names)));
    }

    fn add_variable(&mut self, name: &str) {
        if is_variable_name(name) {
            self.add(SkillRequirement::Variable(name.into()));
        } else {
            self.has_unknown = true;
        }
    }

    fn add(&mut self, requirement: SkillRequirement) {
        if self.items.contains(&requirement) {
            return;
        }
        let all = self.items.iter().chain([&requirement]);
        if all.map(SkillRequirement::name_count).sum::<usize>() > MAX_REQUIREMENTS {
            self.has_unknown = true;
        } else {
            self.items.push(requirement);
        }
    }

    /// Returns the names of all programs.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        let programs = self.items.iter().filter_map(|item| match item {
            SkillRequirement::Program(names) => Some(names),
            SkillRequirement::Variable(_) | SkillRequirement::Platform(_) => None,
        });
        programs.flatten().map(|name| &**name)
    }
}

impl fmt::Display for SkillRequirement {
    /// Formats the kind and the names, such as `program docker or podman`. The names come from the
    /// author.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(names) => write!(f, "program {}", names.join(" or ")),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Platform(names) => write!(f, "platform {}", names.join(" or ")),
        }
    }
}

impl SkillRequirement {
    fn name_count(&self) -> usize {
        match self {
            Self::Program(names) | Self::Platform(names) => names.len(),
            Self::Variable(_) => 1,
        }
    }
}

/// Whether this platform is one of the names. `None` if no name is known.
#[must_use]
pub fn is_own_platform(names: &[Box<str>]) -> Option<bool> {
    let is_own = |name: &str| name.eq_ignore_ascii_case(OWN_PLATFORM);
    if names.iter().any(|name| is_own(name)) {
        return Some(true);
    }
    let is_other = |name: &str| OTHER_PLATFORMS.iter().any(|o| name.eq_ignore_ascii_case(o));
    names.iter().all(|name| is_other(name)).then_some(false)
}

/// Whether a text can be the name of a variable.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_word && name.len() <= MAX_NAME_BYTES && name.starts_with(|c: char| !c.is_ascii_digit())
}

fn is_program_name(name: &str) -> bool {
    let is_plain = name
        .chars()
        .all(|c| c.is_alphanumeric() || "._+-@".contains(c));
    is_plain && name.len() <= MAX_NAME_BYTES && !matches!(name, "" | "." | "..")
}

/// Returns the texts of a list, or a single text.
fn texts(value: ValueRef<'_>) -> Vec<&str> {
    match value {
        ValueRef::Text(text) => vec![text],
        ValueRef::List(items) => items.filter_map(ValueRef::into_text).collect(),
        _ => Vec::new(),
    }
}

fn boxed(names: &[&str]) -> Box<[Box<str>]> {
    names.iter().map(|name| (*name).into()).collect()
}
