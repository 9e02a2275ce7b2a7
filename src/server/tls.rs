//! The TLS configuration: made from the certificate files, and made again when the files change. Open
//! connections keep theirs.

use super::handshake_log::HandshakeLog;
use crate::certs::{self, CertFileError, TlsIdentity, format_time};
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
const WRITE_GRACE: Duration = Duration::from_secs(2);

/// The only protocol that is spoken.
pub(super) const ALPN: &[u8] = b"h2";

/// TLS as it is served now.
#[derive(Debug)]
pub(super) struct ReloadableTls {
    current: Mutex<CurrentTls>,
    /// Held by whoever reads files, so that nobody goes back to those from before.
    read_lock: Mutex<()>,
    /// Clients that were turned away.
    pub(super) handshake_log: HandshakeLog,
}

#[derive(Debug)]
struct CurrentTls {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    expires_at: SystemTime,
    /// The files as they were last read, for good or ill.
    stamps: Stamps,
    is_usable: bool,
}

/// Why files cannot be used. Prints as sentences on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnusableTlsFiles(Vec<CertFileError>);

impl ReloadableTls {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, UnusableTlsFiles> {
        let read = stamps(&files);
        let (config, identity) = make(&files)?;
        log_loaded("serving TLS", &identity, files.client_ca.is_some());
        let (config, until) = (Arc::new(config), identity.expires_at);
        let now = CurrentTls { files, config, expires_at: until, stamps: read, is_usable: true };
        let log = HandshakeLog::default();
        Ok(Self { current: Mutex::new(now), read_lock: Mutex::default(), handshake_log: log })
    }

    /// Uses these files from now on. If they are the files that were read last, nothing happens. If they
    /// cannot be used, nothing changes. Both are logged. Blocks on the disk.
    pub(super) fn reload_files(&self, files: TlsFiles) -> Result<(), UnusableTlsFiles> {
        let _reading = self.read_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stamps(&files);
        if self.with_current(|now| now.files == files && now.stamps == seen && now.is_usable) {
            return Ok(());
        }
        match self.build_newer_config(&files) {
            Ok(made) => {
                self.install_config(files, seen, made);
                Ok(())
            }
            Err(unusable) => {
                self.report_unusable(&files, seen, &unusable);
                Err(unusable)
            }
        }
    }

    /// Makes a configuration, unless its certificate expired before the one in use.
    fn build_newer_config(
        &self,
        files: &TlsFiles,
    ) -> Result<(ServerConfig, TlsIdentity), UnusableTlsFiles> {
        let (config, identity) = make(files)?;
        let expired = identity.expires_at < SystemTime::now();
        if !expired || identity.expires_at >= self.with_current(|now| now.expires_at) {
            return Ok((config, identity));
        }
        let subject = files.certificate.display().to_string();
        let reason =
            format!("expired on {}, before the one in use", format_time(identity.expires_at));
        Err(UnusableTlsFiles(vec![CertFileError {
            kind: certs::CertFileKind::Certificate,
            subject,
            reason,
        }]))
    }

    fn install_config(
        &self,
        files: TlsFiles,
        read: Stamps,
        (config, identity): (ServerConfig, TlsIdentity),
    ) {
        let (config, until) = (Arc::new(config), identity.expires_at);
        let asks_clients = files.client_ca.is_some();
        self.with_current(|now| {
            *now = CurrentTls { files, config, expires_at: until, stamps: read, is_usable: true }
        });
        // Logged after the change: a reader of the log may connect at once.
        log_loaded("the certificates changed; new connections get these", &identity, asks_clients);
    }

    fn report_unusable(&self, files: &TlsFiles, read: Stamps, unusable: &UnusableTlsFiles) {
        tracing::error!("the new certificates are not used, the old ones stay: {unusable}");
        self.with_current(|now| {
            // Other files, named by a config that was refused, are not compared again.
            if now.files == *files {
                (now.stamps, now.is_usable) = (read, false);
            }
        });
    }

    /// Reads the files again whenever they change. Never ends.
    pub(super) async fn watch_files(self: &Arc<Self>) {
        let (watched, mut hints) =
            file_watch::start_file_watcher(|sentence| tracing::warn!("{sentence}"));
        let mut pending: Option<PendingFiles> = None;
        let mut cause = HintCause::Timer;
        loop {
            let (tls, watched, earlier) = (self.clone(), watched.clone(), pending.take());
            // On a thread of its own: a disk may hang.
            let compared = tokio::task::spawn_blocking(move || {
                tls.reload_changed_files(&watched, earlier, cause)
            });
            pending = compared.await.ok().flatten();
            cause = hints
                .wait_for_hint(if pending.is_some() { WRITE_GRACE } else { COMPARE_INTERVAL })
                .await;
        }
    }

    /// Reads the files if they changed. Returns files that cannot be used yet and may still be written.
    fn reload_changed_files(
        &self,
        watched: &WatchedDirs,
        earlier: Option<PendingFiles>,
        cause: HintCause,
    ) -> Option<PendingFiles> {
        let _reading = self.read_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.with_current(|now| now.files.clone());
        watched.watch_only(&file_watch::parent_dirs(files.paths()));
        let seen = stamps(&files);
        if self.with_current(|now| now.stamps == seen) {
            return None;
        }
        let unusable = match self.build_newer_config(&files) {
            Ok(made) => {
                tracing::debug!(found_by = cause.as_str(), "certificate files changed");
                self.install_config(files, seen, made);
                return None;
            }
            Err(unusable) => unusable,
        };
        let earlier = earlier.filter(|earlier| earlier.stamps == seen);
        let since = earlier.map_or_else(Instant::now, |earlier| earlier.changed_at);
        if since.elapsed() < WRITE_GRACE {
            return Some(PendingFiles { stamps: seen, changed_at: since });
        }
        self.report_unusable(&files, seen, &unusable);
        None
    }

    /// For one handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.with_current(|now| now.config.clone()).into()
    }

    fn with_current<T>(&self, look: impl FnOnce(&mut CurrentTls) -> T) -> T {
        // Each change is one assignment, so that a panic elsewhere leaves nothing half done.
        look(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn make(files: &TlsFiles) -> Result<(ServerConfig, TlsIdentity), UnusableTlsFiles> {
    let identity = certs::load_identity(&files.certificate, &files.key);
    let clients = files.client_ca.as_deref().map(certs::load_authorities).transpose();
    let (identity, clients) = match (identity, clients) {
        (Ok(identity), Ok(clients)) => (identity, clients),
        (identity, clients) => {
            let mut problems = identity.err().unwrap_or_default();
            problems.extend(clients.err());
            return Err(UnusableTlsFiles(problems));
        }
    };
    let builder = ServerConfig::builder_with_provider(certs::crypto_provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring has cipher suites for both versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(
                clients.into(),
                certs::crypto_provider(),
            );
            let verifier = verifier.build().expect("a file of authorities holds at least one");
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certified = SingleCertAndKey::from(identity.certified_key.clone());
    let mut config = builder.with_cert_resolver(Arc::new(certified));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Whoever connects proves anew who it is: a session that is resumed would not.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, identity))
}

fn log_loaded(what: &str, identity: &TlsIdentity, asks_clients: bool) {
    let clients = if asks_clients { "required" } else { "none" };
    tracing::info!(
        until = format_time(identity.expires_at),
        client_certificates = clients,
        "{what}"
    );
    for warning in &identity.warnings {
        tracing::warn!("{warning}");
    }
}

/// The stamp of each file; `None` if there is no such file.
type Stamps = Vec<Option<FileStamp>>;

/// Changed files that cannot be used, not reported yet.
#[derive(Debug)]
struct PendingFiles {
    stamps: Stamps,
    changed_at: Instant,
}

fn stamps(files: &TlsFiles) -> Stamps {
    files.paths().map(FileStamp::of_path).collect()
}

impl fmt::Display for UnusableTlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
