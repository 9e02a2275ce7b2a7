//! Options of a new session: flags of the commands that start sessions, and fields of the request `start`.

use super::own_sources::SourcesRequest;
use super::plugin_server_args::choose_servers;
use super::tools::ProgramTool;
use crate::cli::args::{parse_result_bytes, parse_timeout};
use caproot_session::{ChoiceRule, ChoiceRuleError, SessionOptions};
use clap::{ArgAction, Args};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Options of a new session. The flags apply to each session of the process. A request `start` replaces the options
/// that it has. A boolean or a number is also an option of the TypeScript package, with this text.
#[derive(Debug, Default, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRequest {
    /// Selected roots as a platform made them: an array, or an object with
    /// `selectedCapabilityRoots`. The default is the published roots.
    #[arg(skip)]
    pub roots: Option<Value>,
    /// Result of `save`, instead of `roots`, `session_id`, `product` and the rules.
    #[arg(skip)]
    pub saved: Option<Value>,
    /// Id of the new session. The default is random.
    #[arg(skip)]
    pub session_id: Option<String>,
    /// Only skills for this product, or for every product.
    #[arg(long, value_name = "PRODUCT")]
    pub product: Option<String>,
    /// Only skills that match one of these rules: name:NAME, handle:HANDLE (also all skills below the
    /// handle), or source:KIND/ID, where KIND is executor, local, mcp or site.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub include: Option<Vec<String>>,
    /// No skill that matches one of these rules, even if a rule includes the skill.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub exclude: Option<Vec<String>>,
    /// Never cut a skill that matches one of these rules from the text for the model while another skill
    /// is in the text.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub pin: Option<Vec<String>>,
    /// List a skill that matches one of these rules without its description in the text for the model.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub name_only: Option<Vec<String>>,
    /// Hide a skill that matches one of these rules from models: it is neither in the text nor in lists.
    /// Only a person or your program may name it.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub manual: Option<Vec<String>>,
    /// Offer a skill that matches one of these rules to models although it or its plugin is switched off
    /// by default.
    #[arg(long, value_name = "RULE", value_parser = check_rule)]
    pub enable: Option<Vec<String>>,
    /// Tools of the program in this session, instead of those of `--tools`.
    #[arg(skip)]
    pub tools: Option<Vec<ProgramTool>>,
    /// Also the plugins of the executors and local directories.
    #[arg(skip)]
    pub plugins: Option<bool>,
    /// Say in the text for the model how to run a script by `caproot exec`, because the model has a shell
    /// on the executor.
    #[arg(long, action = ArgAction::SetTrue)]
    pub scripts: Option<bool>,
    /// Leave out skills that miss a program, a variable or their platform on the executor; a warning
    /// counts them.
    #[arg(long, action = ArgAction::SetTrue)]
    pub ready_only: Option<bool>,
    /// MCP servers of plugins whose tools the session has: handles such as
    /// `skill://a/p#tracker`, or `PLUGIN/SERVER` or `PLUGIN` if only one server fits; or `all` alone.
    #[arg(skip)]
    pub plugin_servers: Option<Vec<String>>,
    /// Limit of the result of a tool in bytes, 8,192 by default, at most 65,536. A long SKILL.md then
    /// needs fewer calls.
    #[arg(long, value_name = "BYTES", value_parser = parse_result_bytes)]
    pub result_bytes: Option<usize>,
    /// How long to wait for executors that do not answer, such as `5s`.
    #[arg(skip)]
    pub start_timeout: Option<String>,
    /// How long the skills of a lost executor stay listed, such as `10s`.
    #[arg(skip)]
    pub grace_period: Option<String>,
    /// Executors, other sources and lock of the session, instead of those of the command line. With
    /// `--no-session`, each session has some.
    #[arg(skip)]
    pub sources: Option<SourcesRequest>,
}

impl SessionRequest {
    /// Whether the request has a field that a saved session has.
    pub fn has_selection(&self) -> bool {
        self.roots.is_some()
            || self.session_id.is_some()
            || self.product.is_some()
            || self.include.is_some()
            || self.exclude.is_some()
            || self.pin.is_some()
            || self.name_only.is_some()
            || self.manual.is_some()
            || self.enable.is_some()
    }

    /// Replaces the options that the request has, except roots, tools and sources, and adds the mistakes.
    pub fn apply(&self, options: &mut SessionOptions, mistakes: &mut Vec<String>) {
        let choice = &mut options.choice;
        for (rules, texts) in [
            (&mut choice.include, &self.include),
            (&mut choice.exclude, &self.exclude),
            (&mut choice.pin, &self.pin),
            (&mut choice.name_only, &self.name_only),
            (&mut choice.manual, &self.manual),
            (&mut choice.enable, &self.enable),
        ] {
            if let Some(texts) = texts {
                *rules = ChoiceRule::parse_all(texts, mistakes);
            }
        }

        options.id.clone_from(&self.session_id);
        if let Some(product) = &self.product {
            options.product.clone_from(product);
        }
        options.plugins = self.plugins.unwrap_or(options.plugins);
        options.scripts = self.scripts.unwrap_or(options.scripts);
        options.ready_only = self.ready_only.unwrap_or(options.ready_only);
        options.result_bytes = self.result_bytes.unwrap_or(options.result_bytes);
        if let Some(names) = &self.plugin_servers {
            options.mcp_servers.servers = choose_servers(names.clone());
        }
        if let Some(text) = &self.start_timeout {
            options.start_timeout = parse_span("start_timeout", text, mistakes);
        }
        if let Some(text) = &self.grace_period {
            options.grace_period = parse_span("grace_period", text, mistakes);
        }
    }
}

/// Returns the text of a valid rule.
fn check_rule(text: &str) -> Result<String, ChoiceRuleError> {
    text.parse::<ChoiceRule>().map(|rule| rule.to_string())
}

fn parse_span(name: &str, text: &str, mistakes: &mut Vec<String>) -> Duration {
    parse_timeout(text).unwrap_or_else(|_| {
        mistakes.push(format!(
            "{name}: {text} is no time of more than zero and at most a day, such as 5s"
        ));
        // The mistake fails the request before a session uses the value.
        Duration::ZERO
    })
}
