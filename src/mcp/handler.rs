//! Handler of one MCP session: capabilities, methods and change notifications.

use super::backend::McpBackend;
use super::call_error::McpCallError;
use super::catalog_changes::CatalogChanges;
use super::limits::{MAX_SUBSCRIBED_URIS, MAX_URI_BYTES};
use super::tool_list::ToolListChanges;
use caproot_client::session::{Session, ToolNames};
use caproot_core::sync::Mutex;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult,
    CompleteRequestMethod, CompleteRequestParams, CompleteResult, ContentBlock, ErrorCode,
    GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams, GetSkillResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListSkillsResult, ListToolsRequestMethod, ListToolsResult, MetaObject, PaginatedRequestParams,
    ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceTemplate, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use tokio_util::task::AbortOnDropHandle;

/// Key in `_meta` of results: whether the content comes from an untrusted author.
const EXTERNAL_CONTEXT_KEY: &str = "caproot/externalContext";

const INSTRUCTIONS: &str = "The Agent Skills of an executor. Each resource that is listed is the \
     SKILL.md of one skill: read it before a task that its description fits. It may name other files \
     of the skill, by paths relative to its own directory; read these in the same way. Each prompt is \
     a skill that only a person starts.";

/// Returns the instructions of a server with tools, for a model that has only the tools.
fn tool_instructions(names: ToolNames) -> String {
    format!(
        "The Agent Skills of an executor. The description of the tool {read} names the skills, and \
         {list} lists them with their descriptions. Read a skill with {read} before a task that its \
         description fits. A skill may name other files by paths relative to its own directory: read \
         these with {read}, too. Each prompt is a skill that only a person starts.",
        list = names.list(),
        read = names.read(),
    )
}

/// Handler of one session.
#[derive(Debug)]
pub struct McpHandler {
    backend: Arc<McpBackend>,
    /// URIs that a client of the older protocol subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// Task that notifies a client of the older protocol until the session ends.
    notifier: OnceLock<AbortOnDropHandle<()>>,
}

impl McpHandler {
    pub fn new(backend: Arc<McpBackend>) -> Self {
        Self {
            backend,
            subscribed: Arc::default(),
            notifier: OnceLock::new(),
        }
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
        let (capabilities, instructions) = match self.backend.tools() {
            Some(tools) => {
                let capabilities = capabilities.enable_tools().enable_tool_list_changed();
                (capabilities.build(), tool_instructions(tools.names))
            }
            None => (capabilities.build(), INSTRUCTIONS.to_owned()),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("caproot", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    /// Without tools, the method does not exist. An empty list would declare tools.
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        match self.backend.list_tools().await {
            Some(tools) => Ok(ListToolsResult::with_all_items(tools)),
            None => Err(ErrorData::method_not_found::<ListToolsRequestMethod>()),
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.backend.tools().is_none() {
            return Err(ErrorData::method_not_found::<CallToolRequestMethod>());
        }
        let result = match self.backend.tool_session().await {
            Ok(Some(session)) => call_tool(session, request).await,
            Ok(None) => return Err(ErrorData::method_not_found::<CallToolRequestMethod>()),
            // A model can go on after a failed call; hosts may end a run for an error of the protocol.
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
        };
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.backend
            .list_prompts(cursor.as_deref())
            .await
            .map_err(|error| error.to_error_data(None))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = self.backend.get_prompt(&request.name).await;
        prompt
            .map(Into::into)
            .map_err(|error| invalid_params_error(&error, None))
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
        self.backend
            .list_resources(cursor.as_deref())
            .await
            .map_err(|error| error.to_error_data(None))
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
        let contents = self
            .backend
            .read_resource(&request.uri)
            .await
            .map_err(|error| error.to_error_data(Some(&request.uri)))?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.backend
            .list_skills(cursor.as_deref())
            .await
            .map_err(|error| error.to_error_data(None))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let skill = self.backend.get_skill(&request.uri).await;
        skill
            .map(GetSkillResult::new)
            .map_err(|error| invalid_params_error(&error, Some(&request.uri)))
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let children = self
            .backend
            .read_directory(&request.uri, request.cursor.as_deref())
            .await;
        children.map_err(|error| invalid_params_error(&error, Some(&request.uri)))
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
        let _place = self
            .backend
            .acquire_listen_permit()
            .map_err(|error| error.to_error_data(None))?;

        let mut changes = CatalogChanges::new(self.backend.state_receiver());
        let mut tool_changes = ToolListChanges::new(self.backend.clone());
        let sink = subscription.sink();

        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                () = tool_changes.next() => {
                    if subscription.accepted().tools_list_changed == Some(true)
                        && sink.notify_tool_list_changed().await.is_err()
                    {
                        return Ok(());
                    }
                    continue;
                }
                change = changes.next() => change,
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

    /// Clients of the older protocol receive notifications without a `subscriptions/listen`.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = CatalogChanges::new(self.backend.state_receiver());
        let tool_changes = ToolListChanges::new(self.backend.clone());
        let subscribed = self.subscribed.clone();
        let notifications = notify_changes(context.peer, changes, tool_changes, subscribed);
        self.notifier
            .get_or_init(|| AbortOnDropHandle::new(tokio::spawn(notifications)));
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut subscribed = self.subscribed.lock();
        if request.uri.len() > MAX_URI_BYTES || subscribed.len() >= MAX_SUBSCRIBED_URIS {
            return Err(McpCallError::SubscriptionLimit.to_error_data(Some(&request.uri)));
        }
        // A missing resource may be created later.
        subscribed.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().remove(&request.uri);
        Ok(())
    }
}

/// Notifies one client of changes until the client is gone.
async fn notify_changes(
    peer: Peer<RoleServer>,
    mut changes: CatalogChanges,
    mut tool_changes: ToolListChanges,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
) {
    loop {
        let change = tokio::select! {
            () = tool_changes.next() => {
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
                continue;
            }
            change = changes.next() => change,
        };
        let Some(change) = change else { return };

        if change.resources_changed() && peer.notify_resource_list_changed().await.is_err() {
            return;
        }
        if change.prompts_changed() && peer.notify_prompt_list_changed().await.is_err() {
            return;
        }

        let updated: Vec<String> = subscribed
            .lock()
            .iter()
            .filter(|uri| change.resource_updated(uri))
            .cloned()
            .collect();
        for uri in updated {
            let update = ResourceUpdatedNotificationParam::new(uri);
            if peer.notify_resource_updated(update).await.is_err() {
                return;
            }
        }
    }
}

/// Reports a missing resource as an invalid parameter, as every version of the standard requires
/// for these methods.
fn invalid_params_error(error: &McpCallError, uri: Option<&str>) -> ErrorData {
    let mut data = error.to_error_data(uri);
    if data.code == ErrorCode::RESOURCE_NOT_FOUND {
        data.code = ErrorCode::INVALID_PARAMS;
    }
    data
}

/// Calls a tool for `tools/call`. Errors of the tool are results, too.
async fn call_tool(session: &Session, request: CallToolRequestParams) -> CallToolResult {
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let result = session.call(&request.name, &arguments).await;
    let content = vec![ContentBlock::text(result.json)];
    let mut answer = if result.success {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    let mark = (
        EXTERNAL_CONTEXT_KEY.to_owned(),
        Value::Bool(result.external_context),
    );
    answer.meta = Some(MetaObject(std::iter::once(mark).collect()));
    answer
}
