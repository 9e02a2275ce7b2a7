use super::{AllowedSigners, Lock, SIGNATURE_NAMESPACE, verify_text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256, Sha512};
use std::time::{Duration, SystemTime};

/// Lock, signature and allowed signers that `ssh-keygen` made.
const SAMPLE_LOCK: &[u8] = include_bytes!("../samples/caproot.lock");
const SAMPLE_SIGNATURE: &[u8] = include_bytes!("../samples/caproot.lock.sig");
const SAMPLE_SIGNERS: &str = include_str!("../samples/allowed_signers");

const APPLICATION: &[u8] = b"ssh:";

/// Key whose signatures have one property that differs from a good signature.
struct TestSigner {
    pair: Ed25519KeyPair,
    is_hardware: bool,
    flags: u8,
    namespace: &'static str,
    hash_algorithm: &'static str,
    key_type: &'static str,
}

impl TestSigner {
    fn new(is_hardware: bool) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
        let key_type = if is_hardware {
            super::HARDWARE_KEY_TYPE
        } else {
            super::KEY_TYPE
        };
        Self {
            pair,
            is_hardware,
            flags: 1,
            namespace: SIGNATURE_NAMESPACE,
            hash_algorithm: "sha512",
            key_type,
        }
    }

    fn key_blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        push_string(&mut blob, self.key_type.as_bytes());
        push_string(&mut blob, self.pair.public_key().as_ref());
        if self.is_hardware {
            push_string(&mut blob, APPLICATION);
        }
        blob
    }

    /// Returns the line of the key with options, which end with a blank.
    fn line(&self, options: &str) -> String {
        let key = STANDARD.encode(self.key_blob());
        format!("me@example.org {options}{} {key} a comment", self.key_type)
    }

    fn signers(&self, options: &str) -> AllowedSigners {
        AllowedSigners::parse(&self.line(options)).expect("allowed signers")
    }

    fn sign(&self, text: &[u8]) -> Vec<u8> {
        let hash = if self.hash_algorithm == "sha256" {
            Sha256::digest(text).to_vec()
        } else {
            Sha512::digest(text).to_vec()
        };
        let mut signed = b"SSHSIG".to_vec();
        let mut blob = b"SSHSIG\0\0\0\x01".to_vec();
        push_string(&mut blob, &self.key_blob());
        for part in [self.namespace, "", self.hash_algorithm] {
            push_string(&mut signed, part.as_bytes());
            push_string(&mut blob, part.as_bytes());
        }
        push_string(&mut signed, &hash);

        let mut inner = Vec::new();
        push_string(&mut inner, self.key_type.as_bytes());
        if self.is_hardware {
            let touch = [self.flags, 0, 0, 0, 9];
            let message = [
                &Sha256::digest(APPLICATION)[..],
                &touch,
                &Sha256::digest(&signed),
            ]
            .concat();
            push_string(&mut inner, self.pair.sign(&message).as_ref());
            inner.extend(touch);
        } else {
            push_string(&mut inner, self.pair.sign(&signed).as_ref());
        }
        push_string(&mut blob, &inner);
        armor(&blob)
    }
}

fn armor(blob: &[u8]) -> Vec<u8> {
    let lines = STANDARD.encode(blob);
    let lines: Vec<_> = lines.as_bytes().chunks(70).map(<[u8]>::to_vec).collect();
    let body = lines.join(&b'\n');
    [
        b"-----BEGIN SSH SIGNATURE-----\n",
        &body[..],
        b"\n-----END SSH SIGNATURE-----\n",
    ]
    .concat()
}

fn push_string(out: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a small part");
    out.extend(length.to_be_bytes());
    out.extend(part);
}

fn verify(signer: &TestSigner, options: &str) -> Result<String, String> {
    let signers = signer.signers(options);
    let signature = signer.sign(b"text");
    verify_text(b"text", &signature, &signers, SystemTime::now()).map(str::to_owned)
}

#[test]
fn a_signature_of_ssh_keygen_is_good() {
    let signers = AllowedSigners::parse(SAMPLE_SIGNERS).expect("allowed signers");
    let signed = Lock::parse_signed(SAMPLE_LOCK, SAMPLE_SIGNATURE, &signers).expect("signed");
    assert_eq!(signed.signer.as_deref(), Some("ops@example.org"));
    assert!(signed.lock.skills().is_empty());

    let other_text = [SAMPLE_LOCK, b"\n"].concat();
    let error = Lock::parse_signed(&other_text, SAMPLE_SIGNATURE, &signers).expect_err("changed");
    assert_eq!(
        error.to_string(),
        "the signature is not of this text; sign the lock again"
    );
    let nobody = AllowedSigners::default();
    let error = Lock::parse_signed(SAMPLE_LOCK, SAMPLE_SIGNATURE, &nobody).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "the signature is of the key SHA256:U2lXl6YeRm/X4wkIE9XqKWastw0ju7Ag8RqgdaFXBfI, which the \
         allowed signers do not have in the namespace caproot-lock"
    );
}

#[test]
fn keys_in_files_and_in_hardware_sign() {
    for is_hardware in [false, true] {
        for hash_algorithm in ["sha256", "sha512"] {
            let signer = TestSigner {
                hash_algorithm,
                ..TestSigner::new(is_hardware)
            };
            assert_eq!(verify(&signer, ""), Ok("me@example.org".to_owned()));
        }
    }
}

#[test]
fn other_signatures_are_rejected_with_a_reason() {
    let good = TestSigner::new(false);
    let cases = [
        (
            TestSigner {
                namespace: "git",
                ..TestSigner::new(false)
            },
            "has the namespace \"git\"; sign with ssh-keygen -Y sign -n caproot-lock",
        ),
        (
            TestSigner {
                hash_algorithm: "md5",
                ..TestSigner::new(false)
            },
            "has the hash function \"md5\"; sign with sha256 or sha512",
        ),
        (
            TestSigner {
                key_type: "ssh-rsa",
                ..TestSigner::new(false)
            },
            "has a key of the type \"ssh-rsa\"; sign with a key of the type ssh-ed25519 or \
             sk-ssh-ed25519@openssh.com",
        ),
        (
            TestSigner {
                flags: 0,
                ..TestSigner::new(true)
            },
            "was made without a touch of the hardware key; sign the lock again",
        ),
    ];
    for (signer, sentence) in cases {
        let signature = signer.sign(b"text");
        let signers = good.signers("");
        let error = verify_text(b"text", &signature, &signers, SystemTime::now());
        assert_eq!(error.expect_err(sentence), sentence);
    }

    // A key in hardware is another key than the same key in a file.
    let hardware = TestSigner::new(true).sign(b"text");
    let signers = good.signers("");
    let error = verify_text(b"text", &hardware, &signers, SystemTime::now());
    let error = error.expect_err("unknown");
    assert!(error.starts_with("is of the key "), "{error}");
}

#[test]
fn a_key_is_valid_between_its_times() {
    let signer = TestSigner::new(false);
    for (options, is_valid) in [
        ("valid-after=\"20200101Z\" ", true),
        (
            "valid-after=\"20200101\",valid-before=\"20990101120000Z\" ",
            true,
        ),
        ("valid-after=\"209901010000Z\" ", false),
        ("valid-before=\"20200101Z\" ", false),
        (
            "namespaces=\"git,caproot-lock\",valid-before=20200101Z ",
            false,
        ),
    ] {
        let outcome = verify(&signer, options);
        assert_eq!(outcome.is_ok(), is_valid, "{options}: {outcome:?}");
        if let Err(sentence) = outcome {
            assert_eq!(
                sentence,
                "is of a key that is not valid now; see valid-after and valid-before in line 1 of the \
                 allowed signers"
            );
        }
    }

    let signers = signer.signers("valid-after=\"20260102030405Z\" ");
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045);
    let signature = signer.sign(b"text");
    assert!(verify_text(b"text", &signature, &signers, start).is_ok());
    let before = start - Duration::from_secs(1);
    assert!(verify_text(b"text", &signature, &signers, before).is_err());
}

#[test]
fn a_line_of_another_namespace_is_skipped() {
    let signer = TestSigner::new(false);
    let text = format!(
        "# keys\n\nci@example.org namespaces=\"git\" ssh-rsa AAAA\n{}\n",
        signer.line("namespaces=\"caproot-lock\" ")
    );
    let signers = AllowedSigners::parse(&text).expect("allowed signers");
    let signature = signer.sign(b"text");
    assert!(verify_text(b"text", &signature, &signers, SystemTime::now()).is_ok());
    let error = verify(&signer, "namespaces=\"git\" ").expect_err("another namespace");
    assert!(error.starts_with("is of the key SHA256:"), "{error}");
}

#[test]
fn invalid_lines_of_allowed_signers_have_a_reason() {
    for (line, sentence) in [
        ("me", "expected `PRINCIPALS [OPTIONS] KEY-TYPE KEY`"),
        (
            "me ssh-ed25519",
            "expected `PRINCIPALS [OPTIONS] KEY-TYPE KEY`",
        ),
        ("me namespaces=\"a b ssh-ed25519 A", "a quote is not closed"),
        (
            "me ssh-rsa AAAA",
            "the line has a key of the type \"ssh-rsa\"; sign with a key of the type ssh-ed25519 or \
             sk-ssh-ed25519@openssh.com",
        ),
        (
            "me ecdsa-sha2-nistp256 AAAA",
            "the line has a key of the type \"ecdsa-sha2-nistp256\"; sign with a key of the type \
             ssh-ed25519 or sk-ssh-ed25519@openssh.com",
        ),
        (
            "me ssh-ed25519 ***",
            "the line has a key that is not Base64",
        ),
        ("me ssh-ed25519 AAAA", "the line ends early"),
        (
            "me cert-authority ssh-ed25519 AAAA",
            "cert-authority is not supported; list the keys of the signers",
        ),
        (
            "me namespaces=\"caproot-*\" ssh-ed25519 AAAA",
            "patterns in namespaces are not supported; write namespaces=\"caproot-lock\"",
        ),
        (
            "me no-touch-required ssh-ed25519 AAAA",
            "unknown option \"no-touch-required\"; the options are namespaces, valid-after, \
             valid-before",
        ),
        (
            "me namespaces=\"other\",Namespaces=\"caproot-lock\" ssh-ed25519 AAAA",
            "the option \"namespaces\" is given twice",
        ),
        (
            "me valid-after=\"2026\" ssh-ed25519 AAAA",
            "the time \"2026\" is not valid: it has another form; write YYYYMMDDHHMMSSZ",
        ),
    ] {
        let error = AllowedSigners::parse(&format!("# c\n{line}")).expect_err(line);
        assert_eq!(error.to_string(), format!("2:1: {sentence}"));
    }
    let day = "me valid-before=\"20261399Z\" ssh-ed25519 AAAA";
    let error = AllowedSigners::parse(day).expect_err(day).reason;
    assert!(
        error.starts_with("the time \"20261399Z\" is not valid: "),
        "{error}"
    );

    let many = format!("{}\n", TestSigner::new(false).line("")).repeat(1_001);
    let error = AllowedSigners::parse(&many).expect_err("many keys");
    assert_eq!(error.reason, "over 1000 keys, the limit of allowed signers");
}

proptest! {
    /// Law: a changed, shortened or extended signature is not good, and nothing panics.
    #[test]
    fn changed_signatures_are_not_good(at in 0_usize..260, change in 1_u8.., is_hardware: bool, cut: bool) {
        let signer = TestSigner::new(is_hardware);
        let good = signer.sign(b"text");
        let text = std::str::from_utf8(&good).expect("text");
        let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        let mut blob = STANDARD.decode(body).expect("Base64");
        let at = at % blob.len();
        if cut {
            blob.truncate(at);
        } else {
            blob[at] ^= change;
        }
        let signers = signer.signers("");
        // Flags other than the touch and the counter are signed, too.
        prop_assert!(verify_text(b"text", &armor(&blob), &signers, SystemTime::now()).is_err());
    }

    #[test]
    fn any_text_is_rejected_or_parsed(bytes: Vec<u8>, line in "[a-z\" =,-]{0,40}") {
        let signers = AllowedSigners::default();
        prop_assert!(verify_text(b"", &bytes, &signers, SystemTime::now()).is_err());
        prop_assert!(verify_text(b"", &armor(&bytes), &signers, SystemTime::now()).is_err());
        let _ = AllowedSigners::parse(&line);
    }
}
