//! The memory store passes every case, under virtual time.

use crate::fixture::Memory;

leasehold_conformance::suite! {
    time: Virtual,
    fixture: Memory::fresh(),
    skips: ["crossprocess::*"],
}
