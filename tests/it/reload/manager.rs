//! What a service manager hears of reloads.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::Served;
use crate::fixture::Fixture;
use crate::harness::HANG;

/// The next message of which a line begins so.
async fn told(socket: &UnixDatagram, about: &'static str) -> String {
    let socket = socket.try_clone().expect("a socket");
    let told = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{about}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(about)) {
                return text.into_owned();
            }
        }
    });
    told.await.expect("told")
}

#[tokio::test]
async fn it_hears_that_the_file_is_read_and_what_came_of_it() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill r/a\nskill r/b");
    let plain = "roots: [{id: r, path: r}]";
    fixture.write("caproot.yaml", super::listening(plain));
    let socket = UnixDatagram::bind(fixture.path("run/notify")).expect("a socket");
    socket.set_read_timeout(Some(HANG)).expect("a time-out");
    let (file, notify) = (fixture.path("caproot.yaml"), fixture.path("run/notify"));
    let start = Served::begin(fixture, |command| {
        command.arg("--config").arg(file).env("NOTIFY_SOCKET", notify)
    });
    let served = start.await;
    let ready = told(&socket, "READY=1").await;
    assert!(ready.contains("2 skills") && !ready.contains("RELOADING"), "{ready}");
    for (more, says, says_not) in [
        ("disabled_skills: [{name: a}]", " 1 skills", "restart"),
        ("log: {format: json}", "needs a restart: log.format", "refused"),
        ("nonsense: 1", "the new config is refused: ", " 1 skills"),
        ("", " 2 skills", ";"),
    ] {
        served.fixture.replace("caproot.yaml", super::listening(&format!("{plain}\n{more}")));
        served.signal(Signal::HUP);
        let reloading = told(&socket, "RELOADING=1").await;
        let micros = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(micros.is_some_and(|micros| micros.parse::<u64>().is_ok()), "{reloading}");
        let ready = told(&socket, "READY=1").await;
        assert!(ready.contains(says) && !ready.contains(says_not), "{more}: {ready}");
        assert_eq!(ready.matches("STATUS=").count(), 1, "{ready}");
    }
    served.signal(Signal::TERM);
    told(&socket, "STOPPING=1").await;
    served.stop().await;
}
