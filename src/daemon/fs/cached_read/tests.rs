use super::{MAX_CACHED_DIGEST_BYTES, read_page_cached};
use crate::daemon::fs::filesystem_types::is_on_local_disk;
use crate::daemon::fs::{
    AllowedDirs, DisabledSkills, FilePageRequest, OpenMethod, PageBody, ReadCaches, ReadRules,
    read_page,
};
use crate::daemon::model::{DisableRules, DisabledPackages, ManifestFiles};
use caproot_core::wire::RelPath;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A root with a package `a`, and the state for reading it.
struct ReadFixture {
    tmp: TempDir,
    allowed: AllowedDirs,
    digests: ReadCaches,
}

impl ReadFixture {
    /// Prints a message and returns `None` if temporary files are not on a local disk.
    #[allow(clippy::print_stderr)]
    fn new(opener: OpenMethod) -> Option<Self> {
        let tmp = tempfile::tempdir().expect("temp dir");
        fs::create_dir_all(tmp.path().join("top/root/a")).expect("dirs");
        let file = tmp.path().join("top/root/a/f");
        fs::write(&file, "First.").expect("write");
        if !is_on_local_disk(&File::open(file).expect("open")) {
            eprintln!("SKIPPED: temporary files are not on a local disk");
            return None;
        }
        let allowed = AllowedDirs::with_opener(opener, vec![tmp.path().join("top")]);
        Some(Self {
            tmp,
            allowed,
            digests: ReadCaches::default(),
        })
    }

    fn top(&self) -> PathBuf {
        self.tmp.path().join("top")
    }

    fn file(&self) -> PathBuf {
        self.top().join("root/a/f")
    }

    /// Reads a file below the package, first from the page cache and then with a blocking read.
    fn read_both(&self, path: &Path, resource: &str) -> (Option<String>, Option<String>) {
        let (packages, rules) = (DisabledPackages::default(), DisableRules::default());
        let disabled_skills = DisabledSkills {
            packages: &packages,
            rules: &rules,
            published: &[],
        };
        let manifest_files = &ManifestFiles::default();
        let rel = |text: &str| RelPath::new(text.as_bytes()).expect("a relative path");
        let page = FilePageRequest {
            package: &rel("a"),
            resource: &rel(resource),
            from: None,
            max_bytes: 1 << 20,
            unless_digest: None,
            rules: ReadRules {
                skipped_dirs: &[],
                follow_links: true,
                disabled_skills,
                manifest_files,
                is_plugin: false,
                approved_files: None,
            },
            max_file_bytes: 1 << 20,
        };
        let text = |body| match body {
            Some(PageBody::Text(text) | PageBody::Bytes(text)) => {
                String::from_utf8(text.as_ref().to_vec()).expect("text")
            }
            None => panic!("the page has no body"),
        };
        let path = path.as_os_str().as_bytes();
        let cached = read_page_cached(&self.allowed, path, &page, &self.digests);
        let root = self.allowed.resolve(path).ok();
        let other = root.and_then(|root| {
            read_page(&root, &page, &self.digests, &CancellationToken::new()).ok()
        });
        (
            cached.map(|read| text(read.body)),
            other.map(|read| text(read.body)),
        )
    }

    fn read_from_root(&self) -> (Option<String>, Option<String>) {
        self.read_both(&self.top().join("root"), "f")
    }
}

fn uncached_only(blocking: &str) -> (Option<String>, Option<String>) {
    (None, Some(blocking.to_owned()))
}

/// Reads until the kernel has the page in memory. Even then a cached read may fail at any time, for
/// example during a rename.
fn assert_becomes_cached(read: impl Fn() -> (Option<String>, Option<String>), both: &str) {
    let is_cached = (0..1_000).any(|_| {
        let (cached, blocking) = read();
        assert_eq!(blocking.as_deref(), Some(both));
        assert!(
            cached.as_deref().is_none_or(|cached| cached == both),
            "{cached:?}"
        );
        cached.is_some()
    });
    assert!(is_cached, "the page was never cached");
}

#[test]
fn a_page_is_cached_until_the_file_changes() {
    let Some(reader) = ReadFixture::new(OpenMethod::Openat2) else {
        return;
    };
    assert_eq!(reader.read_from_root(), uncached_only("First."));
    assert_becomes_cached(|| reader.read_from_root(), "First.");
    fs::write(reader.file(), "Second one.").expect("write");
    assert_eq!(reader.read_from_root(), uncached_only("Second one."));
    assert_becomes_cached(|| reader.read_from_root(), "Second one.");
    let long = "x".repeat(MAX_CACHED_DIGEST_BYTES + 1);
    fs::write(reader.file(), &long).expect("write");
    assert_eq!(reader.read_from_root(), uncached_only(&long));
    assert_eq!(reader.read_from_root(), uncached_only(&long));
    fs::remove_file(reader.file()).expect("remove");
    assert_eq!(reader.read_from_root(), (None, None));
    mknodat(CWD, reader.file(), FileType::Fifo, Mode::from(0o600), 0).expect("a fifo");
    assert_eq!(reader.read_from_root(), (None, None));
}

#[test]
fn files_behind_links_are_not_read_from_the_cache() {
    let Some(reader) = ReadFixture::new(OpenMethod::Openat2) else {
        return;
    };
    symlink("f", reader.top().join("root/a/l")).expect("link");
    let path = reader.top().join("root");
    for _ in 0..2 {
        assert_eq!(reader.read_both(&path, "l"), uncached_only("First."));
    }
    assert_becomes_cached(|| reader.read_from_root(), "First.");
}

#[test]
fn a_retargeted_root_link_misses_the_cache() {
    let Some(reader) = ReadFixture::new(OpenMethod::Openat2) else {
        return;
    };
    let link = reader.top().join("link");
    symlink("root", &link).expect("link");
    let linked = || reader.read_both(&link, "f");
    assert_eq!(linked(), uncached_only("First."));
    assert_becomes_cached(linked, "First.");
    fs::create_dir_all(reader.top().join("other/a")).expect("dirs");
    fs::write(reader.top().join("other/a/f"), "Other.").expect("write");
    fs::remove_file(&link).expect("remove");
    symlink("other", &link).expect("link");
    assert_eq!(linked(), uncached_only("Other."));
    assert_becomes_cached(linked, "Other.");
    // The allowed directory is moved away, and the path leads to it by a link.
    fs::rename(reader.top(), reader.tmp.path().join("away")).expect("rename");
    fs::create_dir(reader.top()).expect("mkdir");
    symlink(reader.tmp.path().join("away/other"), &link).expect("link");
    assert_eq!(linked(), (None, None));
}

#[test]
fn a_replaced_allowed_directory_misses_the_cache() {
    let Some(reader) = ReadFixture::new(OpenMethod::Openat2) else {
        return;
    };
    assert_eq!(reader.read_from_root(), uncached_only("First."));
    assert_becomes_cached(|| reader.read_from_root(), "First.");
    let away = reader.tmp.path().join("away");
    fs::rename(reader.top(), &away).expect("rename");
    assert_eq!(reader.read_from_root(), (None, None));
    fs::create_dir_all(reader.file().parent().expect("a directory")).expect("dirs");
    fs::write(reader.file(), "Other.").expect("write");
    let (cached, blocking) = reader.read_from_root();
    assert!(
        cached.is_none() && blocking.as_deref() != Some("First."),
        "{cached:?} {blocking:?}"
    );
    fs::remove_dir_all(reader.top()).expect("remove");
    symlink(&away, reader.top()).expect("link");
    assert_eq!(reader.read_from_root().0, None);
    fs::remove_file(reader.top()).expect("remove");
    fs::rename(&away, reader.top()).expect("rename");
    assert_becomes_cached(|| reader.read_from_root(), "First.");
}

#[test]
fn without_openat2_nothing_is_read_from_the_cache() {
    let Some(reader) = ReadFixture::new(OpenMethod::Openat) else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(reader.read_from_root(), uncached_only("First."));
    }
}
