//! Lists all skills from the catalog of the daemon, compared with the same bytes from memory.

use crate::bare;
use crate::client::{LIST, Page, RawClient, read_list};
use crate::cold_start;
use crate::context::{Context, Outcome};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::{ms, quantile_pairs};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SKILLS: usize = 2_000;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let daemon = cold_start::start(&tree.roots).await?;
    let mut caller = daemon.server.raw_client().await?;
    let (pages, _) = read_list(&mut caller, &daemon.roots).await?;
    let answers = context.dir("list")?;
    for (number, page) in pages.iter().enumerate() {
        fs::write(answers.join(number.to_string()), &page.answer)?;
    }
    let bare = Server::start_bare(&answers)?;
    let mut other = bare.raw_client().await?;
    let paths: Vec<_> = (0..pages.len()).map(bare::response_path).collect();
    let own: Vec<_> = pages.iter().map(|_| LIST.to_owned()).collect();
    let times = context.count(100, 20);
    // Warms both servers.
    time_lists(&mut caller, &pages, &own, times).await?;
    time_lists(&mut other, &pages, &paths, times).await?;
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        let ours = time_lists(&mut caller, &pages, &own, times).await?;
        rounds.push((ours, time_lists(&mut other, &pages, &paths, times).await?));
    }
    let bytes: usize = pages.iter().map(|page| page.answer.len()).sum();
    let what = format!(
        "warm: list of all {SKILLS} skills, {} KiB in {} pages",
        bytes >> 10,
        pages.len()
    );
    let row = |name: &str, part, target| {
        let pairs = quantile_pairs(&rounds, part);
        let beside = "unary answers of the same bytes by a bare tonic server";
        Row::ratio(format!("{what}, {name}"), beside, "ms", &pairs, target)
    };
    Ok(vec![
        row("p50", 0.5, Target::AtMost(1.5)),
        row("p99", 0.99, Target::None),
        readiness_row(context).await?,
    ]
    .into())
}

/// Compares the list of skills that declare programs, half of which are installed, with the list of skills of
/// the same bytes that declare them under a name without meaning.
async fn readiness_row(context: &Context<'_>) -> Outcome<Row> {
    let config = config_with_programs(context)?;
    let config = config.to_str().ok_or("a directory whose name is UTF-8")?;
    let declaring = context.dir("declaring")?;
    write_skills(&declaring, "requires")?;
    let plain = context.dir("plain")?;
    write_skills(&plain, "mentions")?;

    let daemon = cold_start::start_with(&[declaring], &["--config", config]).await?;
    let mut caller = daemon.server.raw_client().await?;
    let (pages, _) = read_list(&mut caller, &daemon.roots).await?;
    let other_daemon = cold_start::start_with(&[plain], &["--config", config]).await?;
    let mut other = other_daemon.server.raw_client().await?;
    let (other_pages, _) = read_list(&mut other, &other_daemon.roots).await?;

    let times = context.count(100, 20);
    let paths = vec![LIST.to_owned(); pages.len()];
    let other_paths = vec![LIST.to_owned(); other_pages.len()];
    // Warms both servers.
    time_lists(&mut caller, &pages, &paths, times).await?;
    time_lists(&mut other, &other_pages, &other_paths, times).await?;
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        let ours = time_lists(&mut caller, &pages, &paths, times).await?;
        let theirs = time_lists(&mut other, &other_pages, &other_paths, times).await?;
        rounds.push((ours, theirs));
    }
    let pairs = quantile_pairs(&rounds, 0.5);
    Ok(Row::ratio(
        format!("warm: list of all {SKILLS} skills that declare programs, p50"),
        "the list of the same skills without requirements",
        "ms",
        &pairs,
        Target::AtMost(1.1),
    ))
}

/// Writes skills with the names of programs below a field of the frontmatter.
fn write_skills(dir: &Path, field: &str) -> Outcome<()> {
    for n in 0..SKILLS {
        let skill = dir.join(format!("s{n}"));
        fs::create_dir_all(&skill)?;
        let program = n % 50;
        let text = format!(
            "---\nname: s{n}\ndescription: Skill {n} needs programs.\nmetadata: {{bench: {{{field}: \
             {{bins: [program-{program}, sh]}}}}}}\n---\n"
        );
        fs::write(skill.join("SKILL.md"), text)?;
    }
    Ok(())
}

/// Writes a config file with a directory of programs.
fn config_with_programs(context: &Context<'_>) -> Outcome<PathBuf> {
    let programs = context.dir("programs")?;
    for name in (0..25)
        .map(|n| format!("program-{n}"))
        .chain(["sh".to_owned()])
    {
        let program = programs.join(name);
        fs::write(&program, "")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }

    let config = context.dir("config")?.join("caproot.yaml");
    let directory = programs.display();
    fs::write(&config, format!("readiness: {{path: ['{directory}']}}\n"))?;
    Ok(config)
}

/// Milliseconds of each complete list.
pub(crate) async fn time_lists(
    caller: &mut RawClient,
    pages: &[Page],
    paths: &[String],
    times: usize,
) -> Outcome<Vec<f64>> {
    let mut lists = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        for (page, path) in pages.iter().zip(paths) {
            let answer = caller.call(path, page.request.clone()).await?;
            if answer.len() != page.answer.len() {
                return Err("the size of a response has changed".into());
            }
        }
        lists.push(ms(began.elapsed()));
    }
    Ok(lists)
}
