//! TLS configuration of the daemon. When the certificate files change, new connections use the new
//! files.

use crate::daemon::config::{TlsFiles, record_reading};
use crate::daemon::telemetry::RateLimitedLog;
use caproot_core::file_watch::{FileChanges, FileStamps, HintCause, stamp_files};
use caproot_core::net::certs::{self, CertFileError, TlsIdentity, format_time};
use caproot_core::sync::{Mutex, run_blocking};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    pub expires_at: watch::Sender<SystemTime>,
    /// Number of the last read. Concurrent readers install files in the order in which the reads
    /// began. No lock is held during a read, because a disk may hang.
    last_read: AtomicU64,
    /// Rate limit of messages about failed handshakes, by address and cause.
    pub handshake_log: RateLimitedLog<(IpAddr, String)>,
}

#[derive(Debug)]
struct CurrentTls {
    config: Arc<ServerConfig>,
    /// Last read, whether the files were usable or not.
    read: TlsRead,
    is_usable: bool,
}

/// Files of one read, and their stamps from before the read.
#[derive(Debug)]
struct TlsRead {
    number: u64,
    files: TlsFiles,
    stamps: FileStamps,
}

/// Configuration from new files, which is not in use yet.
#[derive(Debug)]
pub struct NewTls {
    read: TlsRead,
    config: ServerConfig,
    identity: TlsIdentity,
}

/// New files that cannot be used.
#[derive(Debug)]
struct RejectedTls {
    read: Box<TlsRead>,
    unusable: UnusableTlsFiles,
}

/// Errors of certificate files. Prints on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UnusableTlsFiles(Vec<CertFileError>);

impl ReloadableTls {
    /// Reads the files and builds the first configuration.
    pub fn load(files: TlsFiles) -> Result<Self, UnusableTlsFiles> {
        let read = TlsRead {
            number: 0,
            stamps: stamp_files(&file_paths(&files)),
            files,
        };
        let (config, identity) = build_tls_config(&read.files)?;
        log_loaded("serving TLS", &identity, read.files.client_ca.is_some());
        let current = CurrentTls {
            config: Arc::new(config),
            read,
            is_usable: true,
        };
        Ok(Self {
            current: Mutex::new(current),
            expires_at: watch::Sender::new(identity.expires_at),
            last_read: AtomicU64::new(0),
            handshake_log: RateLimitedLog::new(HANDSHAKE_LOG_INTERVAL, MAX_HANDSHAKE_MESSAGES),
        })
    }

    /// Reads files for [`Self::install`]. Returns `None` if the files are the last ones read. Blocks on
    /// the disk.
    pub fn read_files(&self, files: TlsFiles) -> Result<Option<NewTls>, UnusableTlsFiles> {
        record_reading(&files.paths().collect::<Vec<_>>());
        let read = self.begin_read(files);
        let is_known = {
            let current = self.current.lock();
            let last = &current.read;
            last.files == read.files && last.stamps == read.stamps && current.is_usable
        };
        if is_known {
            return Ok(None);
        }
        self.build_newer_config(read).map(Some).map_err(|rejected| {
            self.record_unusable(*rejected.read);
            rejected.unusable
        })
    }

    fn begin_read(&self, files: TlsFiles) -> TlsRead {
        // Before the stamps: a later read must not have earlier stamps.
        let number = self.last_read.fetch_add(1, Ordering::Relaxed) + 1;
        let stamps = stamp_files(&file_paths(&files));
        TlsRead {
            number,
            files,
            stamps,
        }
    }

    /// Builds a configuration, unless its certificate expired before the certificate in use.
    fn build_newer_config(&self, read: TlsRead) -> Result<NewTls, RejectedTls> {
        let unusable = match build_tls_config(&read.files) {
            Ok((config, identity)) => {
                let expires_at = identity.expires_at;
                if expires_at >= SystemTime::now() || expires_at >= *self.expires_at.borrow() {
                    return Ok(NewTls {
                        read,
                        config,
                        identity,
                    });
                }

                UnusableTlsFiles(vec![CertFileError {
                    kind: certs::CertFileKind::Certificate,
                    subject: read.files.certificate.display().to_string(),
                    reason: format!(
                        "expired on {}, before the certificate in use",
                        format_time(expires_at)
                    ),
                }])
            }
            Err(unusable) => unusable,
        };
        let read = Box::new(read);
        Err(RejectedTls { read, unusable })
    }

    /// Uses new files for new connections, if they are newer than the current files and the current
    /// files satisfy a condition.
    pub fn install(&self, new: NewTls, may_replace: impl FnOnce(&TlsFiles) -> bool) {
        let NewTls {
            read,
            config,
            identity,
        } = new;
        let verifies_clients = read.files.client_ca.is_some();
        {
            let mut current = self.current.lock();
            let last = &current.read;
            let is_older = last.files == read.files && read.number < last.number;
            if is_older || !may_replace(&last.files) {
                return;
            }
            *current = CurrentTls {
                config: Arc::new(config),
                read,
                is_usable: true,
            };
        }

        self.expires_at.send_replace(identity.expires_at);
        // Logged after the change, because a reader of the log may connect at once.
        log_loaded(
            "the certificates changed; new connections use them",
            &identity,
            verifies_clients,
        );
    }

    /// Records that files cannot be used, so that the same files are not reported again.
    fn record_unusable(&self, read: TlsRead) {
        let mut current = self.current.lock();
        // Files of a rejected configuration are not watched.
        if current.read.files == read.files && read.number >= current.read.number {
            current.read = read;
            current.is_usable = false;
        }
    }

    /// Watches the files and reloads changed ones. Never returns.
    pub async fn watch_files(self: &Arc<Self>) {
        let mut changes = FileChanges::start(|sentence| tracing::warn!("{sentence}"));
        loop {
            let (_, cause) = changes
                .wait_for_change(|| self.current.lock().read.stamped_paths())
                .await;

            let tls = self.clone();
            // On a blocking thread, because a disk may hang.
            let reloaded = run_blocking(move || tls.reload_changed_files(cause));
            let Ok(Some(RejectedTls { read, unusable })) = reloaded.await else {
                continue;
            };

            // A program may still be writing the other file.
            let next_change = changes.wait_for_change(|| read.stamped_paths());
            if timeout(WRITE_GRACE, next_change).await.is_err() {
                tracing::error!("invalid new certificates, keeping the old ones: {unusable}");
                self.record_unusable(*read);
            }
        }
    }

    /// Reloads changed files. Returns unusable files.
    fn reload_changed_files(&self, cause: HintCause) -> Option<RejectedTls> {
        let files = self.current.lock().read.files.clone();
        let read = self.begin_read(files);
        if self.current.lock().read.stamps == read.stamps {
            return None;
        }
        match self.build_newer_config(read) {
            Ok(new) => {
                tracing::debug!(found_by = cause.as_str(), "certificate files changed");
                // A reload may have replaced the paths meanwhile.
                let files = new.read.files.clone();
                self.install(new, |current| *current == files);
                None
            }
            Err(rejected) => Some(rejected),
        }
    }

    /// Returns an acceptor with the current configuration.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.current.lock().config.clone().into()
    }
}

impl TlsRead {
    /// Returns the paths of the files, and their stamps.
    fn stamped_paths(&self) -> (Vec<PathBuf>, FileStamps) {
        (file_paths(&self.files), self.stamps.clone())
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
            )
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
