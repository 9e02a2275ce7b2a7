//! Measures the search of a session in 20,000 skills: with an index, after a change, and the first one.
//! Words and queries are those of `tests/search`, and a quarter of the words are rare.

use super::process_memory::resident_kib;
use caproot_client::Fleet;
use caproot_core::proto::caproot::v1::{Authority, Skill};
use caproot_session::sources::{SkillListing, SourceSnapshot, TextPage, TextPageRequest};
use caproot_session::{Session, SessionOptions, SkillSource, SourceKind, ToolError};
use criterion::Criterion;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const SKILLS: usize = 20_000;
/// Number of measured searches of each row.
const WARM_SEARCHES: usize = 2_000;
const CHANGES: usize = 200;
const FIRST_SEARCHES: usize = 20;
/// Number of rare words. A real catalog has about as many terms.
const RARE_WORDS: usize = 34_000;

const TEXTS: &str = include_str!("../../tests/search/skills.txt");
const QUERIES: &str = include_str!("../../tests/search/queries.txt");

/// Source whose skills the bench replaces.
#[derive(Debug)]
struct ReplacedSource(Mutex<Arc<SkillListing>>);

impl SkillSource for ReplacedSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Executor
    }

    fn id(&self) -> &'static str {
        "bench"
    }

    fn authorities(&self) -> Vec<String> {
        vec!["bench".to_owned()]
    }

    fn snapshot(&self) -> SourceSnapshot {
        SourceSnapshot {
            listing: self.0.lock().expect("no panic").clone(),
            unavailable_reason: None,
        }
    }

    fn read_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read_page<'a>(
        &'a self,
        _: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(std::future::pending())
    }
}

/// Session on a replaced source.
struct SearchBench {
    runtime: Runtime,
    source: Arc<ReplacedSource>,
    session: Session,
}

impl SearchBench {
    fn new(skills: Vec<Arc<Skill>>) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let source = Arc::new(ReplacedSource(Mutex::default()));
        let sources = vec![source.clone() as Arc<dyn SkillSource>];
        let fleet = Fleet::from_executors([]);
        let options = SessionOptions::default();
        let start = Session::start_with(&fleet, Vec::new(), sources, &options);
        let session = runtime.block_on(start).expect("a session");
        let bench = Self {
            runtime,
            source,
            session,
        };
        bench.replace(skills);
        bench
    }

    fn replace(&self, skills: Vec<Arc<Skill>>) {
        *self.source.0.lock().expect("no panic") = Arc::new(SkillListing {
            skills,
            ..SkillListing::default()
        });
    }

    /// Returns how long a search takes.
    fn search(&self, query: &str) -> Duration {
        let start = Instant::now();
        let found = self.runtime.block_on(self.session.search_skills(query, 10));
        let duration = start.elapsed();
        assert!(!found.expect("a query").is_empty(), "{query}");
        duration
    }

    /// Makes the view of the current skills, which is no part of a search.
    fn make_view(&self) {
        assert_eq!(self.session.instruction_text(0).omitted, SKILLS);
    }
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss)] // rows of the bench
pub(crate) fn bench_skill_search(criterion: &mut Criterion) {
    let skills = make_skills();
    let queries = make_queries();

    let before = kib_of_values();
    let bench = SearchBench::new(skills.clone());
    bench.make_view();
    let with_view = kib_of_values();
    let first = bench.search(queries[0]);
    let with_index = kib_of_values();
    println!(
        "search in {SKILLS} skills: view {:.0} bytes a skill, index {:.0} bytes a skill (resident), \
         very first search {first:?}",
        (with_view - before) * 1_024.0 / SKILLS as f64,
        (with_index - with_view) * 1_024.0 / SKILLS as f64,
    );

    let warm = queries.iter().cycle().take(WARM_SEARCHES);
    print_row("warm", warm.map(|query| bench.search(query)).collect());

    let changed = (0..CHANGES).map(|change| {
        let mut skills = skills.clone();
        skills[change * 97 % SKILLS] =
            make_skill(SKILLS + change, &mut Rng::with_seed(change as u64));
        skills[change * 97 % SKILLS + 1] = skills[change * 97 % SKILLS].clone();
        bench.replace(skills);
        bench.make_view();
        bench.search(queries[change % queries.len()])
    });
    print_row("after a change", changed.collect());
    drop(bench);

    let first = (0..FIRST_SEARCHES).map(|_| {
        let bench = SearchBench::new(skills.clone());
        bench.make_view();
        bench.search(queries[0])
    });
    print_row("first", first.collect());

    let bench = SearchBench::new(skills);
    bench.search(queries[0]);
    let mut next = queries.iter().cycle();
    criterion.bench_function("search/20,000 skills, warm", |bencher| {
        bencher.iter(|| bench.search(next.next().expect("a query")));
    });
}

/// Returns the resident memory in KiB, without free memory that the allocator keeps.
#[allow(unsafe_code)]
fn kib_of_values() -> f64 {
    // SAFETY: takes no pointers, and is thread-safe: malloc_trim(3).
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    resident_kib("self").expect("memory")
}

#[allow(clippy::print_stdout)] // a row of the bench
fn print_row(title: &str, mut durations: Vec<Duration>) {
    durations.sort();
    let at = |percent: usize| durations[(durations.len() * percent / 100).min(durations.len() - 1)];
    println!(
        "search in {SKILLS} skills, {title}: median {:?}, p99 {:?}, longest {:?}, n = {}",
        at(50),
        at(99),
        at(100),
        durations.len()
    );
}

/// Returns keywords, names and misspelled names.
fn make_queries() -> Vec<&'static str> {
    let keywords = QUERIES.lines().filter_map(|line| line.split_once(": "));
    let names = TEXTS.lines().filter_map(|line| line.split_once(": "));
    keywords
        .map(|(_, query)| query)
        .chain(names.map(|(name, _)| name).take(20))
        .chain([
            "kuberntes pod debgu",
            "pdf-form-filing",
            "postgress slow qurey",
        ])
        .collect()
}

fn make_skills() -> Vec<Arc<Skill>> {
    let mut rng = Rng::with_seed(1);
    (0..SKILLS)
        .map(|number| make_skill(number, &mut rng))
        .collect()
}

fn make_skill(number: usize, rng: &mut Rng) -> Arc<Skill> {
    let texts: Vec<_> = TEXTS
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    let (name, _) = texts[rng.usize(..texts.len())];
    let mut words = Vec::new();
    while words.len() < 32 {
        let (_, text) = texts[rng.usize(..texts.len())];
        let common: Vec<_> = text.split(' ').collect();
        words.extend((0..3).map(|_| common[rng.usize(..common.len())].to_owned()));
        words.push(format!("w{:x}", rng.usize(..RARE_WORDS) * 7_919));
    }

    let package = format!("skill://bench/{number}");
    Arc::new(Skill {
        authority: Some(Authority {
            kind: "executor".to_owned(),
            id: "bench".to_owned(),
        }),
        main_resource: format!("{package}/SKILL.md"),
        package,
        name: format!("{name}-{}", rng.usize(..100)),
        description: words.join(" "),
        user_invocable: true,
        ..Skill::default()
    })
}
