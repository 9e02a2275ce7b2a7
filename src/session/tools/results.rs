//! The part of the instruction text that says what own tools give, since platforms take no more of a tool
//! than what goes in. Where not all fits, schemas are left out, the largest first, then tools, from the
//! end; the text counts them. Pure: the same tools and room, the same text.

use super::super::instructions::InstructionText;
use super::super::text::single_line;
use super::ToolSet;
use serde_json::Value;

const HEAD: &str = "## Results of tools\nThese tools give a JSON object, if they do not fail:\n";

/// What is told of one tool.
#[derive(Debug, Clone)]
pub(super) struct ResultText {
    name: String,
    description: Option<String>,
    /// With what it is the schema of.
    schema: Option<String>,
}

/// How much of it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetailLevel {
    Full,
    WithoutSchema,
    Omitted,
}

impl ResultText {
    /// What there is to tell, if anything.
    pub(super) fn describe(
        name: &str,
        description: Option<String>,
        schema: Option<&Value>,
        wraps: bool,
    ) -> Option<Self> {
        let of = if wraps { "JSON Schema of its field `result`" } else { "JSON Schema" };
        let schema = schema.map(|schema| format!("{of}: {schema}"));
        if description.is_none() && schema.is_none() {
            return None;
        }
        let description = description.map(|text| single_line(&text));
        Some(Self { name: name.to_owned(), description, schema })
    }

    /// Returns a copy for a tool with another name.
    pub(super) fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Its line, as far as it is told.
    fn to_line(&self, depth: DetailLevel) -> String {
        let schema = self.schema.as_ref().filter(|_| depth == DetailLevel::Full);
        let text = match (&self.description, schema) {
            _ if depth == DetailLevel::Omitted => return String::new(),
            (Some(description), Some(schema)) => format!("{description} {schema}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => return String::new(),
        };
        format!("- {}: {text}\n", self.name)
    }
}

impl ToolSet {
    /// The text of skills, and behind it that of results, in one budget. Results take at most half of it
    /// from the skills, and whatever the skills leave.
    pub(in super::super) fn write_instructions(
        &self,
        budget: usize,
        skills: impl Fn(usize) -> InstructionText,
    ) -> InstructionText {
        let told: Vec<&ResultText> =
            self.tools.iter().filter_map(|tool| tool.result_text.as_ref()).collect();
        if told.is_empty() {
            return skills(budget);
        }
        let whole = HEAD.len()
            + told.iter().map(|told| told.to_line(DetailLevel::Full).len()).sum::<usize>();
        // And a blank line between.
        let taken = (whole + 1).min(budget / 2);
        let mut text = skills(budget - taken);
        let between = if text.text.is_empty() { "" } else { "\n" };
        let room = budget.saturating_sub(text.text.len() + between.len());
        let (results, missing) = write_results(&told, room);
        if !results.is_empty() {
            text.text.push_str(between);
            text.text.push_str(&results);
        }
        if missing > 0 {
            let warning = format!("what {missing} of the own tools give has no room in the text");
            text.warnings.push(warning);
        }
        text
    }
}

/// At most so many bytes, and of how many tools it does not say all.
fn write_results(told: &[&ResultText], room: usize) -> (String, usize) {
    let mut depths = vec![DetailLevel::Full; told.len()];
    let mut lines: Vec<String> = told.iter().map(|told| told.to_line(DetailLevel::Full)).collect();
    loop {
        let missing = depths.iter().filter(|depth| **depth != DetailLevel::Full).count();
        let tail = omitted_text(missing);
        let bytes = HEAD.len() + lines.iter().map(String::len).sum::<usize>() + tail.len();
        if bytes <= room && lines.iter().any(|line| !line.is_empty()) {
            return (format!("{HEAD}{}{tail}", lines.concat()), missing);
        }
        let Some(at) = next_to_shorten(told, &depths) else { return (String::new(), told.len()) };
        depths[at] = match (depths[at], &told[at].description) {
            (DetailLevel::Full, Some(_)) if told[at].schema.is_some() => DetailLevel::WithoutSchema,
            _ => DetailLevel::Omitted,
        };
        lines[at] = told[at].to_line(depths[at]);
    }
}

/// What gives way next: the largest schema that is there, the last of equal ones; else the last line.
fn next_to_shorten(told: &[&ResultText], depths: &[DetailLevel]) -> Option<usize> {
    let schema = |at: &usize| told[*at].schema.as_ref().map_or(0, String::len);
    let whole = (0..told.len()).filter(|at| depths[*at] == DetailLevel::Full && schema(at) > 0);
    let left = || (0..told.len()).rev().find(|at| depths[*at] != DetailLevel::Omitted);
    whole.max_by_key(schema).or_else(left)
}

/// Said at the end.
fn omitted_text(missing: usize) -> String {
    match missing {
        0 => String::new(),
        1 => "What 1 tool gives has no room here, or not all of it.\n".to_owned(),
        more => format!("What {more} tools give has no room here, or not all of it.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD, ResultText, write_results};
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
    fn schemas_give_way_before_tools() {
        let all = [
            result_text(0, Some("Small."), Some(5)),
            result_text(1, Some("Large\n one."), Some(500)),
            result_text(2, Some("No schema."), None),
        ];
        let all: Vec<&ResultText> = all.iter().flatten().collect();
        let small = "- t0: Small. JSON Schema: {\"title\":\"xxxxx\"}\n";
        let whole = write_results(&all, 10_000).0;
        assert!(whole.starts_with(&format!("{HEAD}{small}- t1: Large one. JSON Schema: ")));
        let cut = write_results(&all, whole.len() - 1);
        let tail = "What 1 tool gives has no room here, or not all of it.\n";
        assert_eq!(cut, (format!("{HEAD}{small}- t1: Large one.\n- t2: No schema.\n{tail}"), 1));
        assert_eq!(write_results(&all, 60), (String::new(), 3));
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
            let (text, missing) = write_results(&all, room);
            prop_assert!(text.len() <= room);
            prop_assert_eq!(write_results(&all, room), (text.clone(), missing));
            // More room never tells less.
            prop_assert!(write_results(&all, room + 500).1 <= missing);
            let lines = text.lines().filter(|line| line.starts_with("- ")).count();
            prop_assert!(lines + missing >= all.len());
            if !text.is_empty() && missing > 0 {
                prop_assert!(text.contains(&missing.to_string()));
            }
        }
    }
}
