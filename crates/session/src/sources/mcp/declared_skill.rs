//! Skill that an MCP server declares, by a list or a manifest. Inconsistent declarations are rejected.

use super::address::{directory_name, is_in_dir, skill_dir, to_handle};
use super::limits::{MAX_SKILL_BYTES, MAX_SKILL_FILES};
use super::manifest::ManifestSkill;
use crate::SourceKind;
use crate::sources::authority_of;
use crate::sources::remote::{
    DeclaredFile, DeclaredFiles, MAIN_FILE, RemoteSkill, SkillDeclaration, SkillOrigin,
};
use caproot_core::wire::ContentDigest;
use rmcp::model::{Skill as Listed, SkillFrontmatter, SkillResource, SkillResources};

/// Returns the skill of a list, or the reason for its rejection.
pub fn read_listed_skill(server: &str, listed: Listed) -> Result<RemoteSkill, String> {
    let directory =
        skill_dir(&listed.uri).ok_or("its URI is not a SKILL.md in its only spelling")?;
    let files = match listed.resources {
        SkillResources::Files(files) => Some(check_declared_files(server, directory, files)?),
        SkillResources::Dynamic => None,
        _ => return Err("its files are declared in an unknown way".to_owned()),
    };

    // The standard requires this name, so that a URI tells the name of its skill.
    if directory_name(directory) != listed.frontmatter.name {
        return Err("its URI does not end in its name".to_owned());
    }
    new_skill(
        server,
        directory,
        SkillOrigin::Extension,
        listed.frontmatter,
        files,
    )
}

/// Returns the skill of a manifest with these files, or the reason for its rejection.
pub fn read_manifest_skill(
    server: &str,
    listed: &ManifestSkill,
    files: Vec<SkillResource>,
) -> Result<RemoteSkill, String> {
    let directory = &*listed.directory;
    new_skill(
        server,
        directory,
        SkillOrigin::Manifest,
        SkillFrontmatter::new(directory_name(directory), &*listed.description),
        Some(check_declared_files(server, directory, files)?),
    )
}

/// Returns the URI of the directory of a skill.
pub fn directory_uri(skill: &RemoteSkill) -> &str {
    let location = &*skill.declared.location;
    skill_dir(location).unwrap_or(location)
}

fn new_skill(
    server: &str,
    directory: &str,
    origin: SkillOrigin,
    listed: SkillFrontmatter,
    files: Option<DeclaredFiles>,
) -> Result<RemoteSkill, String> {
    let mut frontmatter = listed.extra;
    frontmatter.insert("name".to_owned(), listed.name.into());
    frontmatter.insert("description".to_owned(), listed.description.into());

    RemoteSkill::new(
        authority_of(SourceKind::Mcp, server),
        to_handle(server, directory),
        SkillDeclaration {
            origin,
            location: format!("{directory}/{MAIN_FILE}"),
            frontmatter,
            files,
        },
    )
}

/// Returns the declared files. Each file must be in the directory of the skill and be declared once.
fn check_declared_files(
    server: &str,
    directory: &str,
    files: Vec<SkillResource>,
) -> Result<DeclaredFiles, String> {
    if files.len() > MAX_SKILL_FILES {
        return Err(format!("it has over {MAX_SKILL_FILES} files"));
    }
    let total = files
        .iter()
        .fold(0_u64, |total, file| total.saturating_add(file.size));
    if total > MAX_SKILL_BYTES {
        return Err(format!("its files are over {MAX_SKILL_BYTES} bytes"));
    }

    let mut by_handle = DeclaredFiles::new();
    for file in files {
        if !is_in_dir(&file.uri, directory) {
            return Err("a file is not in its directory".to_owned());
        }
        let declared = DeclaredFile {
            digest: ContentDigest::parse(&file.digest).ok_or("a file has no SHA-256")?,
            size: Some(file.size),
        };
        if by_handle
            .insert(to_handle(server, &file.uri), declared)
            .is_some()
        {
            return Err("a file is declared twice".to_owned());
        }
    }
    Ok(by_handle)
}

#[cfg(test)]
mod tests {
    use super::{Listed, RemoteSkill, SkillResource, SkillResources, read_listed_skill};
    use rmcp::model::SkillFrontmatter;
    use serde_json::json;

    fn entry(uri: &str, files: Vec<SkillResource>) -> Result<RemoteSkill, String> {
        let frontmatter = SkillFrontmatter::new("a", "Does\n a.");
        read_listed_skill(
            "s",
            Listed::new(uri, frontmatter, SkillResources::Files(files)),
        )
    }

    #[test]
    fn the_frontmatter_restricts_who_may_choose_a_skill() {
        let uri = "skill://a/SKILL.md";
        for (extra, expected) in [
            (json!({}), (true, true)),
            (
                json!({"disable-model-invocation": false, "user-invocable": true}),
                (true, true),
            ),
            (json!({"disable-model-invocation": null}), (true, true)),
            (json!({"disable-model-invocation": true}), (false, true)),
            (json!({"disable-model-invocation": "no"}), (true, true)),
            (json!({"disable-model-invocation": "maybe"}), (false, true)),
            (json!({"user-invocable": false}), (true, false)),
            (json!({"user-invocable": 1}), (true, true)),
            (json!({"user-invocable": "maybe"}), (true, false)),
        ] {
            let mut frontmatter = SkillFrontmatter::new("a", "Does a.");
            frontmatter.extra = extra.as_object().expect("an object").clone();
            let files = vec![SkillResource::from_bytes(uri, b"x")];
            let listed = Listed::new(uri, frontmatter, SkillResources::Files(files));
            let listed = read_listed_skill("s", listed).expect("an entry");

            let flags = (listed.skill.is_offered(), listed.skill.user_invocable);
            assert_eq!(flags, expected, "{extra}");
        }
    }

    #[test]
    fn inconsistent_entries_are_rejected() {
        let main = || SkillResource::from_bytes("skill://a/SKILL.md", b"x");
        let file = |uri: &str| SkillResource::from_bytes(uri, b"y");
        let good = entry("skill://a/SKILL.md", vec![main(), file("skill://a/b/c")]);
        let good = good.expect("an entry");
        assert_eq!(good.skill.package, "mcp+skill://s/a");
        assert_eq!(good.skill.main_resource, "mcp+skill://s/a/SKILL.md");
        assert_eq!(good.skill.description, "Does a.");
        let declared = good.find_file("mcp+skill://s/a/b/c").expect("a file");
        assert_eq!(declared.expect("a declared file").size, Some(1));
        assert!(good.find_file("mcp+skill://s/a/b").is_err());
        for (uri, files) in [
            ("file:///a/SKILL.md", vec![main()]),
            ("https://a/b/SKILL.md", vec![main()]),
            ("github://o/a/SKILL.md", vec![main()]),
            ("skill://a/README.md", vec![main()]),
            ("skill://a/SKILL.md", vec![]),
            ("skill://a/SKILL.md", vec![main(), main()]),
            (
                "skill://a/SKILL.md",
                vec![main(), file("file:///etc/passwd")],
            ),
            ("skill://a/SKILL.md", vec![main(), file("skill://b/x")]),
            ("skill://a/SKILL.md", vec![main(), file("skill://a/../b/x")]),
            (
                "skill://a/SKILL.md",
                vec![main(), SkillResource::new("skill://a/x", "md5:1", 1)],
            ),
            (
                "skill://a/SKILL.md",
                vec![
                    main(),
                    SkillResource::new("skill://a/x", main().digest, u64::MAX),
                ],
            ),
            (
                "skill://a/SKILL.md",
                (0..600)
                    .map(|n| file(&format!("skill://a/{n}")))
                    .chain([main()])
                    .collect(),
            ),
        ] {
            assert!(entry(uri, files).is_err(), "{uri}");
        }
    }
}
