//! Default roots of the project that the daemon is started in.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use caproot::daemon::config::{Config, RootPreset, ServeFlags};
use caproot::daemon::model::RootScope;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{ListRootsRequest, RootState, RootStatus};

use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, serve};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{Daemon, Setup, in_time, isolated_env, located};

/// Environment of a daemon that is started in a directory of the fixture.
fn env_in(fixture: &Fixture, dir: &str) -> ProcessEnv {
    ProcessEnv {
        current_dir: Some(fixture.path(dir)),
        ..isolated_env(fixture.top())
    }
}

/// Returns the ids of the published roots that callers see.
async fn listed_ids(daemon: &Daemon) -> Vec<String> {
    let answer = in_time(daemon.client.clone().list_roots(ListRootsRequest {})).await;
    let roots = answer.expect("ListRoots").into_inner().roots;
    assert!(
        roots.iter().all(|root| root.state() == RootState::Ready),
        "{roots:?}"
    );
    roots.into_iter().map(|root| root.id).collect()
}

/// Starts a daemon in a directory and returns the ids of its visible roots.
async fn ids_in(fixture: &Fixture, dir: &str) -> Vec<String> {
    let daemon = Daemon::start(Setup {
        env: env_in(fixture, dir),
        ..Setup::default()
    })
    .await;
    let ids = listed_ids(&daemon).await;
    daemon.stop().await;
    ids
}

/// Waits until a published root is ready.
async fn wait_until_ready(daemon: &Daemon, id: &str) {
    let root = located(id, &format!("published:{id}"));
    let mut replica = Replica::open(daemon, watch_request(vec![root])).await;
    let changes = async {
        replica
            .wait_while(|replica| {
                !replica
                    .roots
                    .values()
                    .any(|root: &RootStatus| root.state() == RootState::Ready)
            })
            .await;
    };
    in_time(changes).await;
}

#[tokio::test]
async fn project_roots_are_published_up_to_the_repository() {
    for git in ["dir proj/.git", "file proj/.git\n| gitdir: elsewhere"] {
        let fixture = Fixture::new(&format!(
            "{git}\nskill .agents/skills/outside\nskill proj/.agents/skills/outer\n\
             skill proj/a/.agents/skills/inner\ndir proj/a/b\nskill home/.agents/skills/mine"
        ));
        for (dir, ids) in [
            ("proj", &["repo", "user"][..]),
            ("proj/a", &["repo", "repo-2", "user"]),
            ("proj/a/b", &["repo-2", "repo-3", "user"]),
            // Without a repository, the directories above are not of the project.
            ("home", &["user"]),
            (".", &["repo", "user"]),
        ] {
            assert_eq!(ids_in(&fixture, dir).await, ids, "in {dir}");
        }
    }
}

#[tokio::test]
async fn a_project_has_at_most_sixteen_roots() {
    let deep = "d/".repeat(20);
    let fixture = Fixture::new(&format!("dir .git\ndir {deep}"));
    for levels in 0..=20 {
        let dir = "d/".repeat(levels);
        fixture.write(
            &format!("{dir}.agents/skills/s/SKILL.md"),
            skill_text("s", "One."),
        );
    }
    let mut ids = ids_in(&fixture, &deep).await;
    ids.sort_by_key(String::len);
    assert_eq!(ids.len(), 16);
    assert_eq!((ids[0].as_str(), ids[15].as_str()), ("repo", "repo-16"));
}

#[tokio::test]
async fn a_project_root_appears_and_disappears_with_its_directory() {
    let fixture = Fixture::new("dir proj/.git\ndir proj/a");
    let setup = Setup {
        env: env_in(&fixture, "proj/a"),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    assert!(listed_ids(&daemon).await.is_empty());
    fixture.write(
        "proj/.agents/skills/new/SKILL.md",
        skill_text("new", "New."),
    );
    wait_until_ready(&daemon, "repo-2").await;
    assert_eq!(listed_ids(&daemon).await, ["repo-2"]);
    fs::remove_dir_all(fixture.path("proj/.agents")).expect("remove");
    let root = located("repo-2", "published:repo-2");
    let mut replica = Replica::open(&daemon, watch_request(vec![root])).await;
    let gone = async {
        replica
            .wait_while(|replica| {
                replica
                    .roots
                    .values()
                    .all(|root: &RootStatus| root.state() == RootState::Ready)
            })
            .await;
    };
    in_time(gone).await;
    assert!(listed_ids(&daemon).await.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_sandboxed_daemon_reads_a_project_root_that_appears_later() {
    let fixture = Fixture::new("dir proj/.git\ndir proj/a\ndir home");
    let mut command = serve([""; 0]);
    command
        .current_dir(fixture.path("proj/a"))
        .env("HOME", fixture.path("home"));
    let served = ConfiguredDaemon::start_command(&mut command).await;
    for (id, dir) in [("repo", "proj/a"), ("repo-2", "proj")] {
        fixture.write(
            &format!("{dir}/.agents/skills/new/SKILL.md"),
            skill_text("new", "New."),
        );
        wait_until_ready(&served, id).await;
        let answer = served
            .list(&[located(id, &format!("published:{id}"))])
            .await;
        assert_eq!(answer.skills.len(), 1, "{answer:?}");
    }
    assert_eq!(listed_ids(&served).await, ["repo", "repo-2"]);
    served.stop().await;
}

/// Makes `path` belong to another user than the daemon of the returned environment and root.
fn give_away(path: &Path, env: &mut ProcessEnv) {
    const STRANGER: u32 = 12_345;
    if env.uid == 0 {
        chown(path, Some(STRANGER), None).expect("chown");
    } else {
        // The directories of this test then belong to another user than the daemon's.
        env.uid = STRANGER;
    }
}

#[tokio::test]
async fn directories_of_other_users_are_omitted_with_a_warning() {
    for foreign in ["proj", "proj/.agents", "proj/.agents/skills"] {
        let fixture = Fixture::new("dir proj/.git\nskill proj/.agents/skills/s");
        let mut env = env_in(&fixture, "proj");
        give_away(&fixture.path(foreign), &mut env);
        let config = Config::from_flags(ServeFlags::default(), &env).expect("valid");
        assert_eq!(project_ids(&config), [""; 0]);
        let warning = config
            .warnings
            .iter()
            .find(|text| text.contains("belongs to neither"));
        let path = fixture.path("proj/.agents/skills");
        assert!(
            warning.is_some_and(|text| text.starts_with(path.to_str().expect("UTF-8"))),
            "{:?}",
            config.warnings
        );
    }
}

/// Returns the ids of the published roots of the project.
fn project_ids(config: &Config) -> Vec<&str> {
    let roots = config.published_roots.iter();
    let roots = roots.filter(|root| root.scope == RootScope::Repo);
    roots.map(|root| root.id.as_str()).collect()
}

/// Returns whether the project's root is published, and the warning that starts with its path.
fn publish_project(fixture: &Fixture, env: &ProcessEnv) -> (bool, Option<String>) {
    let config = Config::from_flags(ServeFlags::default(), env).expect("valid");
    let path = fixture.path("proj/.agents/skills");
    let path = path.to_str().expect("UTF-8");
    let has_project = !project_ids(&config).is_empty();
    let warning = config
        .warnings
        .into_iter()
        .find(|text| text.starts_with(path));
    (has_project, warning)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[tokio::test]
async fn directories_that_other_users_may_write_are_omitted_with_a_warning() {
    let fixture = Fixture::new("dir proj/.git\nskill proj/.agents/skills/s");
    let mut env = env_in(&fixture, "proj");
    let dirs = ["proj", "proj/.agents", "proj/.agents/skills"].map(|dir| fixture.path(dir));
    for dir in &dirs {
        set_mode(dir, 0o755);
    }
    let group = fs::metadata(&dirs[0]).expect("a directory").gid();
    for dir in &dirs {
        set_mode(dir, 0o757);
        let (is_published, warning) = publish_project(&fixture, &env);
        let warning = warning.expect("a warning");
        let part = format!("other users may write to {};", dir.display());
        assert!(!is_published && warning.contains(&part), "{warning}");
        // Nobody else can replace a directory in a sticky directory, but all users can add skills.
        set_mode(dir, 0o1777);
        let (is_published, _) = publish_project(&fixture, &env);
        assert_eq!(is_published, !dir.ends_with("skills"), "{}", dir.display());
        // The group of root, and the group that has the id of its only user.
        set_mode(dir, 0o775);
        (env.uid, env.gid) = (fs::metadata(dir).expect("a directory").uid(), group);
        let is_private = group == 0 || group == env.uid;
        assert_eq!(
            publish_project(&fixture, &env).0,
            is_private,
            "{}",
            dir.display()
        );
        if env.uid == 0 {
            for (gid, own_gid) in [(12_345, 12_345), (12_345, 0)] {
                chown(dir, None, Some(gid)).expect("chown");
                env.gid = own_gid;
                let (is_published, warning) = publish_project(&fixture, &env);
                assert!(!is_published && warning.is_some(), "{}", dir.display());
            }
            chown(dir, Some(12_345), Some(12_345)).expect("chown");
            (env.uid, env.gid) = (12_345, 12_345);
            assert_eq!(
                publish_project(&fixture, &env),
                (true, None),
                "{}",
                dir.display()
            );
            chown(dir, Some(0), Some(0)).expect("chown");
        }
        set_mode(dir, 0o755);
    }
}

#[tokio::test]
async fn a_missing_root_that_any_user_could_create_is_not_published() {
    let fixture = Fixture::new("dir proj/.git");
    set_mode(&fixture.path("proj"), 0o1777);
    let config = Config::from_flags(ServeFlags::default(), &env_in(&fixture, "proj"));
    let config = config.expect("valid");
    assert_eq!(project_ids(&config), [""; 0]);
    // The owner created the directory before the daemon started.
    fixture.write("proj/.agents/skills/s/SKILL.md", skill_text("s", "One."));
    assert_eq!(ids_in(&fixture, "proj").await, ["repo"]);
}

/// Returns the published roots of a config file for a daemon in a directory of the fixture.
fn load_roots(fixture: &Fixture, dir: &str, roots: &str) -> Result<Vec<String>, String> {
    let env = env_in(fixture, dir);
    let text = format!("roots: {roots}").into_bytes();
    let config = Config::from_bytes(ServeFlags::default(), Path::new("f"), text, &env);
    let config = config.map_err(|errors| errors.to_string())?;
    let roots = config.published_roots.iter();
    Ok(roots
        .map(|root| {
            format!(
                "{} {}",
                root.id.as_str(),
                String::from_utf8_lossy(&root.path)
            )
        })
        .collect())
}

#[tokio::test]
async fn presets_publish_the_directories_of_other_tools() {
    let fixture = Fixture::new(
        "dir proj/.git\nskill proj/.claude/skills/outer\nskill proj/a/.claude/skills/inner\n\
         skill proj/.codex/skills/of-codex\nskill home/.claude/skills/mine\n\
         skill home/.agents/skills/shared",
    );
    let path = |path: &str| fixture.path(path).display().to_string();
    for (preset, expected) in [
        (
            "claude",
            vec![
                format!("claude-repo {}", path("proj/a/.claude/skills")),
                format!("claude-repo-2 {}", path("proj/.claude/skills")),
                format!("claude {}", path("home/.claude/skills")),
            ],
        ),
        (
            "agents",
            vec![
                format!("agents-repo {}", path("proj/a/.agents/skills")),
                format!("agents-repo-2 {}", path("proj/.agents/skills")),
                format!("agents {}", path("home/.agents/skills")),
            ],
        ),
        (
            "codex",
            vec![
                format!("codex-repo {}", path("proj/a/.codex/skills")),
                format!("codex-repo-2 {}", path("proj/.codex/skills")),
                format!("codex {}", path("home/.codex/skills")),
            ],
        ),
    ] {
        let roots = format!("[{{preset: {preset}}}]");
        assert_eq!(load_roots(&fixture, "proj/a", &roots), Ok(expected));
    }

    let file = fixture.path("caproot.yaml");
    let rules = "disabled_skills: [{root: claude-repo-2, path: outer}]";
    let text = format!("roots: [{{preset: claude}}, {{preset: codex}}]\n{rules}\n");
    fs::write(&file, text).expect("a file");
    let mut command = serve(["--config", file.to_str().expect("UTF-8")]);
    command
        .current_dir(fixture.path("proj/a"))
        .env("HOME", fixture.path("home"));
    let served = ConfiguredDaemon::start_command(&mut command).await;
    let expected = ["claude-repo", "claude-repo-2", "codex-repo-2", "claude"];
    assert_eq!(listed_ids(&served).await, expected);
    let selected = expected.map(|id| located(id, &format!("published:{id}")));
    let listed = served.list(&selected).await;
    let names: Vec<_> = listed.skills.iter().map(|skill| &*skill.name).collect();
    assert_eq!(names, ["inner", "of-codex", "mine"]);
    served.stop().await;
}

#[test]
fn wrong_presets_are_reported() {
    let fixture = Fixture::new("dir proj/.git\nskill home/.claude/skills/mine");
    for (roots, part) in [
        (
            "[{preset: cursor}]",
            "expected one of agents, claude, codex",
        ),
        ("[{preset: claude}, {preset: claude}]", "duplicate preset"),
        (
            "[{preset: claude, id: x}]",
            "set either `preset`, or `id` and `path`",
        ),
        ("[{id: x}]", "required key is missing"),
        (
            "[{id: claude, path: /srv}, {preset: claude}]",
            "\"claude\": the root in line 1 has the same id",
        ),
    ] {
        let error = load_roots(&fixture, "proj", roots).expect_err(roots);
        assert!(error.contains(part), "{roots}: {error}");
    }

    let flags = ServeFlags {
        presets: vec![RootPreset::Claude, RootPreset::Claude],
        ..ServeFlags::default()
    };
    let error = Config::from_flags(flags, &env_in(&fixture, "proj")).expect_err("a duplicate");
    assert!(error.to_string().contains("--preset"), "{error}");
}
