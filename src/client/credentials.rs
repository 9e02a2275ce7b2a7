//! What a client shows to a daemon and whom it trusts: files, read again for each connection, so that
//! certificates and tokens may be replaced while a client lives. Leaves connecting to `connect`.

use crate::certs;
use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::AsyncReadExt as _;

/// The most bytes of a token's file; headers of more are refused by servers.
const MAX_TOKEN_BYTES: u64 = 8 << 10;

/// What a connection is made with. The default trusts the machine's authorities and shows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCredentials {
    /// Over TLS: the authorities that the daemon's certificate must come from, in PEM. `None` means
    /// those of the machine.
    pub ca: Option<PathBuf>,
    /// Over TLS: the certificate to show, and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Over TLS: the name that the daemon's certificate must have. `None` means the endpoint's host.
    pub server_name: Option<String>,
    /// A file with a token to send with each call, over TLS, to a Unix socket or to a loopback
    /// address, and nowhere else.
    pub token_file: Option<PathBuf>,
}

impl ClientCredentials {
    /// The name that the certificate of the daemon at this host must have.
    pub(super) fn expected_server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        ServerName::try_from(bare.to_owned())
            .map_err(|_| format!("{bare:?} is no name or address that a certificate can be for"))
    }

    /// Reads the files of TLS. Blocks on the disk.
    pub(super) fn client_config(&self) -> Result<ClientConfig, String> {
        let roots = match &self.ca {
            Some(file) => certs::load_authorities(file),
            None => certs::load_system_authorities(),
        };
        let roots = roots.map_err(|problem| problem.to_string())?;
        let builder = ClientConfig::builder_with_provider(certs::crypto_provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has cipher suites for both versions")
            .with_root_certificates(roots);
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
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// The token that goes with each call, if there is one.
#[derive(Clone, Default)]
pub(super) struct BearerToken(Arc<TokenState>);

#[derive(Default)]
struct TokenState {
    file: Option<PathBuf>,
    value: RwLock<Option<HeaderValue>>,
}

impl BearerToken {
    /// Reads the file, if there is one.
    pub(super) async fn read(file: Option<PathBuf>) -> Result<Self, String> {
        let value = match &file {
            Some(file) => Some(read_token(file).await?),
            None => None,
        };
        Ok(Self(Arc::new(TokenState { file, value: RwLock::new(value) })))
    }

    /// Reads the file again; the old token stays where it cannot be read. Whether it is another now.
    pub(super) async fn reload(&self) -> bool {
        let Some(file) = &self.0.file else { return false };
        let Ok(value) = read_token(file).await else { return false };
        let mut held = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = held.as_ref() != Some(&value);
        *held = Some(value);
        is_new
    }

    /// The header that carries it.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bearer").field(&self.0.file).finish()
    }
}

async fn read_token(file: &Path) -> Result<HeaderValue, String> {
    let problem = |reason: &str| format!("{} {reason}", file.display());
    let mut text = Vec::new();
    let read = async {
        let file = tokio::fs::File::open(file).await?;
        file.take(MAX_TOKEN_BYTES + 1).read_to_end(&mut text).await
    };
    read.await.map_err(|error| problem(&format!("cannot be read: {error}")))?;
    if text.len() as u64 > MAX_TOKEN_BYTES {
        return Err(problem("is over 8 KiB, too large for a token"));
    }
    bearer_header(text.trim_ascii()).map_err(problem)
}

/// The header that carries a token. What is wrong with one is said without repeating it.
fn bearer_header(token: &[u8]) -> Result<HeaderValue, &'static str> {
    if token.is_empty() {
        return Err("holds no token");
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(
            "holds no token: white space, a control character or one beyond ASCII is in it",
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
    fn tokens() {
        let good = bearer_header(b"abc.DEF-~+/=").expect("a token");
        assert_eq!(good.to_str().expect("text"), "Bearer abc.DEF-~+/=");
        assert!(good.is_sensitive());
        for bad in [&b""[..], b"a b", b"a\nb", b"a\0", b"\x7f", "ä".as_bytes()] {
            assert!(bearer_header(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_name_to_look_for() {
        let mut credentials = ClientCredentials::default();
        for (host, name) in
            [("a.example", "a.example"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")]
        {
            assert_eq!(credentials.expected_server_name(host).expect("a name").to_str(), name);
        }
        credentials.server_name = Some("other".to_owned());
        assert_eq!(
            credentials.expected_server_name("a.example").expect("a name").to_str(),
            "other"
        );
        credentials.server_name = Some("no name".to_owned());
        assert!(credentials.expected_server_name("a.example").is_err());
    }
}
