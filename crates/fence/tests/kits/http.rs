//! The rules of the HTTP layer, one request at a time.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::fences::{HOSTILE_NAMES, fence, name};
use axum::body::{Body, to_bytes};
use axum::routing::any;
use axum::{Extension, Router};
use http::{Method, Request, Response, StatusCode};
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::{Fence, Name};
use leasehold_fence::http::{Admission, FenceLayer, MalformedHeader, stamp};
use leasehold_fence::{FenceGate, Marks, StaleFence, Verdict};
use tokio::sync::Notify;
use tower::ServiceExt;

/// A service that counts its calls and returns the admission it was called with.
fn service<M: Marks>(layer: FenceLayer<M>) -> (Router, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |admission: Option<Extension<Admission>>| async move {
        counted.fetch_add(1, Ordering::SeqCst);
        admission.map_or("unfenced".into(), |Extension(admission)| {
            format!("{} {}", admission.name, admission.fence)
        })
    };
    (Router::new().route("/{*path}", any(handler)).layer(layer), calls)
}

fn request(method: Method, headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::builder().method(method).uri("/jobs/42");
    headers
        .iter()
        .fold(request, |request, (header, value)| request.header(*header, value.as_bytes()))
        .body(Body::empty())
        .unwrap()
}

fn fenced(text: &str, number: u64) -> Request<Body> {
    let mut request = request(Method::PUT, &[]);
    stamp(&mut request, &name(text), fence(number));
    request
}

async fn body_text(response: Response<Body>) -> String {
    let body = to_bytes(response.into_body(), 65_536).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn problem(response: Response<Body>) -> serde_json::Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let status = response.status().as_u16();
    let problem: serde_json::Value = serde_json::from_str(&body_text(response).await).unwrap();
    assert_eq!(problem["status"], status);
    problem
}

#[tokio::test]
async fn older_is_refused_equal_and_newer_are_admitted() {
    let (app, calls) = service(FenceLayer::new(FenceGate::new()));
    for number in [5, 5, 9] {
        let response = app.clone().oneshot(fenced("job:42", number)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body_text(response).await, format!("job:42 {number}"));
    }
    let response = app.clone().oneshot(fenced("job:42", 8)).await.unwrap();
    assert_eq!(response.status(), StatusCode::PRECONDITION_FAILED);
    // For an outer layer that counts refusals.
    let stale = response.extensions().get::<StaleFence>().unwrap();
    assert_eq!((stale.offered, stale.newest), (fence(8), fence(9)));
    let problem = problem(response).await;
    assert_eq!(problem["type"], "urn:leasehold:problem:stale-fence");
    // Decimal strings: not every JSON reader can read a number of this size.
    assert_eq!((&problem["offered"], &problem["newest"]), (&"8".into(), &"9".into()));
    assert_eq!(problem["name"], "job:42");
    assert_eq!(calls.load(Ordering::SeqCst), 3, "the handler ran for a stale request");
}

#[tokio::test]
async fn hostile_names_arrive_whole_and_apart() {
    let (app, _) = service(FenceLayer::new(FenceGate::new()));
    for (at, text) in HOSTILE_NAMES.iter().enumerate() {
        let number = 100 - at as u64;
        let response = app.clone().oneshot(fenced(text, number)).await.unwrap();
        assert_eq!(body_text(response).await, format!("{text} {number}"));
        let refused = app.clone().oneshot(fenced(text, number - 1)).await.unwrap();
        assert_eq!(problem(refused).await["name"], *text);
    }
}

#[tokio::test]
async fn requests_without_a_usable_fence_are_bad_requests() {
    let (app, calls) = service(FenceLayer::new(FenceGate::new()));
    let fence = ("leasehold-fence", "7");
    let name = ("leasehold-name", "job:42");
    for (headers, kind) in [
        (&[][..], "fence-missing"),
        (&[fence], "fence-malformed"),
        (&[name], "fence-malformed"),
        (&[name, fence, fence], "fence-malformed"),
        (&[name, name, fence], "fence-malformed"),
        (&[name, ("leasehold-fence", "7, 8")], "fence-malformed"),
        (&[name, ("leasehold-fence", "-7")], "fence-malformed"),
        (&[name, ("leasehold-fence", "9007199254740992")], "fence-malformed"),
        (&[("leasehold-name", "job%2"), fence], "fence-malformed"),
        (&[("leasehold-name", "über"), fence], "fence-malformed"),
    ] {
        let response = app.clone().oneshot(request(Method::POST, headers)).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{headers:?}");
        let told = response.extensions().get::<MalformedHeader>().is_some();
        assert_eq!(told, kind == "fence-malformed", "{headers:?}");
        let problem = problem(response).await;
        assert_eq!(problem["type"], format!("urn:leasehold:problem:{kind}"), "{headers:?}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn safe_methods_pass_and_unsafe_ones_do_not() {
    let (app, _) = service(FenceLayer::default());
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        let response = app.clone().oneshot(request(method.clone(), &[])).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{method}");
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::CONNECT] {
        let response = app.clone().oneshot(request(method.clone(), &[])).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{method}");
    }
    let unheard_of = Method::from_bytes(b"PURGE").unwrap();
    let response = app.clone().oneshot(request(unheard_of, &[])).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn chosen_methods_only() {
    let (app, _) = service(FenceLayer::new(FenceGate::new()).methods([Method::GET]));
    let response = app.clone().oneshot(request(Method::GET, &[])).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    // Unguarded means unchecked: a handler that wants an admission does not get one.
    let response = app.clone().oneshot(fenced("job:42", 7)).await.unwrap();
    assert_eq!(body_text(response).await, "unfenced");
}

#[tokio::test]
async fn optional_means_absent_not_wrong() {
    let (app, calls) = service(FenceLayer::new(FenceGate::new()).optional());
    let response = app.clone().oneshot(request(Method::PUT, &[])).await.unwrap();
    assert_eq!(body_text(response).await, "unfenced");
    let response = app.clone().oneshot(fenced("job:42", 9)).await.unwrap();
    assert_eq!(body_text(response).await, "job:42 9");

    let half = request(Method::PUT, &[("leasehold-name", "job:42")]);
    assert_eq!(app.clone().oneshot(half).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let stale = app.clone().oneshot(fenced("job:42", 8)).await.unwrap();
    assert_eq!(stale.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn wrong_lock_is_refused() {
    let gate = Arc::new(FenceGate::new());
    let layer = FenceLayer::new(Arc::clone(&gate)).name_of(|request| {
        let id = request.uri.path().strip_prefix("/jobs/")?;
        Name::new(&format!("job:{id}")).ok()
    });
    let (app, calls) = service(layer);
    assert_eq!(body_text(app.clone().oneshot(fenced("job:42", 9)).await.unwrap()).await, "job:42 9");

    let response = app.clone().oneshot(fenced("job:43", 99)).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(response).await["type"], "urn:leasehold:problem:fence-wrong-name");
    assert_eq!(gate.newest(&name("job:43")), None, "a refused request raised a mark");

    // A path for which the server knows no lock is not unguarded.
    let mut elsewhere = fenced("job:42", 9);
    *elsewhere.uri_mut() = "/elsewhere".parse().unwrap();
    assert_eq!(app.clone().oneshot(elsewhere).await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// An admission left by an outer layer is not this layer's, and must not reach
/// a handler as if it were.
#[tokio::test]
async fn admission_of_an_outer_layer_is_removed() {
    let (app, _) = service(FenceLayer::new(FenceGate::new()).optional());
    let mut request = request(Method::PUT, &[]);
    request.extensions_mut().insert(Admission::new(name("job:42"), fence(9)));
    assert_eq!(body_text(app.oneshot(request).await.unwrap()).await, "unfenced");
}

/// Why the handler repeats the check: the older holder's request has passed the layer
/// when the newer one is served.
#[tokio::test]
async fn a_request_overtaken_after_the_layer_is_stopped_by_the_second_check() {
    let (gate, log) = (Arc::new(FenceGate::new()), Arc::new(Mutex::new(Vec::new())));
    let (inside, resume) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (gate, log) = (Arc::clone(&gate), Arc::clone(&log));
        let (inside, resume) = (Arc::clone(&inside), Arc::clone(&resume));
        move |Extension(admission): Extension<Admission>| async move {
            if admission.fence == fence(7) {
                inside.notify_one();
                resume.notified().await;
            }
            let write = || log.lock().unwrap().push(admission.fence.get());
            let verdict = gate.admit_with(&admission.name, admission.fence, write).unwrap();
            verdict.into_result().map_err(|stale| (StatusCode::PRECONDITION_FAILED, stale.to_string()))
        }
    };
    let app = Router::new().route("/{*path}", any(handler)).layer(FenceLayer::new(gate));

    let older = tokio::spawn(app.clone().oneshot(fenced("job:42", 7)));
    inside.notified().await;
    let newer = app.oneshot(fenced("job:42", 8)).await.unwrap();
    assert_eq!(newer.status(), StatusCode::OK);
    resume.notify_one();
    assert_eq!(older.await.unwrap().unwrap().status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(*log.lock().unwrap(), [8]);
}

/// Marks that always fail.
struct FailingMarks(StoreErrorKind);

impl Marks for FailingMarks {
    async fn admit(&self, _: &Name, _: Fence) -> Result<Verdict, StoreError> {
        Err(StoreError::unknown(self.0, "secret-host:6379 did not answer"))
    }
}

#[tokio::test]
async fn store_error_is_no_refusal_and_leaks_no_details() {
    for (cause, status) in [
        (StoreErrorKind::TimedOut, StatusCode::SERVICE_UNAVAILABLE),
        (StoreErrorKind::Corrupt, StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let (app, calls) = service(FenceLayer::new(FailingMarks(cause)));
        let response = app.oneshot(fenced("job:42", 7)).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers().contains_key("retry-after"), cause == StoreErrorKind::TimedOut);
        assert!(response.extensions().get::<Arc<StoreError>>().is_some());
        let problem = problem(response).await;
        assert_eq!(problem["type"], "urn:leasehold:problem:fence-unchecked");
        assert!(!problem.to_string().contains("secret-host"), "{problem}");
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_full_gate_is_not_a_refusal() {
    let (app, _) = service(FenceLayer::new(FenceGate::with_capacity(1)));
    assert_eq!(app.clone().oneshot(fenced("a", 1)).await.unwrap().status(), StatusCode::OK);
    let response = app.clone().oneshot(fenced("b", 1)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}
