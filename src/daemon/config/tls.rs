//! Reads the TLS files and `insecure_tcp` of flags and config files.

use super::keys::KeyDefault::{Effect, Required};
use super::keys::KeyValue::Text;
use super::keys::{ConfigKey, key_table};
use super::{ListenAddress, address, record_reading, top_keys};
use caproot_core::document::{
    ConfigError, ConfigErrors, DocumentField, DocumentReader, DocumentSection,
};
use caproot_core::net::certs::{self, CertFileError, CertFileKind};
use std::path::{Path, PathBuf};

// Keys of `tls`.
key_table!(
    KEYS,
    CERTIFICATE = ConfigKey::new(
        "tls.certificate",
        Text("file"),
        Required { example: "server.pem" },
        "Certificate of the daemon, followed by its intermediate certificates.",
    )
    .with_flag("--tls-cert"),
    KEY = ConfigKey::new(
        "tls.key",
        Text("file"),
        Required { example: "server.key" },
        "Private key of the certificate, without a passphrase.",
    )
    .with_flag("--tls-key"),
    CLIENT_CA = ConfigKey::new(
        "tls.client_ca",
        Text("file"),
        Effect { effect: "clients need no certificate", example: "clients.pem" },
        "Authorities of client certificates. If set, clients must present a certificate of one of these \
         authorities.",
    )
    .with_flag("--tls-client-ca"),
);

/// Certificate files of the daemon. Every TCP listener uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of the daemon, in PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, in PEM.
    pub key: PathBuf,
    /// Authorities of client certificates, in PEM. `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns the paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let client_ca = self.client_ca.as_deref();
        [&*self.certificate, &*self.key]
            .into_iter()
            .chain(client_ca)
    }
}

/// Values of `--tls-cert`, `--tls-key`, `--tls-client-ca` and `--insecure-tcp`.
#[derive(Debug, Clone, Default)]
pub struct TlsFlags {
    /// Certificate chain of the daemon.
    pub cert: Option<PathBuf>,
    /// Private key of the certificate.
    pub key: Option<PathBuf>,
    /// Authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether other machines may connect over TCP without TLS.
    pub insecure_tcp: bool,
}

/// TLS settings of flags or of a file.
#[derive(Debug, Default)]
pub struct TlsSettings {
    files: GivenFiles,
    insecure_tcp: bool,
    /// Whether TLS is configured, even if its files are invalid.
    is_requested: bool,
}

/// Absolute paths of the files that flags or a file name.
#[derive(Debug, Default)]
struct GivenFiles {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
}

impl TlsSettings {
    /// Whether other machines may connect to listeners.
    pub fn allows_remote(&self) -> bool {
        self.is_requested || self.insecure_tcp
    }
}

/// Reads `tls` and `insecure_tcp` of a file.
pub fn read(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> TlsSettings {
    let is_requested = top_keys::TLS.field(top).is_some();
    let insecure_tcp = top_keys::INSECURE_TCP.field(top).is_some_and(|item| {
        let insecure_tcp = reader.boolean(&item) == Some(true);
        if insecure_tcp && is_requested {
            let reason = "cannot be combined with `tls`, which every TCP listener uses; remove one";
            reader.report_error(&item, reason);
        }
        insecure_tcp
    });

    let section = top_keys::TLS.section(top, reader);
    let files = section
        .map(|section| read_files(&section, base, reader))
        .unwrap_or_default();
    TlsSettings {
        files,
        insecure_tcp,
        is_requested,
    }
}

fn read_files(
    section: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> GivenFiles {
    let certificate = CERTIFICATE.required_field(section, reader);
    let key = KEY.required_field(section, reader);
    let client_ca = CLIENT_CA.field(section);

    let files = GivenFiles {
        certificate: read_path(certificate.as_ref(), base, reader),
        key: read_path(key.as_ref(), base, reader),
        client_ca: read_path(client_ca.as_ref(), base, reader),
    };
    for error in files.check() {
        let item = match error.kind {
            CertFileKind::Certificate => &certificate,
            CertFileKind::Key => &key,
            CertFileKind::Authorities => &client_ca,
        };
        if let Some(item) = item {
            reader.report_error(item, error.reason);
        }
    }
    files
}

fn read_path(
    item: Option<&DocumentField<'_>>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> Option<PathBuf> {
    reader.parsed(item?, |text| address::absolute_path(text.as_ref(), base))
}

/// Checks the flags, and reads the files that they name.
pub fn check_flags(
    flags: &TlsFlags,
    base: Option<&Path>,
    errors: &mut ConfigErrors,
) -> TlsSettings {
    match (&flags.cert, &flags.key) {
        (Some(_), None) => errors.add(ConfigError::key("--tls-cert", "requires --tls-key FILE")),
        (None, Some(_)) => errors.add(ConfigError::key("--tls-key", "requires --tls-cert FILE")),
        _ => {}
    }

    let mut path = |kind, path: Option<&PathBuf>| {
        let path = path?;
        address::absolute_path(path, base)
            .map_err(|reason| errors.add(file_error(kind, path, &reason)))
            .ok()
    };
    let files = GivenFiles {
        certificate: path(CertFileKind::Certificate, flags.cert.as_ref()),
        key: path(CertFileKind::Key, flags.key.as_ref()),
        client_ca: path(CertFileKind::Authorities, flags.client_ca.as_ref()),
    };

    for error in files.check() {
        let reason = &error.reason;
        errors.add(file_error(error.kind, Path::new(&error.subject), reason));
    }
    TlsSettings {
        files,
        insecure_tcp: flags.insecure_tcp,
        is_requested: flags.cert.is_some() || flags.key.is_some(),
    }
}

fn file_error(kind: CertFileKind, path: &Path, reason: &str) -> ConfigError {
    let flag = match kind {
        CertFileKind::Certificate => "--tls-cert",
        CertFileKind::Key => "--tls-key",
        CertFileKind::Authorities => "--tls-client-ca",
    };
    ConfigError::flag(flag, &path.to_string_lossy(), reason)
}

impl GivenFiles {
    /// Returns the certificate and its key, if both are given.
    fn identity(&self) -> Option<(&Path, &Path)> {
        self.certificate.as_deref().zip(self.key.as_deref())
    }

    /// Reads the files, and returns their errors.
    fn check(&self) -> Vec<CertFileError> {
        let mut errors = Vec::new();
        if let Some((certificate, key)) = self.identity() {
            record_reading(&[certificate, key]);
            if let Err(problems) = certs::load_identity(certificate, key) {
                errors.extend(problems);
            }
        }
        if let Some(file) = &self.client_ca {
            record_reading(&[file]);
            errors.extend(certs::load_authorities(file).err());
        }
        errors
    }
}

/// Merges both settings. Flags replace keys of the file; certificate and key are replaced together.
pub fn merge_flags_and_file(
    flags: &TlsSettings,
    file: &TlsSettings,
    errors: &mut ConfigErrors,
) -> Option<TlsFiles> {
    if flags.insecure_tcp && (flags.is_requested || file.is_requested) {
        let reason = "cannot be combined with TLS, which every TCP listener uses; remove one";
        errors.add(ConfigError::key("--insecure-tcp", reason));
    } else if flags.is_requested && file.insecure_tcp {
        errors.add(ConfigError::key(
            "--tls-cert",
            "cannot be combined with `insecure_tcp` in the file",
        ));
    }

    let client_ca = flags.files.client_ca.as_ref();
    let client_ca = client_ca.or(file.files.client_ca.as_ref());
    let identity = flags.files.identity().or(file.files.identity());

    // An incomplete identity that was requested has an error already.
    if identity.is_none() && client_ca.is_some() && !flags.is_requested && !file.is_requested {
        let reason = "requires --tls-cert FILE and --tls-key FILE";
        errors.add(ConfigError::key("--tls-client-ca", reason));
    }

    identity.map(|(certificate, key)| TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        client_ca: client_ca.cloned(),
    })
}

/// Returns warnings about certificates, or about listeners that other machines can reach without
/// TLS.
pub fn warnings(tls: Option<&TlsFiles>, listeners: &[ListenAddress]) -> Vec<String> {
    if let Some(files) = tls {
        record_reading(&[&files.certificate, &files.key]);
        return certs::load_identity(&files.certificate, &files.key)
            .map(|identity| identity.warnings)
            .unwrap_or_default();
    }

    listeners
        .iter()
        .filter(|listener| address::remote_port(listener).is_some())
        .filter_map(|listener| match listener {
            ListenAddress::Tcp(address) => Some(format!(
                "other machines can connect to tcp:{address} without TLS: an attacker on the network can \
                 read and change all traffic"
            )),
            ListenAddress::Unix(_) | ListenAddress::UnixInOwnDir(_) => None,
        })
        .collect()
}
