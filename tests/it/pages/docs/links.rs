//! Links, anchors and pictures of the pages lead to existing targets, the index has every page, and
//! pages keep their size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use fancy_regex::Regex;

use super::page::{Page, Part, pages, top};

/// Sizes of hand-written pages in bytes. A longer page is two pages.
const PAGE_BYTES: std::ops::RangeInclusive<usize> = 2 * 1_024..=12 * 1_024;

/// Number of lines that README has at most.
const README_MAX_LINES: usize = 200;

/// Whether the size of a page is right. Generated pages may be long.
fn has_good_size(page: &Page) -> bool {
    let is_readme = page.path == Path::new("README.md");
    let is_generated = page.path.starts_with("docs/reference");
    (is_generated || PAGE_BYTES.contains(&page.text.len()))
        && !(is_readme && page.text.lines().count() > README_MAX_LINES)
}

/// Returns the anchors of a page, as a forge makes them from the headings.
fn anchors(page: &Page) -> BTreeSet<String> {
    let pattern = Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("a pattern");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for part in page.parts() {
        let Part::Prose(_, line) = part else { continue };
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let heading = pattern
            .replace_all(heading.trim_start_matches('#').trim(), "$1")
            .to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *repeated == 0 {
            anchor
        } else {
            format!("{anchor}-{repeated}")
        });
        *repeated += 1;
    }
    anchors
}

/// Returns the targets of the links and pictures of a page, with their lines.
fn targets(page: &Page) -> Vec<(usize, String)> {
    let pattern_text = concat!(
        r#"\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)"#,
        r"|^\[[^\]]+\]:\s+(\S+)",
        r#"|(?:src|srcset|href)="([^"]+)""#,
    );
    let pattern = Regex::new(pattern_text).expect("a pattern");
    let code = Regex::new(r"(`+)(?!`).*?(?<!`)\1(?!`)").expect("a pattern");
    let mut targets = Vec::new();
    for part in page.parts() {
        let Part::Prose(number, line) = part else {
            continue;
        };
        let line = code.replace_all(line.as_str(), "code").into_owned();
        for found in pattern.captures_iter(line.as_str()) {
            let found = found.expect("a search that ends");
            let target = (1..=3)
                .find_map(|group| found.get(group))
                .expect("one group");
            targets.push((number, target.as_str().to_owned()));
        }
    }
    targets
}

/// Resolves `.` and `..` in a path. Returns `None` above the top of the repository.
fn normalize(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if !normal.pop() => return None,
            _ => {}
        }
    }
    Some(normal)
}

#[test]
fn links_anchors_and_pictures_exist() {
    let pages = pages();
    let anchors: BTreeMap<_, _> = pages.iter().map(|p| (p.path.clone(), anchors(p))).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in &pages {
        for (line, target) in targets(page) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let dir = page.path.parent().expect("a file");
            let file = if path.is_empty() {
                Some(page.path.clone())
            } else {
                normalize(&dir.join(path))
            };
            let Some(file) = file.filter(|file| top().join(file).exists()) else {
                wrong.push(format!("{}: no file {target}", page.at(line)));
                continue;
            };
            let known = anchors.get(&file);
            if !anchor.is_empty() && !known.is_some_and(|known| known.contains(anchor)) {
                wrong.push(format!("{}: no heading {target}", page.at(line)));
            }
        }
    }
    assert!(count > 100, "{count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_index_has_every_page() {
    let pages = pages();
    let index = pages
        .iter()
        .find(|page| page.path == Path::new("docs/SUMMARY.md"));
    let index = index.expect("docs/SUMMARY.md");
    let listed = targets(index)
        .into_iter()
        .map(|(_, target)| Path::new("docs").join(target));
    let listed: BTreeSet<_> = listed.collect();
    let below_docs = pages
        .iter()
        .map(|page| &page.path)
        .filter(|path| path.starts_with("docs"));
    let missing: Vec<_> = below_docs
        .filter(|path| **path != index.path && !listed.contains(*path))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");

    // mdBook reads no paragraphs, and one link of each item.
    let unread = index.text.lines().filter(|line| {
        let is_item = line.starts_with("- [");
        let is_known = is_item || line.is_empty() || line.starts_with(['#', ' ']);
        !is_known || line.matches("](").count() != usize::from(is_item)
    });
    let unread: Vec<_> = unread.collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn pages_are_neither_short_nor_long() {
    let mut wrong = Vec::new();
    for page in pages() {
        let (bytes, lines) = (page.text.len(), page.text.lines().count());
        if !has_good_size(&page) {
            let path = page.path.display();
            wrong.push(format!("{path}: {bytes} bytes, {lines} lines"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn anchors_are_those_of_a_forge() {
    let text = "# The `a.b` key\n## A [link](x.md), twice\n## A link, twice\n```sh\n# none\n```\n";
    let page = Page {
        path: PathBuf::new(),
        text: text.to_owned(),
    };
    let expected = ["a-link-twice", "a-link-twice-1", "the-ab-key"];
    assert_eq!(anchors(&page).into_iter().collect::<Vec<_>>(), expected);
    let text = "[a](b.md#c) `[d](e)` ![f](<g.svg>)\n[h]: i.md\n<img src=\"j.png\">\n";
    let page = Page {
        path: PathBuf::new(),
        text: text.to_owned(),
    };
    let found: Vec<_> = targets(&page)
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    assert_eq!(found, ["b.md#c", "g.svg", "i.md", "j.png"]);
}
