//! Which answers are compressed: lists, for callers that offer to take them so. They are long, and
//! say the same words again and again. Not streams: their events are many and mostly small, and each
//! would be compressed by itself. Not files: a page is small by default, and whoever sees how long
//! compressed pages are could tell what is in a file that repeats what they wrote into it.

use super::AuditedService;
use crate::catalog::CatalogStore;
use crate::proto::caproot::v1::capability_service_server::CapabilityServiceServer;
use http::Request;
use std::task::{Context, Poll};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

/// How a caller says what it can decompress.
const ACCEPT_ENCODING_HEADER: &str = "grpc-accept-encoding";
/// The methods whose answers are lists.
const LIST_METHODS: [&str; 4] = ["ListRoots", "ResolveRoots", "ListSkills", "ListResources"];

/// Whether a caller may be sent a compressed list.
pub(super) fn accepts_compression(metadata: &MetadataMap) -> bool {
    metadata.contains_key(ACCEPT_ENCODING_HEADER)
}

/// The service, which hears an offer only with calls for lists.
#[derive(Debug, Clone)]
pub struct ListCompression {
    server: CapabilityServiceServer<AuditedService>,
    /// Knows the limits in force.
    store: CatalogStore,
}

impl ListCompression {
    /// Requests may come compressed, too; the limit on their size holds for what they are decompressed
    /// to.
    #[must_use]
    pub fn new(server: CapabilityServiceServer<AuditedService>, keeper: CatalogStore) -> Self {
        Self { server: server.accept_compressed(Gzip).send_compressed(Gzip), store: keeper }
    }
}

impl NamedService for ListCompression {
    const NAME: &'static str = CapabilityServiceServer::<AuditedService>::NAME;
}

impl<B> tower::Service<Request<B>> for ListCompression
where
    CapabilityServiceServer<AuditedService>: tower::Service<Request<B>>,
{
    type Response =
        <CapabilityServiceServer<AuditedService> as tower::Service<Request<B>>>::Response;
    type Error = <CapabilityServiceServer<AuditedService> as tower::Service<Request<B>>>::Error;
    type Future = <CapabilityServiceServer<AuditedService> as tower::Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.server.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next();
        if !method.is_some_and(|method| LIST_METHODS.contains(&method)) {
            request.headers_mut().remove(ACCEPT_ENCODING_HEADER);
        }
        let most = self.store.limits().max_request_bytes();
        self.server = self.server.clone().max_decoding_message_size(most);
        self.server.call(request)
    }
}
