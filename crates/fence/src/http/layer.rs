//! The tower layer: checks the marks, then calls the handler.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Method, Request, Response};
use leasehold_core::Name;
use tower_layer::Layer;
use tower_service::Service;

use super::Admission;
use super::problem::Problem;
use super::rule::FenceRule;
use crate::{FenceGate, Marks, Verdict};

/// Refuses requests with a stale fence. Admitted ones carry an [`Admission`] in their extensions.
///
/// By default every request with an unsafe method (not GET, HEAD, OPTIONS or TRACE) must have
/// a fence. Put the layer behind authentication: a client that reaches it can raise marks, and
/// so lock out the real holder.
///
/// This check is *not* atomic with the handler's write: see the [module](super).
pub struct FenceLayer<M = FenceGate> {
    marks: Arc<M>,
    rule: FenceRule,
}

impl<M: Marks> FenceLayer<M> {
    /// Uses these marks: a [`FenceGate`](crate::FenceGate), a `RedisFence`, or your own.
    #[must_use]
    pub fn new(marks: M) -> Self {
        Self { marks: Arc::new(marks), rule: FenceRule { required: true, methods: None, name_of: None } }
    }

    /// Lets requests without the headers through, without an [`Admission`]. For a migration in
    /// which not all clients send them yet. Headers that are present are still checked.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.rule.required = false;
        self
    }

    /// Guards these methods only. Requests with other methods pass unchecked,
    /// whatever their headers.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.rule.methods = Some(methods.into_iter().collect());
        self
    }

    /// Sets which lock guards what a request writes, e.g. `job:42` for `/jobs/42`. A
    /// request under another lock, or one for which this returns `None`, is refused.
    /// Without it the client's header is trusted: a client that names the wrong lock is
    /// then not stopped by the right one's fence.
    #[must_use]
    pub fn name_of(mut self, name_of: impl Fn(&Parts) -> Option<Name> + Send + Sync + 'static) -> Self {
        self.rule.name_of = Some(Arc::new(name_of));
        self
    }
}

impl<M, S> Layer<S> for FenceLayer<M> {
    type Service = FenceService<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService { inner, marks: Arc::clone(&self.marks), rule: self.rule.clone() }
    }
}

/// The service that [`FenceLayer`] wraps around another one.
pub struct FenceService<S, M> {
    inner: S,
    marks: Arc<M>,
    rule: FenceRule,
}

/// Boxed, because the future of the marks has no name.
type ResponseFuture<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, M, In, Out> Service<Request<In>> for FenceService<S, M>
where
    S: Service<Request<In>, Response = Response<Out>> + Clone + Send + 'static,
    S::Future: Send,
    M: Marks,
    In: Send + 'static,
    Out: From<String>,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = ResponseFuture<Out, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        // The service that was polled ready must be the one that is called;
        // its clone may not be ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let marks = Arc::clone(&self.marks);
        let (mut parts, body) = request.into_parts();
        // Decided here, so that the returned future does not borrow the service.
        let asked = self.rule.required_admission(&parts);
        Box::pin(async move {
            let admission = match asked {
                Ok(None) => None,
                Ok(Some(admission)) => match check_admission(&*marks, admission).await {
                    Ok(admission) => Some(admission),
                    Err(problem) => return Ok(problem.into_response()),
                },
                Err(problem) => return Ok(problem.into_response()),
            };
            // An admission left by an outer layer must not pass for this layer's.
            parts.extensions.remove::<Admission>();
            if let Some(admission) = admission {
                parts.extensions.insert(admission);
            }
            inner.call(Request::from_parts(parts, body)).await
        })
    }
}

async fn check_admission<M: Marks>(marks: &M, admission: Admission) -> Result<Admission, Problem> {
    match marks.admit(&admission.name, admission.fence).await {
        Ok(Verdict::Admitted(())) => Ok(admission),
        Ok(Verdict::Stale(stale)) => Err(Problem::Stale(stale)),
        Err(failure) => Err(Problem::Unchecked(failure)),
    }
}

/// Uses its own gate, for a service that is one process.
impl Default for FenceLayer {
    fn default() -> Self {
        Self::new(FenceGate::new())
    }
}

impl<M> Clone for FenceLayer<M> {
    fn clone(&self) -> Self {
        Self { marks: Arc::clone(&self.marks), rule: self.rule.clone() }
    }
}

impl<S: Clone, M> Clone for FenceService<S, M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), marks: Arc::clone(&self.marks), rule: self.rule.clone() }
    }
}

impl<M> fmt::Debug for FenceLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl<S, M> fmt::Debug for FenceService<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService").field("rule", &self.rule).finish_non_exhaustive()
    }
}
