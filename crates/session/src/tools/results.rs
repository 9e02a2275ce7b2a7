//! Part of the instruction text that describes the results of custom tools, as platforms register
//! no schema of an output. If the text is too long, schemas are omitted first, the largest schema
//! first, and then tools, the last tool first. The text counts the omissions.

use crate::text::instructions::InstructionText;
use caproot_core::text::single_line;
use serde_json::Value;
use std::collections::HashSet;

const HEAD: &str = "## Results of tools\nThese tools return a JSON object on success:\n";

/// Description of the result of one tool.
#[derive(Clone)]
pub struct ResultText {
    pub name: String,
    description: Option<String>,
    /// Schema with a label.
    schema: Option<String>,
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

    /// Returns the line of the result; an empty text if nothing is described.
    fn to_line(&self) -> String {
        let text = match (&self.description, &self.schema) {
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
    texts: Vec<ResultText>,
    budget: usize,
    skills: impl Fn(usize) -> InstructionText,
) -> InstructionText {
    if texts.is_empty() {
        return skills(budget);
    }

    let lines: usize = texts.iter().map(|text| text.to_line().len()).sum();
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
fn write_results(mut texts: Vec<ResultText>, room: usize) -> ResultsText {
    let mut lines: Vec<String> = texts.iter().map(ResultText::to_line).collect();
    let mut shortened = HashSet::new();

    loop {
        let incomplete = shortened.len();
        let tail = omitted_text(incomplete);
        let bytes = HEAD.len() + lines.iter().map(String::len).sum::<usize>() + tail.len();
        if bytes <= room && lines.iter().any(|line| !line.is_empty()) {
            let text = format!("{HEAD}{}{tail}", lines.concat());
            return ResultsText { text, incomplete };
        }

        // The largest schema is omitted first, the last of equal schemas, and then the last tool.
        let schemas = texts.iter().enumerate();
        let largest = schemas
            .filter_map(|(index, text)| Some((text.schema.as_ref()?.len(), index)))
            .max();
        let last = || texts.iter().rposition(|text| text.description.is_some());
        let Some(index) = largest.map(|(_, index)| index).or_else(last) else {
            return ResultsText {
                text: String::new(),
                incomplete: texts.len(),
            };
        };

        let text = &mut texts[index];
        if text.schema.take().is_none() {
            text.description = None;
        }
        lines[index] = text.to_line();
        shortened.insert(index);
    }
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
        let all: Vec<ResultText> = all.into_iter().flatten().collect();
        let write_results = |room| write_results(all.clone(), room);
        let small = "- t0: Small. JSON Schema: {\"title\":\"xxxxx\"}\n";
        let whole = write_results(10_000).text;
        assert!(whole.starts_with(&format!("{HEAD}{small}- t1: Large one. JSON Schema: ")));
        let cut = write_results(whole.len() - 1);
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
        assert_eq!(write_results(60), nothing);
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
            let write_results = |room| write_results(all.clone(), room);
            let written = write_results(room);
            let ResultsText { text, incomplete } = &written;
            prop_assert!(text.len() <= room);
            prop_assert_eq!(&write_results(room), &written);
            // More room never describes less.
            prop_assert!(write_results(room + 500).incomplete <= *incomplete);
            let lines = text.lines().filter(|line| line.starts_with("- ")).count();
            prop_assert!(lines + incomplete >= all.len());
            if !text.is_empty() && *incomplete > 0 {
                prop_assert!(text.contains(&incomplete.to_string()));
            }
        }
    }
}
