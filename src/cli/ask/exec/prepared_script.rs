//! Program of a script or a server in a verified copy: its interpreter, its variables, and its start in place of
//! this process.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::write_stdout;
use caproot_client::pull::{PackageCopy, PackageStore, PullError};
use caproot_core::text::escape_text;
use caproot_core::text::variables::PLUGIN_DIR_VARIABLES;
use rustix::fs::{Access, access};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Interpreters of files without an execute bit or a shebang, by extension. The first that the PATH has
/// runs the file.
pub const INTERPRETERS: [(&str, &[&str]); 5] = [
    ("py", &["python3", "python"]),
    ("sh", &["bash", "sh"]),
    ("js", &["node"]),
    ("mjs", &["node"]),
    ("rb", &["ruby"]),
];
/// Variable that keeps Python from writing `__pycache__` to the copy, which would then differ from its
/// digest.
const NO_BYTECODE: &str = "PYTHONDONTWRITEBYTECODE";
/// Variable for the directory of the skill, as Claude Code names it.
const SKILL_DIR: &str = "CLAUDE_SKILL_DIR";
/// Maximum length of a shebang line in a message; the kernel reads 256 bytes: execve(2).
const MAX_SHEBANG_BYTES: u64 = 256;

/// Program in a verified copy of its package.
pub struct PreparedScript {
    pub path: PathBuf,
    pub copy: PackageCopy,
    pub store: Arc<PackageStore>,
    pub surroundings: Surroundings,
}

/// Directory and variables of a program.
pub enum Surroundings {
    /// Those of the command, with the directory of the skill, and that of its plugin.
    Skill { plugin: Option<PackageCopy> },
    /// Directory and whole environment of a server.
    Server {
        dir: PathBuf,
        variables: BTreeMap<String, OsString>,
    },
}

impl PreparedScript {
    /// Prints the path in the copy, and keeps the copy.
    pub fn print_path(self) -> Result<(), CommandFailure> {
        self.store.reserve_copy(&self.copy)?;
        self.copy.check_place()?;
        let mut path = self.path.as_os_str().as_bytes().to_vec();
        if io::stdout().is_terminal() {
            path = escape_text(&self.path.to_string_lossy()).into();
        }
        path.push(b'\n');
        write_stdout(|stdout| stdout.write_all(&path))
    }

    /// Replaces this process by the script. Returns the reason if the system refuses.
    pub fn replace_process(self, args: &[OsString]) -> CommandFailure {
        if let Err(error) = self.hold_copies() {
            return error.into();
        }
        let content = match ScriptContent::read(&self.path) {
            Ok(content) => content,
            Err(error) => return start_failure(&self.path, &error),
        };
        if content.has_relative_interpreter() {
            let sentence = format!(
                "the interpreter of the script is relative, and would be another program in each \
                 directory: {}",
                content.first_line
            );
            return CommandFailure::new(exit::NOT_RUNNABLE, sentence)
                .with_hint("an author writes `#!/usr/bin/env NAME` or an absolute path");
        }
        if content.runs_by_itself {
            let error = self.start(self.path.as_os_str(), None, args);
            return self.explain_own_start(&content, &error);
        }

        let extension = self.path.extension().unwrap_or_default();
        let known = INTERPRETERS.iter().find(|(name, _)| extension == *name);
        let names = known.map_or(&[][..], |(_, programs)| *programs);
        if let Some(interpreter) = names.iter().find_map(|name| find_program(name)) {
            let error = self.start(interpreter.as_os_str(), Some(&self.path), args);
            return start_failure(&interpreter, &error);
        }
        let sentence = match names.first() {
            Some(name) => format!("the PATH has no {name}, which runs files of this extension"),
            None => "the script has no known interpreter".to_owned(),
        };
        CommandFailure::new(exit::NOT_RUNNABLE, sentence).with_hint(
            "an author gives the file a `#!` line and an execute bit, or the extension .py, .sh, .js, \
             .mjs or .rb",
        )
    }

    /// Replaces this process by a program outside the copy. Returns the reason if the system refuses.
    pub fn replace_process_by_program(self, args: &[OsString]) -> CommandFailure {
        if let Err(error) = self.hold_copies() {
            return error.into();
        }
        let error = self.start(self.path.as_os_str(), None, args);
        start_failure(&self.path, &error)
    }

    fn hold_copies(&self) -> Result<(), PullError> {
        let plugin = match &self.surroundings {
            Surroundings::Skill { plugin } => plugin.as_ref(),
            Surroundings::Server { .. } => None,
        };
        // Without its lock, another command could remove a copy that the script uses.
        for copy in [Some(&self.copy), plugin].into_iter().flatten() {
            copy.keep_locked_in_next_program()?;
            copy.check_place()?;
        }
        Ok(())
    }

    /// Calls execve(2). Returns only on failure.
    fn start(&self, program: &OsStr, script: Option<&Path>, args: &[OsString]) -> io::Error {
        let mut command = Command::new(program);
        command.args(script).args(args);
        match &self.surroundings {
            Surroundings::Server { dir, variables } => {
                command.current_dir(dir).env_clear().envs(variables);
            }
            Surroundings::Skill { plugin } => {
                command.env(SKILL_DIR, self.copy.dir());
                for variable in PLUGIN_DIR_VARIABLES {
                    // The command may have these variables from another plugin.
                    match plugin {
                        Some(copy) => command.env(variable, copy.dir()),
                        None => command.env_remove(variable),
                    };
                }
            }
        }
        if std::env::var_os(NO_BYTECODE).is_none() {
            command.env(NO_BYTECODE, "1");
        }
        command.exec()
    }

    /// Explains why an executable file did not start. The file exists, so its interpreter is missing if
    /// the system finds no file.
    fn explain_own_start(&self, content: &ScriptContent, error: &io::Error) -> CommandFailure {
        match error.kind() {
            io::ErrorKind::NotFound => {
                let sentence = format!(
                    "the interpreter of the script is missing: {}",
                    content.first_line
                );
                CommandFailure::new(exit::NOT_RUNNABLE, sentence)
            }
            io::ErrorKind::PermissionDenied => start_failure(&self.path, error).with_hint(
                "if the filesystem of the copies forbids programs, name another directory with \
                 --copies DIR or CAPROOT_COPIES",
            ),
            _ => start_failure(&self.path, error),
        }
    }
}

/// Start of a script.
struct ScriptContent {
    /// Whether the kernel runs the file: an execute bit, and a shebang or an ELF header.
    runs_by_itself: bool,
    /// First line, shortened.
    first_line: String,
}

impl ScriptContent {
    /// Whether the kernel would look the interpreter up in the working directory.
    fn has_relative_interpreter(&self) -> bool {
        self.first_line
            .strip_prefix("#!")
            .map(str::trim_ascii_start)
            .is_some_and(|path| self.runs_by_itself && !path.starts_with('/'))
    }

    fn read(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;

        let file = File::open(path)?;
        let is_executable = file.metadata()?.permissions().mode() & 0o111 != 0;
        let mut start = Vec::new();
        file.take(MAX_SHEBANG_BYTES).read_to_end(&mut start)?;
        let has_header = start.starts_with(b"#!") || start.starts_with(b"\x7fELF");
        let line = start
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();

        Ok(Self {
            runs_by_itself: is_executable && has_header,
            first_line: String::from_utf8_lossy(line).into_owned(),
        })
    }
}

/// Finds a program in the absolute directories of the PATH. A relative directory would be another one in
/// each working directory.
pub fn find_program(name: &str) -> Option<PathBuf> {
    // A program without a PATH searches these directories: execvp(3).
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut programs = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name));
    programs.find(|program| access(program, Access::EXEC_OK).is_ok() && program.is_file())
}

pub fn start_failure(program: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(
        exit::NOT_STARTED,
        format!("cannot start {}: {error}", program.display()),
    )
}
