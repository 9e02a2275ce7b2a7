//! Reads the Markdown pages of the repository, split into prose, fenced blocks and comments.

use std::fs;
use std::path::{Path, PathBuf};

/// Page of the documentation.
pub(super) struct Page {
    /// Path relative to the top of the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Part of a page, with the number of its first line.
pub(super) enum Part {
    /// One line outside fenced blocks and comments.
    Prose(usize, String),
    Block(Block),
    /// HTML comment that begins at the start of a line, without its marks.
    Comment(usize, String),
}

/// Fenced block.
pub(super) struct Block {
    /// Number of the line after the opening fence.
    pub(super) line: usize,
    /// Word after the opening fence, such as `yaml`.
    pub(super) language: String,
    pub(super) text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(top().join(&path)).expect("a page");
        Self { path, text }
    }

    /// Splits the page into its parts, in order.
    pub(super) fn parts(&self) -> Vec<Part> {
        let mut lines = (1..).zip(self.text.lines());
        let mut parts = Vec::new();
        while let Some((number, line)) = lines.next() {
            let content = line.trim_start();
            let indent = line.len() - content.len();
            let ticks = content.chars().take_while(|c| *c == '`').count();
            if ticks >= 3 {
                let is_end = |line: &str| {
                    let line = line.trim();
                    line.len() >= ticks && line.chars().all(|c| c == '`')
                };
                let mut text = String::new();
                for (_, line) in lines.by_ref().take_while(|(_, line)| !is_end(line)) {
                    text.push_str(line.get(indent..).unwrap_or_default());
                    text.push('\n');
                }
                let language = content[ticks..]
                    .split([',', ' '])
                    .next()
                    .unwrap_or_default();
                let language = language.to_owned();
                parts.push(Part::Block(Block {
                    line: number + 1,
                    language,
                    text,
                }));
            } else if let Some(begin) = line.strip_prefix("<!--") {
                let mut text = begin.to_owned();
                while !text.contains("-->") {
                    let (_, line) = lines.next().expect("a comment that ends");
                    text.push('\n');
                    text.push_str(line);
                }
                let (text, _) = text.split_once("-->").expect("an end");
                parts.push(Part::Comment(number, text.trim().to_owned()));
            } else {
                parts.push(Part::Prose(number, line.to_owned()));
            }
        }
        parts
    }

    /// Returns the fenced blocks of a language.
    pub(super) fn blocks(&self, language: &str) -> Vec<Block> {
        let blocks = self.parts().into_iter().filter_map(|part| match part {
            Part::Block(block) if block.language == language => Some(block),
            _ => None,
        });
        blocks.collect()
    }

    /// Position in the page, for messages.
    pub(super) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

/// Top directory of the repository.
pub(super) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all pages: those at the top of the repository, and those below `docs`.
pub(super) fn pages() -> Vec<Page> {
    let mut paths: Vec<_> = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ]
    .map(PathBuf::from)
    .into_iter()
    .collect();
    let mut dirs = vec![PathBuf::from("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(top().join(&dir)).expect("a directory of pages") {
            let path = dir.join(entry.expect("an entry").file_name());
            if top().join(&path).is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.into_iter().map(Page::read).collect()
}

#[test]
fn parts_of_a_page_are_recognized() {
    let text = "# A\n<!-- run\n$ x\n-->\n- b\n  ```sh\n  c\n\n    d\n  ```\n````\n```\n````\n";
    let page = Page {
        path: PathBuf::new(),
        text: text.to_owned(),
    };
    let shown = page.parts().into_iter().map(|part| match part {
        Part::Prose(line, text) => format!("{line} prose {text}"),
        Part::Block(Block {
            line,
            language,
            text,
        }) => format!("{line} {language} {text:?}"),
        Part::Comment(line, text) => format!("{line} comment {text:?}"),
    });
    let expected = [
        "1 prose # A",
        r#"2 comment "run\n$ x""#,
        "5 prose - b",
        r#"7 sh "c\n\n  d\n""#,
        r#"12  "```\n""#,
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}
