//! The TLS configuration: made from the certificate files, and made again when the files change. Open
//! connections keep theirs.

use super::handshake_log::HandshakeLog;
use crate::certs::{self, Identity, Problem, day};
use crate::config::TlsFiles;
use crate::file_watch::{self, COMPARE_INTERVAL, FileStamp, HintCause, WatchedDirs};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::TlsAcceptor;

/// How long unusable files are not reported: a certificate and its key are written one after the other.
const GRACE: Duration = Duration::from_secs(2);

/// The only protocol that is spoken.
pub(super) const ALPN: &[u8] = b"h2";

/// TLS as it is served now.
#[derive(Debug)]
pub(super) struct Tls {
    now: Mutex<Now>,
    /// Held by whoever reads files, so that nobody goes back to those from before.
    reading: Mutex<()>,
    /// Clients that were turned away.
    pub(super) log: HandshakeLog,
}

#[derive(Debug)]
struct Now {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    until: SystemTime,
    /// The files as they were last read, for good or ill.
    read: Stamps,
    is_good: bool,
}

/// Why files cannot be used. Prints as sentences on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unusable(Vec<Problem>);

impl Tls {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, Unusable> {
        let read = stamps(&files);
        let (config, identity) = make(&files)?;
        say_good("serving TLS", &identity, files.client_ca.is_some());
        let (config, until) = (Arc::new(config), identity.until);
        let now = Now { files, config, until, read, is_good: true };
        let log = HandshakeLog::default();
        Ok(Self { now: Mutex::new(now), reading: Mutex::default(), log })
    }

    /// Uses these files from now on. If they are the files that were read last, nothing happens. If they
    /// cannot be used, nothing changes. Both are logged. Blocks on the disk.
    pub(super) fn adopt(&self, files: TlsFiles) -> Result<(), Unusable> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stamps(&files);
        if self.locked(|now| now.files == files && now.read == seen && now.is_good) {
            return Ok(());
        }
        match self.make_newer(&files) {
            Ok(made) => {
                self.install(files, seen, made);
                Ok(())
            }
            Err(unusable) => {
                self.refuse(&files, seen, &unusable);
                Err(unusable)
            }
        }
    }

    /// Makes a configuration, unless its certificate expired before the one in use.
    fn make_newer(&self, files: &TlsFiles) -> Result<(ServerConfig, Identity), Unusable> {
        let (config, identity) = make(files)?;
        let expired = identity.until < SystemTime::now();
        if !expired || identity.until >= self.locked(|now| now.until) {
            return Ok((config, identity));
        }
        let what = files.certificate.display().to_string();
        let reason = format!("expired on {}, before the one in use", day(identity.until));
        Err(Unusable(vec![Problem { part: certs::Part::Certificate, what, reason }]))
    }

    fn install(&self, files: TlsFiles, read: Stamps, (config, identity): (ServerConfig, Identity)) {
        let (config, until) = (Arc::new(config), identity.until);
        let asks_clients = files.client_ca.is_some();
        self.locked(|now| *now = Now { files, config, until, read, is_good: true });
        // Logged after the change: a reader of the log may connect at once.
        say_good("the certificates changed; new connections get these", &identity, asks_clients);
    }

    fn refuse(&self, files: &TlsFiles, read: Stamps, unusable: &Unusable) {
        tracing::error!("the new certificates are not used, the old ones stay: {unusable}");
        self.locked(|now| {
            // Other files, named by a config that was refused, are not compared again.
            if now.files == *files {
                (now.read, now.is_good) = (read, false);
            }
        });
    }

    /// Reads the files again whenever they change. Never ends.
    pub(super) async fn follow(self: &Arc<Self>) {
        let (watched, mut hints) = file_watch::start(|sentence| tracing::warn!("{sentence}"));
        let mut pending: Option<PendingFiles> = None;
        let mut cause = HintCause::Timer;
        loop {
            let (tls, watched, earlier) = (self.clone(), watched.clone(), pending.take());
            // On a thread of its own: a disk may hang.
            let compared =
                tokio::task::spawn_blocking(move || tls.compare(&watched, earlier, cause));
            pending = compared.await.ok().flatten();
            cause = hints.wait(if pending.is_some() { GRACE } else { COMPARE_INTERVAL }).await;
        }
    }

    /// Reads the files if they changed. Returns files that cannot be used yet and may still be written.
    fn compare(
        &self,
        watched: &WatchedDirs,
        earlier: Option<PendingFiles>,
        cause: HintCause,
    ) -> Option<PendingFiles> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.locked(|now| now.files.clone());
        watched.watch_only(&file_watch::parent_dirs(files.all()));
        let seen = stamps(&files);
        if self.locked(|now| now.read == seen) {
            return None;
        }
        let unusable = match self.make_newer(&files) {
            Ok(made) => {
                tracing::debug!(found_by = cause.as_str(), "certificate files changed");
                self.install(files, seen, made);
                return None;
            }
            Err(unusable) => unusable,
        };
        let earlier = earlier.filter(|earlier| earlier.seen == seen);
        let since = earlier.map_or_else(Instant::now, |earlier| earlier.since);
        if since.elapsed() < GRACE {
            return Some(PendingFiles { seen, since });
        }
        self.refuse(&files, seen, &unusable);
        None
    }

    /// For one handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.locked(|now| now.config.clone()).into()
    }

    fn locked<T>(&self, look: impl FnOnce(&mut Now) -> T) -> T {
        // Each change is one assignment, so that a panic elsewhere leaves nothing half done.
        look(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn make(files: &TlsFiles) -> Result<(ServerConfig, Identity), Unusable> {
    let identity = certs::identity(&files.certificate, &files.key);
    let clients = files.client_ca.as_deref().map(certs::authorities).transpose();
    let (identity, clients) = match (identity, clients) {
        (Ok(identity), Ok(clients)) => (identity, clients),
        (identity, clients) => {
            let mut problems = identity.err().unwrap_or_default();
            problems.extend(clients.err());
            return Err(Unusable(problems));
        }
    };
    let builder = ServerConfig::builder_with_provider(certs::provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring has cipher suites for both versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(clients.into(), certs::provider());
            let verifier = verifier.build().expect("a file of authorities holds at least one");
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certified = SingleCertAndKey::from(identity.certified.clone());
    let mut config = builder.with_cert_resolver(Arc::new(certified));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Whoever connects proves anew who it is: a session that is resumed would not.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, identity))
}

fn say_good(what: &str, identity: &Identity, asks_clients: bool) {
    let clients = if asks_clients { "required" } else { "none" };
    tracing::info!(until = day(identity.until), client_certificates = clients, "{what}");
    for warning in &identity.warnings {
        tracing::warn!("{warning}");
    }
}

/// The stamp of each file; `None` if there is no such file.
type Stamps = Vec<Option<FileStamp>>;

/// Changed files that cannot be used, not reported yet.
#[derive(Debug)]
struct PendingFiles {
    seen: Stamps,
    since: Instant,
}

fn stamps(files: &TlsFiles) -> Stamps {
    files.all().map(FileStamp::of_path).collect()
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
