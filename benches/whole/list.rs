//! A whole list of skills that the daemon holds, beside the same bytes from memory.

use crate::bare;
use crate::client::{Caller, LIST, Page, list};
use crate::cold;
use crate::context::{Context, Outcome};
use crate::report::{Found, Row, Target};
use crate::server::Server;
use crate::stats::{float, ms};
use std::fs;
use std::time::Instant;

const SKILLS: usize = 2_000;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let tree = context.tree(SKILLS, 1)?;
    let daemon = cold::start(&tree.roots).await?;
    let mut caller = daemon.server.caller().await?;
    let (pages, _) = list(&mut caller, &daemon.roots).await?;
    let answers = context.dir("list")?;
    for (number, page) in pages.iter().enumerate() {
        fs::write(answers.join(number.to_string()), &page.answer)?;
    }
    let bare = Server::bare(&answers)?;
    let mut other = bare.caller().await?;
    let paths: Vec<_> = (0..pages.len()).map(bare::path).collect();
    let own: Vec<_> = pages.iter().map(|_| LIST.to_owned()).collect();
    let times = context.count(100, 20);
    // Warms both.
    lists(&mut caller, &pages, &own, times).await?;
    lists(&mut other, &pages, &paths, times).await?;
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let ours = lists(&mut caller, &pages, &own, times).await?;
        pairs.push((ours, lists(&mut other, &pages, &paths, times).await?));
    }
    let bytes: usize = pages.iter().map(|page| page.answer.len()).sum();
    let row = Row::ratio(
        format!("warm: list of all {SKILLS} skills, {} KiB in {} pages", bytes >> 10, pages.len()),
        "unary answers of the same bytes by a bare tonic server",
        "ms",
        &pairs,
        Target::AtMost(1.5),
    );
    Ok(vec![row].into())
}

/// Milliseconds that one whole list takes.
pub(crate) async fn lists(
    caller: &mut Caller,
    pages: &[Page],
    paths: &[String],
    times: usize,
) -> Outcome<f64> {
    let began = Instant::now();
    for _ in 0..times {
        for (page, path) in pages.iter().zip(paths) {
            let answer = caller.ask(path, page.request.clone()).await?;
            if answer.len() != page.answer.len() {
                return Err("an answer is not what it was".into());
            }
        }
    }
    Ok(ms(began.elapsed()) / float(times))
}
