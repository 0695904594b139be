//! The bucket bounds of the histograms.

// From a fast store's round trip (0.5 ms) to the longest common lease (1 h).
const SECONDS_BOUNDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0,
];
// A renewal every third of the TTL leaves about 0.66 of the lease. The interesting values are below
// that.
const RATIO_BOUNDS: &[f64] =
    &[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0];
const ATTEMPTS_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

/// The upper bounds for a metric, chosen by the suffix of its name.
pub(crate) fn bounds_for(name: &str) -> &'static [f64] {
    if name.ends_with("_ratio") {
        RATIO_BOUNDS
    } else if name.ends_with("_attempts") {
        ATTEMPTS_BOUNDS
    } else {
        SECONDS_BOUNDS
    }
}
