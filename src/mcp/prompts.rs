//! Skills as prompts: those whose policy forbids implicit invocation, which a person starts by name.

use super::backend::{
    McpBackend, OMISSIONS_META_KEY, json_bytes, meta_object, next_cursor, skills_after_cursor,
};
use super::call_error::McpCallError;
use super::catalog::ServedSkill;
use super::cursor::ListKind;
use super::files::{self, FileError};
use super::limits::{MAX_PAGE_BYTES, MAX_PAGE_ITEMS};
use crate::hidden_chars::escape_hidden_chars;
use rmcp::model::{ContentBlock, GetPromptResult, ListPromptsResult, Prompt, PromptMessage, Role};

impl McpBackend {
    /// `prompts/list`: the skills that only a person may start.
    pub(super) async fn list_prompts(
        &self,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, McpCallError> {
        let turn = self.acquire_call_permit().await?;
        let rest = skills_after_cursor(&turn.catalog, ListKind::Prompts, cursor)?;
        let (mut page, mut bytes, mut passed) = (Vec::new(), 0, 0);
        for skill in rest {
            if let Some(name) = &skill.prompt_name {
                let prompt = Prompt::new(name, Some(description(skill)), None);
                bytes += json_bytes(&prompt);
                if page.len() == MAX_PAGE_ITEMS || (bytes > MAX_PAGE_BYTES && !page.is_empty()) {
                    break;
                }
                page.push(prompt);
            }
            passed += 1;
        }
        let next = next_cursor(ListKind::Prompts, rest, passed);
        let mut result = ListPromptsResult::with_all_items(page);
        result.next_cursor = next;
        result.meta = meta_object([(OMISSIONS_META_KEY, turn.catalog.omissions())]);
        Ok(result)
    }

    /// `prompts/get`: the whole SKILL.md, for a model that is to follow it now.
    pub(super) async fn get_prompt(&self, name: &str) -> Result<GetPromptResult, McpCallError> {
        let turn = self.acquire_call_permit().await?;
        let skill = turn.catalog.skill_by_prompt(name).ok_or(McpCallError::UnknownPrompt)?;
        let uri = skill.main_uri();
        let found = turn.catalog.resolve_uri(&uri).ok_or(FileError::NotFound)?;
        let text = files::read_file(&mut self.client.clone(), &uri, &found).await?;
        let head = format!(
            "Use the skill `{}`, which the user started. Its SKILL.md follows; it may name other files of \
             the skill, which are resources below {}/.",
            escape_hidden_chars(skill.name()),
            skill.uri()
        );
        let messages = [ContentBlock::text(head), ContentBlock::resource(text)];
        let messages = messages.map(|content| PromptMessage::new(Role::User, content));
        Ok(GetPromptResult::new(messages.into()).with_description(description(skill)))
    }
}

fn description(skill: &ServedSkill) -> String {
    escape_hidden_chars(skill.record.description()).into_owned()
}
