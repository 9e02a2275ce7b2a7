//! Names in a client certificate: accepted kinds, normalization and invalid lists.

use super::authority::{Authority, CertificateSpec, dns, uri};
use caproot_core::net::certs::{SubjectNamesError, subject_names};
use rcgen::{CustomExtension, SanType};

fn names_of_certificate(spec: &CertificateSpec) -> Result<Vec<String>, SubjectNamesError> {
    subject_names(&Authority::new("ours").der(spec))
}

fn names_from_list(
    names: impl IntoIterator<Item = SanType>,
) -> Result<Vec<String>, SubjectNamesError> {
    names_of_certificate(&CertificateSpec {
        names: names.into_iter().collect(),
        ..CertificateSpec::default()
    })
}

#[test]
fn dns_names_and_uris_keep_their_order() {
    let address = SanType::IpAddress([10, 0, 0, 1].into());
    let mail = SanType::Rfc822Name("a@example.org".try_into().expect("ASCII"));
    let found = names_from_list([
        uri("spiffe://Example.org/a%20b"),
        mail,
        dns("A.Example"),
        address,
        dns("*.b-_.c"),
    ]);
    let expected = ["spiffe://Example.org/a%20b", "a.example", "*.b-_.c"];
    assert_eq!(found.expect("names"), expected);
    assert_eq!(names_from_list([]).expect("none"), [""; 0]);
}

#[test]
fn too_many_or_too_long_names_are_rejected() {
    let many = |count: usize| names_from_list((0..count).map(|n| dns(&format!("h{n}.example"))));
    assert_eq!(many(64).expect("names").len(), 64);
    assert_eq!(many(65), Err(SubjectNamesError::TooMany));
    assert_eq!(many(2_000), Err(SubjectNamesError::TooMany));
    let long = |bytes: usize| {
        names_from_list([
            dns("a.example"),
            uri(&format!("x:{}", "y".repeat(bytes - 2))),
        ])
    };
    assert_eq!(long(256).expect("names").len(), 2);
    assert_eq!(long(257), Err(SubjectNamesError::TooMany));
}

#[test]
fn dns_names_and_uris_cannot_pass_for_each_other() {
    for bad in [
        dns("spiffe://example.org/a"),
        dns("a b"),
        dns("a\n"),
        dns(""),
        dns("a\0.example"),
    ] {
        assert_eq!(
            names_from_list([dns("good.example"), bad.clone()]),
            Err(SubjectNamesError::InvalidName),
            "{bad:?}"
        );
    }
    for bad in [
        "good.example",
        "//example.org/a",
        ":a",
        "1:a",
        "a b:c",
        "a:b c",
        "a:\u{1b}[2J",
        "",
    ] {
        assert_eq!(
            names_from_list([uri(bad)]),
            Err(SubjectNamesError::InvalidName),
            "{bad:?}"
        );
    }
}

#[test]
fn invalid_name_lists_are_rejected() {
    let san = |bytes: &[u8]| {
        let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], bytes.to_vec());
        names_of_certificate(&CertificateSpec {
            extension: Some(extension),
            ..CertificateSpec::default()
        })
    };
    // `rcgen` encodes names like this, so the changed bytes cause the errors below.
    assert_eq!(san(b"\x30\x03\x82\x01a").expect("a name"), ["a"]);
    assert_eq!(
        san(b"\x30\x03\x82\x01\xff"),
        Err(SubjectNamesError::InvalidName),
        "not even text"
    );
    assert_eq!(
        san(b"\x30\x7f\x82\x01a"),
        Err(SubjectNamesError::Unreadable),
        "the list is truncated"
    );
    assert_eq!(san(b""), Err(SubjectNamesError::Unreadable));
    assert_eq!(subject_names(b""), Err(SubjectNamesError::Unreadable));
    assert_eq!(
        subject_names(&[0x30; 5_000]),
        Err(SubjectNamesError::Unreadable)
    );
    // This certificate has two lists of names.
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], b"\x30\x03\x82\x01a".into());
    let twice = CertificateSpec {
        extension: Some(extension),
        ..CertificateSpec::for_host("b.example")
    };
    assert_eq!(
        names_of_certificate(&twice),
        Err(SubjectNamesError::Unreadable)
    );
}
