//! A control plane at its store.

use std::future::Future;

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold_plane::{Plane, PlaneError};

use super::client::{PlaneResult, RequestError, is_refusal, retry_advice};

/// An open plane, with the URLs of its stores for error messages.
#[derive(Debug)]
pub(crate) struct StorePlane {
    pub(super) plane: Plane,
    pub(super) jobs: StoreUrl,
    pub(super) locks: StoreUrl,
}

impl StorePlane {
    /// Waits for a call of the plane. `action` names it in an error.
    pub(super) async fn answer<T>(
        &self,
        action: &str,
        call: impl Future<Output = Result<T, PlaneError>>,
    ) -> PlaneResult<T> {
        call.await.map_err(|error| self.request_error(action, error))
    }

    fn request_error(&self, action: &str, error: PlaneError) -> RequestError {
        if is_refusal(error.code().status()) {
            let (code, detail) = (error.code().as_str().to_owned(), error.to_string());
            return RequestError::Refused { code, detail };
        }
        RequestError::Failed(match error {
            PlaneError::Invalid(invalid) => invalid.into(),
            PlaneError::Store(failure) => {
                anyhow!("cannot {action} at {}: {failure}\n{}", self.jobs, retry_advice(failure.unknown))
            }
            // The work starts only under the lock, so without it nothing was changed.
            PlaneError::Lock(error) => {
                anyhow!("cannot {action} at {}: {error}\n{}", self.locks, retry_advice(false))
            }
            other => anyhow!("cannot {action}: {other}\n{}", retry_advice(true)),
        })
    }
}
