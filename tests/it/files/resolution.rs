//! Resolution of links and special files: allowed targets are read, and responses disclose nothing
//! of other targets. Cases that a tree can express are in `tests/trees/reads.txt` and
//! `discovery.txt`.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use caproot::daemon::catalog::OpenMethod;
use caproot_core::proto::caproot::v1::{
    ListResourcesRequest, ListSkillsResponse, ReadResourceRequest, RootReason,
    SelectedCapabilityRoot,
};
use prost::Message as _;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tonic::{Code, Status};

use crate::callers::{parse_config, with_token, write_token};
use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::watch_harness::{BusyThread, fresh_list, retarget};
use crate::harness::{
    Daemon, Setup, assert_rpc_error, by_both_openers, bytes_of, files_request, isolated_env,
    list_request, packages, published, read_request, rpc_error, selected, short_or_long,
};

by_both_openers! {
    async fn up_to_forty_links_are_followed;
    async fn links_of_procfs_are_not_followed;
    async fn devices_are_never_opened;
    async fn responses_disclose_nothing_outside_the_root;
    async fn a_link_through_a_name_outside_is_never_read;
    async fn a_link_through_a_name_outside_is_never_listed;
    async fn diagnostics_do_not_depend_on_names_outside;
    async fn a_root_behind_a_name_outside_is_never_allowed;
    async fn a_scoped_caller_learns_nothing_of_other_directories;
    async fn links_through_configured_paths_are_followed;
    async fn a_file_that_grows_and_shrinks_is_one_version_or_an_error;
    async fn a_file_replaced_after_the_list_is_read_in_its_new_version;
}

/// Code, resource and message of the diagnostics of a list.
fn diagnostics(list: &ListSkillsResponse) -> Vec<(&str, &str, &str)> {
    let stem = |d| caproot_core::proto::caproot::v1::Diagnostic::code(d).as_str_name();
    list.diagnostics
        .iter()
        .map(|d| (&stem(d)[16..], &*d.resource, &*d.message))
        .collect()
}

/// Serves a tree with its root `root`, which the requests name `r`.
async fn serve_tree(opener: OpenMethod, tree: &str) -> (Fixture, Daemon, SelectedCapabilityRoot) {
    Setup::default().with_opener(opener).serve(tree).await
}

/// Request for a file of the skill `a` of a root.
fn file_of_a(root: &SelectedCapabilityRoot, file: &str) -> ReadResourceRequest {
    let skill = format!("skill://{}/a", root.id);
    read_request(root, &skill, &format!("{skill}/{file}"))
}

const OUTSIDE: (Code, &str) = (Code::PermissionDenied, "OUTSIDE_ROOT");
const NOT_FOUND: (Code, &str) = (Code::NotFound, "RESOURCE_NOT_FOUND");

/// Asserts that a read fails with this code and reason. Returns the answer for further checks.
async fn assert_refused(
    daemon: &Daemon,
    request: impl tonic::IntoRequest<ReadResourceRequest>,
    expected: (Code, &str),
    case: &str,
) -> Status {
    let status = daemon.read(request).await.expect_err(case);
    let refused = rpc_error(&status);
    assert_eq!((refused.code, &*refused.reason), expected, "{case}");
    assert_eq!(refused.fields, [""; 0], "{case}");
    status
}

/// Asserts that a path cannot be selected as a root.
async fn assert_not_allowed(daemon: &Daemon, path: impl AsRef<Path>) {
    let path = path.as_ref();
    let root = selected("same", path);
    let list = fresh_list(daemon, &[root]).await;
    let reason = list.roots[0].reason();
    assert_eq!(reason, RootReason::NotAllowed, "{}", path.display());
}

/// Asserts that a list has this number of diagnostics, all for links that lead outside.
fn assert_all_outside(list: &ListSkillsResponse, count: usize) {
    let found = diagnostics(list);
    assert_eq!(found.len(), count, "{found:?}");
    assert!(
        found.iter().all(|(code, ..)| *code == "OUTSIDE_ROOT"),
        "{found:?}"
    );
}

async fn up_to_forty_links_are_followed(opener: OpenMethod) {
    let (fixture, daemon, root) =
        serve_tree(opener, "skill root/a\nskill root/s\nfile root/a/l0").await;
    fixture.write("root/a/l0", "at the end");
    fs::create_dir(fixture.path("root/dirs")).expect("a directory");
    for (dir, n) in ["a", "dirs"]
        .into_iter()
        .flat_map(|dir| (1..=41).map(move |n| (dir, n)))
    {
        let link = fixture.path(&format!("root/{dir}/l{n}"));
        symlink(format!("l{}", n - 1), link).expect("a link");
    }
    symlink("../s", fixture.path("root/dirs/l0")).expect("a link");
    let forty = daemon.read_all(file_of_a(&root, "l40")).await;
    assert_eq!(forty.expect("40 links"), b"at the end");
    assert_refused(&daemon, file_of_a(&root, "l41"), NOT_FOUND, "41 links").await;
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    let links: Vec<_> = diagnostics(&list)
        .into_iter()
        .filter(|(code, ..)| *code == "DANGLING_LINK")
        .collect();
    let over = "the links form a cycle, or are more than 40; fix or remove the link";
    // The link `dirs/l0` adds one to each chain in `dirs`.
    assert_eq!(
        links,
        [
            ("DANGLING_LINK", "skill://r/a/l41", over),
            ("DANGLING_LINK", "skill://r/dirs/l40", over),
            ("DANGLING_LINK", "skill://r/dirs/l41", over)
        ]
    );
    daemon.stop().await;
}

/// A link of /proc leads to an object that a process holds, regardless of its text. So the daemon
/// must not follow the text.
async fn links_of_procfs_are_not_followed(opener: OpenMethod) {
    let (fixture, daemon, root) = serve_tree(
        opener,
        "skill root/a\nskill root/b\nfile root/b/y.md\n| Inside.",
    )
    .await;
    let (top, me) = (
        fixture.path("root").display().to_string(),
        std::process::id(),
    );
    let inside = fs::File::open(fixture.path("root/b/y.md")).expect("a file");
    let number = std::os::fd::AsRawFd::as_raw_fd(&inside);
    let here = std::env::current_dir()
        .expect("a current directory")
        .display()
        .to_string();
    let up = "../".repeat(here.matches('/').count());
    let targets = [
        ("root.md", format!("/proc/self/root{top}/b/y.md")),
        ("number.md", format!("/proc/{me}/root{top}/b/y.md")),
        ("cwd.md", format!("/proc/self/cwd/{up}{}/b/y.md", &top[1..])),
        ("fd.md", format!("/proc/{me}/fd/{number}")),
        ("plain", "/proc/self".to_owned()),
        ("dir", format!("/proc/self/root{top}/b")),
        ("SKILL.md", format!("/proc/self/root{top}/b/SKILL.md")),
    ];
    fs::create_dir(fixture.path("root/c")).expect("a directory");
    for (name, target) in &targets {
        let holder = if *name == "SKILL.md" {
            "root/c"
        } else {
            "root/a"
        };
        symlink(target, fixture.path(holder).join(name)).expect("a link");
    }
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    assert_eq!(packages(&list), ["skill://r/a", "skill://r/b"]);
    assert_all_outside(&list, targets.len());
    let outside =
        "leads outside the allowed directories; allow the target's directory, or replace the link";
    for (_, resource, message) in diagnostics(&list) {
        assert_eq!(message, outside, "{resource}");
    }
    for (name, _) in targets.iter().filter(|(name, _)| *name != "SKILL.md") {
        assert_refused(&daemon, file_of_a(&root, name), OUTSIDE, name).await;
    }
    assert_not_allowed(&daemon, format!("/proc/self/root{top}")).await;
    daemon.stop().await;
}

async fn devices_are_never_opened(opener: OpenMethod) {
    let (fixture, daemon, root) = serve_tree(opener, "skill root/a\ndir root/c\ndir root/b").await;
    // No driver has these device numbers, so opening a device would fail with an error of its own.
    let made = [
        ("root/c/SKILL.md", FileType::CharacterDevice),
        ("root/b/SKILL.md", FileType::BlockDevice),
    ]
    .into_iter()
    .chain([("root/a/device", FileType::CharacterDevice)])
    .try_for_each(|(name, kind)| {
        mknodat(
            CWD,
            fixture.path(name),
            kind,
            Mode::RUSR | Mode::WUSR,
            makedev(240, 77),
        )
    });
    if let Err(error) = made {
        println!("SKIPPED: a device node cannot be created: {error}");
        return daemon.stop().await;
    }
    symlink("../c/SKILL.md", fixture.path("root/a/link")).expect("a link");
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    let why = "not a regular file; it was not opened";
    assert_eq!(
        diagnostics(&list),
        [
            ("NOT_REGULAR", "skill://r/b/SKILL.md", why),
            ("NOT_REGULAR", "skill://r/c/SKILL.md", why)
        ]
    );
    for name in ["device", "link"] {
        assert_refused(&daemon, file_of_a(&root, name), NOT_FOUND, name).await;
    }
    daemon.stop().await;
}

async fn responses_disclose_nothing_outside_the_root(opener: OpenMethod) {
    const SECRET_NAME: &str = "never-said";
    let (fixture, daemon, root) = serve_tree(opener, "skill root/a\nlink root/a/relative -> ../../never-said/x\nlink root/a/absolute -> $TMP/never-said/x
         link root/a/missing -> $TMP/never-said/none\nlink root/a/chain -> hop\nlink root/a/hop -> relative
         link root/a/dir -> ../../never-said\nlink root/d -> $TMP/never-said
         link root/m/SKILL.md -> ../../never-said/SKILL.md\nlink root/n/agents -> ../../never-said
         skill root/n\nlink root/p/.claude-plugin -> ../../never-said\nskill root/p/s
         skill never-said\nfile never-said/x\n| never-said
         file never-said/openai.yaml\n| interface:\n|   display_name: never-said
         file never-said/plugin.json\n| {\"name\": \"never-said\"}",).await;
    let mut answers = Vec::new();
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    assert_eq!(list.skills.len(), 3, "a, n and p/s");
    assert_all_outside(&list, list.diagnostics.len());
    answers.push(list.encode_to_vec());
    for package in ["a", "n", "p/s", "m", "d"] {
        let request = ListResourcesRequest {
            include_digests: true,
            ..files_request(&root, &format!("skill://r/{package}"))
        };
        match daemon.list_resources(request).await {
            Ok(files) => answers.push(files.encode_to_vec()),
            Err(status) => answers.push(format!("{status:?}").into_bytes()),
        }
    }
    for file in [
        "relative", "absolute", "missing", "chain", "hop", "dir/x", "dir/none", "dir/x/y",
    ] {
        let status = assert_refused(&daemon, file_of_a(&root, file), OUTSIDE, file).await;
        answers.push(format!("{status:?}").into_bytes());
    }
    let content = fs::read(fixture.path("never-said/x")).expect("on disk");
    for secret in [
        SECRET_NAME.to_owned(),
        content_digest(&content),
        fixture.top().display().to_string(),
    ] {
        let contains_secret = |answer: &&Vec<u8>| {
            answer
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
        };
        assert_eq!(answers.iter().find(contains_secret), None, "{secret}");
    }
    daemon.stop().await;
}

/// Names outside, and whether a link could pass through them. `alias` is a link to an allowed
/// directory.
const NAMES_OUTSIDE: [&str; 4] = ["there", "gone", "file", "alias"];

/// Tree with links that lead out of the root `root` and back, through each of the names outside.
fn tree_with_detours() -> String {
    let mut tree = "skill root/a\nskill root/s\ndir outside/there/deep\nfile outside/file\n\
                    link outside/alias -> ../root/s\nlink outside/to-alias -> alias\n\
                    link root/a/up -> ../..\n"
        .to_owned();
    for name in NAMES_OUTSIDE {
        let detour = format!("outside/{name}/../../root/s");
        let lines = [
            format!("link root/a/{name}.md -> ../../{detour}/SKILL.md"),
            format!("link root/a/hop-{name}.md -> {name}.md"),
            format!("link root/a/absolute-{name}.md -> $TMP/{detour}/SKILL.md"),
            format!("link root/a/dir-{name} -> ../../{detour}"),
            format!("link root/a/by-{name} -> ../../outside/{name}"),
            format!("link root/a/by-hop-{name} -> ../../outside/to-{name}"),
            format!("link root/d-{name} -> ../{detour}"),
            format!("link root/hop-d-{name} -> d-{name}"),
            format!("link root/m-{name}/SKILL.md -> ../../{detour}/SKILL.md"),
        ];
        tree += &(lines.join("\n") + "\n");
    }
    tree
}

async fn a_link_through_a_name_outside_is_never_read(opener: OpenMethod) {
    let (_fixture, daemon, root) = serve_tree(opener, &tree_with_detours()).await;
    for name in NAMES_OUTSIDE {
        for file in [
            format!("{name}.md"),
            format!("hop-{name}.md"),
            format!("absolute-{name}.md"),
            format!("dir-{name}/SKILL.md"),
            format!("by-{name}/SKILL.md"),
            format!("by-hop-{name}/SKILL.md"),
            format!("up/outside/{name}/SKILL.md"),
        ] {
            assert_refused(&daemon, file_of_a(&root, &file), OUTSIDE, &file).await;
        }
    }
    // A link may pass through a directory above the root by name, and back into the root.
    let back = file_of_a(&root, "up/root/s/SKILL.md");
    daemon.read_all(back).await.expect("inside");
    daemon.stop().await;
}

async fn a_link_through_a_name_outside_is_never_listed(opener: OpenMethod) {
    let (_fixture, daemon, root) = serve_tree(opener, &tree_with_detours()).await;
    let files = daemon
        .list_resources(files_request(&root, "skill://r/a"))
        .await
        .expect("files");
    let names: Vec<_> = files.resources.iter().map(|file| &*file.resource).collect();
    assert_eq!(names, ["skill://r/a/SKILL.md"]);
    daemon.stop().await;
}

async fn diagnostics_do_not_depend_on_names_outside(opener: OpenMethod) {
    let (_fixture, daemon, root) = serve_tree(opener, &tree_with_detours()).await;
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    assert_eq!(packages(&list), ["skill://r/a", "skill://r/s"]);
    assert_all_outside(&list, 1 + 9 * NAMES_OUTSIDE.len());
    daemon.stop().await;
}

async fn a_root_behind_a_name_outside_is_never_allowed(opener: OpenMethod) {
    let (fixture, daemon, _) = serve_tree(opener, &tree_with_detours()).await;
    for name in NAMES_OUTSIDE {
        for path in [
            format!("root/d-{name}"),
            format!("root/hop-d-{name}"),
            format!("root/a/dir-{name}"),
            format!("root/a/by-{name}"),
            format!("root/a/by-hop-{name}"),
        ] {
            assert_not_allowed(&daemon, fixture.path(&path)).await;
        }
    }
    // A path of the caller leaves the allowed directories only to enter one by a link.
    for name in ["there", "gone", "file"] {
        let path = format!("root/s/../../outside/{name}/../../root/s");
        assert_not_allowed(&daemon, fixture.path(&path)).await;
    }
    // The author of a skill cannot change a link outside, so a root may be selected by such a link.
    for path in ["outside/alias", "outside/to-alias"] {
        let root = selected("alias", fixture.path(path));
        let list = fresh_list(&daemon, &[root]).await;
        assert_eq!(packages(&list), ["skill://alias"], "{path}");
    }
    daemon.stop().await;
}

/// A link that changes to a detour is followed neither from the kernel's cache nor from the daemon's.
#[tokio::test]
async fn a_root_link_that_is_changed_to_a_detour_is_not_followed() {
    let (fixture, daemon, _) = Setup::default()
        .serve("skill root/s\ndir outside/there\nlink root/now -> s")
        .await;
    let root = selected("now", fixture.path("root/now"));
    let request = read_request(&root, "skill://now", "");
    fresh_list(&daemon, std::slice::from_ref(&root)).await;
    for _ in 0..3 {
        daemon.read(request.clone()).await.expect("inside");
    }
    retarget(&fixture.path("root/now"), "../outside/there/../../root/s");
    let answer = daemon.read(request).await;
    assert_rpc_error(answer, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    daemon.stop().await;
}

async fn a_scoped_caller_learns_nothing_of_other_directories(opener: OpenMethod) {
    let mut tree = "skill srv/mine/a\nfile srv/mine/a/x.md\n| Mine.\n\
                    skill srv/theirs/there\nlink srv/theirs/alias -> ../mine/a\n"
        .to_owned();
    for name in ["there", "gone", "alias"] {
        let links = format!(
            "link srv/mine/a/{name}.md -> ../../theirs/{name}/../../mine/a/x.md\n\
             link srv/mine/a/by-{name} -> ../../theirs/{name}\n\
             link srv/mine/d-{name} -> ../theirs/{name}/../../mine/a\n"
        );
        tree.push_str(&links);
    }
    let fixture = Fixture::new(&tree);
    for token in ["me", "all"] {
        write_token(&fixture, token, token);
    }
    let rules = "roots: [{id: mine, path: srv/mine}]\nallow: [srv]\ncallers:\n\
                 - {name: me, token_file: me, roots: [mine]}\n- {name: all, token_file: all}\n";
    let mut config = parse_config(&fixture, rules, &isolated_env(Path::new("/nonexistent")));
    config.opener = Some(opener);
    let daemon = Daemon::start_with(config).await;
    let mine = published("mine");
    let list = async |token, root: &SelectedCapabilityRoot| {
        let request = with_token(token, list_request(std::slice::from_ref(root)));
        daemon.try_list(request).await.expect("ListSkills")
    };

    let scoped = list("me", &mine).await;
    assert_eq!(packages(&scoped), ["skill://mine/a"]);
    assert_all_outside(&scoped, 9);
    for name in ["there", "gone", "alias"] {
        for file in [format!("{name}.md"), format!("by-{name}/x.md")] {
            let request = with_token("me", file_of_a(&mine, &file));
            assert_refused(&daemon, request, OUTSIDE, &file).await;
        }
        for path in [format!("srv/theirs/{name}"), format!("srv/mine/d-{name}")] {
            let root = selected("r", fixture.path(&path));
            let listed = list("me", &root).await;
            assert_eq!(listed.roots[0].reason(), RootReason::NotAllowed, "{path}");
        }
    }

    // For a caller without a limit, the same links stay inside the allowed directory.
    for file in ["there.md", "alias.md", "by-alias/x.md"] {
        let request = with_token("all", file_of_a(&mine, file));
        daemon.read(request).await.expect(file);
    }
    daemon.stop().await;
}

/// The operator's paths may lead through links. A link below a root may use the same paths.
async fn links_through_configured_paths_are_followed(opener: OpenMethod) {
    let fixture = Fixture::new(
        "skill releases/1/skills/a\nfile releases/1/skills/a/x.md\n| Inside.\n\
         link hop -> current\nlink current -> releases/1\n\
         skill root/b\nlink root/b/x.md -> $TMP/hop/skills/a/x.md\n\
         link root/b/dir -> ../../hop/skills/a\nlink root/now -> ../current/skills/a\n\
         link root/b/real.md -> ../../releases/1/skills/a/x.md\n\
         link root/b/other.md -> ../../releases/2/../1/skills/a/x.md",
    );
    let setup = Setup::allowing([fixture.path("hop/skills"), fixture.path("root")]);
    let daemon = Daemon::start(setup.with_opener(opener)).await;
    let root = selected("r", fixture.path("root"));
    let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
    // The skills are sorted by name, and the linked skill is named `a`.
    assert_eq!(packages(&list), ["skill://r/now", "skill://r/b"]);
    for file in ["x.md", "dir/x.md", "real.md"] {
        let request = read_request(&root, "skill://r/b", &format!("skill://r/b/{file}"));
        assert_eq!(daemon.read_all(request).await.expect(file), b"Inside.\n");
    }
    let other = read_request(&root, "skill://r/b", "skill://r/b/other.md");
    assert_refused(&daemon, other, OUTSIDE, "other.md").await;
    // A directory below the configured path may be selected by that path.
    let below = selected("below", fixture.path("hop/skills/a"));
    let list = fresh_list(&daemon, &[below]).await;
    assert_eq!(packages(&list), ["skill://below"]);
    daemon.stop().await;
}

async fn a_file_that_grows_and_shrinks_is_one_version_or_an_error(opener: OpenMethod) {
    let (fixture, daemon, root) = serve_tree(opener, "skill root/a\nfile root/a/x").await;
    let path = fixture.path("root/a/x");
    let line = |n: u64| format!("{n:07}\n");
    let writes = Arc::new(AtomicBool::new(false));
    let may_write = writes.clone();
    let busy = BusyThread::new(move |turn| {
        if !may_write.load(Ordering::Relaxed) {
            return std::thread::yield_now();
        }
        let mut file = OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("the file");
        let length = file.metadata().expect("its length").len();
        if turn % 500 == 0 {
            file.set_len(0).expect("truncate");
        } else {
            file.write_all(line(length / 8).as_bytes()).expect("append");
        }
    });
    let request = ReadResourceRequest {
        max_bytes: 64,
        ..file_of_a(&root, "x")
    };
    for round in 0..short_or_long(12, 40) {
        // The file changes during the reads of even rounds only.
        let changes = round % 2 == 0;
        writes.store(changes, Ordering::Relaxed);
        while read_to_end(&daemon, &request, line).await == changes {}
    }
    drop(busy);
    daemon
        .read_all(request)
        .await
        .expect("the writer has ended");
    daemon.stop().await;
}

/// Reads a file of numbered lines page by page. Returns whether the end was reached before the file
/// changed.
async fn read_to_end(
    daemon: &Daemon,
    request: &ReadResourceRequest,
    line: impl Fn(u64) -> String,
) -> bool {
    let (mut cursor, mut joined) = (String::new(), Vec::new());
    loop {
        match daemon
            .read(ReadResourceRequest {
                cursor,
                ..request.clone()
            })
            .await
        {
            Ok(page) => {
                joined.extend(bytes_of(&page));
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    assert_eq!(page.digest, content_digest(&joined), "one version");
                    let lines: String = (0..joined.len() as u64 / 8).map(&line).collect();
                    assert_eq!(String::from_utf8(joined).expect("text"), lines);
                    return true;
                }
            }
            Err(status) => {
                let refused = rpc_error(&status);
                let expected = (Code::Aborted, "RESOURCE_CHANGED");
                assert_eq!((refused.code, &*refused.reason), expected);
                return false;
            }
        }
    }
}

async fn a_file_replaced_after_the_list_is_read_in_its_new_version(opener: OpenMethod) {
    let (fixture, daemon, root) = serve_tree(opener, "skill root/a").await;
    let listed = daemon
        .list(std::slice::from_ref(&root))
        .await
        .skills
        .remove(0);
    let request = ReadResourceRequest {
        if_none_match: listed.digest.clone(),
        ..read_request(&root, &listed.package, &listed.main_resource)
    };
    assert!(
        daemon
            .read(request.clone())
            .await
            .expect("as listed")
            .not_modified
    );
    let new = crate::harness::watch_harness::skill_text("a", "Another.");
    fixture.replace("root/a/SKILL.md", &new);
    let page = daemon.read(request).await.expect("the new version");
    assert_eq!(
        (bytes_of(&page), page.digest),
        (new.clone().into_bytes(), content_digest(new.as_bytes()))
    );
    assert!(!page.not_modified);
    daemon.stop().await;
}
