//! Handshakes of agents: the requests that each agent sends at its start, and what its model must learn from
//! the answers.

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::Daemon;

/// Part of the server's texts that an agent shows its model.
#[derive(Clone, Copy, PartialEq)]
enum ShownText {
    /// The first bytes of the instructions; the tools are searched for.
    InstructionStart(usize),
    /// The whole instructions, and the first bytes of the description of each tool.
    InstructionsAndToolStart(usize),
    /// The whole instructions and all tools.
    All,
}

/// Handshake of an agent.
struct Handshake {
    agent: &'static str,
    version: &'static str,
    capabilities: Value,
    /// Requests after `initialize`, each with the place of the list in its result.
    requests: &'static [(&'static str, &'static str)],
    shown: ShownText,
}

const TOOLS: (&str, &str) = ("tools/list", "/tools");
const PROMPTS: (&str, &str) = ("prompts/list", "/prompts");
const RESOURCES: (&str, &str) = ("resources/list", "/resources");
const TEMPLATES: (&str, &str) = ("resources/templates/list", "/resourceTemplates");

fn handshakes() -> [Handshake; 5] {
    let roots = json!({"roots": {"listChanged": true}});
    [
        Handshake {
            agent: "codex-mcp-client",
            version: "2025-06-18",
            capabilities: json!({"elicitation": {}}),
            requests: &[TOOLS, RESOURCES, TEMPLATES],
            shown: ShownText::InstructionStart(247),
        },
        Handshake {
            agent: "claude-code",
            version: "2025-11-25",
            capabilities: json!({"roots": {}, "elicitation": {}}),
            requests: &[TOOLS, PROMPTS, RESOURCES],
            shown: ShownText::InstructionsAndToolStart(2_048),
        },
        Handshake {
            agent: "gemini-cli-mcp-client",
            version: "2025-11-25",
            capabilities: roots.clone(),
            requests: &[TOOLS, PROMPTS, RESOURCES],
            shown: ShownText::All,
        },
        Handshake {
            agent: "opencode",
            version: "2025-11-25",
            capabilities: json!({}),
            requests: &[TOOLS, PROMPTS, RESOURCES],
            shown: ShownText::All,
        },
        Handshake {
            agent: "qwen-code-mcp-client",
            version: "2025-06-18",
            capabilities: roots,
            requests: &[TOOLS, PROMPTS],
            shown: ShownText::InstructionsAndToolStart(157),
        },
    ]
}

impl Handshake {
    fn initialize_params(&self) -> Value {
        json!({"protocolVersion": self.version, "capabilities": self.capabilities,
            "clientInfo": {"name": self.agent, "version": "1.0.0"}})
    }

    /// Asserts that the shown part of the texts names the skills and the tool that reads them.
    fn expect_named_skills(&self, instructions: &str, tools: &Value) {
        let shown = match self.shown {
            ShownText::InstructionStart(bytes) => &instructions[..bytes.min(instructions.len())],
            ShownText::InstructionsAndToolStart(_) | ShownText::All => instructions,
        };
        for part in [
            "3 skills",
            "skills_read",
            "skills_search",
            "pdf",
            "mail",
            "triage-logs",
        ] {
            assert!(shown.contains(part), "{}: {part} in {shown}", self.agent);
        }

        let description = tools[1]["description"].as_str().expect("a description");
        let shown = match self.shown {
            ShownText::InstructionStart(_) => return,
            ShownText::InstructionsAndToolStart(bytes) => {
                &description[..bytes.min(description.len())]
            }
            ShownText::All => description,
        };
        assert!(
            shown.contains("Read a skill before"),
            "{}: {shown}",
            self.agent
        );
        let names_tools = self.shown != ShownText::InstructionsAndToolStart(157);
        assert_eq!(
            shown.contains("triage-logs"),
            names_tools,
            "{}: {shown}",
            self.agent
        );
    }
}

fn count_items(result: &Value, place: &str) -> usize {
    let items = result.pointer(place).and_then(Value::as_array);
    items.unwrap_or_else(|| panic!("{place} in {result}")).len()
}

#[tokio::test]
async fn each_agent_learns_the_skills_from_its_first_requests() {
    let tree = "skill r/pdf\nskill r/mail\nfile r/mail/notes.md\n| The rest.\nskill r/triage-logs";
    let (_fixture, daemon) = Daemon::publishing("r", tree).await;
    for handshake in handshakes() {
        let agent = handshake.agent;
        let mut host = Host::start(&daemon, "");
        let answer = host.initialize(handshake.initialize_params()).await;
        assert_eq!(answer["protocolVersion"], handshake.version, "{agent}");
        let mut tools = Value::Null;
        for (method, place) in handshake.requests {
            let result = host.call(method, json!({})).await;
            let result = result.unwrap_or_else(|error| panic!("{agent}: {method}: {error}"));
            let expected = match *method {
                "prompts/list" => 0,
                "resources/templates/list" => 1,
                _ => 3,
            };
            assert_eq!(count_items(&result, place), expected, "{agent}: {method}");
            if *method == "tools/list" {
                tools = result["tools"].clone();
            }
        }
        let instructions = answer["instructions"].as_str().expect("instructions");
        handshake.expect_named_skills(instructions, &tools);

        // The next call reads a SKILL.md, and the one after it a reference file.
        for (resource, text) in [("", "---"), ("notes.md", "The rest.")] {
            let arguments = json!({"package": "skill://r/mail", "resource": resource});
            let call = json!({"name": "skills_read", "arguments": arguments});
            let result = host.call("tools/call", call).await.expect("a result");
            let json = result["content"][0]["text"].as_str().expect("text");
            let page: Value = serde_json::from_str(json).expect("JSON");
            let contents = page["contents"].as_str().expect("contents");
            assert!(contents.starts_with(text), "{agent}: {page}");
        }

        // Nothing changed, so the agent is told of nothing.
        assert_eq!(host.notifications_until_now().await, Vec::<Value>::new());
        host.stop().await.succeeded();
    }
    daemon.stop().await;
}
