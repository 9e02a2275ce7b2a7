use caproot_client::{Fleet, parse_selected_roots};
use caproot_session::{DEFAULT_BUDGET, Session, SessionOptions};
use serde_json::{Value, json};
use std::{error::Error, fs, path::Path};

/// Gives a model the list of skills, and runs its tool calls until it makes no more.
pub async fn orchestrate(
    fleet: &Path,
    selected: &Path,
    user: &str,
    mut model: impl FnMut(Value) -> Option<(String, Value)>,
) -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::from_file(fleet).await?;
    let roots = parse_selected_roots(&fs::read_to_string(selected)?)?;
    let session = Session::start(&fleet, roots, &SessionOptions::default()).await?;
    let mut input = json!({
        "tools": session.dynamic_tools(),
        "instructions": session.instruction_text(DEFAULT_BUDGET).text,
        "skills": session.inject(&user.into()).await.fragments,
        "user": user,
    });
    while let Some((tool, arguments)) = model(input) {
        let result = session.call(&tool, &arguments).await;
        input = json!({ "externalContext": result.external_context, "result": result.json });
    }
    Ok(())
}
