//! Fleet of many executors that die, move, come late and change. Each skill of an executor has the
//! environment id in its name, so that a skill of another executor is noticed in each state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::fleet::RegistryFuture;
use caproot_client::{
    DialLimits, ExecutorConfig, ExecutorRegistry, Fleet, Mirror, MirrorSelection, MirrorSnapshot,
    MirrorState,
};
use caproot_core::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use futures_util::future::{join_all, select_all};
use tokio_util::task::AbortOnDropHandle;

use super::executor;
use crate::harness::fixture::Fixture;
use crate::harness::rng::Rng;
use crate::harness::test_servers::{SlimCatalogs, SlimExecutor, free_port, slim_skill};
use crate::harness::{Daemon, in_time, isolated_env, short_or_long};

/// Number of different images that the executors can have.
const IMAGES: u64 = 4;

/// Registry of the executors that are known now.
#[derive(Clone, Default)]
struct SimulatedRegistry(Arc<Mutex<BTreeMap<String, ExecutorConfig>>>);

impl SimulatedRegistry {
    fn set(&self, id: &str, address: &str) {
        self.0
            .lock()
            .expect("no panic")
            .insert(id.to_owned(), executor(address));
    }

    fn remove(&self, id: &str) {
        self.0.lock().expect("no panic").remove(id);
    }
}

impl ExecutorRegistry for SimulatedRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        let found = self
            .0
            .lock()
            .expect("no panic")
            .get(environment_id)
            .cloned();
        Box::pin(std::future::ready(Ok(found)))
    }
}

/// Running executor.
enum RunningExecutor {
    Slim(SlimExecutor),
    Real(Daemon),
}

/// Environment with its files, its executor and its mirror.
struct SimulatedEnvironment {
    id: String,
    /// Directories of a real executor; `None` for a slim one.
    fixture: Option<Fixture>,
    /// Catalogs of all executors with the same number are equal, except of the root `own`.
    image: u64,
    generation: u64,
    /// How often the executor was started.
    starts: u64,
    running: Option<RunningExecutor>,
    mirror: Mirror,
}

fn select_roots(id: &str) -> Vec<SelectedCapabilityRoot> {
    let root = |root: &str| SelectedCapabilityRoot {
        id: root.to_owned(),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: id.to_owned(),
            path: format!("published:{root}"),
        }),
    };
    vec![root("image"), root("own")]
}

fn image_names(image: u64) -> Vec<String> {
    (0..5).map(|n| format!("image-{image}-{n}")).collect()
}

/// Asserts that a state has no skill of another environment, and the skills of one image. A real
/// executor may show a part of an image, if its directory is replaced during a scan.
fn assert_own_skills(id: &str, is_real: bool, snapshot: &MirrorSnapshot) {
    let names = |root: &str| -> Vec<String> {
        let skills = snapshot.catalog.skills();
        let its = skills.filter(|s| s.authority.as_ref().is_some_and(|a| a.id == root));
        its.map(|skill| skill.name.clone()).collect()
    };
    let own = names("own");
    assert!(
        own.iter().all(|name| name.split('.').next() == Some(id)),
        "{id} has {own:?}"
    );
    let image = names("image");
    let has_all = |names: &Vec<String>| image.iter().all(|name| names.contains(name));
    let mut images = (0..IMAGES).map(image_names);
    let is_one_image = images.any(|names| names == image || is_real && has_all(&names));
    assert!(image.is_empty() || is_one_image, "{id} has {image:?}");
}

impl SimulatedEnvironment {
    fn own_name(&self) -> String {
        format!("{}.{}", self.id, self.generation)
    }

    fn slim_catalogs(&self) -> SlimCatalogs {
        let image = image_names(self.image)
            .iter()
            .map(|name| slim_skill("image", name))
            .collect();
        vec![
            ("image", image),
            ("own", vec![slim_skill("own", &self.own_name())]),
        ]
    }

    /// Writes the directories of a real executor.
    fn write_files(&self, fixture: &Fixture) {
        for (root, names) in [
            ("image", image_names(self.image)),
            ("own", vec![self.own_name()]),
        ] {
            let next = fixture.path(&format!("next-{root}"));
            for name in names {
                let text = format!("---\nname: {name}\ndescription: d\n---\n");
                std::fs::create_dir_all(next.join(&name)).expect("a directory");
                std::fs::write(next.join(&name).join("SKILL.md"), text).expect("a file");
            }
            // The directory with all of its skills is replaced at once.
            let dir = fixture.path(&format!("{root}/all"));
            let old = fixture.path(&format!("old-{root}"));
            drop(std::fs::rename(&dir, &old));
            std::fs::rename(&next, &dir).expect("a directory");
            drop(std::fs::remove_dir_all(&old));
        }
    }

    /// Applies the image and the generation of now.
    fn apply(&self) {
        if let Some(fixture) = &self.fixture {
            self.write_files(fixture);
        }
        if let Some(RunningExecutor::Slim(slim)) = &self.running {
            slim.change(self.slim_catalogs());
        }
    }

    /// Starts the executor at another address.
    async fn start(&mut self, registry: &SimulatedRegistry) {
        self.starts += 1;
        let (running, address) = if let Some(fixture) = &self.fixture {
            let root = |id: &str| RootFlag {
                id: Some(id.to_owned()),
                dir: fixture.path(id),
            };
            let flags = ServeFlags {
                roots: vec![root("image"), root("own")],
                environment_ids: vec![self.id.clone()],
                listen: vec![format!("tcp:{}", free_port())],
                ..ServeFlags::default()
            };
            let env = isolated_env(std::path::Path::new("/nonexistent"));
            let config = Config::from_flags(flags, &env).expect("a valid configuration");
            let daemon = Daemon::start_with(config).await;
            let address = daemon.address.clone();
            (RunningExecutor::Real(daemon), address)
        } else {
            let address = free_port().parse().expect("an address");
            let epoch = format!("{}.{}", self.id, self.starts);
            let slim = SlimExecutor::start(address, None, &epoch, self.slim_catalogs()).await;
            let slim = slim.expect("a free port");
            let address = slim.address.to_string();
            (RunningExecutor::Slim(slim), address)
        };
        self.running = Some(running);
        registry.set(&self.id, &address);
    }

    async fn stop(&mut self) {
        match self.running.take() {
            Some(RunningExecutor::Real(daemon)) => daemon.stop().await,
            Some(RunningExecutor::Slim(slim)) => drop(slim),
            None => {}
        }
    }

    /// Waits until the mirror is live with the skills of now.
    async fn wait_until_right(&self) {
        let mut expected = image_names(self.image);
        expected.push(self.own_name());
        let mut mirror = self.mirror.clone();
        in_time(async {
            loop {
                let snapshot = mirror.snapshot();
                let names = snapshot.catalog.skills().map(|skill| skill.name.as_str());
                if snapshot.state == MirrorState::Live && names.eq(&expected) {
                    return;
                }
                mirror.changed().await;
            }
        })
        .await;
    }
}

/// Checks each state of a mirror.
fn check_all_states(
    (id, is_real): (&str, bool),
    mut mirror: Mirror,
    states: Arc<AtomicU64>,
) -> AbortOnDropHandle<()> {
    let id = id.to_owned();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let snapshot = mirror.changed().await;
            assert_own_skills(&id, is_real, &snapshot);
            states.fetch_add(1, Ordering::Relaxed);
        }
    }))
}

/// Waits until mirrors are live and right. Panics if a check failed.
async fn wait_until_all_right(
    environments: impl Iterator<Item = &SimulatedEnvironment>,
    checks: &mut [AbortOnDropHandle<()>],
) {
    let right = join_all(environments.map(SimulatedEnvironment::wait_until_right));
    tokio::select! {
        _ = right => {}
        (ended, ..) = select_all(checks) => panic!("{ended:?}"),
    }
}

/// Executors die, move, come late, change their skills and get other images, while a mirror of each
/// is checked. In the end, all mirrors are live and right.
#[tokio::test(flavor = "multi_thread")]
async fn no_mirror_has_skills_of_another_environment() {
    let seed = std::env::var("CAPROOT_FLEET_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (slim, real, steps, quiets) = short_or_long((40, 2, 200, 10), (950, 50, 3_000, 5));
    println!("{slim} slim and {real} real executors, {steps} steps, CAPROOT_FLEET_SEED={seed}");
    let start = Instant::now();
    let mut rng = Rng::new(seed);
    let registry = SimulatedRegistry::default();
    let limits = DialLimits {
        dials_at_once: 256,
        dials_per_second: 10_000,
    };
    let fleet = Fleet::new(registry.clone()).with_dial_limits(limits);
    let (states, mut checks) = (Arc::<AtomicU64>::default(), Vec::new());
    let mut environments: Vec<_> = (0..slim + real)
        .map(|n| {
            let id = format!("e{n}");
            let mirror = fleet.mirror(&id, MirrorSelection::new(select_roots(&id)));
            checks.push(check_all_states(
                (&id, n < real),
                mirror.clone(),
                states.clone(),
            ));
            let fixture = (n < real).then(|| Fixture::new("dir image\ndir own"));
            let image = rng.below(IMAGES);
            let environment = SimulatedEnvironment {
                id,
                fixture,
                image,
                generation: 0,
                starts: 0,
                running: None,
                mirror,
            };
            environment.apply();
            environment
        })
        .collect();
    for step in 0..steps {
        let at = usize::try_from(rng.below(environments.len() as u64)).expect("an index");
        let environment = &mut environments[at];
        match rng.below(6) {
            // The registry may know a dead executor, or may not know it.
            0 => {
                environment.stop().await;
                if rng.one_in(2) {
                    registry.remove(&environment.id);
                }
            }
            1 => environment.generation += 1,
            2 => environment.image = rng.below(IMAGES),
            // An executor that runs moves: the mirror follows when the old executor dies.
            _ => {
                let old = environment.running.take();
                environment.start(&registry).await;
                if let Some(RunningExecutor::Real(daemon)) = old {
                    daemon.stop().await;
                }
            }
        }
        environment.apply();
        if step % (steps / quiets) == 0 {
            wait_until_all_right(
                environments.iter().filter(|e| e.running.is_some()),
                &mut checks,
            )
            .await;
        }
    }
    for environment in environments.iter_mut().filter(|e| e.running.is_none()) {
        environment.start(&registry).await;
    }
    wait_until_all_right(environments.iter(), &mut checks).await;
    let numbers = fleet.stats();
    let checked = states.load(Ordering::Relaxed);
    println!(
        "{checked} states checked in {:?}; {numbers:?}",
        start.elapsed()
    );
    assert_eq!(
        (numbers.mirrors, numbers.rejected_catalogs),
        (environments.len(), 0)
    );
    assert!(
        numbers.catalog_hits > 0,
        "executors of one image share its catalog"
    );
    drop(checks);
    for environment in &mut environments {
        environment.stop().await;
    }
}
