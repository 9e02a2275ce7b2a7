use super::{MAX_BYTES, read_cached};
use crate::disk::kinds::is_on_disk;
use crate::disk::{Allowed, Body, Off, Opener, Page, Rule, Versions, Wanted, read};
use crate::domain::{Declaring, OffPackages, RelPath, SwitchedOff};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A root with a package `a`, and what reads in it.
struct Reader {
    tmp: TempDir,
    allowed: Allowed,
    versions: Versions,
}

impl Reader {
    /// `None`, which it says, where files for tests are on no disk.
    #[allow(clippy::print_stderr)]
    fn new(opener: Opener) -> Option<Self> {
        let tmp = tempfile::tempdir().expect("temp dir");
        fs::create_dir_all(tmp.path().join("top/root/a")).expect("dirs");
        let file = tmp.path().join("top/root/a/f");
        fs::write(&file, "First.").expect("write");
        if !is_on_disk(&File::open(file).expect("open")) {
            eprintln!("SKIPPED: temporary files are on a filesystem that is always waited for");
            return None;
        }
        let allowed = Allowed::with(opener, vec![tmp.path().join("top")]);
        Some(Self { tmp, allowed, versions: Versions::default() })
    }

    fn top(&self) -> PathBuf {
        self.tmp.path().join("top")
    }

    fn file(&self) -> PathBuf {
        self.top().join("root/a/f")
    }

    /// What is read of a file below the package: out of memory, and then by whoever may wait.
    fn both(&self, path: &Path, resource: &str) -> (Option<String>, Option<String>) {
        let (packages, rules) = (OffPackages::default(), SwitchedOff::default());
        let off = Off { packages: &packages, rules: &rules, published: &[] };
        let declaring = &Declaring::default();
        let rel = |text: &str| RelPath::new(text.as_bytes()).expect("a relative path");
        let page = Page {
            package: &rel("a"),
            resource: &rel(resource),
            from: None,
            max_bytes: 1 << 20,
            unless: None,
            rule: Rule { passed_over: &[], follow_links: true, off, declaring, plugin: None },
            max_file_bytes: 1 << 20,
        };
        let text = |body| match body {
            Some(Body::Text(text) | Body::Bytes(text)) => {
                String::from_utf8(text.as_ref().to_vec()).expect("text")
            }
            None => panic!("a body is wanted"),
        };
        let path = path.as_os_str().as_bytes();
        let cached = read_cached(&self.allowed, path, &page, &self.versions);
        let (_waiting, wanted) = Wanted::new();
        let root = self.allowed.resolve(path).ok();
        let other = root.and_then(|root| read(&root, &page, &self.versions, &wanted).ok());
        (cached.map(|read| text(read.body)), other.map(|read| text(read.body)))
    }

    fn root(&self) -> (Option<String>, Option<String>) {
        self.both(&self.top().join("root"), "f")
    }
}

fn alone(waited: &str) -> (Option<String>, Option<String>) {
    (None, Some(waited.to_owned()))
}

/// Reads until the kernel has all of it in memory: it may say at any time that it has not, as while
/// somebody renames anything.
fn alike(read: impl Fn() -> (Option<String>, Option<String>), both: &str) {
    let is_cached = (0..1_000).any(|_| {
        let (cached, waited) = read();
        assert_eq!(waited.as_deref(), Some(both));
        assert!(cached.as_deref().is_none_or(|cached| cached == both), "{cached:?}");
        cached.is_some()
    });
    assert!(is_cached, "never in memory");
}

#[test]
fn what_was_read_before_is_in_memory_until_it_changes() {
    let Some(reader) = Reader::new(Opener::Openat2) else { return };
    assert_eq!(reader.root(), alone("First."));
    alike(|| reader.root(), "First.");
    fs::write(reader.file(), "Second one.").expect("write");
    assert_eq!(reader.root(), alone("Second one."));
    alike(|| reader.root(), "Second one.");
    let long = "x".repeat(MAX_BYTES + 1);
    fs::write(reader.file(), &long).expect("write");
    assert_eq!(reader.root(), alone(&long));
    assert_eq!(reader.root(), alone(&long));
    fs::remove_file(reader.file()).expect("remove");
    assert_eq!(reader.root(), (None, None));
    mknodat(CWD, reader.file(), FileType::Fifo, Mode::from(0o600), 0).expect("a fifo");
    assert_eq!(reader.root(), (None, None));
}

#[test]
fn links_are_for_whoever_may_wait() {
    let Some(reader) = Reader::new(Opener::Openat2) else { return };
    symlink("f", reader.top().join("root/a/l")).expect("link");
    let path = reader.top().join("root");
    for _ in 0..2 {
        assert_eq!(reader.both(&path, "l"), alone("First."));
    }
    alike(|| reader.root(), "First.");
}

#[test]
fn a_root_that_leads_elsewhere_is_another() {
    let Some(reader) = Reader::new(Opener::Openat2) else { return };
    let link = reader.top().join("link");
    symlink("root", &link).expect("link");
    let linked = || reader.both(&link, "f");
    assert_eq!(linked(), alone("First."));
    alike(linked, "First.");
    fs::create_dir_all(reader.top().join("other/a")).expect("dirs");
    fs::write(reader.top().join("other/a/f"), "Other.").expect("write");
    fs::remove_file(&link).expect("remove");
    symlink("other", &link).expect("link");
    assert_eq!(linked(), alone("Other."));
    alike(linked, "Other.");
    // The allowed directory is moved away, and reached by a link again.
    fs::rename(reader.top(), reader.tmp.path().join("away")).expect("rename");
    fs::create_dir(reader.top()).expect("mkdir");
    symlink(reader.tmp.path().join("away/other"), &link).expect("link");
    assert_eq!(linked(), (None, None));
}

#[test]
fn what_lies_at_the_path_of_an_allowed_root_counts() {
    let Some(reader) = Reader::new(Opener::Openat2) else { return };
    assert_eq!(reader.root(), alone("First."));
    alike(|| reader.root(), "First.");
    let away = reader.tmp.path().join("away");
    fs::rename(reader.top(), &away).expect("rename");
    assert_eq!(reader.root(), (None, None));
    fs::create_dir_all(reader.file().parent().expect("a directory")).expect("dirs");
    fs::write(reader.file(), "Other.").expect("write");
    let (cached, waited) = reader.root();
    assert!(cached.is_none() && waited.as_deref() != Some("First."), "{cached:?} {waited:?}");
    fs::remove_dir_all(reader.top()).expect("remove");
    symlink(&away, reader.top()).expect("link");
    assert_eq!(reader.root().0, None);
    fs::remove_file(reader.top()).expect("remove");
    fs::rename(&away, reader.top()).expect("rename");
    alike(|| reader.root(), "First.");
}

#[test]
fn step_by_step_nothing_is_known_to_be_in_memory() {
    let Some(reader) = Reader::new(Opener::Steps) else { return };
    for _ in 0..2 {
        assert_eq!(reader.root(), alone("First."));
    }
}
