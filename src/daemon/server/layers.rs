//! Layers around the services. [`layer_services`] is the only place that knows their order.

use super::reflection::{reflection_v1, reflection_v1alpha};
use crate::daemon::grpc::{AuthLayer, LoadLimit, LoadLimitLayer, RpcDispatcher};
use crate::daemon::telemetry::{CallMetrics, CallMetricsService};
use std::any::Any;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::Layer as _;
use tower_http::catch_panic::{CatchPanic, CatchPanicLayer, ResponseForPanic};

/// All services in their layers.
pub type LayeredService = CallMetricsService<CatchPanic<LoadLimit<Routes>, PanicResponder>>;

/// Wraps the services into their layers. A request passes the layers from the last one below to the
/// first. Before the layers, the connection has attached the peer and the admission of the connection
/// to the request.
pub fn layer_services(
    call_metrics: CallMetrics,
    load_limit: &LoadLimitLayer,
    auth: &AuthLayer,
    capabilities: RpcDispatcher,
    health: HealthServer<impl Health>,
) -> LayeredService {
    // 5. Authentication wraps each service instead of the router, because the rules make single
    // services public. No message is decoded before it, so that a caller without credentials costs
    // neither parsing nor memory.
    let mut services = RoutesBuilder::default();
    services.add_service(auth.wrap_service(|_| false, capabilities));
    services.add_service(auth.wrap_service(
        |rules| rules.public_health,
        // A client that compresses its requests compresses those to health, too.
        health.accept_compressed(Gzip),
    ));
    services.add_service(auth.wrap_service(|rules| rules.public_reflection, reflection_v1()));
    services.add_service(auth.wrap_service(|rules| rules.public_reflection, reflection_v1alpha()));

    // 4. The router needs no protection of its own: a path without a service gets `UNIMPLEMENTED`.
    let routes = services.routes().prepare();

    // 3. The load limit stands around authentication, because comparing tokens is work that a flood of
    // calls must not multiply, and around the router, so that a call to an unknown path needs a
    // permit, too. It counts the bytes of requests and responses of all services.
    let limited = load_limit.layer(routes);

    // 2. A panic of a method, or of a layer below, ends its own call. The permits of the call are
    // returned, because they are dropped with the future of the load limit.
    let guarded = CatchPanicLayer::custom(PanicResponder).layer(limited);

    // 1. The metrics count every call: those that the load limit rejected, and those that panicked.
    // The span of the call covers all other layers.
    call_metrics.count_calls(guarded)
}

/// Response to a call that panicked. Does not disclose the panic.
#[derive(Debug, Clone, Copy)]
pub struct PanicResponder;

impl ResponseForPanic for PanicResponder {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, panic: Box<dyn Any + Send>) -> http::Response<Body> {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(
            panic = message.unwrap_or("unknown"),
            "internal error: a call panicked"
        );
        Status::internal("internal error; see the log of the daemon").into_http()
    }
}
