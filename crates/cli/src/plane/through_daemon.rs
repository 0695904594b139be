//! A control plane behind a daemon: one HTTP request each.

use std::time::Duration;

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, run_until};
use leasehold::http::wire::{ErrorCode, Problem};
use leasehold::http::{ApiRequest, DaemonClient};
use leasehold::policy::duration::human;
use leasehold::store::{StoreError, StoreErrorKind};
use leasehold_core::shell::quote;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{PlaneResult, RequestError, is_refusal, retry_advice};

// Added to the timeout of a write: the daemon calls its own store, may wait for a lock, and retries.
const DAEMON_WRITE_ALLOWANCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DaemonPlane {
    pub(super) daemon: DaemonClient,
    pub(super) url: StoreUrl,
    pub(super) timeout: Duration,
}

impl DaemonPlane {
    pub(super) async fn get<T: DeserializeOwned>(&self, action: &str, path: &[&str]) -> PlaneResult<T> {
        Ok(self.send(action, Ok(ApiRequest::get(path))).await?.1)
    }

    /// The list at the route of this name.
    pub(super) async fn get_list<T: DeserializeOwned>(
        &self,
        action: &str,
        route: &str,
        query: &[(&str, &str)],
    ) -> PlaneResult<T> {
        Ok(self.send(action, Ok(ApiRequest::get(&[route]).query(query))).await?.1)
    }

    /// Returns also the status: 201 created now, 202 accepted.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        action: &str,
        path: &[&str],
        document: &impl Serialize,
    ) -> PlaneResult<(u16, T)> {
        self.send(action, ApiRequest::post(path, document)).await
    }

    pub(super) async fn put_toml<T: DeserializeOwned>(
        &self,
        action: &str,
        route: &str,
        text: String,
    ) -> PlaneResult<T> {
        Ok(self.send(action, Ok(ApiRequest::put(&[route], "application/toml", text))).await?.1)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        action: &str,
        request: Result<ApiRequest, StoreError>,
    ) -> PlaneResult<(u16, T)> {
        let request = request.map_err(|failure| self.no_response_error(action, &failure))?;
        let read = request.is_read_only();
        let within = if read { self.timeout } else { self.timeout + DAEMON_WRITE_ALLOWANCE };
        let answer = run_until(&BootClock, BootClock.now() + within, self.daemon.send(&request)).await;
        let answer = answer.unwrap_or_else(|| {
            let mut late =
                StoreError::unknown(StoreErrorKind::TimedOut, format!("no answer in {}", human(within)));
            // A read changes nothing, so a timeout leaves nothing unknown.
            late.unknown = !read;
            Err(late)
        });
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(problem)) => Err(self.refusal_error(action, &request, &problem)),
            Err(failure) => Err(self.no_response_error(action, &failure)),
        }
    }

    /// Converts a daemon's refusal to an error with advice.
    fn refusal_error(&self, action: &str, request: &ApiRequest, problem: &Problem) -> RequestError {
        let (url, detail) = (&self.url, first_line(&problem.detail));
        // The gate's refusal names the right but not the scope; the route table knows both. A right that
        // the request needs besides is in the refusal.
        let grant = || {
            if let Some(grant) = &problem.grant {
                return first_line(grant);
            }
            let path: Vec<_> = request.path().iter().map(String::as_str).collect();
            let grant = leasehold_server::required_grant(request.method(), &path, request.body());
            grant.unwrap_or_else(|| "admin:*".to_owned())
        };
        RequestError::Failed(match (problem.status, problem.error_code()) {
            (_, Some(ErrorCode::NoPlane)) => anyhow!(
                "cannot {action}: the daemon at {url} serves no control plane\n\
                 start it as `leasehold serve --plane` (or `leasehold dev`), or name the store of the jobs with --store"
            ),
            (401, _) => {
                let grant = grant();
                let (right, scope) = grant.split_once(':').unwrap_or((&grant, "*"));
                anyhow!(
                    "cannot {action}: the daemon at {url} does not know you: {detail}\n\
                     it takes an API token with the right {right} on {scope}: put it into a file that only you can read, and \
                     add ?token_file=FILE to the URL"
                )
            }
            (403, Some(ErrorCode::SelfApproval)) => {
                return RequestError::Refused { code: problem.code.clone(), detail };
            }
            (403, _) => {
                let grant = grant();
                let (right, scope) = grant.split_once(':').unwrap_or((&grant, "*"));
                anyhow!(
                    "cannot {action}: the daemon at {url} refuses: {detail}\n\
                     it takes the right {right} on {scope}: ask for a token with `--grant {}`",
                    quote(&grant)
                )
            }
            // A limit of the daemon and no refusal of this request: exit code 2 instead of 1.
            (
                _,
                Some(
                    ErrorCode::RateLimited
                    | ErrorCode::TooManyBodies
                    | ErrorCode::TooManyResponses
                    | ErrorCode::TooManyWaiters,
                ),
            ) => {
                anyhow!("cannot {action}: the daemon at {url} refuses: {detail}")
            }
            (status, _) if is_refusal(status) => {
                return RequestError::Refused { code: problem.code.clone(), detail };
            }
            // The detail is the same text as the local check of the input.
            (400 | 413 | 422, _) => anyhow!("{detail}"),
            (_, _) => anyhow!(
                "cannot {action}: the daemon at {url} answered: {detail}\n\
                 the daemon is there, but what is behind it fails: `leasehold doctor` with the same --store looks closer"
            ),
        })
    }

    fn no_response_error(&self, action: &str, failure: &StoreError) -> RequestError {
        let advice = retry_advice(failure.unknown);
        RequestError::Failed(anyhow!("cannot {action} at {}: {failure}\n{advice}", self.url))
    }
}

/// The first line of a daemon's text. What prints it escapes the rest.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
