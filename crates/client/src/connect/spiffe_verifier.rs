//! Checks of a daemon's certificate by its SPIFFE ID instead of by the name of its host.

use caproot_core::net::certs::{self, SpiffeId};
use rustls::SignatureScheme;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore};
use std::sync::Arc;

/// Verifier of certificates that must come from a trusted authority and have one SPIFFE ID.
#[derive(Debug)]
pub struct SpiffeVerifier {
    id: SpiffeId,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

/// The certificate has another identity. Displays as the end of a sentence about the certificate.
#[derive(Debug, thiserror::Error)]
#[error("it is not for {wanted}, but for {names}")]
pub struct WrongSpiffeId {
    wanted: SpiffeId,
    /// URIs in the certificate, as text.
    names: String,
}

impl SpiffeVerifier {
    pub fn new(id: SpiffeId, roots: RootCertStore, provider: Arc<CryptoProvider>) -> Self {
        Self {
            id,
            roots,
            provider,
        }
    }

    /// Checks the names. The standard allows exactly one URI in a certificate: with two, an
    /// authority that checks one of them would have signed the other.
    fn check_names(&self, certificate: &CertificateDer<'_>) -> Result<(), WrongSpiffeId> {
        let names =
            certs::subject_names(certificate).map_err(|error| self.wrong_id(error.to_string()))?;
        let uris: Vec<_> = names.iter().filter(|name| name.contains(':')).collect();
        match uris.as_slice() {
            [uri] if *uri == self.id.as_str() => Ok(()),
            [] => Err(self.wrong_id("no URI".to_owned())),
            [uri] => Err(self.wrong_id((*uri).clone())),
            _ => Err(self.wrong_id("several URIs".to_owned())),
        }
    }

    fn wrong_id(&self, names: String) -> WrongSpiffeId {
        WrongSpiffeId {
            wanted: self.id.clone(),
            names,
        }
    }
}

impl ServerCertVerifier for SpiffeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;

        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;

        self.check_names(end_entity).map_err(|error| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
