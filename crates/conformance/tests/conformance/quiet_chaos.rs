//! A fault injector without orders is invisible.

use leasehold_core::adapter::Chaos;

use crate::fixture::Memory;

leasehold_conformance::suite! {
    time: Virtual,
    fixture: Memory::behind(|store, clock| Chaos::new(store, clock).store()),
    skips: ["crossprocess::*"],
}
