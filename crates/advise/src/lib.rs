//! Computes a lease's TTL and renewal interval from recorded data.
//!
//! [`source`] reads recorded data into [`Evidence`]: how long locks were held, how long the store
//! took to answer, and how long processes stalled. [`Advice`] computes a TTL, a renewal interval, a
//! margin and a takeover bound from it. It also says whether a takeover target can be met, and how.
//! [`Forecast`] says what any other TTL would do.
//!
//! | module | contents |
//! |---|---|
//! | [`source`] | readers: a file of durations, a daemon's history, Prometheus text |
//! | `sample` | recorded durations with their counts, and quantiles |
//! | `evidence` | the samples of one class, and whether they are enough |
//! | `advice` | the computation of the TTL |
//! | `forecast` | false losses, coverage and load under a plan |
//! | [`change`] | the advice as a change of the policy file, and as a diff |
//! | [`plot`] | a histogram for the terminal and as SVG |
//!
//! Terms: see `docs/glossary.md`.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_advise::{Advice, Evidence, Requirements};
//!
//! // 18 s of work at the 99th percentile, 4 s of jitter, 2 s of guard: 24 s, renewed every 8 s.
//! let second = Duration::from_secs(1);
//! let evidence = Evidence::of_held((0..1000).map(|_| second * 18));
//! let requirements =
//!     Requirements { jitter: Some(second * 4), guard: Some(second * 2), ..Requirements::default() };
//! let advice = Advice::from(&evidence, &requirements).unwrap();
//! assert_eq!(advice.covering.ttl, second * 24);
//! assert_eq!(advice.covering.every, second * 8);
//! ```
//!
//! **Not promised**: that the future is like the recorded data. The policy loader checks the
//! advised values like any others, and a drill tests them.

mod advice;
pub mod change;
mod evidence;
mod forecast;
pub mod plot;
mod sample;
pub mod source;

pub use advice::{Advice, AdviceError, Plan, Requirements, Slo, SloRemedy};
pub use evidence::{Evidence, InsufficientData};
pub use forecast::{FalseLoss, Forecast};
pub use sample::{BeyondHistogram, Sample};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
