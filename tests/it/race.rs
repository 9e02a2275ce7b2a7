//! Races: directories, files and links are exchanged under the feet of whoever reads and lists. By
//! either way to open files nothing from outside comes out. A resolver that looks first and opens then
//! lets something out, or the race would be none.
//!
//! `CAPROOT_RACE_SECONDS` is how long all of it goes on for each way: 3 by default, 10 in the long form.

mod arena;

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use caproot::catalog::{OpenMethod, WatchTiming};
use caproot::config::{Config, ServeFlags};
use caproot::disk::{
    self, AllowedDirs, DigestCache, DisabledSkills, FilePageRequest, FileReadError, PageBody,
    ReadRules, ScanProgress, ScanTarget,
};
use caproot::domain::{DisableRules, DisabledPackages, ManifestFiles, RelPath};
use caproot::proto::caproot::v1::{ListResourcesRequest, SelectedCapabilityRoot};
use rustix::fs::{CWD, Mode, OFlags, openat};
use tonic::{Response, Status};

use self::arena::{Arena, SECRET, Storm};
use crate::harness::{
    Daemon, HANG_TIMEOUT, Setup, by_both_openers, in_time, isolated_env, list_request, openers,
    read_request, selected, short_or_long,
};

by_both_openers! {
    async fn nothing_from_outside_comes_out;
}

/// How often was tried, and what came of it.
#[derive(Default)]
struct Score {
    reads: AtomicU64,
    lists: AtomicU64,
    /// Of the reads, those that gave what lies inside.
    served: AtomicU64,
    /// Of the reads, those that were refused because something led outside.
    refused: AtomicU64,
    leaks: AtomicU64,
}

impl Score {
    /// Counts an answer as a leak where it holds anything of what lies outside.
    fn judge(&self, arena: &Arena, answer: &[u8]) {
        self.leaks.fetch_add(u64::from(arena.betrays(answer)), Ordering::Relaxed);
    }

    fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// Whether what lies inside was met, and what leads outside too. What was moved out is gone
    /// meanwhile, and leads nowhere.
    fn is_raced(&self, storm: Storm) -> bool {
        let refused = Self::get(&self.refused) > 0 || storm == Storm::Moved;
        refused && Self::get(&self.served) > 0 && Self::get(&self.lists) > 1
    }
}

async fn nothing_from_outside_comes_out(opener: OpenMethod) {
    let seconds = std::env::var("CAPROOT_RACE_SECONDS");
    let seconds: f64 = seconds
        .map_or(short_or_long(3.0, 10.0), |text| text.parse().expect("CAPROOT_RACE_SECONDS"));
    for storm in Storm::ALL {
        let arena = Arc::new(Arena::new());
        let Some(race) = arena.begin(storm) else { return };
        let score = Arc::new(Score::default());
        let end = Instant::now() + Duration::from_secs_f64(seconds / 3.0);
        let late = Instant::now() + HANG_TIMEOUT;
        let goes_on = {
            let score = score.clone();
            move || Instant::now() < end || !score.is_raced(storm) && Instant::now() < late
        };
        let workers = [read_directly, scan_directly].map(|work| {
            let (arena, score, goes_on) = (arena.clone(), score.clone(), goes_on.clone());
            thread::spawn(move || work(opener, &arena, &score, &goes_on))
        });
        ask_the_daemon(opener, &arena, &score, &goes_on).await;
        for worker in workers {
            worker.join().expect("no panic");
        }
        let (exchanges, name) = (race.end(), opener.name());
        let [reads, lists, served, refused, leaks] =
            [&score.reads, &score.lists, &score.served, &score.refused, &score.leaks]
                .map(Score::get);
        println!(
            "race: {name}, {storm:?}: {reads} reads ({served} served, {refused} refused as outside) \
             and {lists} lists in {exchanges} exchanges, {leaks} leaks"
        );
        assert_eq!(leaks, 0, "{name}, {storm:?}: something from outside came out");
        assert!(score.is_raced(storm), "{name}, {storm:?}: this was no race");
    }
}

/// Reads the files in question by what `ReadResource` itself calls, as often as can be.
fn read_directly(opener: OpenMethod, arena: &Arena, score: &Score, goes_on: &dyn Fn() -> bool) {
    let allowed = AllowedDirs::with_opener(opener, vec![arena.root()]);
    let (packages, rules) = (DisabledPackages::default(), DisableRules::default());
    let off = DisabledSkills { packages: &packages, rules: &rules, published: &[] };
    let declaring = ManifestFiles::default();
    let rule = ReadRules {
        skipped_dirs: &[],
        follow_links: true,
        disabled_skills: off,
        manifest_files: &declaring,
        plugin: None,
    };
    let versions = DigestCache::default();
    let path = |text: &str| RelPath::new(text.as_bytes()).expect("a relative path");
    while goes_on() {
        for (package, resource) in arena::FILES {
            let root = allowed.resolve(arena.root().as_os_str().as_bytes()).expect("it is there");
            let page = FilePageRequest {
                package: &path(package),
                resource: &path(resource),
                from: None,
                max_bytes: 4_096,
                unless_digest: None,
                rules: rule,
                max_file_bytes: 4_096,
            };
            let (_waiting, wanted) = disk::CancelToken::new();
            let read = disk::read_page(&root, &page, &versions, &wanted);
            // Out of memory, where that was read often enough to be there.
            let top = arena.root();
            let cached =
                disk::read_page_cached(&allowed, top.as_os_str().as_bytes(), &page, &versions)
                    .map(Ok);
            for read in std::iter::once(read).chain(cached) {
                score.reads.fetch_add(1, Ordering::Relaxed);
                match read {
                    Ok(read) => {
                        score.served.fetch_add(1, Ordering::Relaxed);
                        score.judge(arena, read.digest.to_string().as_bytes());
                        match read.body {
                            Some(PageBody::Text(text)) => score.judge(arena, text.as_ref()),
                            Some(PageBody::Bytes(bytes)) => score.judge(arena, bytes.as_ref()),
                            None => {}
                        }
                    }
                    Err(FileReadError::Outside) => {
                        score.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

/// Searches the root by what the daemon itself calls, as often as can be.
fn scan_directly(opener: OpenMethod, arena: &Arena, score: &Score, goes_on: &dyn Fn() -> bool) {
    let config =
        Config::from_flags(ServeFlags::default(), &isolated_env(Path::new("/nonexistent")));
    let target = ScanTarget {
        path: arena.root().as_os_str().as_bytes().into(),
        rules: config.expect("no flags are good flags").search_rules(),
        published: Arc::new([]),
    };
    let allowed = AllowedDirs::with_opener(opener, vec![arena.root()]);
    while goes_on() {
        let found = disk::scan_root(&allowed, &target, &ScanProgress::new());
        score.lists.fetch_add(1, Ordering::Relaxed);
        score.judge(arena, format!("{found:?}").as_bytes());
    }
}

/// Lists skills and files, and reads, over the wire.
async fn ask_the_daemon(
    opener: OpenMethod,
    arena: &Arena,
    score: &Score,
    goes_on: &dyn Fn() -> bool,
) {
    // A root on which nothing keeps still is looked at again and again.
    let timing = WatchTiming {
        debounce: Duration::ZERO,
        max_debounce: Duration::ZERO,
        recheck_interval: Duration::from_millis(10),
        ..WatchTiming::default()
    };
    let setup = Setup { timing, ..Setup::allowing([arena.root()]) };
    let daemon = Daemon::start(setup.with_opener(opener)).await;
    let root = selected("r", arena.root());
    let list = list_request(std::slice::from_ref(&root));
    while goes_on() {
        judge(arena, score, daemon.try_list(list.clone()).await);
        score.lists.fetch_add(1, Ordering::Relaxed);
        for package in ["skill://r/a", "skill://r/b"] {
            let request = files_request(&root, package);
            let listed = in_time(daemon.client.clone().list_resources(request)).await;
            judge(arena, score, listed.map(Response::into_inner));
        }
        for (package, resource) in arena::FILES {
            let handle = format!("skill://r/{package}/{resource}");
            let request = read_request(&root, &format!("skill://r/{package}"), &handle);
            judge(arena, score, daemon.read(request).await);
            score.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    daemon.stop().await;
}

fn files_request(root: &SelectedCapabilityRoot, package: &str) -> ListResourcesRequest {
    ListResourcesRequest {
        root: Some(root.clone()),
        package: package.to_owned(),
        include_digests: true,
        ..Default::default()
    }
}

/// Judges an answer as it goes over the wire, or an error with its details.
fn judge(arena: &Arena, score: &Score, answer: Result<impl prost::Message, Status>) {
    match answer {
        Ok(answer) => score.judge(arena, &answer.encode_to_vec()),
        Err(status) => {
            score.judge(arena, status.message().as_bytes());
            score.judge(arena, status.details());
        }
    }
}

/// Reads a path below a root.
type Naive = fn(&Path, &str) -> Option<Vec<u8>>;

/// Looks where a path leads, sees that this is inside, and opens the path.
fn looks_first(root: &Path, path: &str) -> Option<Vec<u8>> {
    let path = root.join(path);
    let is_inside = path.canonicalize().ok()?.starts_with(root);
    is_inside.then(|| fs::read(path).ok()).flatten()
}

/// Opens the directory of a link, and what the link says from there, `..` and all.
fn climbs(root: &Path, path: &str) -> Option<Vec<u8>> {
    let (dir, link) = path.rsplit_once('/')?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, root.join(dir), flags, Mode::empty()).ok()?;
    let target = rustix::fs::readlinkat(&dir, link, Vec::new()).ok()?;
    let file = openat(dir, target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    fs::File::from(file).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The test of the test.
#[test]
fn a_naive_resolver_lets_something_out() {
    assert!(!openers().is_empty());
    for storm in Storm::ALL {
        let arena = Arena::new();
        let Some(race) = arena.begin(storm) else { return };
        let (naive, path): (Naive, _) = match storm {
            Storm::Directories => (looks_first, "a/docs/x.md"),
            Storm::Files => (looks_first, "a/x.md"),
            Storm::Moved => (climbs, "a/docs/up.md"),
        };
        let late = Instant::now() + HANG_TIMEOUT;
        let mut reads = 0_u64;
        let leaked = loop {
            reads += 1;
            let read = naive(&arena.root(), path);
            if read.is_some_and(|bytes| arena.betrays(&bytes)) {
                break true;
            }
            if Instant::now() > late {
                break false;
            }
        };
        let exchanges = race.end();
        println!("race: naive, {storm:?}: leaked in read {reads}, in {exchanges} exchanges");
        assert!(leaked, "{storm:?}: {reads} reads, and nothing of {SECRET}: this is no race");
    }
}
