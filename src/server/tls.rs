//! TLS configuration of the daemon. When the certificate files change, new connections use the new
//! files.

use crate::config::TlsFiles;
use crate::file_watch::{FileChanges, FileStamps, HintCause, stamp_files};
use crate::net::certs::{self, CertFileError, TlsIdentity, format_time};
use crate::sync::Mutex;
use crate::telemetry::RateLimitedLog;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Time for which unusable files are not reported, because a certificate and its key are written
/// one after the other.
const WRITE_GRACE: Duration = Duration::from_secs(2);

/// Most messages about failed handshakes within the interval, for all addresses.
const MAX_HANDSHAKE_MESSAGES: usize = 10;
const HANDSHAKE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// ALPN name of HTTP/2, the only supported protocol.
pub const ALPN: &[u8] = b"h2";

/// TLS configuration that can be replaced.
#[derive(Debug)]
pub struct ReloadableTls {
    current: Mutex<CurrentTls>,
    /// Expiry of the certificate in use.
    expires_at: watch::Sender<SystemTime>,
    /// Held while reading files, so that concurrent readers install files in the order of reading.
    read_lock: Mutex<()>,
    /// Rate limit of messages about failed handshakes, by address and cause.
    pub handshake_log: RateLimitedLog<(IpAddr, String)>,
}

#[derive(Debug)]
struct CurrentTls {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    /// Stamps of the files at the last read, whether the files were usable or not.
    stamps: FileStamps,
    is_usable: bool,
}

/// Errors of certificate files. Prints on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableTlsFiles(Vec<CertFileError>);

impl ReloadableTls {
    /// Reads the files and builds the first configuration.
    pub fn load(files: TlsFiles) -> Result<Self, UnusableTlsFiles> {
        let new_stamps = stamp_files(&file_paths(&files));
        let (config, identity) = build_tls_config(&files)?;
        log_loaded("serving TLS", &identity, files.client_ca.is_some());
        let config = Arc::new(config);
        let current = CurrentTls {
            files,
            config,
            stamps: new_stamps,
            is_usable: true,
        };
        Ok(Self {
            current: Mutex::new(current),
            expires_at: watch::Sender::new(identity.expires_at),
            read_lock: Mutex::default(),
            handshake_log: RateLimitedLog::new(HANDSHAKE_LOG_INTERVAL, MAX_HANDSHAKE_MESSAGES),
        })
    }

    /// Replaces the files. Does nothing if the files are the last ones read. If the new files are
    /// unusable, keeps the old configuration. Logs the result. Blocks on the disk.
    pub fn reload_files(&self, files: TlsFiles) -> Result<(), UnusableTlsFiles> {
        let _reading = self.read_lock.lock();
        let new_stamps = stamp_files(&file_paths(&files));
        if self.with_current(|current| {
            current.files == files && current.stamps == new_stamps && current.is_usable
        }) {
            return Ok(());
        }
        match self.build_newer_config(&files) {
            Ok(built) => {
                self.install_config(files, new_stamps, built);
                Ok(())
            }
            Err(unusable) => {
                self.report_unusable(&files, new_stamps, &unusable);
                Err(unusable)
            }
        }
    }

    /// Builds a configuration, unless its certificate expired before the certificate in use.
    fn build_newer_config(
        &self,
        files: &TlsFiles,
    ) -> Result<(ServerConfig, TlsIdentity), UnusableTlsFiles> {
        let (config, identity) = build_tls_config(files)?;
        let expired = identity.expires_at < SystemTime::now();
        if !expired || identity.expires_at >= *self.expires_at.borrow() {
            return Ok((config, identity));
        }
        let subject = files.certificate.display().to_string();
        let reason = format!(
            "expired on {}, before the certificate in use",
            format_time(identity.expires_at)
        );
        Err(UnusableTlsFiles(vec![CertFileError {
            kind: certs::CertFileKind::Certificate,
            subject,
            reason,
        }]))
    }

    fn install_config(
        &self,
        files: TlsFiles,
        new_stamps: FileStamps,
        (config, identity): (ServerConfig, TlsIdentity),
    ) {
        let config = Arc::new(config);
        let verifies_clients = files.client_ca.is_some();
        self.with_current(|current| {
            *current = CurrentTls {
                files,
                config,
                stamps: new_stamps,
                is_usable: true,
            }
        });
        self.expires_at.send_replace(identity.expires_at);
        // Logged after the change, because a reader of the log may connect at once.
        log_loaded(
            "the certificates changed; new connections use them",
            &identity,
            verifies_clients,
        );
    }

    fn report_unusable(
        &self,
        files: &TlsFiles,
        new_stamps: FileStamps,
        unusable: &UnusableTlsFiles,
    ) {
        tracing::error!("invalid new certificates, keeping the old ones: {unusable}");
        self.with_current(|current| {
            // Files of a rejected configuration are not watched.
            if current.files == *files {
                (current.stamps, current.is_usable) = (new_stamps, false);
            }
        });
    }

    /// Watches the files and reloads changed ones. Never returns.
    pub async fn watch_files(self: &Arc<Self>) {
        let mut changes = FileChanges::start(|sentence| tracing::warn!("{sentence}"));
        let last_read =
            || self.with_current(|current| (file_paths(&current.files), current.stamps.clone()));
        loop {
            let (_, cause) = changes.wait_for_change(last_read).await;
            let tls = self.clone();
            // On a blocking thread, because a disk may hang.
            let reloaded = tokio::task::spawn_blocking(move || tls.reload_changed_files(cause));
            let Ok(Some((files, stamps, unusable))) = reloaded.await else {
                continue;
            };
            // A program may still be writing the other file.
            let next_change = changes.wait_for_change(|| (file_paths(&files), stamps.clone()));
            if timeout(WRITE_GRACE, next_change).await.is_err() {
                self.report_unusable(&files, stamps, &unusable);
            }
        }
    }

    /// Reloads changed files. Returns unusable files.
    fn reload_changed_files(
        &self,
        cause: HintCause,
    ) -> Option<(TlsFiles, FileStamps, UnusableTlsFiles)> {
        let _reading = self.read_lock.lock();
        let files = self.with_current(|current| current.files.clone());
        let new_stamps = stamp_files(&file_paths(&files));
        if self.with_current(|current| current.stamps == new_stamps) {
            return None;
        }
        match self.build_newer_config(&files) {
            Ok(built) => {
                tracing::debug!(found_by = cause.as_str(), "certificate files changed");
                self.install_config(files, new_stamps, built);
                None
            }
            Err(unusable) => Some((files, new_stamps, unusable)),
        }
    }

    /// Subscribes to the expiry of the certificate in use.
    pub fn subscribe_expiry(&self) -> watch::Receiver<SystemTime> {
        self.expires_at.subscribe()
    }

    /// Returns an acceptor with the current configuration.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.with_current(|current| current.config.clone()).into()
    }

    fn with_current<T>(&self, access: impl FnOnce(&mut CurrentTls) -> T) -> T {
        // Each change is one assignment, so a panic cannot leave a partial change.
        access(&mut self.current.lock())
    }
}

fn build_tls_config(files: &TlsFiles) -> Result<(ServerConfig, TlsIdentity), UnusableTlsFiles> {
    let identity = certs::load_identity(&files.certificate, &files.key);
    let clients = files
        .client_ca
        .as_deref()
        .map(certs::load_authorities)
        .transpose();
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
            let verifier = verifier
                .build()
                .expect("`load_authorities` returns at least one authority");
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certified = SingleCertAndKey::from(identity.certified_key.clone());
    let mut config = builder.with_cert_resolver(Arc::new(certified));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Without resumption, because a resumed session would not verify the client certificate again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, identity))
}

fn log_loaded(event: &str, identity: &TlsIdentity, verifies_clients: bool) {
    let clients = if verifies_clients { "required" } else { "none" };
    tracing::info!(
        until = format_time(identity.expires_at),
        client_certificates = clients,
        "{event}"
    );
    for warning in &identity.warnings {
        tracing::warn!("{warning}");
    }
}

fn file_paths(files: &TlsFiles) -> Vec<PathBuf> {
    files.paths().map(Path::to_owned).collect()
}

impl fmt::Display for UnusableTlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
