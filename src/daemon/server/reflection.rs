//! Reflection services, by which clients without the protos learn the methods and messages. Decoding
//! the descriptors takes a sixth of the processor time of a start, and few clients use reflection. So the
//! first request builds the service.

use caproot_core::proto;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::codegen::Service;
use tonic::codegen::http::Request;
use tonic::server::NamedService;
use tonic_reflection::server::{Builder, v1, v1alpha};

/// Service that its first request builds. Clones share the service.
#[derive(Debug, Clone)]
pub struct LazyService<S>(Arc<LazyLock<S>>);

/// Returns the service `grpc.reflection.v1`.
pub fn reflection_v1() -> LazyService<v1::ServerReflectionServer<impl v1::ServerReflection>> {
    LazyService::new(|| {
        let service = builder().build_v1().expect("descriptors of this build");
        // A client that compresses its requests compresses those to reflection, too.
        service.accept_compressed(Gzip)
    })
}

/// Returns the service `grpc.reflection.v1alpha`, for older clients.
pub fn reflection_v1alpha()
-> LazyService<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>> {
    LazyService::new(|| {
        let service = builder()
            .build_v1alpha()
            .expect("descriptors of this build");
        service.accept_compressed(Gzip)
    })
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // grpcurl decodes the details of errors with these descriptors.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

impl<S> LazyService<S> {
    fn new(build: fn() -> S) -> Self {
        Self(Arc::new(LazyLock::new(build)))
    }
}

impl<S: Service<Request<Body>> + Clone> Service<Request<Body>> for LazyService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    /// Returns ready, as the services of tonic do.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        S::clone(&self.0).call(request)
    }
}

impl<S: NamedService> NamedService for LazyService<S> {
    const NAME: &'static str = S::NAME;
}
