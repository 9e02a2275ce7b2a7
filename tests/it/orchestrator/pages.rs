//! Pages for orchestrators: the Rust program runs as printed, and the fleet file and the table of
//! error codes agree with the code. `tests/foreign` runs the programs in other languages.

use std::collections::BTreeSet;

use caproot_client::Fleet;
use serde_json::{Value, json};

use super::call_command::write_fleet;
use super::rust_page_program::orchestrate;
use super::serve_tree;
use crate::harness::fixture::Fixture;

const CRATE_PAGE: &str = include_str!("../../../docs/crate-session.md");
const RUST_PAGE: &str = include_str!("../../../docs/orchestrate/rust.md");
const FLEET_PAGE: &str = include_str!("../../../docs/orchestrate/fleet.md");
const SESSION_PAGE: &str = include_str!("../../../docs/orchestrate/session.md");
const PROGRAM: &str = include_str!("rust_page_program.rs");
const RESULT: &str = include_str!("../../../crates/session/src/skills/result.rs");

#[tokio::test]
async fn the_rust_page_has_the_program_and_it_runs() {
    let block = format!("```rust\n{PROGRAM}```\n");
    assert!(RUST_PAGE.contains(&block), "the page has the program");
    assert!(
        CRATE_PAGE.contains(&block),
        "the front page of the library has the program"
    );
    assert!(PROGRAM.lines().count() <= 30);
    let (fixture, daemon) = serve_tree("workspace", "skill r/pdf\ndir own").await;
    write_fleet(
        &fixture.path("own/fleet.yaml"),
        &[("workspace", &daemon.address)],
    );
    let root = json!({"id": "mine", "location": {
        "type": "environment", "environmentId": "workspace", "path": "published:workspace"}});
    fixture.write(
        "own/selected.json",
        json!({"selectedCapabilityRoots": [root]}).to_string(),
    );
    let mut inputs = Vec::new();
    // The model reads the listed skill.
    let model = |input: Value| {
        inputs.push(input);
        let arguments = json!({
            "authority": {"kind": "executor", "id": "mine"},
            "package": "skill://mine/pdf",
            "resource": "",
        });
        (inputs.len() < 2).then(|| ("skills.read".to_owned(), arguments))
    };
    let (fleet, selected) = (
        fixture.path("own/fleet.yaml"),
        fixture.path("own/selected.json"),
    );
    orchestrate(&fleet, &selected, "use $pdf", model)
        .await
        .expect("the program succeeds");
    let [first, read] = &inputs[..] else {
        panic!("two inputs: {inputs:#?}")
    };
    assert!(
        first["instructions"]
            .as_str()
            .expect("text")
            .contains("- pdf: Does pdf.")
    );
    assert_eq!(first["tools"][0]["tools"][0]["name"], "list");
    assert_eq!(first["skills"][0]["package"], "skill://mine/pdf");
    assert_eq!(read["externalContext"], true);
    assert!(read["result"].as_str().expect("JSON").contains("Does pdf."));
    daemon.stop().await;
}

#[tokio::test]
async fn the_fleet_file_of_the_page_is_valid() {
    let (_, file) = FLEET_PAGE
        .split_once("```yaml\n# fleet.yaml\n")
        .expect("a fleet file");
    let (file, _) = file.split_once("```").expect("the end of the file");
    let fixture = Fixture::new("dir own");
    fixture.write("own/fleet.yaml", file);
    let fleet = Fleet::from_file(&fixture.path("own/fleet.yaml"))
        .await
        .expect("a good file");
    assert_eq!(fleet.environment_ids(), ["build-farm", "local"]);
}

#[test]
fn the_session_page_lists_all_error_codes() {
    let is_name = |t: &&str| t.len() > 1 && t.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let (code, _) = RESULT
        .split_once("/// Returns the hint for a model, with")
        .expect("the names");
    let actual: BTreeSet<&str> = code.split('"').skip(1).step_by(2).filter(is_name).collect();
    let (_, table) = SESSION_PAGE
        .split_once("\n| code | meaning |\n")
        .expect("a table");
    let rows = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(1);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let documented = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    assert_eq!(documented.collect::<BTreeSet<_>>(), actual);
}
