//! Memory per skill in the catalog, above the memory of an empty daemon.

use crate::cold_start;
use crate::context::{Context, Outcome};
use crate::report::{MeasurementResult, Row, Target};
use crate::stats::float;

const SKILLS: usize = 10_000;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let empty = [context.dir("empty")?];
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let full = cold_start::start(&tree.roots).await?.server.resident()?;
        pairs.push((full, cold_start::start(&empty).await?.server.resident()?));
    }
    let row = Row::difference(
        format!("memory with {SKILLS} skills, after their first whole list"),
        "an empty daemon",
        ("KiB", "KiB a skill"),
        &pairs,
        float(SKILLS),
        Target::AtMost(1.5),
    );
    Ok(vec![row].into())
}
