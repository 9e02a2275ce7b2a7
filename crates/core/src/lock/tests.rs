use super::{
    ApprovedFiles, ApprovedPlugin, ApprovedSkill, EntryChange, EntryKind, FileChange, FilesError,
    Lock, MAX_LOCK_BYTES, SkillDescription, TextList, VersionChange,
};
use crate::wire::handle::encode_path;
use crate::wire::{ContentDigest, FileChecksum, RelPath};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Contents by path.
type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

fn checksum(content: &[u8]) -> FileChecksum {
    FileChecksum {
        digest: ContentDigest::of(content),
        bytes: content.len() as u64,
        executable: false,
    }
}

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes()).expect(path)
}

fn files_of(tree: &[(&str, &str)]) -> ApprovedFiles {
    let files = tree
        .iter()
        .map(|(path, content)| (rel(path), checksum(content.as_bytes())));
    ApprovedFiles::new(files.collect()).expect("files of a skill")
}

fn skill(name: &str, tree: &[(&str, &str)]) -> ApprovedSkill {
    let description = SkillDescription {
        description: format!("Does {name}.").into(),
        ..SkillDescription::default()
    };
    ApprovedSkill::new(name, description, files_of(tree))
}

/// Returns a plugin with a manifest and other files.
fn plugin(name: &str, version: &str, tree: &[(&str, &str)]) -> ApprovedPlugin {
    let manifest = (
        rel(".claude-plugin/plugin.json"),
        checksum(version.as_bytes()),
    );
    let others = tree
        .iter()
        .map(|(path, content)| (rel(path), checksum(content.as_bytes())));
    let files = ApprovedFiles::of_package(others.chain([manifest]).collect());
    let files = files.expect("files of a plugin");
    ApprovedPlugin {
        name: name.into(),
        version: version.into(),
        content_digest: files.content_digest(),
        declaration_digest: ContentDigest::of(version),
        files,
        withheld: Box::default(),
    }
}

fn lock_of(skills: impl IntoIterator<Item = ApprovedSkill>) -> Lock {
    skills.into_iter().collect()
}

#[test]
fn the_digest_is_that_of_the_published_vectors() {
    let one = ApprovedFiles(vec![(rel("a.txt"), checksum(b"hello world"))].into());
    assert_eq!(
        one.content_digest().to_string(),
        "sha256:79d1b89c9733bc5a3c51bd715612a85ab13add6933cb9aa7cc1ae44fd5d181a3"
    );
    let two = files_of(&[("SKILL.md", "# Skill"), ("refs/guide.md", "guide")]);
    assert_eq!(
        two.content_digest().to_string(),
        "sha256:9b46342aaebede490f12bf67a5ecb4be507c7684ee5e11a0511b54c701f464bd"
    );

    // The digest of a plugin in the `plugins` of ToolHive's lock has the same vectors.
    let files = vec![(rel("a.txt"), checksum(b"hello world"))];
    let plugin = ApprovedFiles::of_package(files).expect("files of a plugin");
    assert_eq!(plugin.content_digest(), one.content_digest());
}

/// Computes the package digest with another SHA-256, from the contents.
fn second_digest(tree: &Tree) -> ContentDigest {
    let mut input = Vec::new();
    for (path, content) in tree {
        input.extend_from_slice(path);
        input.push(0);
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        input.extend_from_slice(digest.as_ref());
        input.push(10);
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, &input);
    ContentDigest(digest.as_ref().try_into().expect("32 bytes"))
}

/// Returns the files of a tree, in reverse order, or `None` if a skill cannot have them.
fn approved(tree: &Tree) -> Option<ApprovedFiles> {
    let files = tree.iter().rev();
    let files: Option<Vec<_>> = files
        .map(|(path, content)| Some((RelPath::new(path)?, checksum(content))))
        .collect();
    ApprovedFiles::new(files?).ok()
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let path = prop::collection::vec("[ab~ -]{1,2}", 1..3).prop_map(|s| s.join("/").into_bytes());
    let content = prop::collection::vec(any::<u8>(), 0..3);
    prop::collection::btree_map(path, content, 0..4).prop_map(|mut tree| {
        tree.insert(b"SKILL.md".to_vec(), b"x".to_vec());
        tree
    })
}

fn any_plugins() -> impl Strategy<Value = Vec<ApprovedPlugin>> {
    let entry = (
        "[a-c]{1,2}",
        "[0-9.]{0,3}",
        any::<[u8; 32]>(),
        any_tree(),
        any::<bool>(),
    );
    prop::collection::vec(entry, 0..4).prop_map(|entries| {
        let plugins =
            entries
                .into_iter()
                .filter_map(|(name, version, digest, tree, is_withheld)| {
                    let files = approved(&tree)?;
                    let first = files.iter().take(usize::from(is_withheld));
                    let withheld = first.map(|(path, _)| path.clone()).collect();
                    Some(ApprovedPlugin {
                        name: name.into(),
                        version: version.into(),
                        content_digest: files.content_digest(),
                        declaration_digest: ContentDigest(digest),
                        files,
                        withheld,
                    })
                });
        plugins.collect()
    })
}

fn any_lock() -> impl Strategy<Value = Lock> {
    (any_skills(), any_plugins()).prop_map(|(mut lock, plugins)| {
        lock.extend(plugins);
        lock
    })
}

fn any_skills() -> impl Strategy<Value = Lock> {
    let text = "[a-z:\\u{202e}\\\\\"\n ]{0,6}";
    let description = (text, text, any::<bool>(), any::<bool>(), "[a-z]{1,3}");
    let entry = ("[a-c]{1,2}", description, any_tree(), any::<bool>());
    prop::collection::vec(entry, 0..6).prop_map(|entries| {
        let skills = entries
            .into_iter()
            .filter_map(|(name, texts, tree, products)| {
                let (description, short, model, user, product) = texts;
                let products: &[String] = if products {
                    &[product.clone(), product]
                } else {
                    &[]
                };
                let description = SkillDescription {
                    description: description.into(),
                    short_description: short.into(),
                    model_invocable: model,
                    user_invocable: user,
                    products: TextList::new(products)?,
                };
                Some(ApprovedSkill::new(&name, description, approved(&tree)?))
            });
        skills.collect()
    })
}

proptest! {
    /// Law: the digest is that of a second implementation.
    #[test]
    fn digests_equal_those_of_a_second_implementation(tree in any_tree()) {
        if let Some(files) = approved(&tree) {
            prop_assert_eq!(files.content_digest(), second_digest(&tree));
        }
    }

    /// Law: two trees have one digest if and only if they are equal.
    #[test]
    fn trees_with_one_digest_are_equal(a in any_tree(), b in any_tree()) {
        if let (Some(first), Some(second)) = (approved(&a), approved(&b)) {
            prop_assert_eq!(first.content_digest() == second.content_digest(), a == b);
        }
    }

    /// Law: a written lock parses to itself, and its text depends on nothing else.
    #[test]
    fn written_locks_parse_to_themselves(lock in any_lock()) {
        if let Ok(text) = lock.to_text() {
            let parsed = Lock::parse(text.as_bytes()).expect(&text);
            prop_assert_eq!(&parsed, &lock);
            prop_assert_eq!(parsed.to_text().expect("a text"), text);
        }
    }

    /// Law: the difference of a lock and itself is empty, and approving all that is current makes it so.
    #[test]
    fn approving_all_that_is_current_leaves_no_difference(old in any_lock(), new in any_lock()) {
        prop_assert!(old.difference(&old).is_empty());
        let mut updated = old.clone();
        for found in old.difference(&new).entries {
            updated.remove(found.kind, &found.name);
            match found.kind {
                EntryKind::Skill => updated.extend(new.versions(&found.name).to_vec()),
                EntryKind::Plugin => updated.extend(new.plugin_versions(&found.name).to_vec()),
            }
        }
        prop_assert!(updated.difference(&new).is_empty());
    }

    #[test]
    fn any_text_parses_or_has_an_error(text: Vec<u8>, near in "(\\{|\\}|\\[|\\]|,|:|\"skills\"|\"version\"|1|\"files\"|\\\\u00){0,20}") {
        let _ = (Lock::parse(&text), Lock::parse(near.as_bytes()));
    }
}

#[test]
fn files_that_are_no_skill_are_rejected() {
    let file = |path: &str| (rel(path), checksum(b""));
    let many = (0..10_001).map(|n| file(&format!("f{n}")));
    let huge = FileChecksum {
        bytes: (1 << 30) + 1,
        ..checksum(b"")
    };
    for (files, sentence) in [
        (vec![file("a")], "has no SKILL.md"),
        (vec![file("a/SKILL.md")], "has no SKILL.md"),
        (
            vec![file("SKILL.md"), file("a\u{1}b")],
            "has a control character in the name of the file `a%01b`; rename the file",
        ),
        (
            vec![file("SKILL.md"), file("a\u{9b}b")],
            "has a control character in the name of the file `a%C2%9Bb`; rename the file",
        ),
        (
            vec![file("SKILL.md"), file("a"), file("a")],
            "has the file `a` twice",
        ),
        (
            vec![file("a-b"), file("a/b"), file("SKILL.md"), file("a")],
            "has the file `a`, which is also a directory",
        ),
        (
            many.collect(),
            "has over 10,000 files, the limit of a package",
        ),
        (
            vec![(rel("SKILL.md"), huge)],
            "has over 1 GiB of files, the limit of a package",
        ),
    ] {
        let error = ApprovedFiles::new(files).expect_err(sentence);
        assert_eq!(error.to_string(), sentence);
    }
    assert_eq!(ApprovedFiles::new(Vec::new()), Err(FilesError::NoSkillFile));
}

#[test]
fn differences_name_each_file() {
    let old = lock_of([
        skill("a", &[("SKILL.md", "1"), ("refs/x", "1"), ("refs/y", "1")]),
        skill("b", &[("SKILL.md", "1")]),
        skill("gone", &[("SKILL.md", "1")]),
        skill("two", &[("SKILL.md", "1")]),
        skill("two", &[("SKILL.md", "2")]),
    ]);
    let mut text_only = skill("b", &[("SKILL.md", "1")]);
    text_only.description.description = "Other.".into();
    text_only.description.products = TextList::new(["codex"]).expect("a product");
    let new = lock_of([
        skill("a", &[("SKILL.md", "1"), ("refs/x", "22"), ("run.sh", "1")]),
        text_only,
        skill("new", &[("SKILL.md", "1")]),
        skill("two", &[("SKILL.md", "2")]),
    ]);

    let difference = old.difference(&new);
    let names: Vec<_> = difference.names(|_| true).collect();
    assert_eq!(names, ["a", "b", "gone", "new"]);
    let EntryChange::Changed { files, keys, .. } = &difference.entries[0].change else {
        panic!("changed")
    };
    let changes: Vec<_> = files
        .iter()
        .map(|file| (encode_path(&file.path), file.change))
        .collect();
    let other_bytes = FileChange::Changed {
        approved: checksum(b"1"),
        current: checksum(b"22"),
    };
    assert_eq!(
        changes,
        [
            ("refs/x".to_owned(), other_bytes),
            ("refs/y".to_owned(), FileChange::Removed(checksum(b"1"))),
            ("run.sh".to_owned(), FileChange::Added(checksum(b"1"))),
        ]
    );
    assert!(keys.is_empty());
    let text_change = EntryChange::Changed {
        files: Vec::new(),
        keys: vec!["description", "products"],
        version: None,
    };
    assert_eq!(difference.entries[1].change, text_change);
    assert_eq!(difference.entries[2].change, EntryChange::Gone);
    assert_eq!(difference.entries[3].change, EntryChange::New);
}

#[test]
fn a_changed_mode_is_a_difference() {
    let old = skill("a", &[("SKILL.md", "1")]);
    let mut file = checksum(b"1");
    file.executable = true;
    let files = ApprovedFiles::new(vec![(rel("SKILL.md"), file)]).expect("files");
    let new = ApprovedSkill {
        files,
        ..old.clone()
    };
    assert_eq!(new.files.content_digest(), old.content_digest);
    let difference = lock_of([old]).difference(&lock_of([new]));
    assert_eq!(difference.entries.len(), 1);
}

#[test]
fn differences_of_a_plugin_name_its_version_and_its_files() {
    let mut old = lock_of([skill("kit", &[("SKILL.md", "1")])]);
    old.extend([plugin("kit", "1.0", &[("run", "1")])]);
    let mut new = lock_of([skill("kit", &[("SKILL.md", "1")])]);
    new.extend([
        plugin("kit", "1.1", &[("run", "1")]),
        plugin("other", "", &[]),
    ]);
    let difference = old.difference(&new);
    let kinds = difference
        .entries
        .iter()
        .map(|entry| (&*entry.name, entry.kind));
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(
        kinds,
        [("kit", EntryKind::Plugin), ("other", EntryKind::Plugin)]
    );
    let EntryChange::Changed {
        files,
        keys,
        version,
    } = &difference.entries[0].change
    else {
        panic!("changed")
    };
    let expected = VersionChange {
        approved: "1.0".into(),
        current: "1.1".into(),
    };
    assert_eq!((version, &keys[..]), (&Some(expected), &[][..]));
    assert_eq!(files.len(), 1);

    // Equal files with other declarations: another version of the daemon reads more of them.
    let mut reread = plugin("kit", "1.0", &[("run", "1")]);
    reread.declaration_digest = ContentDigest([0; 32]);
    let mut new = old.clone();
    new.remove(EntryKind::Plugin, "kit");
    new.extend([reread]);
    let change = &old.difference(&new).entries[0].change;
    let EntryChange::Changed { files, keys, .. } = change else {
        panic!("changed")
    };
    assert!(files.is_empty());
    assert_eq!(keys, &["declarationDigest"]);

    assert!(new.remove(EntryKind::Plugin, "kit") && !new.remove(EntryKind::Plugin, "kit"));
    assert_eq!(
        (new.versions("kit").len(), new.plugin_versions("kit").len()),
        (1, 0)
    );
}

#[test]
fn invalid_plugins_have_an_error_with_their_place() {
    let mut approved = plugin("kit", "1.0", &[("run", "1")]);
    approved.withheld = [rel("run")].into();
    let mut lock = Lock::default();
    lock.extend([approved.clone()]);
    let good = lock.to_text().expect("a text");
    assert_eq!(Lock::parse(good.as_bytes()), Ok(lock));

    let entry = &good[good.find("    {").expect("an entry")..good.rfind("\n  ]").expect("the end")];
    let twice = good.replacen(entry, &format!("{entry},{entry}"), 1);
    let nine: Vec<_> = (0..9)
        .map(|n| plugin("kit", &format!("1.{n}"), &[]))
        .collect();
    let nine = super::writer::lock_text(&Lock {
        plugins: nine,
        ..Lock::default()
    });
    let zeros = ContentDigest([0; 32]).to_string();
    let digest = approved.content_digest.to_string();
    for (text, message) in [
        (
            good.replace(&digest, &zeros),
            format!("plugins[0]: files have the digest {digest}"),
        ),
        (
            good.replacen("\"run\"\n", "\"gone\"\n", 1),
            "plugins[0].withheld[0]: is no file of the plugin".to_owned(),
        ),
        (
            good.replace("\"declarationDigest\"", "\"declarationDigst\""),
            "did you mean \"declarationDigest\"?".to_owned(),
        ),
        (
            twice,
            "plugins[1]: has the name and contentDigest of plugins[0]; remove one of them"
                .to_owned(),
        ),
        (
            nine.expect("a text"),
            "over 8 entries have this name, the first is plugins[".to_owned(),
        ),
        (
            good.replacen("\"run\": {", "\"../run\": {", 1),
            "plugins[0].files".to_owned(),
        ),
    ] {
        assert_ne!(text, good, "{message}");
        let error = Lock::parse(text.as_bytes())
            .expect_err(&message)
            .to_string();
        assert!(error.contains(&message), "{error}");
    }
}

/// Text of a lock with one skill, one key a line.
fn good_text() -> String {
    let digest = checksum(b"1").digest;
    let content_digest = files_of(&[("SKILL.md", "1")]).content_digest();
    format!(
        r#"{{
  "version": 1,
  "skills": [
    {{
      "name": "a",
      "description": "Does a.",
      "contentDigest": "{content_digest}",
      "files": {{
        "SKILL.md": {{
          "digest": "{digest}",
          "bytes": 1,
          "executable": false
        }}
      }}
    }}
  ]
}}
"#
    )
}

/// Returns the error of the good text with one replacement.
fn error_after(from: &str, to: &str) -> String {
    let good = good_text();
    let text = good.replacen(from, to, 1);
    assert_ne!(text, good, "{from}");
    Lock::parse(text.as_bytes()).expect_err(&text).to_string()
}

#[test]
fn a_written_lock_has_this_form() {
    let lock = lock_of([skill("a", &[("SKILL.md", "1")])]);
    assert_eq!(lock.to_text().expect("a text"), good_text());
    assert_eq!(Lock::parse(good_text().as_bytes()), Ok(lock));
    let empty = Lock::default().to_text().expect("a text");
    assert_eq!(empty, "{\n  \"version\": 1,\n  \"skills\": []\n}\n");
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn invalid_locks_have_an_error_with_its_place() {
    let digest = checksum(b"1").digest.to_string();
    let content = files_of(&[("SKILL.md", "1")]).content_digest().to_string();
    let zeros = ContentDigest([0; 32]).to_string();
    for (from, to, message) in [
        (
            "\"contentDigest\"",
            "\"contentDigst\"",
            "7:7: skills[0].contentDigst: unknown key; did you mean \"contentDigest\"?",
        ),
        (
            "\"version\": 1",
            "\"zzz\": 1",
            "2:3: zzz: unknown key; the keys are version, skills, plugins",
        ),
        (
            "\"bytes\"",
            "\"size in bytes\"",
            "11:11: skills[0].files.\"SKILL.md\".\"size in bytes\": unknown key; the keys are digest, \
             bytes, executable",
        ),
        (
            "\"version\": 1",
            "\"version\": 2",
            "2:14: version: this version of caproot reads version 1",
        ),
        (
            "\"version\": 1",
            "\"version\": \"1\"",
            "2:16: version: invalid type: string \"1\", expected a number",
        ),
        (
            "\"bytes\": 1",
            "\"bytes\": -1",
            "11:21: skills[0].files.\"SKILL.md\".bytes: invalid value: integer `-1`, expected u64",
        ),
        (
            "\"bytes\": 1",
            "\"bytes\": null",
            "11:23: skills[0].files.\"SKILL.md\".bytes: invalid type: null, expected u64",
        ),
        (
            "\"executable\": false",
            "\"executable\": 0",
            "12:25: skills[0].files.\"SKILL.md\".executable: invalid type: integer `0`, expected a boolean",
        ),
        (
            "\"name\": \"a\"",
            "\"name\": [\"a\"]",
            "5:13: skills[0].name: invalid type: sequence, expected a string",
        ),
        (
            "\"name\": \"a\"",
            "\"name\": \"\"",
            "5:16: skills[0].name: must have 1 to 128 characters, none of them a control character",
        ),
        (
            "\"name\": \"a\",",
            "",
            "15:5: skills[0]: missing key `name`",
        ),
        ("\"version\": 1,", "", "17:1: missing key `version`"),
        (
            "\"name\": \"a\",",
            "\"name\": \"a\", \"name\": \"a\",",
            "5:25: skills[0]: duplicate key `name`",
        ),
        (
            "\"version\": 1,",
            "\"version\": 1, \"version\": 1,",
            "2:25: duplicate key `version`",
        ),
        (
            "\"name\": \"a\",",
            "\"name\": \"a\", \"products\": [\"\"],",
            "5:35: skills[0].products: a product must not be empty or have a control character",
        ),
        (
            digest.as_str(),
            "sha256:0",
            "10:30: skills[0].files.\"SKILL.md\".digest: is not `sha256:` and 64 lower-case hex digits",
        ),
        (
            content.as_str(),
            zeros.as_str(),
            &format!("skills[0]: files have the digest {content}"),
        ),
        (
            "\"SKILL.md\"",
            "\"a\"",
            "14:7: skills[0].files: has no SKILL.md",
        ),
        (
            "\"SKILL.md\"",
            "\"../SKILL.md\"",
            "9:21: skills[0].files.\"../SKILL.md\": has a name that leaves the directory or that no file \
             can have",
        ),
        (
            "\"SKILL.md\"",
            "\"/SKILL.md\"",
            "9:19: skills[0].files.\"/SKILL.md\": has a name that leaves the directory or that no file \
             can have",
        ),
        (
            "\"SKILL.md\"",
            "\"a//SKILL.md\"",
            "9:21: skills[0].files.\"a//SKILL.md\": has a name that leaves the directory or that no \
             file can have",
        ),
        (
            "\"SKILL.md\"",
            "\"a%0Ab\"",
            "14:7: skills[0].files: has a control character in the name of the file `a%0Ab`; rename the \
             file",
        ),
        (
            "\"SKILL.md\": {",
            "\"SKILL.md/a\": {\"digest\": \"DIGEST\", \"bytes\": 1, \"executable\": false}, \"SKILL.md\": {",
            "",
        ),
        (
            "  \"skills\"",
            "<<<<<<< HEAD\n  \"skills\"",
            "line 3: a conflict of git; resolve it, then run caproot lock --check",
        ),
        (
            "    {\n",
            "=======\n    {\n",
            "line 4: a conflict of git; resolve it, then run caproot lock --check",
        ),
        ("\"skills\": [", "\"skills\": [],", "JSON"),
    ] {
        let to = to.replace("DIGEST", &digest);
        let error = error_after(from, &to);
        match message {
            "" => assert_eq!(
                error,
                "14:7: skills[0].files: has the file `SKILL.md`, which is also a directory"
            ),
            "JSON" => assert!(error.contains(": JSON: "), "{error}"),
            message => assert_eq!(error, message),
        }
    }
}

#[test]
fn texts_that_are_no_json_object_are_rejected() {
    for (text, message) in [
        ("", "1:1: JSON: "),
        ("[]", "1:2: invalid length 0, expected an object"),
        ("version: 1\n", "1:1: JSON: "),
        ("{\"version\":1,\"skills\":[]} x", "1:27: JSON: "),
        ("{\"version\":1,\"skills\":[}", "1:24: JSON: "),
        ("{\"version\":1,\n\"skills\":[\"\u{0}", "2:12: JSON: "),
        (
            &"[".repeat(100_000),
            "1:1: [0]: invalid type: sequence, expected a number",
        ),
        (
            "{\"version\":1,\"skills\":[[[[[[[[[[[[[[[[[[[",
            "1:24: skills[0][0]: invalid type: sequence, expected a string",
        ),
    ] {
        let error = Lock::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(error.starts_with(message), "{text:.60}: {error}");
    }
    let not_utf8 = Lock::parse(b"{\"version\":1,\"\xff\":1}").expect_err("not UTF-8");
    assert!(
        not_utf8.to_string().starts_with("1:15: JSON: "),
        "{not_utf8}"
    );
}

/// Returns the text of a lock with entries that have only a SKILL.md, each as a name and a content.
fn entries_text(entries: impl Iterator<Item = (String, String)>) -> String {
    let mut text = "{\"version\":1,\"skills\":[\n".to_owned();
    for (at, (name, content)) in entries.enumerate() {
        let comma = if at > 0 { ",\n" } else { "" };
        let digest = checksum(content.as_bytes()).digest;
        let content_digest = files_of(&[("SKILL.md", &content)]).content_digest();
        let _ = write!(
            text,
            "{comma}{{\"name\":\"{name}\",\"description\":\"\",\"contentDigest\":\"{content_digest}\",\
             \"files\":{{\"SKILL.md\":{{\"digest\":\"{digest}\",\"bytes\":{},\"executable\":false}}}}}}",
            content.len()
        );
    }
    text + "\n]}\n"
}

#[test]
fn equal_entries_are_both_named() {
    let entry = |name: &str| (name.to_owned(), "1".to_owned());
    let text = entries_text([entry("a"), entry("b"), entry("a")].into_iter());
    let error = Lock::parse(text.as_bytes()).expect_err("equal entries");
    assert_eq!(
        error.to_string(),
        "skills[2]: has the name and contentDigest of skills[0]; remove one of them"
    );
}

#[test]
fn a_name_has_at_most_eight_versions() {
    let versions = |count: usize| {
        let entries = (0..count).map(|n| ("a".to_owned(), n.to_string()));
        Lock::parse(entries_text(entries).as_bytes())
    };
    assert_eq!(versions(8).expect("eight versions").versions("a").len(), 8);
    let error = versions(9).expect_err("nine versions").to_string();
    assert!(
        error.contains("over 8 entries have this name, the first is skills["),
        "{error}"
    );
}

#[test]
fn limits_are_named_with_their_values() {
    let too_long = vec![b' '; usize::try_from(MAX_LOCK_BYTES).expect("a length") + 1];
    let error = Lock::parse(&too_long).expect_err("too long");
    assert_eq!(error.to_string(), "is over 64 MiB, the limit of a lock");

    let one = entries_text(std::iter::once(("a".to_owned(), "1".to_owned())));
    let files = |count: usize| {
        let digest = checksum(b"1").digest;
        let mut many = String::new();
        for n in 0..count {
            let _ = write!(
                many,
                "\"f{n}\":{{\"digest\":\"{digest}\",\"bytes\":1,\"executable\":false}},"
            );
        }
        let text = one.replace("\"SKILL.md\":", &format!("{many}\"SKILL.md\":"));
        Lock::parse(text.as_bytes())
            .expect_err("invalid")
            .to_string()
    };
    assert!(files(9_999).contains("files have the digest"));
    let error = files(10_000);
    assert!(
        error.ends_with("skills[0].files: has over 10,000 files, the limit of a package"),
        "{error}"
    );

    let huge = one.replace("\"bytes\":1,", "\"bytes\":1073741825,");
    let error = Lock::parse(huge.as_bytes()).expect_err("huge").to_string();
    assert!(
        error.ends_with("skills[0].files: has over 1 GiB of files, the limit of a package"),
        "{error}"
    );
}

#[test]
fn a_lock_has_at_most_100_000_skills() {
    let entries = |count: usize| (0..count).map(|n| (format!("s{n}"), "1".to_owned()));
    let text = entries_text(entries(100_001));
    let error = Lock::parse(text.as_bytes())
        .expect_err("too many skills")
        .to_string();
    assert!(
        error.ends_with("skills: over 100,000 skills, the limit of a lock"),
        "{error}"
    );
}

#[test]
fn lookup_and_removal_are_by_the_whole_name() {
    let mut lock = lock_of([
        skill("a", &[("SKILL.md", "1")]),
        skill("a", &[("SKILL.md", "2")]),
        skill("ab", &[("SKILL.md", "1")]),
        skill("kit:a", &[("SKILL.md", "1")]),
    ]);
    assert_eq!(lock.versions("a").len(), 2);
    assert_eq!(lock.versions("kit:a").len(), 1);
    assert!(lock.versions("kit").is_empty());
    lock.approve(skill("a", &[("SKILL.md", "1")]));
    assert_eq!(lock.skills().len(), 4);
    assert!(lock.remove(EntryKind::Skill, "a") && !lock.remove(EntryKind::Skill, "a"));
    assert_eq!(lock.skills().len(), 2);
}
