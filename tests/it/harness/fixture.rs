//! Builds a directory tree from text.
//!
//! One entry per line. Paths are relative to the fixture's top directory and may contain spaces:
//!
//! ```text
//! file PATH             content follows as lines that begin with `| ` or are `|`; each ends in \n
//! skill PATH            PATH/SKILL.md named for PATH's last segment, described `Does <name>.`
//! dir PATH
//! link PATH -> TARGET   symbolic; TARGET may begin with $TMP, the fixture's top
//! hardlink PATH -> EXISTING
//! fifo PATH
//! socket PATH
//! mode OCTAL PATH
//! sparse BYTES PATH     a file of that size without data
//! repeat N ENTRY        ENTRY N times; `{}` is 0 to N-1, padded so that byte order is number order
//! ```
//!
//! Paths, targets and content accept the escapes `\xff` `\n` `\r` `\t` `\0` `\\` `\u{feff}`, and
//! `\{300*ab}` for 300 repetitions of a text. A `\` at the end of the last line of content
//! suppresses the newline of that line.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

/// Tree in a temporary directory that is removed on drop.
pub(crate) struct Fixture {
    dir: TempDir,
    top: PathBuf,
    closed: Vec<PathBuf>,
}

impl Fixture {
    /// Builds the tree that `text` describes.
    pub(crate) fn new(text: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("caproot-it-")
            .tempdir()
            .expect("a temporary dir");
        let top = dir
            .path()
            .canonicalize()
            .expect("the temporary directory has a real path");
        let mut fixture = Self {
            dir,
            top,
            closed: Vec::new(),
        };
        fixture.add(text);
        fixture
    }

    /// Top directory of the fixture with all links resolved.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Native path of an entry. `.` is the top directory.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        if relative == "." {
            return self.top.clone();
        }
        self.top.join(OsStr::from_bytes(&unescape(relative)))
    }

    /// Writes a file in place and creates its parent directories.
    pub(crate) fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        make_parents(&path);
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Replaces a file by renaming a new file over it, as editors do.
    pub(crate) fn replace(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        let temporary = path.with_extension("temporary");
        fs::write(&temporary, content).expect("a file next to it");
        fs::rename(&temporary, &path).expect("rename over it");
    }

    /// Copies a directory with the modes of its files.
    pub(crate) fn add_copy(&self, from: &str, to: &str) {
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([self.path(from), self.path(to)])
            .status();
        assert!(copied.expect("cp").success());
    }

    /// Adds more entries to the tree.
    pub(crate) fn add(&mut self, text: &str) {
        let mut lines = text
            .lines()
            .map(str::trim_start)
            .filter(|l| !is_comment(l))
            .peekable();
        while let Some(line) = lines.next() {
            let mut content = Vec::new();
            while let Some(more) = lines.next_if(|l| l.starts_with('|')) {
                content.push(more);
            }
            match line
                .strip_prefix("repeat ")
                .and_then(|rest| rest.split_once(' '))
            {
                None => self.add_entry(line, &content),
                Some((count, entry)) => {
                    let count: usize = count.parse().expect("repeat N ENTRY");
                    let width = (count - 1).to_string().len();
                    for n in 0..count {
                        let n = format!("{n:0width$}");
                        let lines: Vec<_> = content.iter().map(|l| l.replace("{}", &n)).collect();
                        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
                        self.add_entry(&entry.replace("{}", &n), &lines);
                    }
                }
            }
        }
    }

    fn add_entry(&mut self, line: &str, content: &[&str]) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        if verb == "skill" {
            let name = rest.rsplit('/').next().expect("split gives at least one");
            let head =
                format!("---\nname: {name}\ndescription: Does {name}.\n---\nBody of {name}.\n");
            return self.write(
                &format!("{rest}/SKILL.md"),
                unescape(&head.replace('\n', "\\n")),
            );
        }
        let (first, second) = match verb {
            "link" | "hardlink" => rest.split_once(" -> ").expect("PATH -> TARGET"),
            "mode" | "sparse" => rest
                .split_once(' ')
                .map(|(a, b)| (b, a))
                .expect("VALUE PATH"),
            _ => (rest, ""),
        };
        let path = self.path(first);
        make_parents(&path);
        let done = match verb {
            "file" => fs::write(&path, body(content)),
            "dir" => fs::create_dir_all(&path),
            "link" => symlink(OsStr::from_bytes(&self.target(second)), &path),
            "hardlink" => fs::hard_link(self.path(second), &path),
            "fifo" => mkfifoat(CWD, &path, Mode::from_raw_mode(0o644)).map_err(Into::into),
            "socket" => UnixListener::bind(&path).map(drop),
            "mode" => {
                let mode = u32::from_str_radix(second, 8).expect("an octal mode");
                self.closed.push(path.clone());
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            }
            "sparse" => {
                fs::File::create(&path).and_then(|f| f.set_len(second.parse().expect("bytes")))
            }
            _ => panic!("unknown entry: {line:?}"),
        };
        done.unwrap_or_else(|e| panic!("{line:?}: {e}"));
    }

    fn target(&self, text: &str) -> Vec<u8> {
        match text.strip_prefix("$TMP") {
            Some(rest) => [self.top.as_os_str().as_bytes(), &unescape(rest)].concat(),
            None => unescape(text),
        }
    }
}

impl Drop for Fixture {
    /// Restores the permissions, so that the tree can be removed without root rights.
    fn drop(&mut self) {
        for path in &self.closed {
            drop(fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
        }
        debug_assert!(self.dir.path().exists(), "a test removed the fixture's top");
    }
}

/// Whether a line of a fixture is empty or a comment.
pub(crate) fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn make_parents(path: &Path) {
    let parent = path.parent().expect("an entry lies below the top");
    fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
}

fn body(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let line = line.strip_prefix("| ").unwrap_or(&line[1..]);
        let open = line
            .strip_suffix('\\')
            .filter(|l| n + 1 == lines.len() && !l.ends_with('\\'));
        bytes.extend(unescape(open.unwrap_or(line)));
        if open.is_none() {
            bytes.push(b'\n');
        }
    }
    bytes
}

/// Returns the bytes that a text with escapes stands for.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let tail = &rest[at + 1..];
        let code = tail
            .chars()
            .next()
            .unwrap_or_else(|| panic!("a lone \\ in {text:?}"));
        let braced = || {
            tail[tail.find('{').expect("{") + 1..]
                .split_once('}')
                .expect("}")
        };
        rest = match code {
            'x' => {
                bytes.push(u8::from_str_radix(&tail[1..3], 16).expect("two hex digits"));
                &tail[3..]
            }
            'u' => {
                let (digits, after) = braced();
                let scalar = u32::from_str_radix(digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                bytes.extend(scalar.expect("a character").to_string().bytes());
                after
            }
            '{' => {
                let (inner, after) = braced();
                let (count, what) = inner.split_once('*').expect("\\{N*text}");
                bytes.extend(unescape(what).repeat(count.parse().expect("a count")));
                after
            }
            _ => {
                let plain = [
                    ('n', b'\n'),
                    ('r', b'\r'),
                    ('t', b'\t'),
                    ('0', 0),
                    ('\\', b'\\'),
                ];
                let found = plain.iter().find(|(c, _)| *c == code);
                bytes.push(found.unwrap_or_else(|| panic!("\\{code} in {text:?}")).1);
                &tail[1..]
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// Whether this process can read every file, so that removing permissions has no effect.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
