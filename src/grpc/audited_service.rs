//! Wrapper of the service that records every call in the audit log.

use super::audit_log::{AuditLog, AuditSubject, AuditTarget};
use super::encoded_body::{self, BodyOverride, WatchResponseStream};
use super::service::{GrpcService, RpcResult};
use crate::proto::caproot::v1 as pb;
use pb::capability_service_server::CapabilityService;
use prost::Message;
use tonic::{Request, Response};

/// `caproot.v1.CapabilityService` with an audit log.
#[derive(Debug)]
pub struct AuditedService {
    service: GrpcService,
    audit_log: AuditLog,
}

/// Call in flight.
struct AuditedCall {
    audit_log: AuditLog,
    subject: AuditSubject,
    target: AuditTarget,
}

impl AuditedService {
    /// Wraps a service.
    #[must_use]
    pub fn new(service: GrpcService, audit_log: AuditLog) -> Self {
        Self { service, audit_log }
    }

    fn begin_call<T>(&self, request: &Request<T>, target: AuditTarget) -> AuditedCall {
        AuditedCall {
            audit_log: self.audit_log.clone(),
            subject: AuditSubject::from_extensions(request.extensions()),
            target,
        }
    }
}

impl AuditedCall {
    /// Records the outcome of the call.
    fn record_outcome<T: Message>(&self, response: &RpcResult<T>) {
        let bytes = |response: &Response<T>| {
            let encoded =
                response.extensions().get::<BodyOverride>().and_then(BodyOverride::message_len);
            Some(encoded.unwrap_or_else(|| response.get_ref().encoded_len()))
        };
        let outcome = response.as_ref().map(bytes);
        self.audit_log.record_call(&self.subject, &self.target, outcome);
    }

    /// Records a root if the caller may not use it.
    fn record_root(&self, id: &str, reason: pb::RootReason) {
        if reason == pb::RootReason::NotAllowed {
            self.audit_log.record_denied_root(&self.subject, &self.target, id);
        }
    }
}

fn root_ids(roots: &[pb::SelectedCapabilityRoot]) -> impl Iterator<Item = &str> {
    roots.iter().map(|root| &*root.id)
}

#[tonic::async_trait]
impl CapabilityService for AuditedService {
    async fn get_executor(
        &self,
        request: Request<pb::GetExecutorRequest>,
    ) -> RpcResult<pb::GetExecutorResponse> {
        let call = self.begin_call(&request, AuditTarget::for_roots("GetExecutor", []));
        let response = self.service.get_executor(request).await;
        call.record_outcome(&response);
        response
    }

    async fn list_roots(
        &self,
        request: Request<pb::ListRootsRequest>,
    ) -> RpcResult<pb::ListRootsResponse> {
        let call = self.begin_call(&request, AuditTarget::for_roots("ListRoots", []));
        let response = self.service.list_roots(request).await;
        call.record_outcome(&response);
        response
    }

    async fn resolve_roots(
        &self,
        request: Request<pb::ResolveRootsRequest>,
    ) -> RpcResult<pb::ResolveRootsResponse> {
        let roots = root_ids(&request.get_ref().selected_capability_roots);
        let call = self.begin_call(&request, AuditTarget::for_roots("ResolveRoots", roots));
        let response = self.service.resolve_roots(request).await;
        for root in response.iter().flat_map(|response| &response.get_ref().roots) {
            call.record_root(&root.id, root.reason());
        }
        call.record_outcome(&response);
        response
    }

    async fn list_skills(
        &self,
        request: Request<pb::ListSkillsRequest>,
    ) -> RpcResult<pb::ListSkillsResponse> {
        let roots = root_ids(&request.get_ref().selected_capability_roots);
        let call = self.begin_call(&request, AuditTarget::for_roots("ListSkills", roots));
        let response = self.service.list_skills(request).await;
        for root in response.iter().flat_map(|response| &response.get_ref().roots) {
            call.record_root(&root.id, root.reason());
        }
        call.record_outcome(&response);
        response
    }

    type WatchSkillsStream = WatchResponseStream;

    /// Records the call when the stream begins. Later records only cover denied roots.
    async fn watch_skills(
        &self,
        request: Request<pb::WatchSkillsRequest>,
    ) -> RpcResult<Self::WatchSkillsStream> {
        let roots = root_ids(&request.get_ref().selected_capability_roots);
        let call = self.begin_call(&request, AuditTarget::for_roots("WatchSkills", roots));
        let response = self.service.open_watch_stream(request);
        call.audit_log.record_call(&call.subject, &call.target, response.as_ref().map(|_| None));
        let record_denied =
            move |root: &str| call.audit_log.record_denied_root(&call.subject, &call.target, root);
        response.map(|events| encoded_body::encoded_event_response(events, record_denied))
    }

    async fn list_resources(
        &self,
        request: Request<pb::ListResourcesRequest>,
    ) -> RpcResult<pb::ListResourcesResponse> {
        let pb::ListResourcesRequest { root, package, .. } = request.get_ref();
        let target = AuditTarget::for_roots("ListResources", root_ids(root.as_slice()))
            .with_handles(package, "");
        let call = self.begin_call(&request, target);
        let response = self.service.list_resources(request).await;
        call.record_outcome(&response);
        response
    }

    async fn read_resource(
        &self,
        request: Request<pb::ReadResourceRequest>,
    ) -> RpcResult<pb::ReadResourceResponse> {
        let pb::ReadResourceRequest { root, package, resource, .. } = request.get_ref();
        let target = AuditTarget::for_roots("ReadResource", root_ids(root.as_slice()))
            .with_handles(package, resource);
        let call = self.begin_call(&request, target);
        let response = self.service.read_resource(request).await;
        call.record_outcome(&response);
        response
    }
}
