//! Reads the TLS files and `insecure_tcp` of flags and config files.

use super::keys::{self, ConfigKey, KeyDefault, KeyReload, KeyValue};
use super::{ListenAddress, address, record_reading};
use caproot_core::document::{
    ConfigError, ConfigErrors, DocumentField, DocumentReader, DocumentSection,
};
use caproot_core::net::certs::{self, CertFileError, CertFileKind};
use std::path::{Path, PathBuf};

/// Keys of `tls`.
pub const KEYS: [ConfigKey; 3] = [
    ConfigKey::new(
        "tls.certificate",
        KeyValue::Text("file"),
        KeyDefault::Required { example: "server.pem" },
        "Certificate of the daemon, followed by its intermediate certificates.",
    )
    .with_flag("--tls-cert")
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "tls.key",
        KeyValue::Text("file"),
        KeyDefault::Required { example: "server.key" },
        "Private key of the certificate, without a passphrase.",
    )
    .with_flag("--tls-key")
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "tls.client_ca",
        KeyValue::Text("file"),
        KeyDefault::Effect { effect: "clients need no certificate", example: "clients.pem" },
        "Authorities of client certificates. If set, clients must present a certificate of one of these \
         authorities.",
    )
    .with_flag("--tls-client-ca")
    .with_reload(KeyReload::Section),
];

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
    certificate_and_key: Option<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    insecure_tcp: bool,
    /// Whether TLS is configured, even if its files are invalid.
    is_requested: bool,
}

impl TlsSettings {
    /// Whether other machines may connect to listeners.
    pub fn allows_remote(&self) -> bool {
        self.is_requested || self.insecure_tcp
    }
}

/// Reads `tls` and `insecure_tcp` of a file.
pub fn read(
    section: Option<DocumentField<'_>>,
    insecure_item: Option<&DocumentField<'_>>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> TlsSettings {
    let insecure_tcp = insecure_item
        .and_then(|item| reader.boolean(item))
        .unwrap_or_default();
    if let (Some(item), true) = (insecure_item, insecure_tcp && section.is_some()) {
        reader.report_error(
            item,
            "cannot be combined with `tls`, which every TCP listener uses; remove one",
        );
    }
    let tls = section.is_some();
    let section = section.and_then(|item| reader.section(&item, keys::names(&KEYS)));
    let (certificate_and_key, client_ca) = match section {
        Some(section) => files(&section, base, reader),
        None => (None, None),
    };
    TlsSettings {
        certificate_and_key,
        client_ca,
        insecure_tcp,
        is_requested: tls,
    }
}

fn files(
    section: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> (Option<(PathBuf, PathBuf)>, Option<PathBuf>) {
    let certificate = reader.required(section, "certificate");
    let key = reader.required(section, "key");
    let client_ca = section.get("client_ca");
    let mut path = |item: &Option<DocumentField<'_>>| {
        let item = item.as_ref()?;
        reader.parsed(item, |text| address::absolute_path(text.as_ref(), base))
    };
    let certificate_and_key = path(&certificate).zip(path(&key));
    let authorities = path(&client_ca);
    for error in check_files(certificate_and_key.as_ref(), authorities.as_deref()) {
        let item = match error.kind {
            CertFileKind::Certificate => &certificate,
            CertFileKind::Key => &key,
            CertFileKind::Authorities => &client_ca,
        };
        if let Some(item) = item {
            reader.report_error(item, error.reason);
        }
    }
    (certificate_and_key, authorities)
}

/// Checks the flags, and reads the files that they name.
pub fn check_flags(
    flags: &TlsFlags,
    base: Option<&Path>,
    errors: &mut ConfigErrors,
) -> TlsSettings {
    let tls = flags.cert.is_some() || flags.key.is_some();
    match (&flags.cert, &flags.key) {
        (Some(_), None) => errors.add(ConfigError::key("--tls-cert", "requires --tls-key FILE")),
        (None, Some(_)) => errors.add(ConfigError::key("--tls-key", "requires --tls-cert FILE")),
        _ => {}
    }
    let mut path = |kind, path: Option<&PathBuf>| {
        let path = path?;
        let report = |reason: String| errors.add(file_error(kind, path, &reason));
        address::absolute_path(path, base).map_err(report).ok()
    };
    let certificate = path(CertFileKind::Certificate, flags.cert.as_ref());
    let certificate_and_key = certificate.zip(path(CertFileKind::Key, flags.key.as_ref()));
    let client_ca = path(CertFileKind::Authorities, flags.client_ca.as_ref());
    for CertFileError {
        kind,
        subject,
        reason,
    } in check_files(certificate_and_key.as_ref(), client_ca.as_deref())
    {
        errors.add(file_error(kind, Path::new(&subject), &reason));
    }
    TlsSettings {
        certificate_and_key,
        client_ca,
        insecure_tcp: flags.insecure_tcp,
        is_requested: tls,
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

fn check_files(
    certificate_and_key: Option<&(PathBuf, PathBuf)>,
    client_ca: Option<&Path>,
) -> Vec<CertFileError> {
    let mut errors = Vec::new();
    if let Some((certificate, key)) = certificate_and_key {
        record_reading(&[certificate, key]);
        errors.extend(
            certs::load_identity(certificate, key)
                .err()
                .into_iter()
                .flatten(),
        );
    }
    if let Some(file) = client_ca {
        record_reading(&[file]);
        errors.extend(certs::load_authorities(file).err());
    }
    errors
}

/// Merges both settings. Flags replace keys of the file; certificate and key are replaced together.
pub fn merge_flags_and_file(
    flags: TlsSettings,
    file: TlsSettings,
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
    let client_ca = flags.client_ca.or(file.client_ca);
    match flags.certificate_and_key.or(file.certificate_and_key) {
        Some((certificate, key)) => Some(TlsFiles {
            certificate,
            key,
            client_ca,
        }),
        None if client_ca.is_some() && !flags.is_requested && !file.is_requested => {
            let reason = "requires --tls-cert FILE and --tls-key FILE";
            errors.add(ConfigError::key("--tls-client-ca", reason));
            None
        }
        None => None,
    }
}

/// Returns warnings about certificates, or about listeners that other machines can reach without
/// TLS.
pub fn warnings(tls: Option<&TlsFiles>, listeners: &[ListenAddress]) -> Vec<String> {
    if let Some(files) = tls {
        record_reading(&[&files.certificate, &files.key]);
        let identity = certs::load_identity(&files.certificate, &files.key);
        return identity
            .map(|identity| identity.warnings)
            .unwrap_or_default();
    }
    let open = listeners
        .iter()
        .filter(|listener| address::remote_port(listener).is_some());
    let warn = |listener: &ListenAddress| match listener {
        ListenAddress::Tcp(address) => Some(format!(
            "other machines can connect to tcp:{address} without TLS: an attacker on the network can read \
             and change all traffic"
        )),
        ListenAddress::Unix(_) | ListenAddress::UnixInOwnDir(_) => None,
    };
    open.filter_map(warn).collect()
}
