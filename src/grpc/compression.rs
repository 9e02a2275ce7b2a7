//! Which answers are compressed: lists, for callers that offer to take them so. They are long, and
//! say the same words again and again. Not streams: their events are many and mostly small, and each
//! would be compressed by itself. Not files: a page is small by default, and whoever sees how long
//! compressed pages are could tell what is in a file that repeats what they wrote into it.

use super::Audited;
use crate::catalog::Keeper;
use crate::proto::caproot::v1::capability_service_server::CapabilityServiceServer;
use http::Request;
use std::task::{Context, Poll};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

/// How a caller says what it can decompress.
const OFFER: &str = "grpc-accept-encoding";
/// The methods whose answers are lists.
const LISTS: [&str; 4] = ["ListRoots", "ResolveRoots", "ListSkills", "ListResources"];

/// Whether a caller may be sent a compressed list.
pub(super) fn is_offered(metadata: &MetadataMap) -> bool {
    metadata.contains_key(OFFER)
}

/// The service, which hears an offer only with calls for lists.
#[derive(Debug, Clone)]
pub struct ListsCompressed {
    server: CapabilityServiceServer<Audited>,
    /// Knows the limits in force.
    keeper: Keeper,
}

impl ListsCompressed {
    /// Requests may come compressed, too; the limit on their size holds for what they are decompressed
    /// to.
    #[must_use]
    pub fn new(server: CapabilityServiceServer<Audited>, keeper: Keeper) -> Self {
        Self { server: server.accept_compressed(Gzip).send_compressed(Gzip), keeper }
    }
}

impl NamedService for ListsCompressed {
    const NAME: &'static str = CapabilityServiceServer::<Audited>::NAME;
}

impl<B> tower::Service<Request<B>> for ListsCompressed
where
    CapabilityServiceServer<Audited>: tower::Service<Request<B>>,
{
    type Response = <CapabilityServiceServer<Audited> as tower::Service<Request<B>>>::Response;
    type Error = <CapabilityServiceServer<Audited> as tower::Service<Request<B>>>::Error;
    type Future = <CapabilityServiceServer<Audited> as tower::Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.server.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next();
        if !method.is_some_and(|method| LISTS.contains(&method)) {
            request.headers_mut().remove(OFFER);
        }
        let most = self.keeper.limits().max_request_bytes();
        self.server = self.server.clone().max_decoding_message_size(most);
        self.server.call(request)
    }
}
