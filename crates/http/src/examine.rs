//! What can be wrong with a daemon for locks, as far as its client can see. Nothing is written.
//!
//! What is wrong with the daemon's own store is seen best where the daemon runs; what it promises is asked here.

use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, until};
use leasehold_core::store::{Cause, Examination, Failure, Finding, Promised};

use crate::connection::Connections;
use crate::options::HttpOptions;
use crate::parts::Parts;
use crate::promise;

/// How often the way there and back is measured.
const QUESTIONS: usize = 5;

/// Examines a daemon.
///
/// # Errors
/// It could not be reached or does not answer. A daemon that refuses us is a finding.
pub async fn examine(options: &HttpOptions, within: Duration) -> Result<Examination, Failure> {
    let mut out = Examination::default();
    out.fact("daemon", options.describe());
    if !options.tls && !loopback(&options.host) {
        out.found(Finding::breaks(
            "http.plain",
            format!(
                "{} is reached without TLS: whoever is on the way can read tokens and end locks",
                options.describe()
            ),
            "serve it with TLS and write https://, or reach it through a tunnel on this host",
        ));
    }
    let connections = Connections::new(options.clone(), Parts::default())?;
    let end = BootClock.now() + within;
    let mut took = Vec::with_capacity(QUESTIONS);
    let mut promised: Option<Promised> = None;
    for _ in 0..QUESTIONS {
        let before = BootClock.now();
        let answer = until(&BootClock, end, promise::promise(&connections)).await;
        match answer {
            Some(Ok(answer)) => promised = Some(answer),
            Some(Err(failure)) if failure.cause == Cause::Denied => {
                out.found(Finding::breaks(
                    "http.access",
                    format!("the daemon refuses us: {}", failure.message()),
                    "name the API token's file with ?token_file=, and give its role the namespace",
                ));
                return Ok(out);
            }
            Some(Err(failure)) => return Err(failure),
            None => {
                let why = format!("{} did not answer in time", options.describe());
                return Err(Failure::not_done(Cause::TimedOut, why));
            }
        }
        took.push(BootClock.now().since(before));
    }
    took.sort_unstable();
    out.round_trip = took.get(took.len() / 2).copied();
    for reason in promised.iter().flat_map(|promised| &promised.because) {
        out.found(Finding::note(
            "http.store",
            format!("the daemon's store: {reason}"),
            "run `leasehold doctor` with the daemon's store where the daemon runs",
        ));
    }
    out.promised = promised;
    out.sort();
    Ok(out)
}

fn loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::loopback;

    #[test]
    fn only_this_host_needs_no_tls() {
        assert!(loopback("127.0.0.1") && loopback("::1") && loopback("localhost") && loopback("127.9.9.9"));
        assert!(!loopback("10.0.0.1") && !loopback("db.example") && !loopback("localhost.evil.example"));
    }
}
