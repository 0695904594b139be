//! How long should a lease live? Computed from what was measured, not guessed.
//!
//! [`source`] reads recorded data (a file of durations, a daemon's history, Prometheus text) into [`Evidence`]: how long
//! locks were held, how long the store took to answer, how long processes stalled. [`Advice`] turns that into a TTL, a
//! renewal interval, a margin and a takeover bound, and says when a takeover target cannot be met and which lever is
//! left; [`Forecast`] says what any other TTL would do. [`change`] writes it down as a change of the policy file,
//! [`plot`] draws it.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_advise::{Advice, Evidence, Wishes};
//!
//! // 18 s of work at the 99th percentile, 4 s of jitter, 2 s of guard: 24 s, renewed every 8 s.
//! let second = Duration::from_secs(1);
//! let evidence = Evidence::of_held((0..1000).map(|_| second * 18));
//! let wishes = Wishes { jitter: Some(second * 4), guard: Some(second * 2), ..Wishes::default() };
//! let advice = Advice::from(&evidence, &wishes).unwrap();
//! assert_eq!(advice.covering.ttl, second * 24);
//! assert_eq!(advice.covering.every, second * 8);
//! ```
//!
//! **Not promised**: that tomorrow is like the recorded data. What is advised is checked like any policy when it is
//! loaded, and a drill shows how it holds.

mod advice;
pub mod change;
mod evidence;
mod forecast;
pub mod plot;
mod sample;
pub mod source;

pub use advice::{Advice, Lever, NoAdvice, Plan, Slo, Wishes};
pub use evidence::{Evidence, TooLittle};
pub use forecast::{FalseLoss, Forecast};
pub use sample::{Beyond, Sample};
