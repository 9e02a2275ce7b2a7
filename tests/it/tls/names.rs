//! The names of a certificate: which count, in which spelling, and when none do.

use super::authority::{Authority, Wanted, dns, uri};
use caproot::certs::{SubjectNamesError, subject_names};
use rcgen::{CustomExtension, SanType};

fn of(wanted: &Wanted) -> Result<Vec<String>, SubjectNamesError> {
    subject_names(&Authority::new("ours").der(wanted))
}

fn all(names: impl IntoIterator<Item = SanType>) -> Result<Vec<String>, SubjectNamesError> {
    of(&Wanted { names: names.into_iter().collect(), ..Wanted::default() })
}

#[test]
fn dns_names_and_uris_in_their_order() {
    let address = SanType::IpAddress([10, 0, 0, 1].into());
    let mail = SanType::Rfc822Name("a@example.org".try_into().expect("ASCII"));
    let found =
        all([uri("spiffe://Example.org/a%20b"), mail, dns("A.Example"), address, dns("*.b-_.c")]);
    let expected = ["spiffe://Example.org/a%20b", "a.example", "*.b-_.c"];
    assert_eq!(found.expect("names"), expected);
    assert_eq!(all([]).expect("none"), [""; 0]);
}

#[test]
fn too_many_are_none() {
    let many = |count: usize| all((0..count).map(|n| dns(&format!("h{n}.example"))));
    assert_eq!(many(64).expect("names").len(), 64);
    assert_eq!(many(65), Err(SubjectNamesError::TooMany));
    assert_eq!(many(2_000), Err(SubjectNamesError::TooMany));
    let long = |bytes: usize| all([dns("a.example"), uri(&format!("x:{}", "y".repeat(bytes - 2)))]);
    assert_eq!(long(256).expect("names").len(), 2);
    assert_eq!(long(257), Err(SubjectNamesError::TooMany));
}

#[test]
fn no_name_can_pass_for_one_of_the_other_kind() {
    for bad in [dns("spiffe://example.org/a"), dns("a b"), dns("a\n"), dns(""), dns("a\0.example")]
    {
        assert_eq!(
            all([dns("good.example"), bad.clone()]),
            Err(SubjectNamesError::InvalidName),
            "{bad:?}"
        );
    }
    for bad in ["good.example", "//example.org/a", ":a", "1:a", "a b:c", "a:b c", "a:\u{1b}[2J", ""]
    {
        assert_eq!(all([uri(bad)]), Err(SubjectNamesError::InvalidName), "{bad:?}");
    }
}

#[test]
fn what_is_no_list_of_names() {
    let san = |bytes: &[u8]| {
        let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], bytes.to_vec());
        of(&Wanted { extension: Some(extension), ..Wanted::default() })
    };
    // The same encoding as the library's own, so that what is refused below is refused for its bytes.
    assert_eq!(san(b"\x30\x03\x82\x01a").expect("a name"), ["a"]);
    assert_eq!(san(b"\x30\x03\x82\x01\xff"), Err(SubjectNamesError::InvalidName), "not even text");
    assert_eq!(san(b"\x30\x7f\x82\x01a"), Err(SubjectNamesError::Unreadable), "it ends too soon");
    assert_eq!(san(b""), Err(SubjectNamesError::Unreadable));
    assert_eq!(subject_names(b""), Err(SubjectNamesError::Unreadable));
    assert_eq!(subject_names(&[0x30; 5_000]), Err(SubjectNamesError::Unreadable));
    // Two lists of names in one certificate.
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], b"\x30\x03\x82\x01a".into());
    let twice = Wanted { extension: Some(extension), ..Wanted::named("b.example") };
    assert_eq!(of(&twice), Err(SubjectNamesError::Unreadable));
}
