//! Test certificate authorities, and certificates with given names and dates.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};

/// Certificate authority. Clients trust it through its certificate.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// Contents of a test certificate.
#[derive(Default)]
pub(super) struct CertificateSpec {
    /// Subject alternative names, in this order.
    pub names: Vec<SanType>,
    /// First and last year of validity.
    pub years: Option<(i32, i32)>,
    /// Whether the certificate may sign other certificates.
    pub is_authority: bool,
    /// Extension as raw bytes.
    pub extension: Option<CustomExtension>,
}

impl CertificateSpec {
    /// Returns the contents of a certificate for `localhost` and 127.0.0.1.
    pub(super) fn server() -> Self {
        Self::for_host("localhost").with_name(SanType::IpAddress([127, 0, 0, 1].into()))
    }

    /// Returns the contents of a certificate for a host name.
    pub(super) fn for_host(host: &str) -> Self {
        Self::default().with_name(dns(host))
    }

    /// Returns the contents of a client certificate with a URI.
    pub(super) fn client(name: &str) -> Self {
        Self::default().with_name(uri(name))
    }

    pub(super) fn with_name(mut self, name: SanType) -> Self {
        self.names.push(name);
        self
    }

    pub(super) fn valid_years(self, from: i32, to: i32) -> Self {
        Self {
            years: Some((from, to)),
            ..self
        }
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
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate and its key, in PEM.
    pub(super) fn issue(&self, spec: &CertificateSpec) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        (self.sign(spec, &key).pem(), key.serialize_pem())
    }

    /// Issues a certificate in DER.
    pub(super) fn der(&self, spec: &CertificateSpec) -> Vec<u8> {
        self.sign(spec, &KeyPair::generate().expect("a key"))
            .der()
            .to_vec()
    }

    fn sign(&self, spec: &CertificateSpec, key: &KeyPair) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names.clone_from(&spec.names);
        params.custom_extensions.extend(spec.extension.clone());
        if spec.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if let Some((from, to)) = spec.years {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        }
        params.signed_by(key, &self.issuer).expect("a certificate")
    }
}
