//! Part of the instruction text that describes the results of custom tools, as platforms register
//! no schema of an output. If the text is too long, schemas are omitted first, the largest schema
//! first, and then tools, the last tool first. The text counts the omissions.

use crate::text::instructions::InstructionText;
use caproot_core::text::single_line;
use serde_json::Value;

const HEAD: &str = "## Results of tools\nThese tools return a JSON object on success:\n";

/// Description of the result of one tool.
#[derive(Debug, Clone)]
pub struct ResultText {
    name: String,
    description: Option<String>,
    /// Schema with a label.
    schema: Option<String>,
}

/// Amount of detail in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetailLevel {
    Full,
    WithoutSchema,
    Omitted,
}

impl ResultText {
    /// Returns the description of a result, or `None` if there is neither a description nor a
    /// schema.
    pub fn describe(
        name: &str,
        description: Option<String>,
        schema: Option<&Value>,
        wraps_result: bool,
    ) -> Option<Self> {
        if description.is_none() && schema.is_none() {
            return None;
        }

        let label = if wraps_result {
            "JSON Schema of its field `result`"
        } else {
            "JSON Schema"
        };
        Some(Self {
            name: name.to_owned(),
            description: description.map(|text| single_line(&text)),
            schema: schema.map(|schema| format!("{label}: {schema}")),
        })
    }

    /// Returns a copy for a tool with another name.
    pub fn with_name(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }

    /// Returns the next level with less detail.
    fn shorter_level(&self, level: DetailLevel) -> DetailLevel {
        let has_both = self.description.is_some() && self.schema.is_some();
        if level == DetailLevel::Full && has_both {
            DetailLevel::WithoutSchema
        } else {
            DetailLevel::Omitted
        }
    }

    fn schema_bytes(&self) -> usize {
        self.schema.as_ref().map_or(0, String::len)
    }

    fn to_line(&self, level: DetailLevel) -> String {
        let schema = self.schema.as_ref().filter(|_| level == DetailLevel::Full);
        let text = match (&self.description, schema) {
            _ if level == DetailLevel::Omitted => return String::new(),
            (Some(description), Some(schema)) => format!("{description} {schema}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => return String::new(),
        };
        format!("- {}: {text}\n", self.name)
    }
}

/// Returns the text of the skills, followed by the text of the results. Results take at most half
/// of the budget from the skills, and all bytes that the skills do not use.
pub fn append_results(
    texts: &[&ResultText],
    budget: usize,
    skills: impl Fn(usize) -> InstructionText,
) -> InstructionText {
    if texts.is_empty() {
        return skills(budget);
    }

    let lines: usize = texts
        .iter()
        .map(|text| text.to_line(DetailLevel::Full).len())
        .sum();
    // One byte for the blank line.
    let reserved = (HEAD.len() + lines + 1).min(budget / 2);
    let mut text = skills(budget - reserved);

    let separator = if text.text.is_empty() { "" } else { "\n" };
    let room = budget.saturating_sub(text.text.len() + separator.len());
    let results = write_results(texts, room);
    if !results.text.is_empty() {
        text.text.push_str(separator);
        text.text.push_str(&results.text);
    }
    if results.incomplete > 0 {
        text.warnings.push(format!(
            "the results of {} custom tools are not described in full",
            results.incomplete
        ));
    }
    text
}

/// Descriptions of all results.
#[derive(Debug, PartialEq, Eq)]
struct ResultsText {
    text: String,
    /// Number of tools that are not described in full.
    incomplete: usize,
}

/// Returns the text in at most `room` bytes.
fn write_results(texts: &[&ResultText], room: usize) -> ResultsText {
    let mut levels = vec![DetailLevel::Full; texts.len()];
    let mut lines: Vec<String> = texts
        .iter()
        .map(|text| text.to_line(DetailLevel::Full))
        .collect();

    loop {
        let incomplete = levels
            .iter()
            .filter(|level| **level != DetailLevel::Full)
            .count();
        let tail = omitted_text(incomplete);
        let bytes = HEAD.len() + lines.iter().map(String::len).sum::<usize>() + tail.len();
        if bytes <= room && lines.iter().any(|line| !line.is_empty()) {
            let text = format!("{HEAD}{}{tail}", lines.concat());
            return ResultsText { text, incomplete };
        }

        let Some(index) = next_to_shorten(texts, &levels) else {
            return ResultsText {
                text: String::new(),
                incomplete: texts.len(),
            };
        };
        levels[index] = texts[index].shorter_level(levels[index]);
        lines[index] = texts[index].to_line(levels[index]);
    }
}

/// Returns the index of the line to shorten next: the line with the largest schema (the last of
/// equal schemas), then the last line.
fn next_to_shorten(texts: &[&ResultText], levels: &[DetailLevel]) -> Option<usize> {
    let largest = (0..texts.len())
        .filter(|index| levels[*index] == DetailLevel::Full && texts[*index].schema.is_some())
        .max_by_key(|index| texts[*index].schema_bytes());
    largest.or_else(|| {
        levels
            .iter()
            .rposition(|level| *level != DetailLevel::Omitted)
    })
}

/// Returns the closing line.
fn omitted_text(missing: usize) -> String {
    match missing {
        0 => String::new(),
        1 => "The result of 1 tool is omitted or shortened here.\n".to_owned(),
        more => format!("The results of {more} tools are omitted or shortened here.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD, ResultText, ResultsText, write_results};
    use proptest::prelude::*;
    use serde_json::json;

    fn result_text(
        n: usize,
        description: Option<&str>,
        schema: Option<usize>,
    ) -> Option<ResultText> {
        let schema = schema.map(|bytes| json!({ "title": "x".repeat(bytes) }));
        let description = description.map(str::to_owned);
        ResultText::describe(&format!("t{n}"), description, schema.as_ref(), false)
    }

    #[test]
    fn schemas_are_omitted_before_tools() {
        let all = [
            result_text(0, Some("Small."), Some(5)),
            result_text(1, Some("Large\n one."), Some(500)),
            result_text(2, Some("No schema."), None),
        ];
        let all: Vec<&ResultText> = all.iter().flatten().collect();
        let small = "- t0: Small. JSON Schema: {\"title\":\"xxxxx\"}\n";
        let whole = write_results(&all, 10_000).text;
        assert!(whole.starts_with(&format!("{HEAD}{small}- t1: Large one. JSON Schema: ")));
        let cut = write_results(&all, whole.len() - 1);
        let tail = "The result of 1 tool is omitted or shortened here.\n";
        let expected = ResultsText {
            text: format!("{HEAD}{small}- t1: Large one.\n- t2: No schema.\n{tail}"),
            incomplete: 1,
        };
        assert_eq!(cut, expected);
        let nothing = ResultsText {
            text: String::new(),
            incomplete: 3,
        };
        assert_eq!(write_results(&all, 60), nothing);
    }

    proptest! {
        #[test]
        fn within_any_room(
            parts in prop::collection::vec(
                (prop::option::of("(?s).{0,80}"), prop::option::of(0_usize..300)), 0..20),
            room in 0_usize..4_000,
        ) {
            let all: Vec<ResultText> = parts
                .iter()
                .enumerate()
                .filter_map(|(n, (description, schema))| result_text(n, description.as_deref(), *schema))
                .collect();
            let all: Vec<&ResultText> = all.iter().collect();
            let written = write_results(&all, room);
            let ResultsText { text, incomplete } = &written;
            prop_assert!(text.len() <= room);
            prop_assert_eq!(&write_results(&all, room), &written);
            // More room never describes less.
            prop_assert!(write_results(&all, room + 500).incomplete <= *incomplete);
            let lines = text.lines().filter(|line| line.starts_with("- ")).count();
            prop_assert!(lines + incomplete >= all.len());
            if !text.is_empty() && *incomplete > 0 {
                prop_assert!(text.contains(&incomplete.to_string()));
            }
        }
    }
}
