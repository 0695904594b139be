//! What happened in a drill, as one JSON line per record.
//!
//! Three parties write one history. Workers record their requests, beliefs and writes. The core's
//! event stream is recorded by [`HistoryObserver`]. The director of the drill records faults, the
//! target's applied writes and the leases it found. The [`oracle`](crate::oracle) reads nothing else.
//!
//! Times are nanoseconds of the host's `CLOCK_BOOTTIME`, which all processes of a host share. So a
//! history must come from one host between two boots; no other can be judged.

mod observer;
mod reader;
mod record;
mod writer;

pub use observer::{HistoryObserver, to_client_event};
pub use reader::{DamagedLine, History, MAX_LINE_BYTES, MAX_RECORDS, read};
pub use record::{
    ClientEvent, HistoryEntry, HistoryRecord, RecordedOutcome, RecordedRelease, StoreExecution, StoreVerb,
    StoredLease, UNATTENDED, WriteOutcome,
};
pub use writer::{HistorySink, HistoryWriter};
