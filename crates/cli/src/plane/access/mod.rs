//! Access to a control plane: through its store, or through a daemon that serves it.
//!
//! Both give the same responses to the same requests, so the verbs do not distinguish them.

mod through_daemon;
mod through_store;

use anyhow::{Context, bail};
use serde_json::Value;

use super::PlaneStoreArg;
use super::request::PlaneRequest;
use crate::config::Settings;
use crate::daemon;
use crate::message::print_message;

/// An open control plane.
#[derive(Debug)]
pub(crate) enum PlaneAccess {
    Store(through_store::StoreAccess),
    Daemon(Box<through_daemon::DaemonAccess>),
}

/// The plane's response to a request.
#[derive(Debug)]
pub(crate) struct PlaneResponse {
    /// The JSON document of the job, run or list.
    pub(crate) view: Value,
    /// Whether the request took effect now, earlier, or not yet.
    pub(crate) effect: EffectTime,
}

/// When the effect of a request took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffectTime {
    /// By this request.
    Now,
    /// By an earlier request with the same id or key.
    Earlier,
    /// Not yet: the owner of the job was asked to stop.
    Later,
}

impl EffectTime {
    fn from_repeated(repeated: bool) -> Self {
        if repeated { Self::Earlier } else { Self::Now }
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The plane refused the request; exit code 1.
    Refused { code: String, detail: String },
    /// The plane could not be reached, or the request is invalid; exit code 2.
    Failed(anyhow::Error),
}

/// Statuses that refuse what was requested, in contrast to a malformed or unauthorized request.
fn is_refusal(status: u16) -> bool {
    // 429 is the admission limit of an organisation; rate limits of a daemon are errors.
    matches!(status, 404 | 409 | 412 | 429)
}

/// Advice for a request without a response. `unknown`: it may have been executed.
fn retry_advice(unknown: bool) -> &'static str {
    if unknown {
        "check whether it was executed before you repeat it; with the same --id or --key, repeating it is harmless"
    } else {
        "start it, or check the network to it, and retry; `leasehold doctor` with the same --store shows more"
    }
}

impl PlaneAccess {
    pub(crate) async fn request(&self, question: &PlaneRequest) -> Result<PlaneResponse, RequestError> {
        match self {
            Self::Store(kept) => kept.request(question).await,
            Self::Daemon(served) => served.request(question).await,
        }
    }
}

impl PlaneStoreArg {
    /// Sends one request. `None` if the plane refuses it; the refusal was printed.
    pub(crate) fn request(
        &self,
        settings: &Settings,
        question: &PlaneRequest,
    ) -> anyhow::Result<Option<PlaneResponse>> {
        self.with_access(settings, async |way| way.request(question).await)
    }

    /// Opens the plane and passes it to `work`, which may send several requests.
    pub(crate) fn with_access<T>(
        &self,
        settings: &Settings,
        work: impl AsyncFnOnce(PlaneAccess) -> Result<T, RequestError>,
    ) -> anyhow::Result<Option<T>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            match work(self.open_access(settings).await?).await {
                Ok(answer) => Ok(Some(answer)),
                Err(RequestError::Refused { code, detail }) => {
                    print_message(&format!("{code}: {detail}"));
                    Ok(None)
                }
                Err(RequestError::Failed(error)) => Err(error),
            }
        })
    }

    async fn open_access(&self, settings: &Settings) -> anyhow::Result<PlaneAccess> {
        let url = settings.store_url()?;
        let Some(daemon) = daemon::open_client(&url)? else {
            let kept = self.plane_url(&url)?;
            if kept.daemon_url().is_some() {
                bail!(
                    "--plane-store (LEASEHOLD_PLANE_STORE) names a daemon, {kept}; jobs are kept in a store\n\
                     to ask a daemon about its jobs, name it with --store {kept}"
                );
            }
            let plane = self.open(settings).await?;
            return Ok(PlaneAccess::Store(through_store::StoreAccess { plane, jobs: kept, locks: url }));
        };
        if self.configured().is_some() {
            bail!(
                "--plane-store (LEASEHOLD_PLANE_STORE) does not go with a daemon: {url} says itself where its jobs are\n\
                 leave it out, or name the store of the locks with --store instead of the daemon"
            );
        }
        Ok(PlaneAccess::Daemon(Box::new(through_daemon::DaemonAccess::open(daemon, url, settings)?)))
    }
}
