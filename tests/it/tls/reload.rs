//! Certificate changes at run time: new connections use the new certificates, and open streams
//! continue.

use std::fs;

use caproot_client::{Client, ClientCredentials, ConnectError, SkillWatch, TlsError, WatchMessage};
use caproot_core::proto::caproot::v1::WatchSkillsRequest;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use rustix::process::Signal;

use super::authority::{Authority, CertificateSpec};
use super::{CLIENT, Pki, TlsDaemon};
use crate::config::metrics::{scrape, series_value};
use crate::harness::in_time;
use crate::harness::watch_harness::skill_text;

/// Opens a stream of the published root and reads its first state.
async fn open_watch(client: &mut Client) -> SkillWatch {
    let roots = client.list_roots().await.expect("roots").roots;
    let selected = roots
        .into_iter()
        .filter_map(|root| root.selected_capability_root);
    let request = WatchSkillsRequest {
        selected_capability_roots: selected.collect(),
        ..WatchSkillsRequest::default()
    };
    let mut watch = client.watch_skills(request);
    read_new_descriptions(&mut watch).await;
    watch
}

/// Reads the next state. Returns the descriptions of upserted skills.
async fn read_new_descriptions(watch: &mut SkillWatch) -> Vec<String> {
    let mut news = Vec::new();
    loop {
        match in_time(watch.next()).await.expect("the watch goes on") {
            WatchMessage::Lost { cause, .. } => panic!("the stream was dropped: {cause}"),
            WatchMessage::Event(event) => match event.event {
                Some(Event::Delta(delta)) => {
                    news.extend(delta.upserted.into_iter().map(|skill| skill.description));
                }
                Some(Event::Synced(_)) => return news,
                _ => {}
            },
        }
    }
}

/// Asserts that the stream reports a skill change.
async fn assert_stream_continues(watch: &mut SkillWatch, pki: &Pki, expected: &str) {
    pki.fixture
        .write("root/a/SKILL.md", skill_text("a", expected));
    // A slow first scan and a half-written file are batches of their own.
    while read_new_descriptions(watch).await != [expected] {}
}

async fn connect_error(daemon: &TlsDaemon, credentials: &ClientCredentials) -> TlsError {
    match daemon.connect(credentials).await {
        Err(ConnectError::Tls { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn streams_continue_after_a_certificate_change() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    let mut watch = open_watch(&mut daemon.connect_and_call(&pki.ca_credentials()).await).await;
    let before = pki.ca_credentials();
    let now = ClientCredentials {
        ca: Some(pki.fixture.path("new.pem")),
        ..ClientCredentials::default()
    };
    let mut found_by = String::new();
    for turn in ["by rename", "in place", "both at once"] {
        let authority = Authority::new("another");
        pki.fixture.write("new.pem", authority.pem());
        let (certificate, key) = authority.issue(&CertificateSpec::server());
        match turn {
            "by rename" => {
                pki.fixture.replace("server.pem", certificate);
                pki.fixture.replace("server.key", key);
            }
            "in place" => {
                pki.fixture.write("server.key", key);
                pki.fixture.write("server.pem", certificate);
            }
            // A mounted secret changes like this: a link points to another directory.
            _ => {
                pki.fixture.write("next/server.pem", certificate);
                pki.fixture.write("next/server.key", key);
                for file in ["server.pem", "server.key"] {
                    let from = pki.fixture.path(&format!("next/{file}"));
                    let link = pki.fixture.path("link");
                    std::os::unix::fs::symlink(from, &link).expect("a link");
                    fs::rename(link, pki.fixture.path(file)).expect("rename over it");
                }
            }
        }
        found_by.push_str(
            &daemon
                .process
                .wait_for_log("certificate files changed")
                .await,
        );
        daemon
            .process
            .wait_for_log("the certificates changed")
            .await;
        daemon.connect_and_call(&now).await;
        assert_eq!(
            connect_error(&daemon, &before).await,
            TlsError::UnknownAuthority,
            "{turn}"
        );
        assert_stream_continues(&mut watch, &pki, turn).await;
    }
    // The periodic check may find one change first, but hardly all three.
    assert!(found_by.contains("found_by=\"event\""), "{found_by}");
    let log = daemon.stop().await;
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_bad_new_certificate_keeps_the_old_one() {
    let pki = Pki::new();
    let mut daemon = pki.serve_mutual();
    let client = pki.client_credentials("client");
    let mut watch = open_watch(&mut daemon.connect_and_call(&client).await).await;
    let good = fs::read(pki.fixture.path("server.pem")).expect("the certificate");
    let other = pki.authority.issue(&CertificateSpec::server()).0;
    let expired = pki
        .authority
        .issue(&CertificateSpec::server().valid_years(2000, 2001));
    let bad: [(&str, &dyn Fn(), &str); 5] = [
        (
            "another's",
            &|| pki.fixture.replace("server.pem", &other),
            "is not the key of the",
        ),
        (
            "half",
            &|| pki.fixture.write("server.pem", &good[..good.len() / 2]),
            "ends within a PEM section",
        ),
        (
            "none",
            &|| fs::remove_file(pki.fixture.path("server.pem")).expect("removed"),
            "not exist",
        ),
        (
            "expired",
            &|| pki.write("server", &expired),
            "expired on 2001-01-01",
        ),
        (
            "no authority",
            &|| pki.fixture.write("ca.pem", "none"),
            "no PEM certificate",
        ),
    ];
    for (what, spoil, expected) in bad {
        spoil();
        let line = daemon.process.wait_for_log(expected).await;
        assert!(
            line.contains("ERROR") && line.contains("keeping the old ones"),
            "{what}: {line}"
        );
        // The daemon reads `ca.pem`, which may be spoiled here. The client uses an intact copy.
        let ca = pki.fixture.path("kept.pem");
        pki.fixture.write("kept.pem", pki.authority.pem());
        daemon
            .connect_and_call(&ClientCredentials {
                ca: Some(ca),
                ..client.clone()
            })
            .await;
        assert_stream_continues(&mut watch, &pki, what).await;
    }
    pki.fixture.write("ca.pem", pki.authority.pem());
    pki.issue("server", &CertificateSpec::server());
    daemon
        .process
        .wait_for_log("the certificates changed")
        .await;
    daemon.connect_and_call(&client).await;
    assert_stream_continues(&mut watch, &pki, "mended").await;
    daemon.stop().await;
}

#[tokio::test]
async fn after_a_client_ca_change_old_clients_stay_connected_but_cannot_reconnect() {
    let pki = Pki::new();
    pki.fixture.write("clients.pem", pki.authority.pem());
    let mut daemon = pki.serve(&["--tls-client-ca", &pki.path_arg("clients.pem")]);
    let old = pki.client_credentials("client");
    let mut watch = open_watch(&mut daemon.connect_and_call(&old).await).await;
    let next = Authority::new("next");
    pki.write("next", &next.issue(&CertificateSpec::client(CLIENT)));
    assert!(matches!(
        connect_error(&daemon, &pki.client_credentials("next")).await,
        TlsError::CertificateRejected(_)
    ));
    pki.fixture.replace("clients.pem", next.pem());
    daemon
        .process
        .wait_for_log("the certificates changed")
        .await;
    daemon
        .connect_and_call(&pki.client_credentials("next"))
        .await;
    assert!(matches!(
        connect_error(&daemon, &old).await,
        TlsError::CertificateRejected(_)
    ));
    assert_stream_continues(&mut watch, &pki, "still here").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_reads_its_new_ca_file_when_it_reconnects() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    let mut client = daemon.connect_and_call(&pki.ca_credentials()).await;
    let authority = Authority::new("another");
    pki.write("server", &authority.issue(&CertificateSpec::server()));
    pki.fixture.write("ca.pem", authority.pem());
    daemon
        .process
        .wait_for_log("the certificates changed")
        .await;
    let port = daemon.port;
    daemon.stop().await;
    let listen = format!("tcp:127.0.0.1:{port}");
    let again = pki.serve(&["--listen", &listen]);
    // The first call may still use the lost connection.
    let roots = in_time(async {
        loop {
            if let Ok(answer) = client.list_roots().await {
                return answer.roots;
            }
        }
    });
    assert_eq!(roots.await.len(), 1);
    again.stop().await;
}

#[tokio::test]
async fn a_reloaded_config_can_name_other_certificate_files() {
    let pki = Pki::new();
    let write = |name: &str| {
        let config = format!("tls: {{certificate: {name}.pem, key: {name}.key}}\n");
        pki.fixture.replace("caproot.yaml", config);
    };
    write("server");
    let mut daemon = TlsDaemon::start(&pki.fixture, &["--config", &pki.path_arg("caproot.yaml")]);
    let mut watch = open_watch(&mut daemon.connect_and_call(&pki.ca_credentials()).await).await;
    let authority = Authority::new("another");
    pki.write("other", &authority.issue(&CertificateSpec::server()));
    pki.fixture.write("new.pem", authority.pem());
    let now = ClientCredentials {
        ca: Some(pki.fixture.path("new.pem")),
        ..ClientCredentials::default()
    };
    write("other");
    daemon.process.send_signal(Signal::HUP);
    daemon
        .process
        .wait_for_log("the configuration was reloaded")
        .await;
    daemon.connect_and_call(&now).await;
    assert_eq!(
        connect_error(&daemon, &pki.ca_credentials()).await,
        TlsError::UnknownAuthority
    );
    assert_stream_continues(&mut watch, &pki, "still here").await;
    // The daemon watches the files of the new config.
    let authority = Authority::new("a third");
    pki.write("other", &authority.issue(&CertificateSpec::server()));
    pki.fixture.write("new.pem", authority.pem());
    daemon
        .process
        .wait_for_log("the certificates changed")
        .await;
    daemon.connect_and_call(&now).await;
    // Removing `tls` needs a restart.
    pki.fixture.replace("caproot.yaml", "audit: false\n");
    daemon.process.send_signal(Signal::HUP);
    daemon.process.wait_for_log("needs a restart: tls").await;
    daemon.connect_and_call(&now).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_metric_has_the_expiry_of_the_certificate_in_use() {
    let mut pki = Pki::new();
    pki.fixture
        .add("dir run\nmode 0700 run\nfile caproot.yaml\n| metrics: {listen: 'unix:run/m.sock'}");
    pki.issue("server", &CertificateSpec::server().valid_years(2020, 2050));
    let mut daemon = pki.serve(&["--config", &pki.path_arg("caproot.yaml")]);
    let expiry = || {
        let name = "caproot_tls_certificate_expiry_timestamp_seconds";
        series_value(&scrape(&pki.fixture), name)
    };
    // 2050-01-01 and 2060-01-01, at 00:00 UTC.
    assert!((expiry() - 2_524_608_000.0).abs() < 0.1, "{}", expiry());
    pki.issue("server", &CertificateSpec::server().valid_years(2020, 2060));
    daemon
        .process
        .wait_for_log("the certificates changed")
        .await;
    assert!((expiry() - 2_840_140_800.0).abs() < 0.1, "{}", expiry());
    daemon.stop().await;
}
