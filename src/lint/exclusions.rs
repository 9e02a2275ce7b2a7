//! Paths that a check leaves out, by the globs of `--exclude` and of a file.

use crate::daemon::model::disabled_skills::parse_glob;
use caproot_core::text::SentenceResult as _;
use caproot_core::wire::RelPath;
use globset::{GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Name of the file with globs in a checked directory.
pub const IGNORE_FILE: &str = ".caprootignore";
/// Maximum bytes of the file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Paths below a checked directory that a check leaves out.
#[derive(Debug, Clone, Default)]
pub struct CheckExclusions(GlobSet);

impl CheckExclusions {
    /// Takes the globs of the command line, and reads the file of the directory if there is one. A
    /// glob without `/` matches a name in any directory, and other globs match a path below the
    /// directory.
    pub fn read(globs: &[String], dir: &Path) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            add_glob(&mut set, glob).context(format_args!("--exclude {glob:?}"))?;
        }

        let file = dir.join(IGNORE_FILE);
        let text = read_file(&file).context(file.display())?;
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if !line.is_empty() && !line.starts_with('#') {
                add_glob(&mut set, line).context(format_args!("{}:{number}", file.display()))?;
            }
        }
        set.build().map(Self).map_err(|error| error.to_string())
    }

    /// Whether a glob matches the path, or a directory above it.
    #[must_use]
    pub fn matches(&self, path: &RelPath) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut next = Some(path.clone());
        while let Some(path) = next.filter(|path| !path.is_root()) {
            if self.0.is_match(OsStr::from_bytes(path.as_bytes())) {
                return true;
            }
            next = path.parent();
        }
        false
    }
}

fn add_glob(set: &mut GlobSetBuilder, text: &str) -> Result<(), String> {
    if text.starts_with('!') {
        return Err(
            "a glob that begins with `!` is not supported; list what to leave out".to_owned(),
        );
    }
    let path = text.trim_end_matches('/');
    let anchored = path.trim_start_matches("./").trim_start_matches('/');
    let glob = if path.contains('/') {
        anchored.to_owned()
    } else {
        format!("**/{anchored}")
    };
    let parsed = parse_glob(&glob).map_err(|error| format!("invalid glob: {}", error.kind()))?;
    set.add(parsed);
    Ok(())
}

fn read_file(file: &Path) -> Result<String, String> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("over {MAX_FILE_BYTES} bytes; shorten the file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{CheckExclusions, IGNORE_FILE};
    use caproot_core::wire::RelPath;
    use std::fs;

    #[test]
    fn globs_match_names_and_paths() {
        let dir = tempfile::tempdir().expect("temp dir");
        for (glob, path, is_excluded) in [
            ("tests", "tests/a/SKILL.md", true),
            ("tests/", "x/tests/SKILL.md", true),
            ("tests", "tests-2/SKILL.md", false),
            ("/tests", "x/tests/SKILL.md", false),
            ("x/tests", "x/tests/SKILL.md", true),
            ("./x/*/b", "x/a/b/SKILL.md", true),
            ("x/*/b", "x/a/c/b/SKILL.md", false),
            ("**/b", "x/a/c/b/SKILL.md", true),
            ("*.md", "a/SKILL.md", true),
            ("tests", "", false),
        ] {
            let exclusions = CheckExclusions::read(&[glob.to_owned()], dir.path()).expect(glob);
            let path = RelPath::new(path.as_bytes()).expect(path);
            assert_eq!(exclusions.matches(&path), is_excluded, "{glob} {path}");
        }
    }

    #[test]
    fn the_file_of_the_directory_is_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::write(
            dir.path().join(IGNORE_FILE),
            "# broken on purpose\n\ntests  \r\n",
        )
        .expect("file");
        let exclusions = CheckExclusions::read(&[], dir.path()).expect("globs");
        assert!(exclusions.matches(&RelPath::new(b"a/tests").expect("path")));
        for (text, words) in [
            ("a\n!b\n", ":2: a glob that begins with `!`"),
            ("[a\n", ":1: invalid glob"),
            (&"#".repeat(65_537), "over 65536 bytes"),
        ] {
            fs::write(dir.path().join(IGNORE_FILE), text).expect("file");
            let error = CheckExclusions::read(&[], dir.path()).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
