//! Interoperability with OpenSSL, required ALPN, and no session resumption.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Pki, TlsDaemon};
use crate::harness::in_time;

/// Returns the output of `openssl s_client`, or `None` if openssl is not installed.
async fn run_s_client(
    daemon: &TlsDaemon,
    pki: &Pki,
    flags: &'static [&'static str],
) -> Option<String> {
    let mut command = Command::new("openssl");
    command
        .arg("s_client")
        .arg("-connect")
        .arg(format!("127.0.0.1:{}", daemon.port));
    command
        .arg("-CAfile")
        .arg(pki.path_arg("ca.pem"))
        .args(flags)
        .stdin(Stdio::null());
    let result = in_time(tokio::task::spawn_blocking(move || command.output())).await;
    match result.expect("no panic") {
        Ok(output_bytes) => {
            let output = [output_bytes.stdout, output_bytes.stderr].concat();
            Some(String::from_utf8_lossy(&output).into_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: openssl is not installed");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn openssl_negotiates_versions_and_alpn() {
    let pki = Pki::new();
    let daemon = pki.serve(&[]);
    for (flags, expected) in [
        (
            &["-alpn", "h2", "-tls1_3"][..],
            &["TLSv1.3", "ALPN protocol: h2", "return code: 0 (ok)"][..],
        ),
        (
            &["-alpn", "h2", "-tls1_2"],
            &["TLSv1.2", "ALPN protocol: h2", "return code: 0 (ok)"],
        ),
        (
            &["-alpn", "http/1.1,h2"],
            &["ALPN protocol: h2", "return code: 0 (ok)"],
        ),
        (&["-alpn", "http/1.1"], &["alert no application protocol"]),
        (
            &["-alpn", "h2", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            &["SSL alert number", "Cipher is (NONE)"],
        ),
    ] {
        let Some(output) = run_s_client(&daemon, &pki, flags).await else {
            return;
        };
        for part in expected {
            assert!(output.contains(part), "{flags:?}: {part:?} in {output}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn alpn_is_required_and_no_session_is_resumed() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(pki.authority.pem().as_bytes()).expect("PEM");
    roots.add(ca).expect("an authority");
    let mut config =
        ClientConfig::builder_with_provider(caproot_core::net::certs::crypto_provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
    let connect = |config: &ClientConfig| {
        let connector = TlsConnector::from(Arc::new(config.clone()));
        let port = daemon.port;
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port))
                .await
                .expect("a connection");
            let name = "localhost".try_into().expect("a name");
            in_time(connector.connect(name, stream))
                .await
                .expect("a handshake")
        }
    };
    let mut stream = connect(&config).await;
    assert_eq!(
        in_time(stream.read(&mut [0]))
            .await
            .expect("an orderly close"),
        0
    );
    config.alpn_protocols = vec![b"h2".to_vec()];
    for _ in 0..3 {
        let mut stream = connect(&config).await;
        // The client speaks first. A session ticket would arrive with the settings frame.
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        in_time(stream.write_all(begin)).await.expect("sent");
        assert_eq!(
            in_time(stream.read(&mut [0]))
                .await
                .expect("a settings frame"),
            1
        );
        assert_eq!(
            stream.get_ref().1.handshake_kind(),
            Some(HandshakeKind::Full)
        );
    }
    daemon.process.wait_for_log("does not offer HTTP/2").await;
    daemon.stop().await;
}
