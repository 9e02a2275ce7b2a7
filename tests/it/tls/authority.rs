//! Certificate authorities of our own, and certificates as tests want them.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};

/// An authority, known to whoever is given its certificate.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What a certificate is to say.
#[derive(Default)]
pub(super) struct Wanted {
    /// Names, in this order.
    pub names: Vec<SanType>,
    /// The years in which its time begins and ends.
    pub years: Option<(i32, i32)>,
    /// An extension as bytes.
    pub extension: Option<CustomExtension>,
}

impl Wanted {
    /// For localhost and its address.
    pub(super) fn server() -> Self {
        Self::named("localhost").and(SanType::IpAddress([127, 0, 0, 1].into()))
    }

    /// For a host.
    pub(super) fn named(host: &str) -> Self {
        Self::default().and(dns(host))
    }

    /// For a client with a URI.
    pub(super) fn client(name: &str) -> Self {
        Self::default().and(uri(name))
    }

    pub(super) fn and(mut self, name: SanType) -> Self {
        self.names.push(name);
        self
    }

    pub(super) fn valid(self, from: i32, to: i32) -> Self {
        Self { years: Some((from, to)), ..self }
    }
}

pub(super) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("ASCII"))
}

pub(super) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("ASCII"))
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate and its key, in PEM.
    pub(super) fn issue(&self, wanted: &Wanted) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        (self.sign(wanted, &key).pem(), key.serialize_pem())
    }

    /// A certificate in DER.
    pub(super) fn der(&self, wanted: &Wanted) -> Vec<u8> {
        self.sign(wanted, &KeyPair::generate().expect("a key")).der().to_vec()
    }

    fn sign(&self, wanted: &Wanted, key: &KeyPair) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names.clone_from(&wanted.names);
        params.custom_extensions.extend(wanted.extension.clone());
        if let Some((from, to)) = wanted.years {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        }
        params.signed_by(key, &self.issuer).expect("a certificate")
    }
}
