//! What happened in a drill, as one JSON line per record: who asked, when it was sent, when it was answered or that it
//! never was, with which fence, and what the target of the writes said.
//!
//! Three parties write one history: the workers (what they asked, believed and did), the core's event stream (through
//! [`Tap`], an observer), and the director of the drill (faults, the target's ledger, leases it saw). The checker in
//! [`oracle`](crate::oracle) reads nothing else.
//!
//! Times are nanoseconds on the host's `CLOCK_BOOTTIME`, which all processes of one host share: a history is made on one
//! host between two boots, and only such histories can be judged.

mod reader;
mod record;
mod tap;
mod writer;

pub use reader::{Damage, History, MOST_LINE, MOST_RECORDS, read};
pub use record::{Answer, Entry, Record, Transition, UNATTENDED, Wrote};
pub use tap::Tap;
#[cfg(feature = "drills")]
pub(crate) use tap::transition;
pub use writer::{Pen, Sink};
