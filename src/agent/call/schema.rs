//! JSON Schemas of the lines of `caproot call`, made from the types of the lines.

use super::answer::{
    AcceptedResult, AnswerImage, CancelledRequests, DispatchAnswer, DispatcherNumber, DrainCounts,
    FileText, ListenEnd, ProgramState, PromptAnswer, RequestError, SavedChanges, SessionId,
    StartedSession, TurnAnswer, WatchedText,
};
use super::dispatchers::{ProgramCallPage, UnneededAnswer};
use super::event::CallEvent;
use super::program_registry::FoundExecutor;
use super::request::RequestLine;
use caproot_session::{
    ExecutorState, InjectedSkills, InstructionUpdate, ListedSkill, McpServerStatus,
    ReinjectedSkills, SessionPlugin, SourceState, UsedSkill,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Tool as a model API expects it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
#[schemars(rename_all = "camelCase")]
pub struct ToolPayload {
    /// Name of the tool.
    name: String,
    /// Description for the model.
    description: String,
    /// JSON Schema of the arguments.
    input_schema: Map<String, Value>,
}

/// Results by the method of their request.
struct ResultSchemas {
    generator: SchemaGenerator,
    by_method: Map<String, Value>,
}

impl ResultSchemas {
    /// Returns a schema for each method. A test compares the methods with those of requests.
    fn collect() -> Self {
        let mut results = Self {
            generator: SchemaSettings::draft2020_12()
                .for_serialize()
                .into_generator(),
            by_method: Map::new(),
        };

        results.add::<ProgramState>("hello");
        results.add::<StartedSession>("start");
        results.add::<Vec<ToolPayload>>("tools");
        results.add::<Map<String, Value>>("call");
        results.add::<Vec<ListedSkill>>("list");
        results.add::<FileText>("read");
        results.add::<InstructionUpdate>("instructions");
        results.add::<Vec<UsedSkill>>("used_skills");
        results.add::<ReinjectedSkills>("reinject");
        results.add::<WatchedText>("watch");
        results.add::<SessionId>("watch_usage");
        results.add::<InjectedSkills>("inject");
        results.add::<Vec<ExecutorState>>("state");
        results.add::<Vec<SourceState>>("source_states");
        results.add::<Vec<SessionPlugin>>("plugins");
        results.add::<Vec<McpServerStatus>>("plugin_servers");
        results.add::<Vec<McpServerStatus>>("retry_servers");
        results.add::<AcceptedResult>("tool_result");
        results.add::<CancelledRequests>("cancel");
        results.add::<Map<String, Value>>("save");
        results.add::<StartedSession>("restore");
        results.add::<Vec<SavedChanges>>("changes");
        results.add::<SessionId>("fork");
        results.add::<SessionId>("close");
        results.add::<DispatcherNumber>("dispatcher");
        results.add::<DispatchAnswer>("dispatch");
        results.add::<TurnAnswer>("run_turn");
        results.add::<DispatcherNumber>("close_dispatcher");
        results.add::<DrainCounts>("drain");
        results.add::<ListenEnd>("listen");
        results.add::<PromptAnswer>("send");
        results
    }

    fn add<T: JsonSchema>(&mut self, method: &str) {
        let schema = self.generator.subschema_for::<T>();
        self.by_method.insert(method.to_owned(), schema.to_value());
    }
}

/// Returns the schemas of all lines, as an object with `request`, `answer` and `event`.
pub fn lines_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator();
    // The results of events are values of `tool_result`, which may be any JSON.
    for add in [
        SchemaGenerator::subschema_for::<FoundExecutor>,
        SchemaGenerator::subschema_for::<ProgramCallPage>,
        SchemaGenerator::subschema_for::<UnneededAnswer>,
    ] {
        add(&mut generator);
    }
    let request = generator.into_root_schema_for::<RequestLine>();
    let event = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<CallEvent>();
    json!({ "request": request, "answer": answer_schema(), "event": event })
}

fn answer_schema() -> Value {
    let ResultSchemas {
        mut generator,
        by_method,
    } = ResultSchemas::collect();
    let error = generator.subschema_for::<RequestError>();
    let images = generator.subschema_for::<Vec<AnswerImage>>();

    let methods: Vec<_> = by_method.keys().cloned().collect();
    let mut definitions = generator.take_definitions(true);
    definitions.insert(
        "ResultsByMethod".to_owned(),
        json!({
            "description": "Results by the method of their request.",
            "type": "object",
            "properties": by_method,
            "required": methods,
            "additionalProperties": false,
        }),
    );

    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AnswerLine",
        "description": "Answer of a request: one line of stdout with `result` or `error`.",
        "type": "object",
        "properties": {
            "id": {"description": "The `id` of the request."},
            "result": {"description": "Result of the request, by its method."},
            "success": {"description": "For `call`: whether the tool succeeded.", "type": "boolean"},
            "externalContext": {
                "description": "For `call`: whether third parties wrote the result.",
                "type": "boolean",
            },
            "images": images,
            "error": error,
        },
        "required": ["id"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::lines_schema;
    use std::collections::BTreeSet;

    #[test]
    fn each_method_has_a_schema_of_its_result() {
        let schema = lines_schema();
        let requests = schema["request"]["oneOf"].as_array().expect("methods");
        let methods: BTreeSet<_> = requests
            .iter()
            .map(|request| {
                request["properties"]["method"]["const"]
                    .as_str()
                    .expect("a name")
            })
            .collect();
        let results = &schema["answer"]["$defs"]["ResultsByMethod"]["properties"];
        let answered: BTreeSet<_> = results
            .as_object()
            .expect("results")
            .keys()
            .map(String::as_str)
            .collect();
        assert!(methods.len() > 20, "{methods:?}");
        assert_eq!(methods, answered);
    }
}
