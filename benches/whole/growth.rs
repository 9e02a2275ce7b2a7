//! Growth of the cold start, a list, a change and memory with skills and with roots. Nothing may
//! grow faster than linearly: the straight line from the first to the last point may exceed no
//! measured point between them by more than noise.

use crate::change::PAUSE;
use crate::client::{ChangeStream, LIST, read_list};
use crate::cold_start;
use crate::context::{Context, Outcome, Tree};
use crate::list::time_lists;
use crate::report::{Line, MeasurementResult, Plot, Row, Target};
use crate::stats::{Figure, float, ms, quantile};
use tokio::time::sleep;

const SKILLS: [usize; 4] = [100, 1_000, 10_000, 20_000];
const ROOTS: [usize; 3] = [1, 16, 256];
/// Number of skills in the trees with many roots.
const IN_ROOTS: usize = 5_120;
/// Maximum ratio of the straight line to a point.
const MAX_BEND: f64 = 1.1;

/// Names and units of the measurements of one tree.
const KINDS: [(&str, &str); 4] = [
    ("cold start to first whole list", "ms"),
    ("warm whole list", "ms"),
    ("one change to the client's event", "ms"),
    ("memory above an empty daemon", "MiB"),
];

/// Index of the list. Each page is a call with a constant cost. A list under one page says nothing
/// about the growth of lists, so the straight line begins at one page.
const LIST_KIND: usize = 1;
const PAGE: f64 = 1_000.0;

type Point = [f64; KINDS.len()];

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let mut found = MeasurementResult::default();
    let trees = SKILLS.map(|skills| context.tree(skills, 1));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    add_measurements(context, &mut found, Plot::Skills, &SKILLS, &trees).await?;
    let trees = ROOTS.map(|roots| context.tree(IN_ROOTS, roots));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    add_measurements(context, &mut found, Plot::Roots, &ROOTS, &trees).await?;
    Ok(found)
}

/// Measures trees of growing size.
async fn add_measurements(
    context: &Context<'_>,
    found: &mut MeasurementResult,
    plot: Plot,
    sizes: &[usize],
    trees: &[Tree<'_>],
) -> Outcome<()> {
    let empty = [context.dir("empty")?];
    let mut rounds = Vec::new();
    for _ in 0..context.count(5, 2) {
        let empty = cold_start::start(&empty).await?.server.resident()?;
        let mut points = Vec::new();
        for tree in trees {
            points.push(measure_point(context, tree, empty).await?);
        }
        rounds.push(points);
    }
    let sizes: Vec<_> = sizes.iter().copied().map(float).collect();
    let last = sizes.len() - 1;
    for (kind, (name, unit)) in KINDS.into_iter().enumerate() {
        let at = |size: usize| Figure::from_rounds(rounds.iter().map(|points| points[size][kind]));
        let figures: Vec<_> = (0..sizes.len()).map(at).collect();
        let medians: Vec<_> = figures.iter().map(|figure| figure.median).collect();
        let is_call = |size: &f64| plot == Plot::Skills && kind == LIST_KIND && *size < PAGE;
        let first = sizes.iter().take_while(|size| is_call(size)).count();
        let each = rounds.iter().map(|points| {
            let values: Vec<_> = points.iter().map(|point| point[kind]).collect();
            bend(&sizes[first..], &values[first..])
        });
        let measured = Figure::from_rounds(each);
        let (by, with) = match plot {
            Plot::Roots => (
                "roots",
                format!("{IN_ROOTS} skills in {} roots", sizes[last]),
            ),
            _ => ("skills", format!("{} skills", sizes[last])),
        };
        found.rows.push(Row {
            what: format!("growth with {by}: {name}, {with}"),
            beside: format!(
                "a straight line from {} to {} {by}, over the points between",
                sizes[first], sizes[last]
            ),
            ours: figures[last],
            theirs: None,
            unit,
            measured,
            measured_unit: "× the line",
            target: Target::AtMost(MAX_BEND),
        });
        let points = sizes.iter().copied().zip(medians).collect();
        found.lines.push(Line {
            plot,
            label: name.to_owned(),
            unit,
            points,
        });
    }
    Ok(())
}

/// Maximum ratio of the straight line from the first to the last point to the points between.
fn bend(sizes: &[f64], values: &[f64]) -> f64 {
    let last = sizes.len() - 1;
    let slope = (values[last] - values[0]) / (sizes[last] - sizes[0]);
    let between = (1..last).map(|at| (values[0] + slope * (sizes[at] - sizes[0])) / values[at]);
    between.fold(f64::MIN, f64::max)
}

async fn measure_point(context: &Context<'_>, tree: &Tree<'_>, empty: f64) -> Outcome<Point> {
    let cold = cold_start::start(&tree.roots).await?;
    let memory = (cold.server.resident()? - empty) / 1_024.0;
    let mut caller = cold.server.raw_client().await?;
    let (pages, _) = read_list(&mut caller, &cold.roots).await?;
    let own: Vec<_> = pages.iter().map(|_| LIST.to_owned()).collect();
    // Warms the list. Small lists are requested more often, so that all sizes take similar time: a
    // few calls of less than a millisecond would be imprecise.
    time_lists(&mut caller, &pages, &own, 1).await?;
    let times = (context.count(400, 100) / pages.len()).max(3);
    let list = quantile(
        &mut time_lists(&mut caller, &pages, &own, times).await?,
        0.5,
    );
    let mut events = ChangeStream::open(&mut caller, &cold.roots).await?;
    events.synced().await?;
    let mut changes = Vec::new();
    for _ in 0..context.count(20, 8) {
        let at = tree.change_skill(0)?;
        changes.push(ms(events.delta().await?.0.duration_since(at)));
        sleep(PAUSE).await;
    }
    Ok([ms(cold.took), list, quantile(&mut changes, 0.5), memory])
}
