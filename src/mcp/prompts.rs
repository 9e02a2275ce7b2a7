//! Skills as prompts: those whose policy forbids implicit invocation, which a person starts by name.

use super::catalog::Listed;
use super::cursor::List;
use super::executor::{Executor, UNSEEN, json_bytes, meta, next, rest};
use super::fault::CallFault;
use super::files::{self, FileError};
use super::limits::{MAX_PAGE_BYTES, MAX_PAGE_ITEMS};
use crate::hidden::escape_hidden;
use rmcp::model::{ContentBlock, GetPromptResult, ListPromptsResult, Prompt, PromptMessage, Role};

impl Executor {
    /// `prompts/list`: the skills that only a person may start.
    pub(super) async fn prompts(
        &self,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, CallFault> {
        let turn = self.turn().await?;
        let rest = rest(&turn.catalog, List::Prompts, cursor)?;
        let (mut page, mut bytes, mut passed) = (Vec::new(), 0, 0);
        for skill in rest {
            if let Some(name) = &skill.prompt {
                let prompt = Prompt::new(name, Some(description(skill)), None);
                bytes += json_bytes(&prompt);
                if page.len() == MAX_PAGE_ITEMS || (bytes > MAX_PAGE_BYTES && !page.is_empty()) {
                    break;
                }
                page.push(prompt);
            }
            passed += 1;
        }
        let next = next(List::Prompts, rest, passed);
        let mut result = ListPromptsResult::with_all_items(page);
        result.next_cursor = next;
        result.meta = meta([(UNSEEN, turn.catalog.unseen())]);
        Ok(result)
    }

    /// `prompts/get`: the whole SKILL.md, for a model that is to follow it now.
    pub(super) async fn prompt(&self, name: &str) -> Result<GetPromptResult, CallFault> {
        let turn = self.turn().await?;
        let skill = turn.catalog.prompt(name).ok_or(CallFault::NoPrompt)?;
        let uri = skill.main_uri();
        let found = turn.catalog.find(&uri).ok_or(FileError::NotFound)?;
        let text = files::read(&mut self.client.clone(), &uri, &found).await?;
        let head = format!(
            "Use the skill `{}`, which the user started. Its SKILL.md follows; it may name other files of \
             the skill, which are resources below {}/.",
            escape_hidden(skill.name()),
            skill.uri()
        );
        let messages = [ContentBlock::text(head), ContentBlock::resource(text)];
        let messages = messages.map(|content| PromptMessage::new(Role::User, content));
        Ok(GetPromptResult::new(messages.into()).with_description(description(skill)))
    }
}

fn description(skill: &Listed) -> String {
    escape_hidden(skill.entry.description()).into_owned()
}
