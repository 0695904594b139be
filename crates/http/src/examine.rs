//! Examines a daemon from its client's side. Nothing is written.
//!
//! Problems of the daemon's own store are best examined where the daemon runs; only its promise is
//! checked here.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use leasehold_core::store::{Examination, Finding, PromiseReport, StoreError, StoreErrorKind};
use leasehold_core::url_options::is_loopback_host;

use crate::connection::Connections;
use crate::environment::Environment;
use crate::options::HttpOptions;
use crate::promise;

// The median of a few round trips ignores the first, which includes connecting.
const ROUND_TRIP_SAMPLES: usize = 5;

/// Examines a daemon: TLS, access, promise and round trip.
///
/// # Errors
/// The daemon cannot be reached or does not answer. A daemon that denies access is a finding, not
/// an error.
pub async fn examine(options: &HttpOptions, within: Duration) -> Result<Examination, StoreError> {
    let mut out = Examination::default();
    out.add_fact("daemon", options.describe());
    if !options.tls && !is_loopback_host(&options.host) {
        out.add_finding(Finding::breaks(
            "http.plain",
            format!(
                "{} is reached without TLS: anyone on the network path can read tokens and end locks",
                options.describe()
            ),
            "serve it with TLS and write https://, or reach it through a tunnel on this host",
        ));
    }
    let connections = Connections::new(options.clone(), Environment::default())?;
    let end = BootClock.now() + within;
    let mut took = Vec::with_capacity(ROUND_TRIP_SAMPLES);
    let mut promised: Option<PromiseReport> = None;
    for _ in 0..ROUND_TRIP_SAMPLES {
        let before = BootClock.now();
        let answer = run_until(&BootClock, end, promise::promise(&connections)).await;
        match answer {
            Some(Ok(answer)) => promised = Some(answer),
            Some(Err(failure)) if failure.kind == StoreErrorKind::Denied => {
                out.add_finding(Finding::breaks(
                    "http.access",
                    format!("the daemon refuses us: {}", failure.message()),
                    "name the API token's file with ?token_file=, and give its grants the namespace",
                ));
                return Ok(out);
            }
            Some(Err(failure)) => return Err(failure),
            None => {
                let why = format!("{} did not answer in time", options.describe());
                return Err(StoreError::not_done(StoreErrorKind::TimedOut, why));
            }
        }
        took.push(BootClock.now().since(before));
    }
    took.sort_unstable();
    out.round_trip = took.get(took.len() / 2).copied();
    for reason in promised.iter().flat_map(|promised| &promised.limits) {
        out.add_finding(Finding::note(
            "http.store",
            format!("the daemon's store: {reason}"),
            "run `leasehold doctor` with the daemon's store where the daemon runs",
        ));
    }
    out.promised = promised;
    out.sort_findings();
    Ok(out)
}
