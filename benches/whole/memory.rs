//! Memory of an empty daemon, and memory per skill in the catalog above it.

use crate::cold_start;
use crate::context::{Context, Outcome};
use crate::report::{MeasurementResult, Row, Target};
use crate::stats::float;

const SKILLS: usize = 10_000;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let empty = [context.dir("empty")?];
    let (mut pairs, mut anonymous, mut mapped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.rounds {
        let full = cold_start::start(&tree.roots).await?.server.resident()?;
        let [own, of_files] = cold_start::start(&empty).await?.server.resident_parts()?;
        pairs.push((full, own + of_files));
        anonymous.push(own);
        mapped.push(of_files);
    }
    let after = "an empty daemon, after its first list";
    let of_daemon = |what: &str, kib: Vec<f64>, most| {
        let what = format!("{what} of {after}");
        Row::amount(what, ("KiB", "MiB"), &kib, 1_024.0, Target::AtMost(most))
    };
    let row = Row::difference(
        format!("memory with {SKILLS} skills, after their first whole list"),
        "an empty daemon",
        ("KiB", "KiB a skill"),
        &pairs,
        float(SKILLS),
        Target::AtMost(1.4),
    );
    let own = of_daemon("anonymous memory", anonymous, 3.0);
    let of_program = of_daemon(
        "touched pages of the program and its libraries",
        mapped,
        16.0,
    );
    Ok(vec![own, of_program, row].into())
}
