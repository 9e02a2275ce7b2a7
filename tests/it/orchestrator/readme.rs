//! README's chapter for orchestrators: its program is run as it stands there, and its table of refusals
//! is the code's.

use std::collections::BTreeSet;

use caproot::client::Fleet;
use serde_json::{Value, json};

use super::call::write_fleet;
use super::serving;
use super::thirty_lines::orchestrate;
use crate::fixture::Fixture;
use crate::readme;

const README: &str = include_str!("../../../README.md");
const PROGRAM: &str = include_str!("thirty_lines.rs");
const RESULT: &str = include_str!("../../../src/session/result.rs");

#[tokio::test]
async fn the_program_as_it_stands_there() {
    assert!(README.contains(&format!("```rust\n{PROGRAM}```\n")), "README has the program");
    assert!(PROGRAM.lines().count() <= 30);
    let fixture = Fixture::new("skill r/pdf\ndir own");
    let daemon = serving("workspace", fixture.path("r"), None).await;
    write_fleet(&fixture.path("own/fleet.yaml"), &[("workspace", &daemon.address)]);
    let root = json!({"id": "mine", "location": {
        "type": "environment", "environmentId": "workspace", "path": "published:workspace"}});
    fixture.write("own/selected.json", json!({"selectedCapabilityRoots": [root]}).to_string());
    let mut heard = Vec::new();
    // A model that reads what it is told of.
    let model = |input: Value| {
        heard.push(input);
        let arguments = json!({
            "authority": {"kind": "executor", "id": "mine"},
            "package": "skill://mine/pdf",
            "resource": "",
        });
        (heard.len() < 2).then(|| ("skills.read".to_owned(), arguments))
    };
    let (fleet, selected) = (fixture.path("own/fleet.yaml"), fixture.path("own/selected.json"));
    orchestrate(&fleet, &selected, "use $pdf", model).await.expect("it runs");
    let [told, read] = &heard[..] else { panic!("two inputs: {heard:#?}") };
    assert!(told["instructions"].as_str().expect("text").contains("- pdf: Does pdf."));
    assert_eq!(told["tools"][0]["name"], "list");
    assert_eq!(told["skills"][0]["package"], "skill://mine/pdf");
    assert_eq!(read["externalContext"], true);
    assert!(read["result"].as_str().expect("JSON").contains("Does pdf."));
    daemon.stop().await;
}

#[tokio::test]
async fn the_fleet_that_it_shows() {
    let (_, block) = README.split_once("```yaml\nexecutors:").expect("a fleet");
    let (block, _) = block.split_once("```").expect("its end");
    let fixture = Fixture::new("dir own");
    fixture.write("own/fleet.yaml", format!("executors:{block}"));
    let fleet = Fleet::from_file(&fixture.path("own/fleet.yaml")).await.expect("a good file");
    assert_eq!(fleet.environment_ids(), ["build-farm", "workspace"]);
}

#[test]
fn refusals() {
    let is_name = |t: &&str| t.len() > 1 && t.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let (code, _) = RESULT.split_once("/// Returns the hint for a model, with").expect("the names");
    let real: BTreeSet<String> =
        code.split('"').skip(1).step_by(2).filter(is_name).map(str::to_owned).collect();
    let said =
        readme::table("| code of a refusal |").into_iter().flat_map(|row| readme::ticked(&row[0]));
    assert_eq!(said.collect::<BTreeSet<_>>(), real);
}
