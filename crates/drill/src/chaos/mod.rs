//! Random faults chosen by seed: hundreds of short drills, and soaks of hours.
//!
//! | file | contents |
//! |---|---|
//! | `fault` | the list of faults, and the stores they apply to |
//! | `inject` | injects and repairs each fault |
//! | `worker_pool` | workers that are restarted after a kill, and the choice of a victim |
//! | `short_drill` | one short drill: its own store, two workers, one fault, a verdict |
//! | `batch` | many short drills, several at a time |
//! | `fence_growth` | checks that fences grow from window to window of a soak |
//! | `soak` | one store for a long time, a fault every few seconds, judged window by window |
//!
//! The same seed chooses the same store, class, fault and delays. Timing on the host is real and
//! differs from run to run, so a seed does not reproduce a violation. The history of a violation is
//! kept and can be judged again.

mod batch;
mod fault;
mod fence_growth;
mod inject;
mod short_drill;
mod soak;
mod worker_pool;

pub use batch::{BatchTotals, run_batch};
pub use fault::Fault;
pub use short_drill::{ShortDrillResult, run_short_drill};
pub use soak::{SoakPlan, SoakTotals, SoakWindow, run_soak};

use std::time::Duration;

/// The policies of the short drills: the rules of the built-in classes, with the shortest times
/// that a busy host can keep.
pub const POLICIES: &str = include_str!("policies.toml");

// The `ttl` of every class in `POLICIES`.
const CHAOS_TTL: Duration = Duration::from_millis(800);

// Strict classes are drawn more often than `workflow`, which may work without a lease.
const DRAWN_CLASSES: &[&str] = &["scheduler", "scheduler", "workflow-critical", "approval", "workflow"];
