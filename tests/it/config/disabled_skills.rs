//! Skills that the operator disabled by path or by name.

use tonic::Code;

use super::{list_package_files, read_file};
use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::{assert_rpc_error, packages, published, read_request, selected};

const TREE: &str = "\
    skill root/keep\nskill root/drafts/one\nskill root/drafts/deep/two\nskill root/keep/inner\n\
    file root/keep/x\n| x\nfile root/keep/inner/secret\n| s\nlink root/keep/way -> inner/secret\n\
    file root/plugin/.codex-plugin/plugin.json\n| {\"name\": \"p\"}\nskill root/plugin/roll-back\n\
    skill root/roll-back\nfile root/drafts/one/y\n| y\nlink root/keep/in -> ../drafts/one/y";

#[tokio::test]
async fn a_glob_disables_skills_and_their_files() {
    let fixture = Fixture::new(TREE);
    let config = "roots: [{id: r, path: root}]\n\
                  disabled_skills: [{root: r, path: 'drafts/*'}, {root: r, path: keep/inner}]";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let list = served.list(&[published("r")]).await;
    assert_eq!(
        packages(&list),
        [
            "skill://r/keep",
            "skill://r/plugin/roll-back",
            "skill://r/roll-back",
            "skill://r/drafts/deep/two"
        ]
    );
    let counts = list.roots[0].counts.expect("counts");
    assert_eq!((counts.skills, counts.disabled, counts.omitted), (4, 2, 0));
    for package in ["skill://r/drafts/one", "skill://r/keep/inner"] {
        let answer = served
            .read(read_request(&published("r"), package, ""))
            .await;
        assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    }
    // Files of a disabled skill are not files of the skill around it, neither directly nor by a link.
    for file in ["inner/SKILL.md", "inner/secret", "way", "in"] {
        let answer = read_file(&served, "r", "skill://r/keep", file).await;
        assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    }
    assert_eq!(
        list_package_files(&served, "r", "skill://r/keep").await,
        ["SKILL.md", "x"]
    );
    assert!(read_file(&served, "r", "skill://r/keep", "x").await.is_ok());
}

#[tokio::test]
async fn a_glob_applies_to_every_selected_root() {
    let mut fixture = Fixture::new(TREE);
    fixture.add("skill other/a\nlink other/b -> ../root/drafts/one\nlink other/a/z -> ../../root/drafts/one/y");
    let config = "allow: [root, other]\nroots: [{id: r, path: root}, {id: o, path: other}]\n\
                  disabled_skills: [{root: r, path: 'drafts/**'}]";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let inside = served
        .list(&[selected("d", fixture.path("root/drafts"))])
        .await;
    assert!(inside.skills.is_empty(), "{:?}", inside.skills);
    assert_eq!(inside.roots[0].counts.expect("counts").disabled, 2);
    let itself = served
        .list(&[selected("d", fixture.path("root/drafts/one"))])
        .await;
    assert!(itself.skills.is_empty(), "{:?}", itself.skills);
    let same = served
        .list(&[selected("again", fixture.path("root"))])
        .await;
    assert!(
        same.skills.iter().all(|s| !s.package.contains("drafts")),
        "{:?}",
        same.skills
    );
    let linked = served.list(&[published("o")]).await;
    assert_eq!(packages(&linked), ["skill://o/a"]);
    assert_eq!(
        list_package_files(&served, "o", "skill://o/a").await,
        ["SKILL.md"]
    );
    let answer = read_file(&served, "o", "skill://o/a", "z").await;
    assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
}

#[tokio::test]
async fn a_glob_can_disable_the_skill_at_the_root() {
    let fixture = Fixture::new("skill root\nskill root/inner");
    let config = "roots: [{id: r, path: root}]\ndisabled_skills: [{root: r, path: .}]";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    assert_eq!(
        served.packages(&[published("r")]).await,
        ["skill://r/inner"]
    );
    assert!(
        served
            .read(read_request(&published("r"), "skill://r/inner", ""))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_qualified_name_disables_one_skill() {
    let fixture = Fixture::new(TREE);
    let config = "roots: [{id: r, path: root}]\n\
                  disabled_skills: [{name: 'p:roll-back'}, {name: inner}]";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let list = served.list(&[published("r")]).await;
    let names: Vec<_> = list.skills.iter().map(|s| &*s.name).collect();
    assert_eq!(
        names,
        ["keep", "one", "roll-back", "two"],
        "another skill with the bare name stays"
    );
    assert_eq!(list.roots[0].counts.expect("counts").disabled, 2);
    let answer = served
        .read(read_request(
            &published("r"),
            "skill://r/plugin/roll-back",
            "",
        ))
        .await;
    assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    assert_eq!(
        list_package_files(&served, "r", "skill://r/keep").await,
        ["SKILL.md", "in", "x"]
    );
    for file in ["inner/secret", "way"] {
        let answer = read_file(&served, "r", "skill://r/keep", file).await;
        assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    }
}

#[tokio::test]
async fn a_disabled_skill_gives_no_diagnostics() {
    let fixture = Fixture::new("file root/a/SKILL.md\n| no frontmatter\nskill root/B_");
    let roots = "roots: [{id: r, path: root}]\n";
    let off = "disabled_skills: [{root: r, path: '*'}]";
    let served = ConfiguredDaemon::start(&fixture, roots).await;
    let counts = served.list(&[published("r")]).await.roots[0]
        .counts
        .expect("counts");
    assert!(counts.omitted == 1 && counts.diagnostics > 0, "{counts:?}");
    let served = ConfiguredDaemon::start(&fixture, &format!("{roots}{off}")).await;
    let counts = served.list(&[published("r")]).await.roots[0]
        .counts
        .expect("counts");
    assert_eq!(
        (counts.disabled, counts.omitted, counts.diagnostics),
        (2, 0, 0)
    );
}
