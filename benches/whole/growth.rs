//! How the cold start, a list, a change and memory grow with skills and with roots. Nothing may grow
//! faster than in a straight line: at no point may the line from the first point to the last run
//! above what was measured there, by more than noise.

use crate::change::PAUSE;
use crate::client::{Events, LIST, list};
use crate::cold;
use crate::context::{Context, Outcome, Tree};
use crate::list::lists;
use crate::report::{Found, Line, Plot, Row, Target};
use crate::stats::{Figure, float, ms, quantile};
use tokio::time::sleep;

const SKILLS: [usize; 4] = [100, 1_000, 10_000, 20_000];
const ROOTS: [usize; 3] = [1, 16, 256];
/// Of the trees whose roots are many.
const IN_ROOTS: usize = 5_120;
/// How much the line may run above a point.
const BEND: f64 = 1.1;

/// What is measured of one tree: the name and the unit of each of its numbers.
const KINDS: [(&str, &str); 4] = [
    ("cold start to first whole list", "ms"),
    ("warm whole list", "ms"),
    ("one change to the client's event", "ms"),
    ("memory above an empty daemon", "MiB"),
];

/// The list. It is a call for each page, and a call has its cost however little it brings: what is less
/// than a page says nothing of how lists grow, so their line begins at one.
const LIST_KIND: usize = 1;
const PAGE: f64 = 1_000.0;

type Point = [f64; KINDS.len()];

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let mut found = Found::default();
    let trees = SKILLS.map(|skills| context.tree(skills, 1));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    add(context, &mut found, Plot::Skills, &SKILLS, &trees).await?;
    let trees = ROOTS.map(|roots| context.tree(IN_ROOTS, roots));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    add(context, &mut found, Plot::Roots, &ROOTS, &trees).await?;
    Ok(found)
}

/// Measures trees of growing size.
async fn add(
    context: &Context<'_>,
    found: &mut Found,
    plot: Plot,
    sizes: &[usize],
    trees: &[Tree<'_>],
) -> Outcome<()> {
    let empty = [context.dir("empty")?];
    let mut rounds = Vec::new();
    for _ in 0..context.count(5, 2) {
        let empty = cold::start(&empty).await?.server.resident()?;
        let mut points = Vec::new();
        for tree in trees {
            points.push(point(context, tree, empty).await?);
        }
        rounds.push(points);
    }
    let sizes: Vec<_> = sizes.iter().copied().map(float).collect();
    let last = sizes.len() - 1;
    for (kind, (name, unit)) in KINDS.into_iter().enumerate() {
        let at = |size: usize| Figure::of(rounds.iter().map(|points| points[size][kind]));
        let figures: Vec<_> = (0..sizes.len()).map(at).collect();
        let medians: Vec<_> = figures.iter().map(|figure| figure.median).collect();
        let is_call = |size: &f64| plot == Plot::Skills && kind == LIST_KIND && *size < PAGE;
        let first = sizes.iter().take_while(|size| is_call(size)).count();
        let each = rounds.iter().map(|points| {
            let values: Vec<_> = points.iter().map(|point| point[kind]).collect();
            bend(&sizes[first..], &values[first..])
        });
        let measured = Figure::of(each);
        let (by, with) = match plot {
            Plot::Roots => ("roots", format!("{IN_ROOTS} skills in {} roots", sizes[last])),
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
            target: Target::AtMost(BEND),
        });
        let points = sizes.iter().copied().zip(medians).collect();
        found.lines.push(Line { plot, label: name.to_owned(), unit, points });
    }
    Ok(())
}

/// How far the straight line from the first point to the last runs above those between, at most.
fn bend(sizes: &[f64], values: &[f64]) -> f64 {
    let last = sizes.len() - 1;
    let slope = (values[last] - values[0]) / (sizes[last] - sizes[0]);
    let between = (1..last).map(|at| (values[0] + slope * (sizes[at] - sizes[0])) / values[at]);
    between.fold(f64::MIN, f64::max)
}

async fn point(context: &Context<'_>, tree: &Tree<'_>, empty: f64) -> Outcome<Point> {
    let cold = cold::start(&tree.roots).await?;
    let memory = (cold.server.resident()? - empty) / 1_024.0;
    let mut caller = cold.server.caller().await?;
    let (pages, _) = list(&mut caller, &cold.roots).await?;
    let own: Vec<_> = pages.iter().map(|_| LIST.to_owned()).collect();
    // Warms it, as every later list finds it. Small lists are asked for more often than large ones, and
    // take as long in all: a few of a millisecond would say nothing.
    lists(&mut caller, &pages, &own, 1).await?;
    let times = (context.count(400, 100) / pages.len()).max(3);
    let list = lists(&mut caller, &pages, &own, times).await?;
    let mut events = Events::open(&mut caller, &cold.roots).await?;
    events.synced().await?;
    let mut changes = Vec::new();
    for _ in 0..context.count(20, 8) {
        let at = tree.change(0)?;
        changes.push(ms(events.delta().await?.0.duration_since(at)));
        sleep(PAUSE).await;
    }
    Ok([ms(cold.took), list, quantile(&mut changes, 0.5), memory])
}
