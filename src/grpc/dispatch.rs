//! Dispatch of requests to the methods of `CapabilityService`. Decodes each request, compresses
//! lists, and records each call in the audit log. The server that tonic generates would encode each
//! response into a buffer of its own; the methods here return encoded responses.

use super::audit_log::{AuditLog, AuditedCall};
use super::encoded_body::EncodedBody;
use super::service::GrpcService;
use caproot_core::proto::caproot::v1::capability_service_server::SERVICE_NAME;
use http::{HeaderMap, Response};
use prost::Message;
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// Path of a method, before the name of the method.
pub const METHOD_PATH_PREFIX: &str = "/caproot.v1.CapabilityService/";

/// Methods whose responses are compressed for callers that accept it. Lists are long and repetitive.
/// Events of streams are small, and would be compressed one by one, so they stay uncompressed. Files
/// stay uncompressed because of compression side channels: an attacker who writes into a file and
/// sees the length of its compressed pages could guess its other contents.
const LIST_METHODS: [&str; 4] = ["ListRoots", "ResolveRoots", "ListSkills", "ListResources"];
/// Header with the encodings that the caller accepts.
const ACCEPT_ENCODING_HEADER: &str = "grpc-accept-encoding";

/// Server of `caproot.v1.CapabilityService`.
#[derive(Debug, Clone)]
pub struct RpcDispatcher {
    service: Arc<GrpcService>,
    audit_log: AuditLog,
}

impl RpcDispatcher {
    /// Creates a server that records each call of the service.
    #[must_use]
    pub fn new(service: GrpcService, audit_log: AuditLog) -> Self {
        Self {
            service: Arc::new(service),
            audit_log,
        }
    }

    /// Runs the method of a request.
    async fn dispatch(
        &self,
        request: http::Request<Body>,
        call: &mut AuditedCall,
    ) -> Result<Response<Body>, Status> {
        let service = &self.service;
        let accepts_gzip = accepts_gzip(request.headers());
        let uri = request.uri().clone();
        let method = uri
            .path()
            .strip_prefix(METHOD_PATH_PREFIX)
            .unwrap_or_default();
        let message = match method {
            "GetExecutor" => service.get_executor(&self.decode(request).await?, call)?,
            "ListRoots" => {
                service
                    .list_roots(&self.decode(request).await?, call)
                    .await?
            }
            "ResolveRoots" => {
                service
                    .resolve_roots(self.decode(request).await?, call)
                    .await?
            }
            "ListSkills" => {
                service
                    .list_skills(self.decode(request).await?, call)
                    .await?
            }
            "WatchSkills" => {
                let events = service.watch_skills(self.decode(request).await?, call)?;
                return Ok(EncodedBody::stream_response(events));
            }
            "ListResources" => {
                service
                    .list_resources(self.decode(request).await?, call)
                    .await?
            }
            "ReadResource" => {
                service
                    .read_resource(self.decode(request).await?, call)
                    .await?
            }
            _ => return Err(Status::unimplemented("")),
        };
        call.set_response_bytes(message.message_len());
        if accepts_gzip && LIST_METHODS.contains(&method) {
            return message.into_compressed_response();
        }
        Ok(message.into_response())
    }

    /// Decodes the message of a request. The size limit applies to the decompressed message.
    async fn decode<M: Message + Default + 'static>(
        &self,
        request: http::Request<Body>,
    ) -> Result<Request<M>, Status> {
        let mut decoded = None;
        // tonic decodes a request only for a method. This method keeps the request, and its response
        // is discarded.
        let method = service_fn(|request| {
            decoded = Some(request);
            ready(Err::<tonic::Response<()>, _>(Status::ok("")))
        });
        let response = Grpc::new(ProstCodec::<(), M>::default())
            .accept_compressed(Gzip)
            .max_decoding_message_size(self.service.max_request_bytes())
            .unary(method, request)
            .await;
        decoded.ok_or_else(|| {
            let status = response.extensions().get::<Status>().cloned();
            status.unwrap_or_else(|| Status::internal("internal error: the request is not decoded"))
        })
    }
}

impl NamedService for RpcDispatcher {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for RpcDispatcher {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let dispatcher = self.clone();
        Box::pin(async move {
            let mut call = dispatcher.audit_log.begin_call(request.extensions());
            let response = dispatcher.dispatch(request, &mut call).await;
            call.record_outcome(response.as_ref().err());
            Ok(response.unwrap_or_else(Status::into_http))
        })
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT_ENCODING_HEADER)
        .and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| {
        accepted
            .split(',')
            .any(|encoding| encoding.trim() == "gzip")
    })
}

#[cfg(test)]
mod tests {
    use super::accepts_gzip;
    use http::HeaderMap;

    #[test]
    fn list_is_compressed_if_caller_accepts_gzip() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, gzip ,identity", true),
            ("identity", false),
            ("gzipped", false),
            ("", false),
        ] {
            let value = accepted.parse().expect("valid header");
            let mut headers = HeaderMap::new();
            assert!(!accepts_gzip(&headers));
            headers.insert("grpc-accept-encoding", value);
            assert_eq!(accepts_gzip(&headers), expected, "{accepted}");
        }
    }
}
