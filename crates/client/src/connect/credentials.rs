//! Credentials of a client. The files are read again for each connection, so that certificates and
//! tokens can be replaced while the client runs.

use super::spiffe_verifier::SpiffeVerifier;
use caproot_core::bounded_file;
use caproot_core::net::certs;
use caproot_core::net::endpoint::{DaemonEndpoint, EndpointAddress};
use caproot_core::sync::Mutex;
use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a token file. Servers reject larger headers.
const MAX_TOKEN_BYTES: u64 = 8 << 10;

/// Credentials of a connection. The default trusts the authorities of the machine and has no
/// identity and no token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCredentials {
    /// For TLS: authorities (PEM) that the daemon's certificate must come from. `None` means the
    /// authorities of the machine.
    pub ca: Option<PathBuf>,
    /// For TLS: client certificate and its key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// For TLS: name that the daemon's certificate must have. `None` means the host of the
    /// endpoint.
    pub server_name: Option<String>,
    /// For TLS: SPIFFE ID that the daemon's certificate must have as its only URI, instead of the
    /// name of the host. The name in the handshake stays `server_name` or the host.
    pub spiffe_id: Option<certs::SpiffeId>,
    /// Token that is sent with each call. The token is sent only over TLS, to a Unix socket or to
    /// a loopback address.
    pub token: Option<ClientToken>,
    /// For a Unix socket: ids of users, of whom one must serve the socket. `None` means any user.
    pub socket_users: Option<Vec<u32>>,
}

/// Token of a client. The debug output does not contain the token.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientToken {
    /// File with the token. The file is read again after the daemon has rejected the token.
    File(PathBuf),
    /// Token itself.
    Value(String),
}

impl fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.debug_tuple("File").field(file).finish(),
            Self::Value(_) => f.write_str("Value(<redacted>)"),
        }
    }
}

impl ClientCredentials {
    /// Returns the name that the certificate of the daemon at `host` must have.
    fn expected_server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let bare = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(name);
        ServerName::try_from(bare.to_owned()).map_err(|_| {
            format!("invalid server name {bare:?}: expected a DNS name or an IP address")
        })
    }

    /// Reads the files as a connection to the endpoint would, without a connection. The error is one
    /// sentence.
    pub async fn check(&self, endpoint: &DaemonEndpoint) -> Result<(), String> {
        BearerToken::read(self.token.clone()).await?;
        let EndpointAddress::Tls(address) = endpoint.address() else {
            return Ok(());
        };
        self.read_tls_settings(address).await.map(drop)
    }

    /// Returns the settings of a TLS handshake with the daemon at `HOST:PORT`. Reads the TLS files.
    pub(crate) async fn read_tls_settings(
        &self,
        address: &str,
    ) -> Result<HandshakeSettings, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let server_name = self.expected_server_name(host)?;
        let credentials = self.clone();
        let config = tokio::task::spawn_blocking(move || credentials.client_config());
        Ok(HandshakeSettings {
            server_name,
            config: config.await.map_err(|error| error.to_string())??,
        })
    }

    /// Reads the TLS files. Blocks on disk I/O.
    fn client_config(&self) -> Result<ClientConfig, String> {
        let roots = match &self.ca {
            Some(file) => certs::load_authorities(file),
            None => certs::load_system_authorities(),
        }
        .map_err(|problem| problem.to_string())?;

        let provider = certs::crypto_provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has cipher suites for both versions");
        let builder = match &self.spiffe_id {
            None => builder.with_root_certificates(roots),
            Some(id) => {
                // The verifier also checks the chain, and replaces only the comparison of the host.
                let verifier = SpiffeVerifier::new(id.clone(), roots, provider);
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
        };

        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let identity = certs::load_identity(certificate, key).map_err(|problems| {
                    let sentences: Vec<_> = problems.iter().map(ToString::to_string).collect();
                    sentences.join("; ")
                })?;
                let certified = SingleCertAndKey::from(identity.certified_key);
                builder.with_client_cert_resolver(Arc::new(certified))
            }
        };

        // A client chooses HTTP/2 over TLS by ALPN: RFC 9113, 3.2.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// Settings of a TLS handshake.
pub(crate) struct HandshakeSettings {
    /// Name that the certificate of the daemon must have.
    pub server_name: ServerName<'static>,
    pub config: ClientConfig,
}

/// Token of each call, if there is one.
#[derive(Clone, Default)]
pub struct BearerToken(Arc<TokenState>);

#[derive(Default)]
struct TokenState {
    /// File of the token; `None` without a token, or if the program has set the value.
    file: Option<PathBuf>,
    value: Mutex<Option<HeaderValue>>,
}

impl BearerToken {
    /// Returns the token of the credentials. Reads the file, if the token is in a file.
    pub async fn read(token: Option<ClientToken>) -> Result<Self, String> {
        let (file, value) = match token {
            None => (None, None),
            Some(ClientToken::File(file)) => {
                let value = read_token_file(&file).await?;
                (Some(file), Some(value))
            }
            Some(ClientToken::Value(text)) => {
                let token = text.trim_ascii().as_bytes();
                let value = bearer_header("the value of the token", token)?;
                (None, Some(value))
            }
        };
        Ok(Self(Arc::new(TokenState {
            file,
            value: Mutex::new(value),
        })))
    }

    /// Reads the file again. If the file cannot be read, the old token stays. Returns whether the
    /// token changed.
    pub async fn reload(&self) -> bool {
        let Some(file) = &self.0.file else {
            return false;
        };
        let Ok(value) = read_token_file(file).await else {
            return false;
        };
        let mut current = self.0.value.lock();
        let is_new = current.as_ref() != Some(&value);
        *current = Some(value);
        is_new
    }

    /// Returns the `authorization` header.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        self.0.value.lock().clone()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bearer").field(&self.0.file).finish()
    }
}

/// Returns the `authorization` header of the token in a file. An error is one sentence, with the path of the file.
pub async fn read_token_file(file: &Path) -> Result<HeaderValue, String> {
    let text = bounded_file::read_in_time(file, MAX_TOKEN_BYTES)
        .await
        .map_err(|error| format!("{} {error}", file.display()))?;
    bearer_header(file.display(), text.trim_ascii())
}

/// Builds the `authorization` header of a token. An error is a sentence about the holder of the token, and
/// never contains the token.
pub fn bearer_header(holder: impl fmt::Display, token: &[u8]) -> Result<HeaderValue, String> {
    let header = build_bearer_header(token);
    header.map_err(|reason| format!("{holder} {reason}"))
}

fn build_bearer_header(token: &[u8]) -> Result<HeaderValue, &'static str> {
    if token.len() as u64 > MAX_TOKEN_BYTES {
        return Err("is over 8 KiB, too large for a token");
    }
    if token.is_empty() {
        return Err("holds no token");
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(
            "holds no token: a token has no white space, control characters or non-ASCII characters",
        );
    }
    let text = [b"Bearer ", token].concat();
    let mut value =
        HeaderValue::from_bytes(&text).map_err(|_| "holds a token that no header can carry")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::{ClientCredentials, bearer_header};

    #[test]
    fn invalid_tokens_are_rejected() {
        let good = bearer_header("it", b"abc.DEF-~+/=").expect("a token");
        assert_eq!(good.to_str().expect("text"), "Bearer abc.DEF-~+/=");
        assert!(good.is_sensitive());
        for bad in [&b""[..], b"a b", b"a\nb", b"a\0", b"\x7f", "ä".as_bytes()] {
            assert!(bearer_header("it", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn server_name_replaces_the_host() {
        let mut credentials = ClientCredentials::default();
        for (host, name) in [
            ("a.example", "a.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
        ] {
            assert_eq!(
                credentials
                    .expected_server_name(host)
                    .expect("a name")
                    .to_str(),
                name
            );
        }
        credentials.server_name = Some("other".to_owned());
        assert_eq!(
            credentials
                .expected_server_name("a.example")
                .expect("a name")
                .to_str(),
            "other"
        );
        credentials.server_name = Some("no name".to_owned());
        assert!(credentials.expected_server_name("a.example").is_err());
    }
}
