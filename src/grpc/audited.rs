//! The service, with every call of it told to the audit log: what it is about, and how it ended.

use super::audit::{About, Audit, Who};
use super::parts::{self, Parts};
use super::service::{Answer, Events, Service};
use crate::proto::caproot::v1 as pb;
use pb::capability_service_server::CapabilityService;
use prost::Message;
use tonic::{Request, Response};

/// `caproot.v1.CapabilityService`, audited.
#[derive(Debug)]
pub struct Audited {
    service: Service,
    audit: Audit,
}

/// A call under way.
struct Call {
    audit: Audit,
    who: Who,
    about: About,
}

impl Audited {
    /// Tells the calls of a service.
    #[must_use]
    pub fn new(service: Service, audit: Audit) -> Self {
        Self { service, audit }
    }

    fn call<T>(&self, request: &Request<T>, about: About) -> Call {
        Call { audit: self.audit.clone(), who: Who::of(request.extensions()), about }
    }
}

impl Call {
    /// Tells how the call ended.
    fn ended<T: Message>(&self, answer: &Answer<T>) {
        let bytes = |answer: &Response<T>| {
            let made = answer.extensions().get::<Parts>().and_then(Parts::bytes);
            Some(made.unwrap_or_else(|| answer.get_ref().encoded_len()))
        };
        let outcome = answer.as_ref().map(bytes);
        self.audit.called(&self.who, &self.about, outcome);
    }

    /// Tells a root that the caller may not use.
    fn root(&self, id: &str, reason: pb::RootReason) {
        if reason == pb::RootReason::NotAllowed {
            self.audit.root_refused(&self.who, &self.about, id);
        }
    }
}

fn ids(roots: &[pb::SelectedCapabilityRoot]) -> impl Iterator<Item = &str> {
    roots.iter().map(|root| &*root.id)
}

#[tonic::async_trait]
impl CapabilityService for Audited {
    async fn get_executor(
        &self,
        request: Request<pb::GetExecutorRequest>,
    ) -> Answer<pb::GetExecutorResponse> {
        let call = self.call(&request, About::roots("GetExecutor", []));
        let answer = self.service.get_executor(request).await;
        call.ended(&answer);
        answer
    }

    async fn list_roots(
        &self,
        request: Request<pb::ListRootsRequest>,
    ) -> Answer<pb::ListRootsResponse> {
        let call = self.call(&request, About::roots("ListRoots", []));
        let answer = self.service.list_roots(request).await;
        call.ended(&answer);
        answer
    }

    async fn resolve_roots(
        &self,
        request: Request<pb::ResolveRootsRequest>,
    ) -> Answer<pb::ResolveRootsResponse> {
        let roots = ids(&request.get_ref().selected_capability_roots);
        let call = self.call(&request, About::roots("ResolveRoots", roots));
        let answer = self.service.resolve_roots(request).await;
        for root in answer.iter().flat_map(|answer| &answer.get_ref().roots) {
            call.root(&root.id, root.reason());
        }
        call.ended(&answer);
        answer
    }

    async fn list_skills(
        &self,
        request: Request<pb::ListSkillsRequest>,
    ) -> Answer<pb::ListSkillsResponse> {
        let roots = ids(&request.get_ref().selected_capability_roots);
        let call = self.call(&request, About::roots("ListSkills", roots));
        let answer = self.service.list_skills(request).await;
        for root in answer.iter().flat_map(|answer| &answer.get_ref().roots) {
            call.root(&root.id, root.reason());
        }
        call.ended(&answer);
        answer
    }

    type WatchSkillsStream = Events;

    /// Told when it begins; of what it sends, only the roots that are refused.
    async fn watch_skills(
        &self,
        request: Request<pb::WatchSkillsRequest>,
    ) -> Answer<Self::WatchSkillsStream> {
        let roots = ids(&request.get_ref().selected_capability_roots);
        let call = self.call(&request, About::roots("WatchSkills", roots));
        let answer = self.service.watch(request);
        call.audit.called(&call.who, &call.about, answer.as_ref().map(|_| None));
        let refused = move |root: &str| call.audit.root_refused(&call.who, &call.about, root);
        answer.map(|events| parts::of_events(events, refused))
    }

    async fn list_resources(
        &self,
        request: Request<pb::ListResourcesRequest>,
    ) -> Answer<pb::ListResourcesResponse> {
        let pb::ListResourcesRequest { root, package, .. } = request.get_ref();
        let about = About::roots("ListResources", ids(root.as_slice())).handles(package, "");
        let call = self.call(&request, about);
        let answer = self.service.list_resources(request).await;
        call.ended(&answer);
        answer
    }

    async fn read_resource(
        &self,
        request: Request<pb::ReadResourceRequest>,
    ) -> Answer<pb::ReadResourceResponse> {
        let pb::ReadResourceRequest { root, package, resource, .. } = request.get_ref();
        let about = About::roots("ReadResource", ids(root.as_slice())).handles(package, resource);
        let call = self.call(&request, about);
        let answer = self.service.read_resource(request).await;
        call.ended(&answer);
        answer
    }
}
