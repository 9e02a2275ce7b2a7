//! Certificates that change while the daemon serves: new connections get the new ones, and open streams
//! live on.

use std::fs;

use caproot::client::{
    Client, ClientCredentials, ConnectError, SkillWatch, TlsError, WatchMessage,
};
use caproot::proto::caproot::v1::WatchSkillsRequest;
use caproot::proto::caproot::v1::watch_skills_response::Event;
use rustix::process::{Pid, Signal, kill_process};

use super::authority::{Authority, Wanted};
use super::{CLIENT, Pki, Served};
use crate::harness::in_time;
use crate::watch_harness::skill_text;

/// A stream of the published root that has told all there is.
async fn watching(client: &mut Client) -> SkillWatch {
    let roots = client.list_roots().await.expect("roots").roots;
    let selected = roots.into_iter().filter_map(|root| root.selected_capability_root);
    let request = WatchSkillsRequest {
        selected_capability_roots: selected.collect(),
        ..WatchSkillsRequest::default()
    };
    let mut watch = client.watch_skills(request);
    synced(&mut watch).await;
    watch
}

/// Goes on to the next state; the descriptions of skills that are new in it.
async fn synced(watch: &mut SkillWatch) -> Vec<String> {
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

/// A skill changes, and the stream says so.
async fn lives(watch: &mut SkillWatch, pki: &Pki, says: &str) {
    pki.fixture.write("root/a/SKILL.md", skill_text("a", says));
    assert_eq!(synced(watch).await, [says]);
}

async fn refused(served: &Served, credentials: &ClientCredentials) -> TlsError {
    match served.connect(credentials).await {
        Err(ConnectError::Tls { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn streams_outlive_the_certificate() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    let mut watch = watching(&mut served.admitted(&pki.trusting()).await).await;
    let before = pki.trusting();
    let now =
        ClientCredentials { ca: Some(pki.fixture.path("new.pem")), ..ClientCredentials::default() };
    let mut found_by = String::new();
    for turn in ["by rename", "in place", "both at once"] {
        let authority = Authority::new("another");
        pki.fixture.write("new.pem", authority.pem());
        let (certificate, key) = authority.issue(&Wanted::server());
        match turn {
            "by rename" => {
                pki.fixture.replace("server.pem", certificate);
                pki.fixture.replace("server.key", key);
            }
            "in place" => {
                pki.fixture.write("server.key", key);
                pki.fixture.write("server.pem", certificate);
            }
            // As a mounted secret changes: its directory is another one.
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
        found_by.push_str(&served.says("certificate files changed").await);
        served.says("the certificates changed").await;
        served.admitted(&now).await;
        assert_eq!(refused(&served, &before).await, TlsError::UnknownAuthority, "{turn}");
        lives(&mut watch, &pki, turn).await;
    }
    // The timer may come first once, but hardly three times.
    assert!(found_by.contains("found_by=\"event\""), "{found_by}");
    let log = served.stop().await;
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_bad_new_certificate_leaves_the_old_one() {
    let pki = Pki::new();
    let mut served = pki.serve_mutual().await;
    let client = pki.showing("client");
    let mut watch = watching(&mut served.admitted(&client).await).await;
    let good = fs::read(pki.fixture.path("server.pem")).expect("the certificate");
    let other = pki.authority.issue(&Wanted::server()).0;
    let expired = pki.authority.issue(&Wanted::server().valid(2000, 2001));
    let bad: [(&str, &dyn Fn(), &str); 5] = [
        ("another's", &|| pki.fixture.replace("server.pem", &other), "is not the key of the"),
        ("half", &|| pki.fixture.write("server.pem", &good[..good.len() / 2]), "in the middle of"),
        (
            "none",
            &|| fs::remove_file(pki.fixture.path("server.pem")).expect("removed"),
            "not exist",
        ),
        ("expired", &|| pki.write("server", &expired), "expired on 2001-01-01"),
        ("no authority", &|| pki.fixture.write("ca.pem", "none"), "no certificate in PEM"),
    ];
    for (what, spoil, says) in bad {
        spoil();
        let line = served.says(says).await;
        assert!(line.contains("ERROR") && line.contains("keeping the old ones"), "{what}: {line}");
        // By the file as it was; the client's own copy is not what is tested.
        let ca = pki.fixture.path("kept.pem");
        pki.fixture.write("kept.pem", pki.authority.pem());
        served.admitted(&ClientCredentials { ca: Some(ca), ..client.clone() }).await;
        lives(&mut watch, &pki, what).await;
    }
    pki.fixture.write("ca.pem", pki.authority.pem());
    pki.issue("server", &Wanted::server());
    served.says("the certificates changed").await;
    served.admitted(&client).await;
    lives(&mut watch, &pki, "mended").await;
    served.stop().await;
}

#[tokio::test]
async fn clients_of_an_authority_that_is_replaced_stay_and_do_not_come_again() {
    let pki = Pki::new();
    pki.fixture.write("clients.pem", pki.authority.pem());
    let mut served = pki.serve(&["--tls-client-ca", &pki.arg("clients.pem")]).await;
    let old = pki.showing("client");
    let mut watch = watching(&mut served.admitted(&old).await).await;
    let next = Authority::new("next");
    pki.write("next", &next.issue(&Wanted::client(CLIENT)));
    assert!(matches!(
        refused(&served, &pki.showing("next")).await,
        TlsError::CertificateRejected(_)
    ));
    pki.fixture.replace("clients.pem", next.pem());
    served.says("the certificates changed").await;
    served.admitted(&pki.showing("next")).await;
    assert!(matches!(refused(&served, &old).await, TlsError::CertificateRejected(_)));
    lives(&mut watch, &pki, "still here").await;
    served.stop().await;
}

#[tokio::test]
async fn a_client_takes_its_own_new_files_when_it_connects_again() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    let mut client = served.admitted(&pki.trusting()).await;
    let authority = Authority::new("another");
    pki.write("server", &authority.issue(&Wanted::server()));
    pki.fixture.write("ca.pem", authority.pem());
    served.says("the certificates changed").await;
    let port = served.port;
    served.stop().await;
    let listen = format!("tcp:127.0.0.1:{port}");
    let again = pki.serve(&["--listen", &listen]).await;
    // The first call may still find the connection that is gone.
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
async fn other_files_by_another_config() {
    let pki = Pki::new();
    let write = |name: &str| {
        let config = format!("tls: {{certificate: {name}.pem, key: {name}.key}}\n");
        pki.fixture.replace("caproot.yaml", config);
    };
    write("server");
    let mut served = Served::start(&pki.fixture, &["--config", &pki.arg("caproot.yaml")]).await;
    let mut watch = watching(&mut served.admitted(&pki.trusting()).await).await;
    let authority = Authority::new("another");
    pki.write("other", &authority.issue(&Wanted::server()));
    pki.fixture.write("new.pem", authority.pem());
    let now =
        ClientCredentials { ca: Some(pki.fixture.path("new.pem")), ..ClientCredentials::default() };
    let hangup = |served: &Served| {
        let pid = i32::try_from(served.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::HUP).expect("a signal");
    };
    write("other");
    hangup(&served);
    served.says("the configuration was reloaded").await;
    served.admitted(&now).await;
    assert_eq!(refused(&served, &pki.trusting()).await, TlsError::UnknownAuthority);
    lives(&mut watch, &pki, "still here").await;
    // Those that are named now are the ones that are looked at.
    let authority = Authority::new("a third");
    pki.write("other", &authority.issue(&Wanted::server()));
    pki.fixture.write("new.pem", authority.pem());
    served.says("the certificates changed").await;
    served.admitted(&now).await;
    // No TLS at all is for the next start.
    pki.fixture.replace("caproot.yaml", "audit: false\n");
    hangup(&served);
    served.says("needs a restart: tls").await;
    served.admitted(&now).await;
    served.stop().await;
}
