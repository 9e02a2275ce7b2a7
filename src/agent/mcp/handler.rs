//! Handler of one MCP session: capabilities, methods and change notifications.

use super::backend::{McpBackend, PROMPT_ARGUMENTS};
use super::call_error::McpCallError;
use super::limits::{MAX_SUBSCRIBED_URIS, MAX_URI_BYTES};
use super::list_changes::{GivenLists, HostList, ListChanges};
use super::response_turn::ResponseTurn;
use super::view::ServedView;
use caproot_core::sync::Mutex;
use caproot_session::Session;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult,
    CompleteRequestMethod, CompleteRequestParams, CompleteResult, ContentBlock, DiscoverResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams, GetSkillResult,
    Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourceTemplate, ResourceUpdatedNotificationParam, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Key in `_meta` of results: whether the content comes from an untrusted author.
const EXTERNAL_CONTEXT_KEY: &str = "caproot/externalContext";

/// Handler of one session.
#[derive(Debug)]
pub struct McpHandler {
    backend: Arc<McpBackend>,
    /// Lists that the client was given.
    given: watch::Sender<GivenLists>,
    /// URIs that a client of the older protocol subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// Task that notifies a client of the older protocol until the session ends.
    notifier: OnceLock<AbortOnDropHandle<()>>,
}

impl McpHandler {
    pub fn new(backend: Arc<McpBackend>) -> Self {
        Self {
            backend,
            given: watch::Sender::default(),
            subscribed: Arc::default(),
            notifier: OnceLock::new(),
        }
    }

    /// Returns the view for a page of a list, and records the list that the client is given.
    async fn listed_view(&self, list: HostList, cursor: Option<&str>) -> Arc<ServedView> {
        let view = self.backend.listed_view().await;
        // Further pages are part of the list of the first page.
        if cursor.is_none() {
            self.given.send_modify(|given| given.record(list, &view));
        }
        view
    }

    fn list_changes(&self) -> ListChanges {
        ListChanges::new(self.backend.state.clone(), self.given.subscribe())
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
        let capabilities = if self.backend.texts.has_tools {
            capabilities
                .enable_tools()
                .enable_tool_list_changed()
                .build()
        } else {
            capabilities.build()
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("caproot", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                self.backend
                    .texts
                    .instructions(&self.backend.state.borrow().view.names),
            )
    }

    /// Waits for the first list for a short time, because the instructions cannot change later.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        self.backend.listed_view().await;
        self.negotiate_initialize(&request)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.backend.listed_view().await;
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    /// Without tools, the list is empty: Codex requests the list of every server, and disconnects from a
    /// server that answers with an error.
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if !self.backend.texts.has_tools {
            return Ok(ListToolsResult::with_all_items(Vec::new()));
        }
        let view = self.listed_view(HostList::Tools, None).await;
        let tools = self.backend.texts.tools(&view.names);
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.backend.texts.has_tools {
            return Err(ErrorData::method_not_found::<CallToolRequestMethod>());
        }
        let result = match self.backend.synced_daemon().await {
            Ok(daemon) => call_tool(&daemon.session, request).await,
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
        let cursor = cursor.as_deref();
        let view = self.listed_view(HostList::Prompts, cursor).await;
        Ok(self.backend.list_prompts(&view, cursor)?)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let arguments = arguments
            .get(PROMPT_ARGUMENTS)
            .and_then(Value::as_str)
            .unwrap_or_default();
        self.backend
            .get_prompt(&request.name, arguments)
            .await
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
        let cursor = cursor.as_deref();
        let view = self.listed_view(HostList::Resources, cursor).await;
        Ok(self.backend.list_resources(&view, cursor)?)
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
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let file = self
            .backend
            .read_resource(&request.uri)
            .await
            .map_err(|error| error.to_error_data(Some(&request.uri)))?;
        if let Some(turn) = file.turn {
            ResponseTurn::hold(&context, turn);
        }
        Ok(ReadResourceResult::new(vec![file.contents]).into())
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let cursor = cursor.as_deref();
        let view = self.listed_view(HostList::Resources, cursor).await;
        Ok(self.backend.list_skills(&view, cursor).await?)
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.backend
            .get_skill(&request.uri)
            .await
            .map(GetSkillResult::new)
            .map_err(|error| invalid_params_error(&error, Some(&request.uri)))
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.backend
            .read_directory(&request.uri, request.cursor.as_deref())
            .await
            .map_err(|error| invalid_params_error(&error, Some(&request.uri)))
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
        let _place = self.backend.acquire_listen_permit()?;

        let mut changes = self.list_changes().of_all_lists();
        let sink = subscription.sink();

        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = changes.next() => change,
            };
            let Some(change) = change else { return Ok(()) };

            let accepted = subscription.accepted();
            let wanted = Some(true);
            for list in &change.lists {
                let sent = match list {
                    HostList::Tools if accepted.tools_list_changed == wanted => {
                        sink.notify_tool_list_changed().await
                    }
                    HostList::Resources if accepted.resources_list_changed == wanted => {
                        sink.notify_resource_list_changed().await
                    }
                    HostList::Prompts if accepted.prompts_list_changed == wanted => {
                        sink.notify_prompt_list_changed().await
                    }
                    _ => continue,
                };
                if sent.is_err() {
                    return Ok(());
                }
            }

            for uri in accepted.resource_subscriptions.iter().flatten() {
                if change.resource_updated(uri) && sink.notify_resource_updated(uri).await.is_err()
                {
                    return Ok(());
                }
            }
        }
    }

    /// Clients of the older protocol receive notifications without a `subscriptions/listen`, of the lists
    /// that they requested.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = self.list_changes();
        let notifications = notify_changes(context.peer, changes, self.subscribed.clone());
        // A client that sends the notification again gets no second task.
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
    mut changes: ListChanges,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
) {
    while let Some(change) = changes.next().await {
        for list in &change.lists {
            let sent = match list {
                HostList::Tools => peer.notify_tool_list_changed().await,
                HostList::Resources => peer.notify_resource_list_changed().await,
                HostList::Prompts => peer.notify_prompt_list_changed().await,
            };
            if sent.is_err() {
                return;
            }
        }

        // The URIs are copied, because the lock must not be held while a notification is sent.
        let updated: Vec<String> = subscribed
            .lock()
            .iter()
            .filter(|uri| change.resource_updated(uri))
            .cloned()
            .collect();
        for uri in updated {
            if peer
                .notify_resource_updated(ResourceUpdatedNotificationParam::new(uri))
                .await
                .is_err()
            {
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
        result.external_context.into(),
    );
    answer.meta = Some(MetaObject(std::iter::once(mark).collect()));
    answer
}
