//! Dispatch of requests to the methods of `CapabilityService`. Decodes each request, compresses
//! lists, and records each call in the audit log. The server that tonic generates would encode each
//! response into a buffer of its own; the methods here return encoded responses.

use super::audit_log::{AuditLog, AuditedCall};
use super::encoded_body::{ENCODING_HEADER, EncodedBody};
use super::service::GrpcService;
use caproot_core::proto::caproot::v1::capability_service_server::SERVICE_NAME;
use caproot_core::text::truncate_escaped;
use http::{HeaderMap, HeaderValue, Response};
use prost::Message;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, Streaming};
use tonic::codegen::BoxFuture;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::NamedService;
use tonic::{Request, Status};
use tonic_prost::ProstDecoder;
use tower::Service;

/// Path of a method, before the name of the method.
pub const METHOD_PATH_PREFIX: &str = "/caproot.v1.CapabilityService/";

/// Methods whose responses are compressed for callers that accept it. Lists are long and repetitive.
/// Events of streams are small, and would be compressed one by one, so they stay uncompressed. Files
/// stay uncompressed because of compression side channels: an attacker who writes into a file and
/// sees the length of its compressed pages could guess its other contents.
const LIST_METHODS: [&str; 4] = ["ListRoots", "ResolveRoots", "ListSkills", "ListResources"];
/// Header with the encodings that the caller accepts, or that the daemon accepts in an error.
const ACCEPT_ENCODING_HEADER: &str = "grpc-accept-encoding";
/// Most bytes of the name of an encoding in an error.
const MAX_ENCODING_BYTES: usize = 64;

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
        let may_compress = accepts_gzip(request.headers());
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
                return Ok(EncodedBody::respond(events, 0));
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

        call.response_bytes = Some(message.message_len());
        if may_compress && LIST_METHODS.contains(&method) {
            return message.into_compressed_response();
        }
        Ok(message.into_response())
    }

    /// Decodes the message of a request. The size limit applies to the decompressed message.
    async fn decode<M: Message + Default + 'static>(
        &self,
        request: http::Request<Body>,
    ) -> Result<Request<M>, Status> {
        let encoding = request_encoding(request.headers())?;
        let (head, body) = request.into_parts();
        let mut messages = Streaming::new_request(
            ProstDecoder::<M>::default(),
            body,
            encoding,
            Some(self.service.max_request_bytes()),
        );

        let message = messages
            .message()
            .await?
            .ok_or_else(|| Status::internal("the request has no message"))?;
        // The rest of the body is read before the method runs: a fault in it fails the call.
        messages.trailers().await?;

        let metadata = MetadataMap::from_headers(head.headers);
        Ok(Request::from_parts(metadata, head.extensions, message))
    }
}

/// Returns the encoding of compressed messages of a request. tonic checks the header only in its own
/// server.
fn request_encoding(headers: &HeaderMap) -> Result<Option<CompressionEncoding>, Status> {
    match headers.get(ENCODING_HEADER).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(None),
        Some(b"gzip") => Ok(Some(CompressionEncoding::Gzip)),
        Some(other) => {
            let mut status = Status::unimplemented(format!(
                "the request is compressed with `{}`; send it with gzip or without compression",
                truncate_escaped(&String::from_utf8_lossy(other), MAX_ENCODING_BYTES)
            ));
            // gRPC compression: the response names the encodings that the server accepts.
            let accepted = MetadataValue::from_static("gzip,identity");
            status
                .metadata_mut()
                .insert(ACCEPT_ENCODING_HEADER, accepted);
            Err(status)
        }
    }
}

impl NamedService for RpcDispatcher {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for RpcDispatcher {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

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
    headers
        .get(ACCEPT_ENCODING_HEADER)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accepted| {
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
