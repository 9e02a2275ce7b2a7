//! The certificate files of TLS, and TCP without it: which files there are, and what is wrong with
//! them. Leaves reading them to `certs`.

use super::mistake::{Mistake, Mistakes};
use super::section::{Checker, Item, Section};
use super::{Listener, place};
use crate::certs::{self, Part, Problem};
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
    pub fn all(&self) -> impl Iterator<Item = &Path> {
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
pub(super) struct Given {
    pair: Option<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    insecure: bool,
    /// Whether TLS is meant, even where it cannot be.
    tls: bool,
}

impl Given {
    /// Whether listeners may be reached from other machines.
    pub(super) fn may_leave(&self) -> bool {
        self.tls || self.insecure
    }
}

/// Reads `tls` and `insecure_tcp` of a file.
pub(super) fn read(
    section: Option<Item<'_>>,
    insecure: Option<&Item<'_>>,
    base: Option<&Path>,
    checker: &mut Checker<'_>,
) -> Given {
    let wanted = insecure.and_then(|item| checker.boolean(item)).unwrap_or_default();
    if let (Some(item), true) = (insecure, wanted && section.is_some()) {
        checker.refuse(item, "does not go with `tls`: every TCP listener has that; leave one out");
    }
    let tls = section.is_some();
    let section = section.and_then(|item| checker.section(&item, &KEYS));
    let (pair, client_ca) = match section {
        Some(section) => files(&section, base, checker),
        None => (None, None),
    };
    Given { pair, client_ca, insecure: wanted, tls }
}

fn files(
    section: &Section<'_>,
    base: Option<&Path>,
    checker: &mut Checker<'_>,
) -> (Option<(PathBuf, PathBuf)>, Option<PathBuf>) {
    let certificate = checker.required(section, "certificate");
    let key = checker.required(section, "key");
    let client_ca = section.get("client_ca");
    let mut path = |item: &Option<Item<'_>>| {
        let item = item.as_ref()?;
        checker.parsed(item, |text| place::absolute(text.as_ref(), base))
    };
    let pair = path(&certificate).zip(path(&key));
    let authorities = path(&client_ca);
    for problem in problems(pair.as_ref(), authorities.as_deref()) {
        let item = match problem.part {
            Part::Certificate => &certificate,
            Part::Key => &key,
            Part::Authorities => &client_ca,
        };
        if let Some(item) = item {
            checker.refuse(item, problem.reason);
        }
    }
    (pair, authorities)
}

/// Checks the flags, each file as it is.
pub(super) fn of_flags(flags: &TlsFlags, base: Option<&Path>, mistakes: &mut Mistakes) -> Given {
    let tls = flags.cert.is_some() || flags.key.is_some();
    match (&flags.cert, &flags.key) {
        (Some(cert), None) => {
            mistakes.add(mistake(Part::Certificate, cert, "needs its key: --tls-key FILE"));
        }
        (None, Some(key)) => {
            mistakes.add(mistake(Part::Key, key, "needs its certificate: --tls-cert FILE"));
        }
        _ => {}
    }
    let mut path = |part, path: Option<&PathBuf>| {
        let path = path?;
        let refuse = |reason: String| mistakes.add(mistake(part, path, &reason));
        place::absolute(path, base).map_err(refuse).ok()
    };
    let certificate = path(Part::Certificate, flags.cert.as_ref());
    let pair = certificate.zip(path(Part::Key, flags.key.as_ref()));
    let client_ca = path(Part::Authorities, flags.client_ca.as_ref());
    for Problem { part, what, reason } in problems(pair.as_ref(), client_ca.as_deref()) {
        mistakes.add(mistake(part, Path::new(&what), &reason));
    }
    Given { pair, client_ca, insecure: flags.insecure_tcp, tls }
}

fn mistake(part: Part, path: &Path, reason: &str) -> Mistake {
    let flag = match part {
        Part::Certificate => "--tls-cert",
        Part::Key => "--tls-key",
        Part::Authorities => "--tls-client-ca",
    };
    Mistake::flag(flag, &path.to_string_lossy(), reason)
}

fn problems(pair: Option<&(PathBuf, PathBuf)>, client_ca: Option<&Path>) -> Vec<Problem> {
    let pair = pair.map(|(certificate, key)| certs::identity(certificate, key).map(drop));
    let mut problems = pair.and_then(Result::err).unwrap_or_default();
    problems.extend(client_ca.and_then(|file| certs::authorities(file).err()));
    problems
}

/// What is in force: a flag replaces what the file says of it, certificate and key together.
pub(super) fn join(flags: Given, file: Given, mistakes: &mut Mistakes) -> Option<TlsFiles> {
    let flag = |key: &str, reason: &str| Mistake {
        file: None,
        at: None,
        key: key.to_owned(),
        value: None,
        reason: reason.to_owned(),
    };
    if flags.insecure && (flags.tls || file.tls) {
        let reason = "does not go with TLS: every TCP listener has that; leave one out";
        mistakes.add(flag("--insecure-tcp", reason));
    } else if flags.tls && file.insecure {
        mistakes.add(flag("--tls-cert", "does not go with `insecure_tcp` in the file"));
    }
    let client_ca = flags.client_ca.or(file.client_ca);
    match flags.pair.or(file.pair) {
        Some((certificate, key)) => Some(TlsFiles { certificate, key, client_ca }),
        None if client_ca.is_some() && !flags.tls && !file.tls => {
            let reason = "needs a certificate of the daemon's own: --tls-cert FILE --tls-key FILE";
            mistakes.add(flag("--tls-client-ca", reason));
            None
        }
        None => None,
    }
}

/// What stops nobody, and should be known.
pub(super) fn warnings(tls: Option<&TlsFiles>, listeners: &[Listener]) -> Vec<String> {
    if let Some(files) = tls {
        let identity = certs::identity(&files.certificate, &files.key);
        return identity.map(|identity| identity.warnings).unwrap_or_default();
    }
    let open = listeners.iter().filter(|listener| place::reached_from_afar(listener).is_some());
    let warn = |listener: &Listener| match listener {
        Listener::Tcp(address) => Some(format!(
            "tcp:{address} serves beyond this machine without TLS: whoever is on the way can read \
             and change everything"
        )),
        Listener::Unix(_) | Listener::OwnUnix(_) => None,
    };
    open.filter_map(warn).collect()
}
