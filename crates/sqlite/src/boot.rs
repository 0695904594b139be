//! Which boot this is. Moments of the boot clock mean nothing after a restart of the machine, so every lease
//! in the file belongs to the boot that granted it.

use std::fs;

use leasehold_core::store::{Cause, Failure};

/// The kernel's random id of this boot; containers on one host share it, as they share its clock.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where a time namespace shows by how much it shifts the boot clock of its processes.
const TIME_NAMESPACE: &str = "/proc/self/timens_offsets";

/// Reads the boot id, and makes sure that this process sees the same boot clock as every other on the host.
pub(crate) fn read() -> Result<String, Failure> {
    let id = fs::read_to_string(BOOT_ID).map_err(|error| {
        Failure::not_done(
            Cause::Misconfigured,
            format!("cannot read {BOOT_ID}, by which leases of an earlier boot are told from live ones: mount /proc"),
        )
        .with_source(error)
    })?;
    // Kernels without time namespaces have no such file; then there is nothing to shift either.
    let offsets = fs::read_to_string(TIME_NAMESPACE).unwrap_or_default();
    if shifts_boot_clock(&offsets) {
        return Err(Failure::not_done(
            Cause::Misconfigured,
            "this process runs in a time namespace that shifts the boot clock, so its leases cannot be compared \
             with those of other processes: run it without one",
        ));
    }
    Ok(id.trim().to_owned())
}

fn shifts_boot_clock(offsets: &str) -> bool {
    offsets
        .lines()
        .map(str::split_whitespace)
        .any(|mut words| words.next() == Some("boottime") && words.any(|word| word != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_its_boot() {
        assert_eq!(read().unwrap().len(), 36);
        assert_eq!(read().unwrap(), read().unwrap());
    }

    #[test]
    fn a_shifted_boot_clock_is_seen() {
        assert!(!shifts_boot_clock(""));
        assert!(!shifts_boot_clock(
            "monotonic           0         0\nboottime            0         0\n"
        ));
        assert!(!shifts_boot_clock(
            "monotonic          60         0\nboottime            0         0\n"
        ));
        assert!(shifts_boot_clock(
            "monotonic           0         0\nboottime         3600         0\n"
        ));
        assert!(shifts_boot_clock(
            "monotonic           0         0\nboottime            0        17\n"
        ));
    }
}
