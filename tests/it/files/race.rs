//! Races: directories, files and links are exchanged while the daemon reads and lists. Neither
//! resolver returns anything from outside. A naive resolver that checks first and opens later
//! leaks, which proves that the test races at all.
//!
//! `CAPROOT_RACE_SECONDS` is the duration for each resolver: 3 by default, 10 in the long form.

mod exchange;

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use caproot::daemon::catalog::{OpenMethod, WatchTiming};
use caproot::daemon::config::{Config, ServeFlags};
use caproot::daemon::fs::{
    AllowedDirs, DisabledSkills, FilePage, FilePageRequest, FileReadError, PageBody, ReadCaches,
    ReadRules, ResolvedRootDir, read_page, read_page_cached,
};
use caproot::daemon::model::{DisableRules, DisabledPackages, ManifestFiles};
use caproot::daemon::scan::{ScanProgress, ScanTarget, scan_root};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::ListResourcesRequest;
use caproot_core::wire::RelPath;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::exchange::{ExchangeKind, RaceFixture, SECRET};
use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, HANG_TIMEOUT, Setup, by_both_openers, files_request, isolated_env, list_request,
    openers, read_request, selected, short_or_long,
};

by_both_openers! {
    async fn no_content_from_outside_is_returned;
    async fn no_directory_without_a_skill_is_read_through_a_link;
}

/// Counts of attempts and outcomes.
#[derive(Default)]
struct RaceCounts {
    reads: AtomicU64,
    lists: AtomicU64,
    /// Reads that returned a file from inside.
    served: AtomicU64,
    /// Reads that were rejected because a link led outside.
    rejected: AtomicU64,
    leaks: AtomicU64,
}

impl RaceCounts {
    /// Counts an answer as a leak if it contains anything from outside.
    fn count_leaks(&self, fixture: &RaceFixture, answer: &[u8]) {
        self.leaks.fetch_add(
            u64::from(fixture.contains_secret(answer)),
            Ordering::Relaxed,
        );
    }

    fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// Whether reads met both the file inside and the link outside. A moved directory no longer
    /// exists at its path and leads nowhere, so it never counts as outside.
    fn is_raced(&self, kind: ExchangeKind) -> bool {
        let rejected = Self::get(&self.rejected) > 0 || kind == ExchangeKind::Moved;
        rejected && Self::get(&self.served) > 0 && Self::get(&self.lists) > 1
    }
}

async fn no_content_from_outside_is_returned(opener: OpenMethod) {
    let seconds = std::env::var("CAPROOT_RACE_SECONDS");
    let seconds: f64 = seconds.map_or(short_or_long(3.0, 10.0), |text| {
        text.parse().expect("CAPROOT_RACE_SECONDS")
    });
    for kind in ExchangeKind::ALL {
        let fixture = Arc::new(RaceFixture::new());
        let Some(race) = fixture.start_exchanges(kind) else {
            return;
        };
        let counts = Arc::new(RaceCounts::default());
        let end = Instant::now() + Duration::from_secs_f64(seconds / 3.0);
        let deadline = Instant::now() + HANG_TIMEOUT;
        let keep_running = {
            let counts = counts.clone();
            move || Instant::now() < end || !counts.is_raced(kind) && Instant::now() < deadline
        };
        let workers = [read_directly, scan_directly].map(|work| {
            let (fixture, counts, keep_running) =
                (fixture.clone(), counts.clone(), keep_running.clone());
            thread::spawn(move || work(opener, &fixture, &counts, &keep_running))
        });
        call_the_daemon(opener, &fixture, &counts, &keep_running).await;
        for worker in workers {
            worker.join().expect("no panic");
        }
        let (exchanges, name) = (race.stop(), opener.name());
        let [reads, lists, served, rejected, leaks] = [
            &counts.reads,
            &counts.lists,
            &counts.served,
            &counts.rejected,
            &counts.leaks,
        ]
        .map(RaceCounts::get);
        println!(
            "race: {name}, {kind:?}: {reads} reads ({served} served, {rejected} rejected as outside) \
             and {lists} lists in {exchanges} exchanges, {leaks} leaks"
        );
        assert_eq!(
            leaks, 0,
            "{name}, {kind:?}: content from outside was returned"
        );
        assert!(counts.is_raced(kind), "{name}, {kind:?}: this was no race");
    }
}

/// Reads the files with the functions behind `ReadResource`, as often as possible.
fn read_directly(
    opener: OpenMethod,
    fixture: &RaceFixture,
    counts: &RaceCounts,
    keep_running: &dyn Fn() -> bool,
) {
    let allowed = AllowedDirs::with_opener(opener, vec![fixture.root()]);
    let (packages, rules) = (DisabledPackages::default(), DisableRules::default());
    let off = DisabledSkills {
        packages: &packages,
        rules: &rules,
        published: &[],
    };
    let declaring = ManifestFiles::default();
    let rule = ReadRules {
        skipped_dirs: &[],
        follow_links: true,
        disabled_skills: off,
        manifest_files: &declaring,
        is_plugin: false,
        approved_files: None,
    };
    let versions = ReadCaches::default();
    let path = |text: &str| RelPath::new(text.as_bytes()).expect("a relative path");
    while keep_running() {
        for (package, resource) in exchange::FILES {
            let root = allowed
                .resolve(fixture.root().as_os_str().as_bytes())
                .expect("the root exists");
            let page = FilePageRequest {
                package: &path(package),
                resource: &path(resource),
                from: None,
                max_bytes: 4_096,
                unless_digest: None,
                rules: rule,
                max_file_bytes: 4_096,
            };
            let cancel_token = CancellationToken::new();
            let read = read_page(&root, &page, &versions, &cancel_token);
            // The page may come from memory if the file was read often enough.
            let top = fixture.root();
            let cached =
                read_page_cached(&allowed, top.as_os_str().as_bytes(), &page, &versions).map(Ok);
            for read in std::iter::once(read).chain(cached) {
                counts.reads.fetch_add(1, Ordering::Relaxed);
                match read {
                    Ok(read) => {
                        counts.served.fetch_add(1, Ordering::Relaxed);
                        counts.count_leaks(fixture, read.digest.to_string().as_bytes());
                        match read.body {
                            Some(PageBody::Text(text)) => {
                                counts.count_leaks(fixture, text.as_ref());
                            }
                            Some(PageBody::Bytes(bytes)) => {
                                counts.count_leaks(fixture, bytes.as_ref());
                            }
                            None => {}
                        }
                    }
                    Err(FileReadError::Outside) => {
                        counts.rejected.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

/// Scans the root with the daemon's scan function, as often as possible.
fn scan_directly(
    opener: OpenMethod,
    fixture: &RaceFixture,
    counts: &RaceCounts,
    keep_running: &dyn Fn() -> bool,
) {
    let config = Config::from_flags(
        ServeFlags::default(),
        &isolated_env(Path::new("/nonexistent")),
    );
    let target = ScanTarget {
        path: fixture.root().as_os_str().as_bytes().into(),
        rules: config.expect("a valid configuration").search_rules(),
        published: Arc::new([]),
    };
    let allowed = AllowedDirs::with_opener(opener, vec![fixture.root()]);
    while keep_running() {
        let found = scan_root(&allowed, &target, &ScanProgress::new());
        counts.lists.fetch_add(1, Ordering::Relaxed);
        counts.count_leaks(fixture, format!("{found:?}").as_bytes());
    }
}

/// Lists skills and files, and reads, over the wire.
async fn call_the_daemon(
    opener: OpenMethod,
    fixture: &RaceFixture,
    counts: &RaceCounts,
    keep_running: &dyn Fn() -> bool,
) {
    // Without a debounce and with short rechecks, a root that never settles is scanned all the
    // time.
    let timing = WatchTiming {
        debounce: Duration::ZERO,
        max_debounce: Duration::ZERO,
        recheck_interval: Duration::from_millis(10),
        ..WatchTiming::default()
    };
    let setup = Setup {
        timing,
        ..Setup::allowing([fixture.root()])
    };
    let daemon = Daemon::start(setup.with_opener(opener)).await;
    let root = selected("r", fixture.root());
    let list = list_request(std::slice::from_ref(&root));
    while keep_running() {
        check_answer(fixture, counts, daemon.try_list(list.clone()).await);
        counts.lists.fetch_add(1, Ordering::Relaxed);
        for package in ["skill://r/a", "skill://r/b"] {
            let request = files_request(&root, package);
            let request = ListResourcesRequest {
                include_digests: true,
                ..request
            };
            check_answer(fixture, counts, daemon.list_resources(request).await);
        }
        for (package, resource) in exchange::FILES {
            let handle = format!("skill://r/{package}/{resource}");
            let request = read_request(&root, &format!("skill://r/{package}"), &handle);
            check_answer(fixture, counts, daemon.read(request).await);
            counts.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    daemon.stop().await;
}

/// Checks an encoded response, or an error with its details.
fn check_answer(
    fixture: &RaceFixture,
    counts: &RaceCounts,
    answer: Result<impl prost::Message, Status>,
) {
    match answer {
        Ok(answer) => counts.count_leaks(fixture, &answer.encode_to_vec()),
        Err(status) => {
            counts.count_leaks(fixture, status.message().as_bytes());
            counts.count_leaks(fixture, status.details());
        }
    }
}

/// A link of a default root leads to a skill of the project. The skill and a directory without a SKILL.md
/// are exchanged all the time, and so are the skill and a link to a skill outside the project.
async fn no_directory_without_a_skill_is_read_through_a_link(opener: OpenMethod) {
    for place in ["proj/private", "proj/store/link"] {
        let fixture = Fixture::new(
            "dir proj/.agents/skills\nskill proj/store/tidy\nfile proj/store/tidy/x.md\n| Inside.\n\
             file proj/private/x.md\n| secret-of-outside\nskill away/tidy\n\
             file away/tidy/x.md\n| secret-of-outside",
        );
        symlink("../../store/tidy", fixture.path("proj/.agents/skills/tidy")).expect("a link");
        symlink("../../away/tidy", fixture.path("proj/store/link")).expect("a link");
        let [skill, other] = ["proj/store/tidy", place].map(|dir| fixture.path(dir));
        if let Err(error) = exchange::swap_entries(&skill, &other) {
            println!("SKIPPED: files cannot be exchanged on this filesystem: {error}");
            return;
        }

        let env = ProcessEnv {
            current_dir: Some(fixture.path("proj")),
            ..isolated_env(fixture.top())
        };
        let config = Config::from_flags(ServeFlags::default(), &env).expect("a configuration");
        let root = config
            .published_roots
            .iter()
            .find(|root| root.id.as_str() == "repo");
        let root = root.expect("the root of the project");
        let allowed =
            AllowedDirs::with_links(opener, config.allowed_dirs.clone(), &config.published_roots);
        let target = ScanTarget {
            path: root.path.clone(),
            rules: config.search_rules(),
            published: config.published_roots.clone().into(),
        };

        let is_over = Arc::new(AtomicBool::new(false));
        let exchanges = {
            let is_over = is_over.clone();
            thread::spawn(move || {
                let mut exchanges = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    exchange::swap_entries(&skill, &other).expect("an exchange");
                    exchanges += 1;
                }
                exchanges
            })
        };

        let end = Instant::now() + Duration::from_secs_f64(short_or_long(1.0, 10.0));
        let deadline = Instant::now() + HANG_TIMEOUT;
        let (mut served, mut refused, mut listed) = (0, 0, 0);
        let versions = ReadCaches::default();
        while Instant::now() < end || served * refused * listed == 0 && Instant::now() < deadline {
            let found = scan_root(&allowed, &target, &ScanProgress::new());
            let found = found.expect("the root exists");
            listed += usize::from(found.len() == 1);
            assert!(!format!("{found:?}").contains(SECRET), "{place}: listed");
            for _ in 0..100 {
                let resolved = allowed.resolve(&root.path).expect("the root exists");
                match read_small_page(&resolved, "tidy", "x.md", &versions) {
                    Ok(FilePage {
                        body: Some(PageBody::Text(text)),
                        ..
                    }) => {
                        let text: &[u8] = text.as_ref();
                        assert_eq!(text, b"Inside.\n", "{place}: read");
                        served += 1;
                    }
                    Ok(_) => panic!("{place}: a page without text"),
                    Err(_) => refused += 1,
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let exchanges = exchanges.join().expect("no panic");
        println!(
            "race: {}, {place}: {served} served, {refused} refused, {exchanges} exchanges",
            opener.name()
        );
        assert!(
            served > 0 && refused > 0 && listed > 0,
            "{place}: this was no race"
        );
    }
}

/// Reads the first page of a file.
fn read_small_page(
    root: &ResolvedRootDir,
    package: &str,
    resource: &str,
    versions: &ReadCaches,
) -> Result<FilePage, FileReadError> {
    let (packages, disabled) = (DisabledPackages::default(), DisableRules::default());
    let path = |text: &str| RelPath::new(text.as_bytes()).expect("a relative path");
    let page = FilePageRequest {
        package: &path(package),
        resource: &path(resource),
        from: None,
        max_bytes: 4_096,
        unless_digest: None,
        rules: ReadRules {
            skipped_dirs: &[],
            follow_links: true,
            disabled_skills: DisabledSkills {
                packages: &packages,
                rules: &disabled,
                published: &[],
            },
            manifest_files: &ManifestFiles::default(),
            is_plugin: false,
            approved_files: None,
        },
        max_file_bytes: 4_096,
    };
    read_page(root, &page, versions, &CancellationToken::new())
}

/// Reads a path below a root.
type NaiveResolver = fn(&Path, &str) -> Option<Vec<u8>>;

/// Checks that the canonical path is inside, then opens the path.
fn check_then_open(root: &Path, path: &str) -> Option<Vec<u8>> {
    let path = root.join(path);
    let is_inside = path.canonicalize().ok()?.starts_with(root);
    is_inside.then(|| fs::read(path).ok()).flatten()
}

/// Opens the directory of a link, then the link target relative to it, `..` included.
fn open_link_target(root: &Path, path: &str) -> Option<Vec<u8>> {
    let (dir, link) = path.rsplit_once('/')?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, root.join(dir), flags, Mode::empty()).ok()?;
    let target = rustix::fs::readlinkat(&dir, link, Vec::new()).ok()?;
    let file = openat(dir, target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    fs::File::from(file).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Proves that the exchanges race with reads: a naive resolver leaks.
#[test]
fn a_naive_resolver_leaks() {
    assert!(!openers().is_empty());
    for kind in ExchangeKind::ALL {
        let fixture = RaceFixture::new();
        let Some(race) = fixture.start_exchanges(kind) else {
            return;
        };
        let (naive, path): (NaiveResolver, _) = match kind {
            ExchangeKind::Directories => (check_then_open, "a/docs/x.md"),
            ExchangeKind::Files => (check_then_open, "a/x.md"),
            ExchangeKind::Moved => (open_link_target, "a/docs/up.md"),
        };
        let deadline = Instant::now() + HANG_TIMEOUT;
        let mut reads = 0_u64;
        let leaked = loop {
            reads += 1;
            let read = naive(&fixture.root(), path);
            if read.is_some_and(|bytes| fixture.contains_secret(&bytes)) {
                break true;
            }
            if Instant::now() > deadline {
                break false;
            }
        };
        let exchanges = race.stop();
        println!("race: naive, {kind:?}: leaked in read {reads}, in {exchanges} exchanges");
        assert!(
            leaked,
            "{kind:?}: {reads} reads, and nothing of {SECRET}: this is no race"
        );
    }
}
