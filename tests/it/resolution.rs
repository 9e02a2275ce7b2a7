//! Where links and odd files lead: as far as they may, no further, and nothing is said of what lies
//! there. What trees can say is in `tests/trees/reads.txt` and `discovery.txt`.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use caproot::catalog::OpenMethod;
use caproot::proto::caproot::v1::{
    ListResourcesRequest, ListSkillsResponse, ReadResourceRequest, RootReason,
    SelectedCapabilityRoot,
};
use prost::Message as _;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tonic::{Code, Response};

use crate::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, assert_refused, by_both_openers, bytes_of, extent, in_time, read_request,
    refusal, selected,
};
use crate::live::{Busy, fresh};
use crate::reads::digest;

by_both_openers! {
    async fn forty_links_lead_somewhere_and_one_more_nowhere;
    async fn links_of_procfs_lead_nowhere;
    async fn devices_are_never_opened;
    async fn of_what_lies_outside_nothing_is_said;
    async fn a_file_that_grows_and_shrinks_is_one_version_or_an_error;
    async fn a_file_that_was_replaced_since_it_was_listed;
}

async fn serving(opener: OpenMethod, tree: &str) -> (Fixture, Daemon, SelectedCapabilityRoot) {
    let fixture = Fixture::new(tree);
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")]).opening(opener)).await;
    let root = selected("r", fixture.path("root"));
    (fixture, daemon, root)
}

/// The diagnostics of a list: code, resource and text.
fn said(list: &ListSkillsResponse) -> Vec<(&str, &str, &str)> {
    let stem = |d| caproot::proto::caproot::v1::Diagnostic::code(d).as_str_name();
    list.diagnostics.iter().map(|d| (&stem(d)[16..], &*d.resource, &*d.message)).collect()
}

async fn forty_links_lead_somewhere_and_one_more_nowhere(opener: OpenMethod) {
    let (fixture, daemon, root) =
        serving(opener, "skill root/a\nskill root/s\nfile root/a/l0").await;
    fixture.write("root/a/l0", "at the end");
    fs::create_dir(fixture.path("root/dirs")).expect("a directory");
    for (dir, n) in ["a", "dirs"].into_iter().flat_map(|dir| (1..=41).map(move |n| (dir, n))) {
        let link = fixture.path(&format!("root/{dir}/l{n}"));
        symlink(format!("l{}", n - 1), link).expect("a link");
    }
    symlink("../s", fixture.path("root/dirs/l0")).expect("a link");
    let read = |n: u32| read_request(&root, "skill://r/a", &format!("skill://r/a/l{n}"));
    assert_eq!(daemon.read_all(read(40)).await.expect("40 links"), b"at the end");
    assert_refused(daemon.read(read(41)).await, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    let list = fresh(&daemon, std::slice::from_ref(&root)).await;
    let links: Vec<_> =
        said(&list).into_iter().filter(|(code, ..)| *code == "DANGLING_LINK").collect();
    let over = "the links form a cycle, or are more than 40; fix or remove the link";
    // `dirs/l0` is one link itself.
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

/// A link of /proc leads to what a process holds, whatever its text says: nothing goes by the text.
async fn links_of_procfs_lead_nowhere(opener: OpenMethod) {
    let (fixture, daemon, root) =
        serving(opener, "skill root/a\nskill root/b\nfile root/b/y.md\n| Inside.").await;
    let (top, me) = (fixture.path("root").display().to_string(), std::process::id());
    let inside = fs::File::open(fixture.path("root/b/y.md")).expect("a file");
    let number = std::os::fd::AsRawFd::as_raw_fd(&inside);
    let here = std::env::current_dir().expect("a current directory").display().to_string();
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
        let holder = if *name == "SKILL.md" { "root/c" } else { "root/a" };
        symlink(target, fixture.path(holder).join(name)).expect("a link");
    }
    let list = fresh(&daemon, std::slice::from_ref(&root)).await;
    let packages: Vec<_> = list.skills.iter().map(|s| s.package.as_str()).collect();
    assert_eq!(packages, ["skill://r/a", "skill://r/b"]);
    let outside =
        "leads outside the allowed directories; allow the target's directory, or replace the link";
    let said = said(&list);
    assert_eq!(said.len(), targets.len(), "{said:?}");
    assert!(
        said.iter().all(|(code, _, why)| (*code, *why) == ("OUTSIDE_ROOT", outside)),
        "{said:?}"
    );
    for (name, _) in targets.iter().filter(|(name, _)| *name != "SKILL.md") {
        let answer =
            daemon.read(read_request(&root, "skill://r/a", &format!("skill://r/a/{name}"))).await;
        assert_refused(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
    }
    let by_proc = selected("p", format!("/proc/self/root{top}"));
    let list = fresh(&daemon, &[by_proc]).await;
    assert_eq!(list.roots[0].reason(), RootReason::NotAllowed);
    daemon.stop().await;
}

async fn devices_are_never_opened(opener: OpenMethod) {
    let (fixture, daemon, root) = serving(opener, "skill root/a\ndir root/c\ndir root/b").await;
    // An opening of either would fail in its own way: nothing has these numbers.
    let made = [
        ("root/c/SKILL.md", FileType::CharacterDevice),
        ("root/b/SKILL.md", FileType::BlockDevice),
    ]
    .into_iter()
    .chain([("root/a/device", FileType::CharacterDevice)])
    .try_for_each(|(name, kind)| {
        mknodat(CWD, fixture.path(name), kind, Mode::RUSR | Mode::WUSR, makedev(240, 77))
    });
    if let Err(error) = made {
        println!("SKIPPED: no device can be made here: {error}");
        return daemon.stop().await;
    }
    symlink("../c/SKILL.md", fixture.path("root/a/link")).expect("a link");
    let list = fresh(&daemon, std::slice::from_ref(&root)).await;
    let why = "not a regular file; it was not opened";
    assert_eq!(
        said(&list),
        [
            ("NOT_REGULAR", "skill://r/b/SKILL.md", why),
            ("NOT_REGULAR", "skill://r/c/SKILL.md", why)
        ]
    );
    for name in ["device", "link"] {
        let answer =
            daemon.read(read_request(&root, "skill://r/a", &format!("skill://r/a/{name}"))).await;
        assert_refused(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    }
    daemon.stop().await;
}

async fn of_what_lies_outside_nothing_is_said(opener: OpenMethod) {
    const SECRET: &str = "never-said";
    let (fixture, daemon, root) = serving(
        opener,
        "skill root/a\nlink root/a/relative -> ../../never-said/x\nlink root/a/absolute -> $TMP/never-said/x
         link root/a/missing -> $TMP/never-said/none\nlink root/a/chain -> hop\nlink root/a/hop -> relative
         link root/a/dir -> ../../never-said\nlink root/d -> $TMP/never-said
         link root/m/SKILL.md -> ../../never-said/SKILL.md\nlink root/n/agents -> ../../never-said
         skill root/n\nlink root/p/.claude-plugin -> ../../never-said\nskill root/p/s
         skill never-said\nfile never-said/x\n| never-said
         file never-said/openai.yaml\n| interface:\n|   display_name: never-said
         file never-said/plugin.json\n| {\"name\": \"never-said\"}",
    )
    .await;
    let mut answers = Vec::new();
    let list = fresh(&daemon, std::slice::from_ref(&root)).await;
    assert_eq!(list.skills.len(), 3, "a, n and p/s");
    assert!(said(&list).iter().all(|(code, ..)| *code == "OUTSIDE_ROOT"), "{list:?}");
    answers.push(list.encode_to_vec());
    for package in ["a", "n", "p/s", "m", "d"] {
        let request = ListResourcesRequest {
            root: Some(root.clone()),
            package: format!("skill://r/{package}"),
            include_digests: true,
            ..Default::default()
        };
        match in_time(daemon.client.clone().list_resources(request)).await.map(Response::into_inner)
        {
            Ok(files) => answers.push(files.encode_to_vec()),
            Err(status) => answers.push(format!("{status:?}").into_bytes()),
        }
    }
    for file in ["relative", "absolute", "missing", "chain", "hop", "dir/x", "dir/none", "dir/x/y"]
    {
        let answer =
            daemon.read(read_request(&root, "skill://r/a", &format!("skill://r/a/{file}"))).await;
        answers.push(format!("{answer:?}").into_bytes());
        let refused = refusal(&answer.expect_err("outside"));
        assert_eq!((refused.code, &*refused.reason), (Code::PermissionDenied, "OUTSIDE_ROOT"));
    }
    let content = fs::read(fixture.path("never-said/x")).expect("on disk");
    for tell in [SECRET.to_owned(), digest(&content), fixture.top().display().to_string()] {
        let tells =
            |answer: &&Vec<u8>| answer.windows(tell.len()).any(|part| part == tell.as_bytes());
        assert_eq!(answers.iter().find(tells), None, "{tell}");
    }
    daemon.stop().await;
}

async fn a_file_that_grows_and_shrinks_is_one_version_or_an_error(opener: OpenMethod) {
    let (fixture, daemon, root) = serving(opener, "skill root/a\nfile root/a/x").await;
    let path = fixture.path("root/a/x");
    let line = |n: u64| format!("{n:07}\n");
    let writes = Arc::new(AtomicBool::new(false));
    let may_write = writes.clone();
    let busy = Busy::new(move |turn| {
        if !may_write.load(Ordering::Relaxed) {
            return std::thread::yield_now();
        }
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
        let length = file.metadata().expect("its length").len();
        if turn % 500 == 0 {
            file.set_len(0).expect("truncate");
        } else {
            file.write_all(line(length / 8).as_bytes()).expect("append");
        }
    });
    let request = ReadResourceRequest {
        max_bytes: 64,
        ..read_request(&root, "skill://r/a", "skill://r/a/x")
    };
    for round in 0..extent(12, 40) {
        // Now it changes under the reads, now it keeps still.
        let changes = round % 2 == 0;
        writes.store(changes, Ordering::Relaxed);
        while read_whole(&daemon, &request, line).await == changes {}
    }
    drop(busy);
    daemon.read_all(request).await.expect("nobody writes any more");
    daemon.stop().await;
}

/// Reads a file of numbered lines page by page; gives whether it came to the end before it changed.
async fn read_whole(
    daemon: &Daemon,
    request: &ReadResourceRequest,
    line: impl Fn(u64) -> String,
) -> bool {
    let (mut cursor, mut joined) = (String::new(), Vec::new());
    loop {
        match daemon.read(ReadResourceRequest { cursor, ..request.clone() }).await {
            Ok(page) => {
                joined.extend(bytes_of(&page));
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    assert_eq!(page.digest, digest(&joined), "one version");
                    let lines: String = (0..joined.len() as u64 / 8).map(&line).collect();
                    assert_eq!(String::from_utf8(joined).expect("text"), lines);
                    return true;
                }
            }
            Err(status) => {
                let refused = refusal(&status);
                let expected = (Code::Aborted, "RESOURCE_CHANGED");
                assert_eq!((refused.code, &*refused.reason), expected);
                return false;
            }
        }
    }
}

async fn a_file_that_was_replaced_since_it_was_listed(opener: OpenMethod) {
    let (fixture, daemon, root) = serving(opener, "skill root/a").await;
    let listed = daemon.list(std::slice::from_ref(&root)).await.skills.remove(0);
    let request = ReadResourceRequest {
        if_none_match: listed.digest.clone(),
        ..read_request(&root, &listed.package, &listed.main_resource)
    };
    assert!(daemon.read(request.clone()).await.expect("as listed").not_modified);
    let new = crate::live::skill("a", "Another.");
    fixture.replace("root/a/SKILL.md", &new);
    let page = daemon.read(request).await.expect("what is there now");
    assert_eq!((bytes_of(&page), page.digest), (new.clone().into_bytes(), digest(new.as_bytes())));
    assert!(!page.not_modified);
    daemon.stop().await;
}
