//! The read tool as a model calls it: relative paths, lists of files, packages without an authority,
//! and names of tools in either spelling.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::serve_tree;
use crate::harness::process::client_command;

const TREE: &str = "skill r/pdf\nfile r/pdf/references/a b.md\n| spaces\n\
                    file r/pdf/references/plain.md\n| plain\nskill r/bare\nskill r/other";

async fn read(process: &mut CallProcess, arguments: Value) -> Value {
    process.call("skills_read", &arguments).await
}

/// Lists the files of a directory in pages. Returns the paths.
async fn list_paths(process: &mut CallProcess, package: &str, directory: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let arguments = json!({"package": package, "resource": directory, "cursor": cursor});
        let page = read(process, arguments).await;
        let files = page["files"].as_array().expect("files");
        let listed = files.iter().map(|file| file["path"].as_str());
        paths.extend(listed.map(|path| path.expect("a path").to_owned()));
        assert_eq!(page["truncated"], page["next_cursor"].is_string(), "{page}");
        if page["next_cursor"].is_null() {
            return paths;
        }
        cursor = page["next_cursor"].clone();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_of_a_skill_md_reads_the_file() {
    let (_fixture, daemon) = serve_tree("local", TREE).await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    let package = "skill://local/pdf";

    for resource in [
        "references/plain.md",
        "./references/plain.md#part",
        "references/../references/plain.md",
        "skill://local/pdf/references/plain.md",
    ] {
        let page = read(
            &mut process,
            json!({"package": package, "resource": resource}),
        )
        .await;
        assert_eq!(page["contents"], "plain\n", "{resource}");
    }
    for resource in ["references/a b.md", "references/a%20b.md"] {
        let page = read(
            &mut process,
            json!({"package": package, "resource": resource}),
        )
        .await;
        assert_eq!(page["contents"], "spaces\n", "{resource}");
    }
    let main = read(&mut process, json!({"package": package})).await;
    assert_eq!(main["resource"], "skill://local/pdf/SKILL.md");

    for resource in [
        "../other/SKILL.md",
        "references/../../other/SKILL.md",
        "/etc/passwd",
        "skill://local/other/SKILL.md",
    ] {
        let result = read(
            &mut process,
            json!({"package": package, "resource": resource}),
        )
        .await;
        assert_eq!(result["error"]["code"], "RESOURCE_NOT_FOUND", "{resource}");
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

/// The answer to a file that does not exist names a call that succeeds, so no model asks forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_file_leads_to_the_list_of_files() {
    let (_fixture, daemon) = serve_tree("local", TREE).await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    let package = "skill://local/pdf";

    let missing = json!({"package": package, "resource": "references/none.md"});
    let error = read(&mut process, missing).await["error"].clone();
    assert_eq!(error["code"], "RESOURCE_NOT_FOUND");
    let next = error["next"].as_str().expect("a hint");
    assert!(
        next.contains("skills_read") && next.contains("`./`"),
        "{next}"
    );

    let paths = list_paths(&mut process, package, "./").await;
    assert_eq!(
        paths,
        ["SKILL.md", "references/a%20b.md", "references/plain.md"]
    );
    for path in &paths {
        let page = read(&mut process, json!({"package": package, "resource": path})).await;
        assert!(page["contents"].is_string(), "{path}: {page}");
    }
    assert_eq!(list_paths(&mut process, package, package).await, paths);
    assert_eq!(
        list_paths(&mut process, package, "references/").await,
        &paths[1..]
    );

    let none = json!({"package": package, "resource": "none/"});
    let error = read(&mut process, none).await["error"].clone();
    assert_eq!(error["code"], "RESOURCE_NOT_FOUND");
    let cursor = json!({"package": package, "resource": "./", "cursor": "x"});
    let error = read(&mut process, cursor).await["error"].clone();
    assert_eq!(error["code"], "INVALID_CURSOR");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_files_are_listed_in_pages_without_a_gap() {
    let mut tree = "skill r/large".to_owned();
    let mut expected = BTreeSet::from(["SKILL.md".to_owned()]);
    for number in 0..1_500 {
        let path = format!("d{}/{}-{number}.md", number % 7, "long-name".repeat(3));
        let _ = write!(tree, "\nfile r/large/{path}\n| x");
        expected.insert(path);
    }
    let (_fixture, daemon) = serve_tree("local", &tree).await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));

    let all = list_paths(&mut process, "skill://local/large", "./").await;
    assert_eq!(all.len(), expected.len());
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
    let one = list_paths(&mut process, "skill://local/large", "d6/").await;
    let below = expected.iter().filter(|path| path.starts_with("d6/"));
    assert!(one.iter().eq(below));
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_of_two_sources_needs_its_authority() {
    let (fixture, daemon) = serve_tree("team", TREE).await;
    let mut command = client_command(&daemon, "call --local");
    command.arg(format!("team={}", fixture.path("r").display()));
    let mut process = CallProcess::start(command);

    let package = "skill://team/pdf";
    let error = read(&mut process, json!({"package": package})).await["error"].clone();
    assert_eq!(error["code"], "AMBIGUOUS_AUTHORITY");
    let message = error["message"].as_str().expect("a message");
    for kind in ["executor", "local"] {
        let authority = json!({"kind": kind, "id": "team"});
        assert!(message.contains(&authority.to_string()), "{message}");
        let arguments = json!({"package": package, "authority": authority});
        assert!(read(&mut process, arguments).await["contents"].is_string());
    }
    let unknown = read(&mut process, json!({"package": "skill://none/a"})).await;
    assert_eq!(unknown["error"]["code"], "PACKAGE_NOT_FOUND");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injected_skill_names_its_files() {
    let (_fixture, daemon) = serve_tree("local", TREE).await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    let injected = process
        .request(json!({"method": "inject", "text": "use $pdf and $bare"}))
        .await;
    let fragments = injected["result"]["fragments"].as_array().expect("two");
    let text = |index: usize| fragments[index]["text"].as_str().expect("text");
    assert!(
        text(0).contains("Other files of this skill: references/a%20b.md, references/plain.md"),
        "{}",
        text(0)
    );
    assert!(!text(1).contains("Other files"), "{}", text(1));
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_called_in_either_spelling() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    let tools = process.request(json!({"method": "tools"})).await["result"].clone();
    let names = ["skills_list", "skills_read", "skills_search"];
    assert_eq!([0, 1, 2].map(|at| &tools[at]["name"]), names);
    for list in ["skills_list", "skills.list"] {
        let page = process.call(list, &json!({})).await;
        assert_eq!(page["skills"][0]["name"], "pdf", "{list}");
    }
    for search in ["skills_search", "skills.search"] {
        let page = process.call(search, &json!({"query": "pdf"})).await;
        assert_eq!(page["skills"][0]["name"], "pdf", "{search}");
    }
    let error = process.call("skills-list", &json!({})).await["error"].clone();
    assert_eq!(error["code"], "UNKNOWN_TOOL");
    let next = error["next"].as_str().expect("a hint");
    assert!(next.contains("skills_list"), "{next}");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
