//! A fault injector without configured faults changes nothing.

use leasehold_core::adapter::FaultyStore;

use crate::fixture::Memory;

leasehold_conformance::suite! {
    time: Virtual,
    fixture: Memory::behind(|store, clock| FaultyStore::new(store, clock).store()),
    skips: ["crossprocess::*"],
}
