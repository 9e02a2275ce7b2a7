//! Compression of lists, for callers that accept it. Lists are long and repetitive. Events of
//! streams are small, and would be compressed one by one, so they stay uncompressed. Files stay
//! uncompressed because of compression side channels: an attacker who writes into a file and sees
//! the length of its compressed pages could guess its other contents.

use super::AuditedService;
use crate::catalog::CatalogStore;
use crate::proto::caproot::v1::capability_service_server::CapabilityServiceServer;
use http::Request;
use std::task::{Context, Poll};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

/// Request header with the encodings that the caller accepts.
const ACCEPT_ENCODING_HEADER: &str = "grpc-accept-encoding";
/// Methods with compressed responses.
const LIST_METHODS: [&str; 4] = ["ListRoots", "ResolveRoots", "ListSkills", "ListResources"];

/// Whether the caller accepts a compressed list.
pub fn accepts_compression(metadata: &MetadataMap) -> bool {
    metadata.contains_key(ACCEPT_ENCODING_HEADER)
}

/// Service that removes the header from requests for other methods than lists.
#[derive(Debug, Clone)]
pub struct ListCompression {
    server: CapabilityServiceServer<AuditedService>,
    /// Source of the current limits.
    store: CatalogStore,
}

impl ListCompression {
    /// Creates the service. It accepts compressed requests; the size limit applies to the
    /// decompressed request.
    #[must_use]
    pub fn new(server: CapabilityServiceServer<AuditedService>, store: CatalogStore) -> Self {
        Self { server: server.accept_compressed(Gzip).send_compressed(Gzip), store }
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
        let max_request_bytes = self.store.limits().max_request_bytes();
        self.server = self.server.clone().max_decoding_message_size(max_request_bytes);
        self.server.call(request)
    }
}
