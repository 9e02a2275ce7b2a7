//! Ids of published roots in a session on a whole fleet, and equal skills of several executors: the real
//! binary against real daemons, which count the reads.

use serde_json::{Value, json};

use super::call_command::{CallProcess, write_fleet};
use crate::config::metrics::scrape;
use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, caproot, run_command};
use crate::harness::test_servers::unused_address;

/// Executor that publishes `team`, which is equal on each executor, and `own`, which is not.
struct Executor {
    environment_id: &'static str,
    address: String,
    fixture: Fixture,
    daemon: Option<ConfiguredDaemon>,
}

impl Executor {
    /// Creates the files of an executor that is down.
    fn new(environment_id: &'static str) -> Self {
        let fixture = Fixture::new(
            "dir run\nmode 0700 run\nskill team/a\nfile team/a/tool.sh\n| equal\nskill team/b",
        );
        let text = format!("---\ndescription: Only {environment_id}.\n---\n");
        fixture.write("own/c/SKILL.md", text);
        // A file next to the SKILL.md is not part of a catalog.
        fixture.write("team/a/where.txt", environment_id);
        Self {
            environment_id,
            address: unused_address(),
            fixture,
            daemon: None,
        }
    }

    async fn start(&mut self) {
        let Self {
            environment_id,
            address,
            ..
        } = self;
        let config = format!(
            "roots: [{{id: own, path: own}}, {{id: team, path: team}}]\n\
             environment_ids: [{environment_id}]\nlisten: ['tcp:{address}']\n\
             metrics: {{listen: 'unix:run/m.sock'}}\n"
        );
        self.daemon = Some(ConfiguredDaemon::start(&self.fixture, &config).await);
    }

    /// Returns how many reads the daemon has answered.
    fn reads(&self) -> u64 {
        let series = "caproot_calls_total{method=\"caproot.v1.CapabilityService/ReadResource\",";
        let page = scrape(&self.fixture);
        let counts = page.lines().filter(|line| line.starts_with(series));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        counts.sum()
    }

    async fn stop(self) {
        if let Some(daemon) = self.daemon {
            daemon.stop().await;
        }
    }
}

/// Starts a session on the whole fleet.
fn start_session(fleet: &Fixture) -> CallProcess {
    let mut command = caproot(["call", "--fleet"]);
    command.arg(fleet.path("fleet.yaml"));
    CallProcess::start(command)
}

/// Returns the skills of a list by their packages.
async fn list_skills(session: &mut CallProcess) -> Vec<(String, Value)> {
    let list = session.call("skills_list", &json!({})).await;
    let skills = list["skills"].as_array().expect("skills").iter();
    let packages = skills.map(|skill| {
        let package = skill["package"].as_str().expect("a package").to_owned();
        (package, skill["environments"].clone())
    });
    packages.collect()
}

async fn read(session: &mut CallProcess, package: &str, resource: &str) -> Value {
    let arguments = json!({"package": package, "resource": resource});
    session.call("skills_read", &arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_means_the_root_of_its_environment_whichever_executors_answer() {
    let (mut first, mut second) = (Executor::new("alpha"), Executor::new("beta"));
    let fleet = Fixture::new("dir fleet");
    write_fleet(
        &fleet.path("fleet.yaml"),
        &[("alpha", &first.address), ("beta", &second.address)],
    );

    // Only the second executor answers.
    second.start().await;
    let mut session = start_session(&fleet);
    let expected: Vec<_> = ["own%40beta/c", "team%40beta/a", "team%40beta/b"]
        .map(|path| (format!("skill://{path}"), Value::Null))
        .into();
    assert_eq!(list_skills(&mut session).await, expected);
    for other in ["skill://team/a", "skill://team%40alpha/a"] {
        let error = read(&mut session, other, "").await;
        assert_eq!(error["error"]["code"], "PACKAGE_NOT_FOUND", "{error}");
    }
    let page = read(&mut session, "skill://team%40beta/a", "where.txt").await;
    assert_eq!(page["contents"], "beta");
    let saved = session.request(json!({"method": "save"})).await["result"].clone();
    assert_eq!(session.end().await, Some(0));

    // With both executors, the ids are the same, and equal skills are one line.
    first.start().await;
    let mut session = start_session(&fleet);
    let both = |path: &str| {
        json!({
            "alpha": format!("skill://team%40alpha/{path}"),
            "beta": format!("skill://team%40beta/{path}"),
        })
    };
    let expected = [
        ("skill://own%40alpha/c".to_owned(), Value::Null),
        ("skill://team%40alpha/a".to_owned(), both("a")),
        ("skill://team%40alpha/b".to_owned(), both("b")),
        ("skill://own%40beta/c".to_owned(), Value::Null),
    ];
    assert_eq!(list_skills(&mut session).await, expected);
    let text = session.request(json!({"method": "instructions"})).await["result"].clone();
    assert_eq!((&text["listed"], &text["omitted"]), (&json!(4), &json!(0)));
    let text = text["text"].as_str().expect("a text");
    let heading = "\nexecutor \"team@alpha\":\n\
                   These skills are in environment \"alpha\". The same skills are elsewhere:\n\
                   environment \"beta\": authority id \"team@beta\"\n\
                   - a: Does a.\n";
    assert!(text.contains(heading), "{text}");

    // Each read goes to the executor of its handle, and to no other.
    let mut counts = (first.reads(), second.reads());
    for (package, resource, contents) in [
        ("skill://team%40alpha/a", "where.txt", "alpha"),
        ("skill://team%40beta/a", "where.txt", "beta"),
        ("skill://own%40alpha/c", "", "Only alpha."),
        ("skill://own%40beta/c", "", "Only beta."),
    ] {
        let page = read(&mut session, package, resource).await;
        let text = page["contents"].as_str().expect("a text");
        assert!(text.contains(contents), "{package}: {text}");
        if package.contains("alpha") {
            counts.0 += 1;
        } else {
            counts.1 += 1;
        }
        assert_eq!((first.reads(), second.reads()), counts, "{package}");
    }

    // A session that was saved without the first executor still has the second one only.
    let restored = session
        .request(json!({"method": "restore", "saved": saved}))
        .await;
    let id = restored["result"]["session"].clone();
    let answer = session
        .request(json!({"session": id, "method": "call", "tool": "skills_list", "arguments": {}}))
        .await;
    let skills = answer["result"]["skills"].as_array().expect("skills");
    assert_eq!(skills.len(), 3, "{answer}");
    assert_eq!(skills[1]["package"], "skill://team%40beta/a");

    // The handles are known to the commands for one executor, with and without the fleet.
    let file = fleet.path("fleet.yaml");
    let file = file.to_str().expect("UTF-8");
    let handle = "skill://team%40beta/a/where.txt";
    let in_fleet = ["--fleet", file, "--environment-id", "beta"];
    let endpoint = format!("tcp:{}", second.address);
    for flags in [&in_fleet[..], &["--endpoint", &endpoint]] {
        let command = caproot(["read", handle].iter().chain(flags));
        assert_eq!(run_command(command).await.succeeded().text(), "beta");
    }
    let command = caproot(["read", "skill://team%40alpha/a", "--endpoint", &endpoint]);
    let output = run_command(command).await;
    assert_eq!(output.text(), "");
    assert!(output.stderr.contains("WRONG_ENVIRONMENT"), "{output:?}");

    assert_eq!(session.end().await, Some(0));
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_selection_are_not_changed() {
    let (mut first, mut second) = (Executor::new("alpha"), Executor::new("beta"));
    first.start().await;
    second.start().await;
    let fleet = Fixture::new("dir fleet");
    write_fleet(
        &fleet.path("fleet.yaml"),
        &[("alpha", &first.address), ("beta", &second.address)],
    );
    let at = |id: &str, environment: &str| json!({"id": id, "location": {"environmentId": environment, "path": "published:team"}});
    let selected = json!([at("mine", "beta"), at("team", "alpha")]);
    fleet.write("selected.json", selected.to_string());

    let mut command = caproot(["call", "--events", "--fleet"]);
    command.arg(fleet.path("fleet.yaml"));
    command.arg("--selected").arg(fleet.path("selected.json"));
    let mut session = CallProcess::start(command);
    let both = |path: &str| {
        json!({
            "alpha": format!("skill://team/{path}"),
            "beta": format!("skill://mine/{path}"),
        })
    };
    let expected = [
        ("skill://mine/a".to_owned(), both("a")),
        ("skill://mine/b".to_owned(), both("b")),
    ];
    assert_eq!(list_skills(&mut session).await, expected);
    let page = read(&mut session, "skill://team/a", "where.txt").await;
    assert_eq!(page["contents"], "alpha");

    // A change of one executor divides the line.
    second
        .fixture
        .write("team/b/SKILL.md", "---\ndescription: Changed.\n---\n");
    loop {
        session.wait_for_event().await;
        let skills = list_skills(&mut session).await;
        if skills.len() == 4 {
            assert!(
                skills
                    .iter()
                    .all(|(_, environments)| environments.is_null())
            );
            break;
        }
    }
    assert_eq!(session.end().await, Some(0));
    first.stop().await;
    second.stop().await;
}
