//! Executors of the storm: daemons with a link each, which commands start, change and kill.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use caproot_link::{BrokerConfig, LinkConfig, LinkService, LinkStats};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::super::slim_executor::{SlimCatalogs, SlimExecutor, slim_skill};
use super::{ChildGuard, StormResult, loopback_host};

/// Root of all executors.
pub(crate) const ROOT: &str = "r";

/// Skills of an executor without files.
const SLIM_SKILLS: u64 = 3;

/// Environment, and the number of the executor's start in the storm.
pub(crate) type InstanceKey = (usize, u64);

/// Executors of the storm, the first of which are real daemons.
pub(crate) struct StormExecutors {
    servers: Vec<String>,
    real: usize,
    dir: PathBuf,
    pki: ExecutorPki,
    instances: BTreeMap<InstanceKey, ExecutorInstance>,
}

/// Certificates of the executors. All have one key, because only their names matter.
pub(crate) struct ExecutorPki {
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
}

/// Daemon with its link.
struct ExecutorInstance {
    address: SocketAddr,
    daemon: Option<InstanceDaemon>,
    /// How often the daemon was started.
    starts: u64,
    generation: u64,
    link: Option<InstanceLink>,
}

enum InstanceDaemon {
    Slim(SlimExecutor),
    Real { _process: ChildGuard },
}

struct InstanceLink {
    stats: Arc<LinkStats>,
    stop: oneshot::Sender<()>,
    task: AbortOnDropHandle<()>,
}

pub(crate) fn environment_id(environment: usize) -> String {
    format!("e{environment}")
}

/// URI in the certificate of an environment's executor.
pub(crate) fn spiffe_id(environment: usize) -> String {
    format!(
        "spiffe://example.org/executor/{}",
        environment_id(environment)
    )
}

/// Names of the skills of an executor.
pub(crate) fn skill_names(
    (environment, epoch): InstanceKey,
    generation: u64,
    is_real: bool,
) -> Vec<String> {
    let count = if is_real { 1 } else { SLIM_SKILLS };
    let id = environment_id(environment);
    (0..count)
        .map(|n| format!("{id}.{epoch}.{generation}.{n}"))
        .collect()
}

/// Catalog of an executor without files.
fn slim_catalogs(key: InstanceKey, generation: u64) -> SlimCatalogs {
    let names = skill_names(key, generation, false);
    vec![(
        ROOT,
        names.iter().map(|name| slim_skill(ROOT, name)).collect(),
    )]
}

/// Executors that commands start, change and kill.
pub(crate) trait ExecutorCommands {
    /// Runs a command, such as `start-daemon 3 1` for the first start in the environment 3, and returns its
    /// result.
    fn command(&mut self, line: &str) -> impl Future<Output = StormResult<String>>;
}

impl ExecutorCommands for StormExecutors {
    async fn command(&mut self, line: &str) -> StormResult<String> {
        self.run(line).await
    }
}

impl StormExecutors {
    /// Prepares executors with links to these servers, and their files in a directory. Environments with a
    /// number less than `real` get real daemons.
    pub(crate) fn new(servers: Vec<String>, real: usize, dir: &Path) -> StormResult<Self> {
        Ok(Self {
            servers,
            real,
            dir: dir.to_owned(),
            pki: ExecutorPki::new(dir)?,
            instances: BTreeMap::new(),
        })
    }

    async fn run(&mut self, line: &str) -> StormResult<String> {
        let words: Vec<_> = line.split(' ').collect();
        if words == ["serving"] {
            return Ok(self.serving());
        }
        let [verb, environment, epoch, rest @ ..] = &words[..] else {
            return Err("expected VERB ENVIRONMENT EPOCH".into());
        };
        let key = (environment.parse()?, epoch.parse()?);
        match (*verb, rest) {
            ("start-daemon", []) => self.start_daemon(key).await?,
            ("kill-daemon", []) => self.instance(key).daemon = None,
            ("start-link", []) => self.start_link(key).await?,
            ("kill-link", []) => self.instance(key).link = None,
            ("stop-link", []) => {
                if let Some(InstanceLink { stop, task, .. }) = self.instance(key).link.take() {
                    // A link whose task has ended needs no stop.
                    let _ = stop.send(());
                    task.await?;
                }
            }
            ("change", [generation]) => {
                self.instance(key).generation = generation.parse()?;
                self.apply_change(key)?;
            }
            ("forget", []) => drop(self.instances.remove(&key)),
            _ => return Err("unknown command".into()),
        }
        Ok(String::new())
    }

    fn instance(&mut self, key: InstanceKey) -> &mut ExecutorInstance {
        self.instances
            .entry(key)
            .or_insert_with(|| ExecutorInstance {
                address: SocketAddr::new(loopback_host(80, usize::try_from(key.1).unwrap_or(0)), 0),
                daemon: None,
                starts: 0,
                generation: 0,
                link: None,
            })
    }

    /// Returns the instances whose link serves, as `ENVIRONMENT:EPOCH`.
    fn serving(&self) -> String {
        let is_serving = |instance: &&ExecutorInstance| {
            instance
                .link
                .as_ref()
                .is_some_and(|link| link.stats.served_environments.get() > 0)
        };
        let serving = self
            .instances
            .iter()
            .filter(|(_, instance)| is_serving(instance));
        let serving = serving.map(|((environment, epoch), _)| format!("{environment}:{epoch}"));
        serving.collect::<Vec<_>>().join(" ")
    }

    fn is_real(&self, key: InstanceKey) -> bool {
        key.0 < self.real
    }

    async fn start_daemon(&mut self, key: InstanceKey) -> StormResult<()> {
        let is_real = self.is_real(key);
        let instance = self.instance(key);
        instance.starts += 1;
        let (address, starts, generation) =
            (instance.address, instance.starts, instance.generation);
        let daemon = if is_real {
            self.write_skill(key, generation)?;
            let (process, address) = self.start_real(key, address)?;
            self.instance(key).address = address;
            InstanceDaemon::Real { _process: process }
        } else {
            let (environment, epoch) = key;
            let tls = self.pki.acceptor(environment)?;
            let start = format!("{epoch}.{starts}");
            let catalogs = slim_catalogs(key, generation);
            let slim = SlimExecutor::start(address, Some(tls), &start, catalogs).await?;
            self.instance(key).address = slim.address;
            InstanceDaemon::Slim(slim)
        };
        self.instance(key).daemon = Some(daemon);
        Ok(())
    }

    fn apply_change(&mut self, key: InstanceKey) -> StormResult<()> {
        let instance = self.instance(key);
        let generation = instance.generation;
        match &instance.daemon {
            Some(InstanceDaemon::Slim(slim)) => {
                slim.change(slim_catalogs(key, generation));
                Ok(())
            }
            Some(InstanceDaemon::Real { .. }) => self.write_skill(key, generation),
            // The next start has the generation.
            None => Ok(()),
        }
    }

    fn root(&self, (environment, epoch): InstanceKey) -> PathBuf {
        self.dir
            .join(format!("{}.{epoch}", environment_id(environment)))
    }

    /// Replaces the skill of a real daemon.
    fn write_skill(&self, key: InstanceKey, generation: u64) -> StormResult<()> {
        let root = self.root(key);
        fs::create_dir_all(&root)?;
        let old: Vec<_> = fs::read_dir(&root)?.collect::<Result<_, _>>()?;
        for name in skill_names(key, generation, true) {
            fs::create_dir_all(root.join(&name))?;
            let text = format!("---\nname: {name}\ndescription: A skill. Use it.\n---\n");
            fs::write(root.join(&name).join("SKILL.md"), text)?;
            for dir in old.iter().filter(|dir| dir.file_name() != *name) {
                fs::remove_dir_all(dir.path())?;
            }
        }
        Ok(())
    }

    fn start_real(
        &self,
        key: InstanceKey,
        address: SocketAddr,
    ) -> StormResult<(ChildGuard, SocketAddr)> {
        let (certificate, private_key) = self.pki.issue(key.0)?;
        let base = self.root(key);
        let file = |end: &str| base.with_extension(format!("{}.{end}", key.1));
        fs::write(file("pem"), certificate)?;
        fs::write(file("key"), private_key)?;
        let config = format!(
            "listen: ['tcp:{address}']\nenvironment_ids: [{}]\nlog: {{filter: 'off'}}\n\
             roots: [{{id: {ROOT}, path: '{}'}}]\ntls: {{certificate: '{}', key: '{}'}}\n\
             limits: {{max_connections_per_caller: 512}}\n",
            environment_id(key.0),
            base.display(),
            file("pem").display(),
            file("key").display(),
        );
        fs::write(file("yaml"), config)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.args(["serve", "--config"]).arg(file("yaml"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("stdout is piped")?;
        let process = ChildGuard(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening tcp:")
            .ok_or("no TCP address")?;
        Ok((process, address.parse()?))
    }

    async fn start_link(&mut self, key: InstanceKey) -> StormResult<()> {
        let config = LinkConfig {
            environment_ids: vec![environment_id(key.0)],
            daemon: self.instance(key).address,
            broker: BrokerConfig::new(self.servers.clone()),
            max_tunnels: 512,
            max_dials_per_second: 50,
        };
        let service = LinkService::start(config).await?;
        let stats = service.stats();
        let (stop, stopped) = oneshot::channel();
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // The error is the end of the broker's client, which only the end of the task causes.
            let _ = service.run(async { drop(stopped.await) }).await;
        }));
        self.instance(key).link = Some(InstanceLink { stats, stop, task });
        Ok(())
    }
}

impl ExecutorPki {
    /// Creates an authority, and writes its certificate into the directory.
    pub(crate) fn new(dir: &Path) -> StormResult<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        fs::write(dir.join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self {
            issuer: Issuer::new(params, key),
            key: KeyPair::generate()?,
        })
    }

    /// Issues the certificate of an environment's executor. Returns the certificate and its key.
    pub(crate) fn issue(&self, environment: usize) -> StormResult<(String, String)> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(spiffe_id(environment).try_into()?)];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        Ok((certificate.pem(), self.key.serialize_pem()))
    }

    fn acceptor(&self, environment: usize) -> StormResult<TlsAcceptor> {
        let (certificate, key) = self.issue(environment)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // As the daemon does.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
