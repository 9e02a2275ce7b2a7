//! Signatures of `ssh-keygen`.

use std::fs;

use super::{TREE, create_lock, run};
use crate::harness::fixture::Fixture;
use crate::harness::process::{has_program, program};

/// Makes a key of a type, signs the lock in a namespace, and writes `allowed_signers`.
fn sign(fixture: &Fixture, key_type: &str, namespace: &str) {
    let ssh_keygen = |arguments: &[&str]| {
        let mut command = program("ssh-keygen");
        let output = command.current_dir(fixture.top()).args(arguments).output();
        let output = output.expect("ssh-keygen of the package openssh-client");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    for file in ["key", "key.pub", "caproot.lock.sig"] {
        // The files of an earlier key may not exist.
        let _ = fs::remove_file(fixture.path(file));
    }
    ssh_keygen(&["-q", "-t", key_type, "-N", "", "-f", "key"]);
    ssh_keygen(&[
        "-q",
        "-Y",
        "sign",
        "-n",
        namespace,
        "-f",
        "key",
        "caproot.lock",
    ]);
    let key = fs::read_to_string(fixture.path("key.pub")).expect("a key");
    fixture.write(
        "allowed_signers",
        format!("ops@example.org namespaces=\"caproot-lock\" {key}"),
    );
}

const CHECK: &str = "lock r --check caproot.lock --signers allowed_signers";

#[tokio::test]
async fn a_lock_needs_a_signature_of_an_allowed_signer() {
    if !has_program("ssh-keygen", &["-l", "-f", "/dev/null"]) {
        return;
    }
    let fixture = create_lock(TREE).await;
    fixture.write("allowed_signers", "# none\n");
    let empty = run(&fixture, CHECK).await;
    empty.exited_with(
        78,
        "allowed_signers: has no key for the namespace caproot-lock",
    );

    sign(&fixture, "ed25519", "caproot-lock");
    run(&fixture, CHECK).await.succeeded();

    // The signature does not cover another text.
    let text = fs::read_to_string(fixture.path("caproot.lock")).expect("a lock");
    fixture.write("caproot.lock", format!("{text}\n"));
    let changed = run(&fixture, CHECK).await;
    changed.exited_with(
        78,
        "caproot.lock: the signature is not of this text; sign the lock again",
    );
    fixture.write("caproot.lock", text);

    let own = fs::read_to_string(fixture.path("allowed_signers")).expect("signers");
    sign(&fixture, "ed25519", "caproot-lock");
    fixture.write("allowed_signers", own);
    let unknown = run(&fixture, CHECK).await;
    unknown.exited_with(78, "caproot.lock: the signature is of the key SHA256:");

    sign(&fixture, "ed25519", "file");
    let namespace = run(&fixture, CHECK).await;
    namespace.exited_with(
        78,
        "has the namespace \"file\"; sign with ssh-keygen -Y sign -n caproot-lock",
    );

    sign(&fixture, "ecdsa", "caproot-lock");
    let key_type = run(&fixture, CHECK).await;
    key_type.exited_with(
        78,
        "allowed_signers:1:1: the line has a key of the type \"ecdsa-sha2-nistp256\"",
    );

    fs::remove_file(fixture.path("caproot.lock.sig")).expect("removed");
    fixture.write(
        "allowed_signers",
        include_str!("../../../../crates/core/src/lock/samples/allowed_signers"),
    );
    let missing = run(&fixture, CHECK).await;
    missing.exited_with(78, "caproot.lock.sig: does not exist");
}
