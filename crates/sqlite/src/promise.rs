//! What a file, at its place and with its options, promises about an acknowledged lease.

use leasehold_core::store::{Promise, PromiseReport};

use crate::filesystem::Filesystem;
use crate::options::Durability;

pub(crate) fn report(filesystem: Filesystem, durability: Durability) -> PromiseReport {
    let mut limits = vec![
        "there is one copy, on one host's disk: use a consensus store if leases must outlive the host"
            .to_owned(),
    ];
    if filesystem == Filesystem::Memory {
        limits.push(
            "the file is in memory and a reboot takes its fence counters away: put it on a disk unless the \
             wall clock can be trusted to go on"
                .to_owned(),
        );
    } else if durability == Durability::Normal {
        limits.push(
            "after a power cut, fences go on growing only if the wall clock does: choose durability `full` if \
             it may come back wrong"
                .to_owned(),
        );
    }
    PromiseReport::new(Promise::Durable).with_limits(limits)
}
