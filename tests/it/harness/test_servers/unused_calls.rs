//! Calls of the service that a scripted server does not have.

/// Defines calls of the service that end with `UNIMPLEMENTED`, as `async_trait` would write them.
macro_rules! unused_calls {
    ($($call:ident($request:ident) -> $response:ident;)+) => {$(
        fn $call<'life, 'call>(
            &'life self,
            _: tonic::Request<$request>,
        ) -> futures_util::future::BoxFuture<'call, Result<tonic::Response<$response>, tonic::Status>>
        where
            'life: 'call,
            Self: 'call,
        {
            Box::pin(std::future::ready(Err(tonic::Status::unimplemented(""))))
        }
    )+};
}
pub(super) use unused_calls;
