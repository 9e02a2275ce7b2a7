//! Credentials of an account whose signing keys have the permissions of `docs/operate/link.md`. The
//! test makes the JWTs that the commands of the page make, from the flags on the page.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::announcements::wait_for_announcement;
use super::broker::NatsServer;
use super::page::{adapt, file};
use super::{call_executor, call_until_success};
use crate::harness::process::{Process, caproot, run_command};
use crate::tls::Pki;
use crate::tls::authority::CertificateSpec;
use caproot_client::Fleet;
use caproot_link::BrokerConfig;

/// Operator, account and signing keys of the page.
struct NatsAccount {
    operator: KeyPair,
    account: KeyPair,
    /// Signing keys with their names.
    signing_keys: Vec<(String, KeyPair)>,
    jwt: String,
}

/// Signs claims. The type of the claims is in `nats`.
fn sign_claims(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: &Value) -> String {
    let mut nats = nats.clone();
    nats["version"] = json!(2);
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": name,
        "sub": subject.public_key(), "nats": nats,
    });
    let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = issuer.sign(signed.as_bytes()).expect("a key with its seed");
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the value of a flag on the page as a list of subjects. An absent flag has none.
fn subjects(command: &[&str], flag: &str) -> Vec<String> {
    let value = command
        .iter()
        .position(|word| *word == flag)
        .map(|at| command[at + 1]);
    let value = value.map(|value| value.trim_matches('\''));
    value.map_or_else(Vec::new, |value| {
        value.split(',').map(str::to_owned).collect()
    })
}

impl NatsAccount {
    /// Makes the account of the page's commands.
    fn new() -> Self {
        let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
        let text = file("account.sh").replace("\\\n", " ");
        let (mut signing_keys, mut scopes) = (Vec::new(), Vec::new());
        for line in text
            .lines()
            .filter(|line| line.starts_with("nsc edit signing-key"))
        {
            let words: Vec<_> = line.split_whitespace().collect();
            let key = KeyPair::new_account();
            let role = subjects(&words, "--role").remove(0);
            scopes.push(json!({
                "kind": "user_scope", "key": key.public_key(), "role": role,
                "template": {
                    "pub": {
                        "allow": subjects(&words, "--allow-pub"),
                        "deny": subjects(&words, "--deny-pub"),
                    },
                    "sub": {"allow": subjects(&words, "--allow-sub")},
                    "subs": -1, "data": -1, "payload": -1,
                },
            }));
            signing_keys.push((role, key));
        }
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
            "wildcards": true, "conn": -1, "leaf": -1,
        });
        let claims = json!({"type": "account", "limits": limits, "signing_keys": scopes});
        let jwt = sign_claims(&operator, &account, "fleet", &claims);
        Self {
            operator,
            account,
            signing_keys,
            jwt,
        }
    }

    /// Returns the file that `nsc generate config` writes.
    fn broker_config(&self) -> String {
        let claims = json!({"type": "operator"});
        let operator = sign_claims(&self.operator, &self.operator, "platform", &claims);
        let (account, jwt) = (self.account.public_key(), &self.jwt);
        format!(
            "operator: {operator}\nresolver: MEMORY\nresolver_preload: {{\n  {account}: {jwt}\n}}\n"
        )
    }

    /// Returns the credentials file of a user with the permissions of a signing key.
    fn credentials(&self, role: &str, name: &str) -> String {
        let (_, key) = self
            .signing_keys
            .iter()
            .find(|(known, _)| known == role)
            .expect(role);
        let user = KeyPair::new_user();
        let claims = json!({"type": "user", "issuer_account": self.account.public_key()});
        let jwt = sign_claims(key, &user, name, &claims);
        let seed = user.seed().expect("a seed");
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

/// Replaces the certificate in the `nats` section of a file of the page by credentials.
fn with_credentials(text: &str, name: &str) -> String {
    let section = file("nats-creds")
        .lines()
        .find(|line| line.contains("creds:"))
        .expect("creds");
    let (section, _) = section.split_once('#').expect("a comment");
    let section = section
        .trim_end()
        .replace("one.creds", &format!("{name}.creds"));
    let (mut text, mut is_section) = (text.to_owned(), false);
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    text.clear();
    for line in lines {
        is_section = line == "nats:" || is_section && line.starts_with(' ');
        if is_section && line.starts_with("  key:") {
            continue;
        }
        text += if is_section && line.starts_with("  cert:") {
            &section
        } else {
            &line
        };
        text.push('\n');
    }
    text
}

/// Each executor has the subjects of its own id, and orchestrators cannot claim.
#[tokio::test]
async fn signing_keys_keep_executors_apart() {
    let (pki, account) = (Pki::new(), NatsAccount::new());
    pki.issue(
        "one",
        &CertificateSpec::client("spiffe://example.org/executor/one"),
    );
    pki.fixture.write("account.conf", account.broker_config());
    let dir = pki.fixture.path("").display().to_string();
    let config = file("nats-account.conf").replace("/etc/nats", dir.trim_end_matches('/'));
    let config: Vec<_> = config
        .lines()
        .filter(|line| !line.starts_with("listen:"))
        .collect();
    pki.fixture.write("nats.conf", config.join("\n"));
    let flags = format!("-a 127.0.0.1 -c {}", pki.path_arg("nats.conf"));
    let Some(broker) = NatsServer::start(&flags).await else {
        return;
    };
    for (role, name) in [
        ("executor", "one"),
        ("executor", "two"),
        ("orchestrator", "orchestrators"),
    ] {
        pki.fixture
            .write(&format!("{name}.creds"), account.credentials(role, name));
    }
    let config = adapt(&pki, "caproot.yaml", &broker, "127.0.0.1:0");
    let daemon = Process::start(caproot(["serve", "--config", &config]));
    // Starts a link for an environment with the credentials of a user.
    let link = |environment_id: &str, user: &str| {
        let name = format!("{environment_id}-{user}.yaml");
        adapt(&pki, "link.yaml", &broker, daemon.address());
        let text = std::fs::read_to_string(pki.fixture.path("link.yaml")).expect("a file");
        let text = with_credentials(&text, user).replace("[one]", &format!("[{environment_id}]"));
        let (text, _) = text.split_once("metrics:").expect("metrics");
        pki.fixture.write(&name, text);
        Process::spawn(caproot(["link", "--config", &pki.path_arg(&name)]))
    };
    let mut one = link("one", "one");
    assert_eq!(one.line().await, "linked one");
    let fleet = adapt(&pki, "fleet.yaml", &broker, "");
    let text = std::fs::read_to_string(&fleet).expect("a file");
    pki.fixture
        .write("fleet.yaml", with_credentials(&text, "orchestrators"));
    let list = ["list", "--fleet", &fleet, "--environment-id", "one"];
    let list = run_command(caproot(list)).await.succeeded();
    assert!(list.text().contains("team"), "{}", list.text());

    // Orchestrators hear claims.
    wait_for_announcement(BrokerConfig {
        ca: Some(pki.fixture.path("ca.pem")),
        creds: Some(pki.fixture.path("orchestrators.creds")),
        ..BrokerConfig::new(vec![broker.tls_url()])
    })
    .await;

    // A user of another executor, and a user of the orchestrators, cannot serve an environment.
    let fleet = Fleet::from_file(&pki.fixture.path("fleet.yaml"))
        .await
        .expect("a fleet");
    for (environment_id, user) in [("two", "one"), ("one", "two"), ("two", "orchestrators")] {
        let mut intruder = link(environment_id, user);
        let denied = intruder
            .wait_for_log("Permissions Violation for Subscription")
            .await;
        assert!(
            denied.contains(&format!("caproot.v1.in.{environment_id}.")),
            "{denied}"
        );
        if environment_id == "two" {
            let error = call_executor(&fleet, "two").await.expect_err("no link");
            assert!(error.contains("no link serves the environment"), "{error}");
        } else {
            call_until_success(&fleet, "one").await;
        }
    }
    // Another user with the name of the executor serves, so the name is what counts.
    let mut two = link("two", "two");
    assert_eq!(two.line().await, "linked two");
    let error = call_executor(&fleet, "two")
        .await
        .expect_err("the certificate of another executor");
    assert!(
        error.contains("is not for spiffe://example.org/executor/two"),
        "{error}"
    );
    assert!(one.is_running());
}
