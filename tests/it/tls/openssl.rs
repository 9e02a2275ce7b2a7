//! Another implementation of TLS against ours, and no session that is resumed.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Pki, Served};
use crate::harness::in_time;

/// What `openssl s_client` says of the daemon; nothing where there is no openssl.
async fn s_client(served: &Served, pki: &Pki, flags: &'static [&'static str]) -> Option<String> {
    let mut command = Command::new("openssl");
    command.arg("s_client").arg("-connect").arg(format!("127.0.0.1:{}", served.port));
    command.arg("-CAfile").arg(pki.arg("ca.pem")).args(flags).stdin(Stdio::null());
    let ran = in_time(tokio::task::spawn_blocking(move || command.output())).await;
    match ran.expect("no panic") {
        Ok(ended) => {
            let said = [ended.stdout, ended.stderr].concat();
            Some(String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: there is no openssl here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn openssl_agrees() {
    let pki = Pki::new();
    let served = pki.serve(&[]).await;
    for (flags, says) in [
        (
            &["-alpn", "h2", "-tls1_3"][..],
            &["TLSv1.3", "ALPN protocol: h2", "return code: 0 (ok)"][..],
        ),
        (&["-alpn", "h2", "-tls1_2"], &["TLSv1.2", "ALPN protocol: h2", "return code: 0 (ok)"]),
        (&["-alpn", "http/1.1,h2"], &["ALPN protocol: h2", "return code: 0 (ok)"]),
        (&["-alpn", "http/1.1"], &["alert no application protocol"]),
        (
            &["-alpn", "h2", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            &["SSL alert number", "Cipher is (NONE)"],
        ),
    ] {
        let Some(said) = s_client(&served, &pki, flags).await else { return };
        for part in says {
            assert!(said.contains(part), "{flags:?}: {part:?} in {said}");
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn http_2_must_be_asked_for_and_no_session_is_resumed() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(pki.authority.pem().as_bytes()).expect("PEM");
    roots.add(ca).expect("an authority");
    let mut config = ClientConfig::builder_with_provider(caproot::certs::crypto_provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connect = |config: &ClientConfig| {
        let connector = TlsConnector::from(Arc::new(config.clone()));
        let port = served.port;
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            let name = "localhost".try_into().expect("a name");
            in_time(connector.connect(name, stream)).await.expect("a handshake")
        }
    };
    let mut stream = connect(&config).await;
    assert_eq!(in_time(stream.read(&mut [0])).await.expect("it is closed in order"), 0);
    config.alpn_protocols = vec![b"h2".to_vec()];
    for _ in 0..3 {
        let mut stream = connect(&config).await;
        // Something of HTTP/2, after which a ticket would have come; the client speaks first.
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        in_time(stream.write_all(begin)).await.expect("it is taken");
        assert_eq!(in_time(stream.read(&mut [0])).await.expect("its settings"), 1);
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    }
    served.says("does not offer HTTP/2").await;
    served.stop().await;
}
