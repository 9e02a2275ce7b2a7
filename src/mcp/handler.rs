//! One session as the protocol sees it: what the server can do, its methods, and notices of changes.
//! Leaves every answer to `executor`.

use super::backend::McpBackend;
use super::call_error::McpCallError;
use super::catalog_changes::CatalogChanges;
use super::limits::{MAX_SUBSCRIBED_URIS, MAX_URI_BYTES};
use crate::session::Session;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult,
    CompleteRequestMethod, CompleteRequestParams, CompleteResult, ContentBlock, ErrorCode,
    GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams, GetSkillResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListSkillsResult, ListToolsRequestMethod, ListToolsResult, MetaObject, PaginatedRequestParams,
    ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceTemplate, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool,
    ToolAnnotations, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio_util::task::AbortOnDropHandle;

/// In `_meta` of results: that strangers wrote what is in them.
const EXTERNAL_CONTEXT_KEY: &str = "caproot/externalContext";

const INSTRUCTIONS: &str = "The Agent Skills of an executor. Each resource that is listed is the \
     SKILL.md of one skill: read it before a task that its description fits. It may name other files \
     of the skill, by paths relative to its own directory; read these in the same way. Each prompt is \
     a skill that only a person starts.";

/// One session.
#[derive(Debug)]
pub(super) struct McpHandler {
    executor: Arc<McpBackend>,
    /// What an older client subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// Tells an older client of changes, until the session ends.
    notifier: OnceLock<AbortOnDropHandle<()>>,
}

impl McpHandler {
    pub(super) fn new(executor: Arc<McpBackend>) -> Self {
        Self { executor, subscribed: Arc::default(), notifier: OnceLock::new() }
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_skills_with_directory_read();
        let capabilities = match self.executor.tool_session() {
            Some(_) => capabilities.enable_tools().build(),
            None => capabilities.build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("caproot", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    /// What is not declared is not there, rather than empty.
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        match self.executor.tool_session() {
            Some(session) => Ok(ListToolsResult::with_all_items(list_tools(session))),
            None => Err(ErrorData::method_not_found::<ListToolsRequestMethod>()),
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.executor.tool_session() {
            Some(session) => Ok(call_tool(session, request).await.into()),
            None => Err(ErrorData::method_not_found::<CallToolRequestMethod>()),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.executor
            .list_prompts(cursor.as_deref())
            .await
            .map_err(|fault| fault.to_error_data(None))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = self.executor.get_prompt(&request.name).await;
        prompt.map(Into::into).map_err(|fault| invalid_params_error(&fault, None))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.executor
            .list_resources(cursor.as_deref())
            .await
            .map_err(|fault| fault.to_error_data(None))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let file = ResourceTemplate::new("skill://{+path}", "skill-file").with_description(
            "Any file of a listed skill, by its path below the skill's directory",
        );
        Ok(ListResourceTemplatesResult::with_all_items(vec![file]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = self.executor.read_resource(&request.uri).await;
        let contents = contents.map_err(|fault| fault.to_error_data(Some(&request.uri)))?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.executor
            .list_skills(cursor.as_deref())
            .await
            .map_err(|fault| fault.to_error_data(None))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let skill = self.executor.get_skill(&request.uri).await;
        skill
            .map(GetSkillResult::new)
            .map_err(|fault| invalid_params_error(&fault, Some(&request.uri)))
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let children = self.executor.read_directory(&request.uri, request.cursor.as_deref()).await;
        children.map_err(|fault| invalid_params_error(&fault, Some(&request.uri)))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.retain(|uri| uri.len() <= MAX_URI_BYTES);
            uris.truncate(MAX_SUBSCRIBED_URIS);
        }
        Some(accepted)
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let _place =
            self.executor.acquire_listen_permit().map_err(|fault| fault.to_error_data(None))?;
        let mut notices = CatalogChanges::new(self.executor.state_receiver());
        let sink = subscription.sink();
        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = notices.next() => change,
            };
            let Some(change) = change else { return Ok(()) };
            let accepted = subscription.accepted();
            if accepted.resources_list_changed == Some(true)
                && change.resources_changed()
                && sink.notify_resource_list_changed().await.is_err()
            {
                return Ok(());
            }
            if accepted.prompts_list_changed == Some(true)
                && change.prompts_changed()
                && sink.notify_prompt_list_changed().await.is_err()
            {
                return Ok(());
            }
            for uri in accepted.resource_subscriptions.iter().flatten() {
                if change.resource_updated(uri) && sink.notify_resource_updated(uri).await.is_err()
                {
                    return Ok(());
                }
            }
        }
    }

    /// Older clients are told of changes unasked.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let notices = CatalogChanges::new(self.executor.state_receiver());
        let told = notify_changes(context.peer, notices, self.subscribed.clone());
        self.notifier.get_or_init(|| AbortOnDropHandle::new(tokio::spawn(told)));
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        if request.uri.len() > MAX_URI_BYTES || subscribed.len() >= MAX_SUBSCRIBED_URIS {
            return Err(McpCallError::SubscriptionLimit.to_error_data(Some(&request.uri)));
        }
        // What is not there now may come.
        subscribed.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.uri);
        Ok(())
    }
}

/// Tells one client of changes until it is gone.
async fn notify_changes(
    peer: Peer<RoleServer>,
    mut notices: CatalogChanges,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
) {
    while let Some(change) = notices.next().await {
        if change.resources_changed() && peer.notify_resource_list_changed().await.is_err() {
            return;
        }
        if change.prompts_changed() && peer.notify_prompt_list_changed().await.is_err() {
            return;
        }
        let updated: Vec<String> = {
            let subscribed = subscribed.lock().unwrap_or_else(PoisonError::into_inner);
            subscribed.iter().filter(|uri| change.resource_updated(uri)).cloned().collect()
        };
        for uri in updated {
            let update = ResourceUpdatedNotificationParam::new(uri);
            if peer.notify_resource_updated(update).await.is_err() {
                return;
            }
        }
    }
}

/// What is not there is a wrong parameter, where the standard says so in every version.
fn invalid_params_error(fault: &McpCallError, uri: Option<&str>) -> ErrorData {
    let mut error = fault.to_error_data(uri);
    if error.code == ErrorCode::RESOURCE_NOT_FOUND {
        error.code = ErrorCode::INVALID_PARAMS;
    }
    error
}

/// What `tools/list` gives.
fn list_tools(session: &Session) -> Vec<Tool> {
    let payloads = session.skill_tools();
    payloads.as_array().into_iter().flatten().map(tool_from_payload).collect()
}

fn tool_from_payload(payload: &Value) -> Tool {
    let text = |key: &str| payload[key].as_str().unwrap_or_default().to_owned();
    let schema = payload["inputSchema"].as_object().cloned().unwrap_or_default();
    let hints = ToolAnnotations::new().read_only(true).open_world(false);
    Tool::new(text("name"), text("description"), schema).with_annotations(hints)
}

/// What `tools/call` gives, also where something is wrong.
async fn call_tool(session: &Session, request: CallToolRequestParams) -> CallToolResult {
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let result = session.call(&request.name, &arguments).await;
    let content = vec![ContentBlock::text(result.json)];
    let mut answer = if result.success {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    let mark = (EXTERNAL_CONTEXT_KEY.to_owned(), Value::Bool(result.external_context));
    answer.meta = Some(MetaObject(std::iter::once(mark).collect()));
    answer
}
