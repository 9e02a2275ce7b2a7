//! Memory of skills that a daemon holds, above what an empty one takes.

use crate::cold;
use crate::context::{Context, Outcome};
use crate::report::{Found, Row, Target};
use crate::stats::float;

const SKILLS: usize = 10_000;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let tree = context.tree(SKILLS, 1)?;
    let empty = [context.dir("empty")?];
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let full = cold::start(&tree.roots).await?.server.resident()?;
        pairs.push((full, cold::start(&empty).await?.server.resident()?));
    }
    let row = Row::above(
        format!("memory with {SKILLS} skills, after their first whole list"),
        "an empty daemon",
        ("KiB", "KiB a skill"),
        &pairs,
        float(SKILLS),
        Target::AtMost(1.5),
    );
    Ok(vec![row].into())
}
