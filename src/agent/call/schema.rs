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
use schemars::{JsonSchema, Schema, SchemaGenerator};
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

/// Function that returns the schema of a type.
type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Results by the method of their request. A test compares the methods with those of requests.
const RESULTS: [(&str, SchemaFn); 31] = [
    ("hello", SchemaGenerator::subschema_for::<ProgramState>),
    ("start", SchemaGenerator::subschema_for::<StartedSession>),
    ("tools", SchemaGenerator::subschema_for::<Vec<ToolPayload>>),
    ("call", SchemaGenerator::subschema_for::<Map<String, Value>>),
    ("list", SchemaGenerator::subschema_for::<Vec<ListedSkill>>),
    ("read", SchemaGenerator::subschema_for::<FileText>),
    (
        "instructions",
        SchemaGenerator::subschema_for::<InstructionUpdate>,
    ),
    (
        "used_skills",
        SchemaGenerator::subschema_for::<Vec<UsedSkill>>,
    ),
    (
        "reinject",
        SchemaGenerator::subschema_for::<ReinjectedSkills>,
    ),
    ("watch", SchemaGenerator::subschema_for::<WatchedText>),
    ("watch_usage", SchemaGenerator::subschema_for::<SessionId>),
    ("inject", SchemaGenerator::subschema_for::<InjectedSkills>),
    (
        "state",
        SchemaGenerator::subschema_for::<Vec<ExecutorState>>,
    ),
    (
        "source_states",
        SchemaGenerator::subschema_for::<Vec<SourceState>>,
    ),
    (
        "plugins",
        SchemaGenerator::subschema_for::<Vec<SessionPlugin>>,
    ),
    (
        "plugin_servers",
        SchemaGenerator::subschema_for::<Vec<McpServerStatus>>,
    ),
    (
        "retry_servers",
        SchemaGenerator::subschema_for::<Vec<McpServerStatus>>,
    ),
    (
        "tool_result",
        SchemaGenerator::subschema_for::<AcceptedResult>,
    ),
    (
        "cancel",
        SchemaGenerator::subschema_for::<CancelledRequests>,
    ),
    ("save", SchemaGenerator::subschema_for::<Map<String, Value>>),
    ("restore", SchemaGenerator::subschema_for::<StartedSession>),
    (
        "changes",
        SchemaGenerator::subschema_for::<Vec<SavedChanges>>,
    ),
    ("fork", SchemaGenerator::subschema_for::<SessionId>),
    ("close", SchemaGenerator::subschema_for::<SessionId>),
    (
        "dispatcher",
        SchemaGenerator::subschema_for::<DispatcherNumber>,
    ),
    ("dispatch", SchemaGenerator::subschema_for::<DispatchAnswer>),
    ("run_turn", SchemaGenerator::subschema_for::<TurnAnswer>),
    (
        "close_dispatcher",
        SchemaGenerator::subschema_for::<DispatcherNumber>,
    ),
    ("drain", SchemaGenerator::subschema_for::<DrainCounts>),
    ("listen", SchemaGenerator::subschema_for::<ListenEnd>),
    ("send", SchemaGenerator::subschema_for::<PromptAnswer>),
];

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
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let by_method: Map<_, _> = RESULTS
        .into_iter()
        .map(|(method, schema)| (method.to_owned(), schema(&mut generator).to_value()))
        .collect();
    let error = generator.subschema_for::<RequestError>();
    let images = generator.subschema_for::<Vec<AnswerImage>>();

    let mut definitions = generator.take_definitions(true);
    definitions.insert(
        "ResultsByMethod".to_owned(),
        json!({
            "description": "Results by the method of their request.",
            "type": "object",
            "properties": by_method,
            "required": by_method.keys().collect::<Vec<_>>(),
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
