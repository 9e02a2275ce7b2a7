//! What TLS is served with: made from files, and made anew when they change; connections that are open
//! stay as they are. Leaves handshakes to `handshake`, and what is wrong with a file to `certs`.

use super::handshake_log::HandshakeLog;
use crate::certs::{self, Identity, Problem, day};
use crate::config::TlsFiles;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at. What changed is read at the next look at which nothing changed
/// any more: a certificate and its key are written one after the other.
const LOOK: Duration = Duration::from_secs(2);

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

    /// Goes by these files from now on. Where they are those that were read last, nothing is done. What
    /// cannot be used leaves everything as it was; both are logged. Blocks on the disk.
    pub(super) fn adopt(&self, files: TlsFiles) -> Result<(), Unusable> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stamps(&files);
        if self.locked(|now| now.files == files && now.read == seen && now.is_good) {
            return Ok(());
        }
        self.read(files, seen)
    }

    /// Reads files, which then are those that are looked at.
    fn read(&self, files: TlsFiles, read: Stamps) -> Result<(), Unusable> {
        let made = make(&files).and_then(|(config, identity)| {
            let expired = identity.until < SystemTime::now();
            let until = self.locked(|now| now.until);
            if !expired || identity.until >= until {
                return Ok((config, identity));
            }
            let what = files.certificate.display().to_string();
            let reason = format!("expired on {}, before the one in use", day(identity.until));
            Err(Unusable(vec![Problem { part: certs::Part::Certificate, what, reason }]))
        });
        match made {
            Ok((config, identity)) => {
                let (config, until) = (Arc::new(config), identity.until);
                let asks_clients = files.client_ca.is_some();
                self.locked(|now| *now = Now { files, config, until, read, is_good: true });
                // Only now: whoever reads it may connect at once.
                let what = "the certificates changed; new connections get these";
                say_good(what, &identity, asks_clients);
                Ok(())
            }
            Err(unusable) => {
                tracing::error!("the new certificates are not used, the old ones stay: {unusable}");
                self.locked(|now| {
                    // Others that were asked for are refused, and not looked at again.
                    if now.files == files {
                        (now.read, now.is_good) = (read, false);
                    }
                });
                Err(unusable)
            }
        }
    }

    /// Reads the files again whenever they change. Never ends.
    pub(super) async fn follow(self: &Arc<Self>) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = None;
        loop {
            looks.tick().await;
            let (tls, last) = (self.clone(), before.take());
            // Elsewhere: a disk may hang.
            let looked = tokio::task::spawn_blocking(move || {
                let _reading = tls.reading.lock().unwrap_or_else(PoisonError::into_inner);
                let files = tls.locked(|now| now.files.clone());
                let seen = stamps(&files);
                let is_settled = last.as_ref() == Some(&seen);
                if is_settled && tls.locked(|now| now.read != seen) {
                    // Said already, and there is nobody else to tell.
                    drop(tls.read(files, seen.clone()));
                }
                seen
            });
            before = looked.await.ok();
        }
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

/// What tells one state of the files from another; `None` where one cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamps(Vec<Option<[i128; 5]>>);

fn stamps(files: &TlsFiles) -> Stamps {
    let stamp = |file: &Path| {
        let found = std::fs::metadata(file).ok()?;
        let time =
            |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Some([
            found.dev().into(),
            found.ino().into(),
            found.size().into(),
            time(found.mtime(), found.mtime_nsec()),
            time(found.ctime(), found.ctime_nsec()),
        ])
    };
    Stamps(files.all().map(stamp).collect())
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
