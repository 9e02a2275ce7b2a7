//! The certificate files of TLS, and TCP without it: which files there are, and what is wrong with
//! them. Leaves reading them to `certs`.

use super::error::{ConfigError, ConfigErrors};
use super::section::{ConfigReader, ConfigSection, ConfigValue};
use super::{ListenAddress, address};
use crate::certs::{self, CertFileError, CertFileKind};
use std::path::{Path, PathBuf};

/// Keys of `tls`.
pub(super) const KEYS: [&str; 3] = ["certificate", "key", "client_ca"];

/// Files that TLS is made of. Every TCP listener then has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The daemon's certificate and those that lead to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The authorities of the certificates that clients must show, in PEM; without it they need
    /// show none.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// All of them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let client_ca = self.client_ca.as_deref();
        [&*self.certificate, &*self.key].into_iter().chain(client_ca)
    }
}

/// `--tls-cert`, `--tls-key`, `--tls-client-ca` and `--insecure-tcp`.
#[derive(Debug, Clone, Default)]
pub struct TlsFlags {
    /// The daemon's certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The authorities of clients.
    pub client_ca: Option<PathBuf>,
    /// Whether TCP may leave the machine without TLS.
    pub insecure_tcp: bool,
}

/// What flags or a file say of TLS.
#[derive(Debug, Default)]
pub(super) struct TlsSettings {
    certificate_and_key: Option<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    insecure_tcp: bool,
    /// Whether TLS is meant, even where it cannot be.
    is_requested: bool,
}

impl TlsSettings {
    /// Whether listeners may be reached from other machines.
    pub(super) fn allows_remote(&self) -> bool {
        self.is_requested || self.insecure_tcp
    }
}

/// Reads `tls` and `insecure_tcp` of a file.
pub(super) fn read(
    section: Option<ConfigValue<'_>>,
    insecure: Option<&ConfigValue<'_>>,
    base: Option<&Path>,
    checker: &mut ConfigReader<'_>,
) -> TlsSettings {
    let wanted = insecure.and_then(|item| checker.boolean(item)).unwrap_or_default();
    if let (Some(item), true) = (insecure, wanted && section.is_some()) {
        checker.report_error(
            item,
            "does not go with `tls`: every TCP listener has that; leave one out",
        );
    }
    let tls = section.is_some();
    let section = section.and_then(|item| checker.section(&item, &KEYS));
    let (pair, client_ca) = match section {
        Some(section) => files(&section, base, checker),
        None => (None, None),
    };
    TlsSettings { certificate_and_key: pair, client_ca, insecure_tcp: wanted, is_requested: tls }
}

fn files(
    section: &ConfigSection<'_>,
    base: Option<&Path>,
    checker: &mut ConfigReader<'_>,
) -> (Option<(PathBuf, PathBuf)>, Option<PathBuf>) {
    let certificate = checker.required(section, "certificate");
    let key = checker.required(section, "key");
    let client_ca = section.get("client_ca");
    let mut path = |item: &Option<ConfigValue<'_>>| {
        let item = item.as_ref()?;
        checker.parsed(item, |text| address::absolute_path(text.as_ref(), base))
    };
    let pair = path(&certificate).zip(path(&key));
    let authorities = path(&client_ca);
    for problem in problems(pair.as_ref(), authorities.as_deref()) {
        let item = match problem.kind {
            CertFileKind::Certificate => &certificate,
            CertFileKind::Key => &key,
            CertFileKind::Authorities => &client_ca,
        };
        if let Some(item) = item {
            checker.report_error(item, problem.reason);
        }
    }
    (pair, authorities)
}

/// Checks the flags, each file as it is.
pub(super) fn check_flags(
    flags: &TlsFlags,
    base: Option<&Path>,
    mistakes: &mut ConfigErrors,
) -> TlsSettings {
    let tls = flags.cert.is_some() || flags.key.is_some();
    match (&flags.cert, &flags.key) {
        (Some(cert), None) => {
            mistakes.add(mistake(CertFileKind::Certificate, cert, "needs its key: --tls-key FILE"));
        }
        (None, Some(key)) => {
            mistakes.add(mistake(CertFileKind::Key, key, "needs its certificate: --tls-cert FILE"));
        }
        _ => {}
    }
    let mut path = |part, path: Option<&PathBuf>| {
        let path = path?;
        let refuse = |reason: String| mistakes.add(mistake(part, path, &reason));
        address::absolute_path(path, base).map_err(refuse).ok()
    };
    let certificate = path(CertFileKind::Certificate, flags.cert.as_ref());
    let pair = certificate.zip(path(CertFileKind::Key, flags.key.as_ref()));
    let client_ca = path(CertFileKind::Authorities, flags.client_ca.as_ref());
    for CertFileError { kind: part, subject: what, reason } in
        problems(pair.as_ref(), client_ca.as_deref())
    {
        mistakes.add(mistake(part, Path::new(&what), &reason));
    }
    TlsSettings {
        certificate_and_key: pair,
        client_ca,
        insecure_tcp: flags.insecure_tcp,
        is_requested: tls,
    }
}

fn mistake(part: CertFileKind, path: &Path, reason: &str) -> ConfigError {
    let flag = match part {
        CertFileKind::Certificate => "--tls-cert",
        CertFileKind::Key => "--tls-key",
        CertFileKind::Authorities => "--tls-client-ca",
    };
    ConfigError::flag(flag, &path.to_string_lossy(), reason)
}

fn problems(pair: Option<&(PathBuf, PathBuf)>, client_ca: Option<&Path>) -> Vec<CertFileError> {
    let pair = pair.map(|(certificate, key)| certs::load_identity(certificate, key).map(drop));
    let mut problems = pair.and_then(Result::err).unwrap_or_default();
    problems.extend(client_ca.and_then(|file| certs::load_authorities(file).err()));
    problems
}

/// What is in force: a flag replaces what the file says of it, certificate and key together.
pub(super) fn merge_flags_and_file(
    flags: TlsSettings,
    file: TlsSettings,
    mistakes: &mut ConfigErrors,
) -> Option<TlsFiles> {
    let flag = |key: &str, reason: &str| ConfigError {
        file: None,
        position: None,
        key: key.to_owned(),
        value: None,
        reason: reason.to_owned(),
    };
    if flags.insecure_tcp && (flags.is_requested || file.is_requested) {
        let reason = "does not go with TLS: every TCP listener has that; leave one out";
        mistakes.add(flag("--insecure-tcp", reason));
    } else if flags.is_requested && file.insecure_tcp {
        mistakes.add(flag("--tls-cert", "does not go with `insecure_tcp` in the file"));
    }
    let client_ca = flags.client_ca.or(file.client_ca);
    match flags.certificate_and_key.or(file.certificate_and_key) {
        Some((certificate, key)) => Some(TlsFiles { certificate, key, client_ca }),
        None if client_ca.is_some() && !flags.is_requested && !file.is_requested => {
            let reason = "needs a certificate of the daemon's own: --tls-cert FILE --tls-key FILE";
            mistakes.add(flag("--tls-client-ca", reason));
            None
        }
        None => None,
    }
}

/// What stops nobody, and should be known.
pub(super) fn warnings(tls: Option<&TlsFiles>, listeners: &[ListenAddress]) -> Vec<String> {
    if let Some(files) = tls {
        let identity = certs::load_identity(&files.certificate, &files.key);
        return identity.map(|identity| identity.warnings).unwrap_or_default();
    }
    let open = listeners.iter().filter(|listener| address::remote_port(listener).is_some());
    let warn = |listener: &ListenAddress| match listener {
        ListenAddress::Tcp(address) => Some(format!(
            "tcp:{address} serves beyond this machine without TLS: whoever is on the way can read \
             and change everything"
        )),
        ListenAddress::Unix(_) | ListenAddress::UnixInOwnDir(_) => None,
    };
    open.filter_map(warn).collect()
}
