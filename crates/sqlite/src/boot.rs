//! The id of the current boot. Boot-clock times mean nothing after a restart of the machine, so
//! every lease in the file belongs to the boot that granted it.

use std::fs;

use leasehold_core::store::{StoreError, StoreErrorKind};

/// The kernel's random id of this boot. Containers on one host share it, as
/// they share the boot clock.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Shows by how much a time namespace shifts the boot clock of its processes.
const TIME_NAMESPACE_PATH: &str = "/proc/self/timens_offsets";

/// Reads the boot id and checks that this process sees the same boot clock as the rest of the host.
pub(crate) fn read_boot_id() -> Result<String, StoreError> {
    let id = fs::read_to_string(BOOT_ID_PATH).map_err(|error| {
        StoreError::not_done(
            StoreErrorKind::Misconfigured,
            format!(
                "cannot read {BOOT_ID_PATH}, which tells leases of an earlier boot from live ones: \
                 mount /proc, and in a systemd unit set ProcSubset=all"
            ),
        )
        .with_source(error)
    })?;
    // Kernels without time namespaces have no such file, and no shifted clocks either.
    let offsets = fs::read_to_string(TIME_NAMESPACE_PATH).unwrap_or_default();
    if shifts_boot_clock(&offsets) {
        return Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
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
    fn boot_id_is_stable() {
        assert_eq!(read_boot_id().unwrap().len(), 36);
        assert_eq!(read_boot_id().unwrap(), read_boot_id().unwrap());
    }

    #[test]
    fn shifted_boot_clock_is_detected() {
        assert!(!shifts_boot_clock(""));
        assert!(!shifts_boot_clock("monotonic           0         0\nboottime            0         0\n"));
        assert!(!shifts_boot_clock("monotonic          60         0\nboottime            0         0\n"));
        assert!(shifts_boot_clock("monotonic           0         0\nboottime         3600         0\n"));
        assert!(shifts_boot_clock("monotonic           0         0\nboottime            0        17\n"));
    }
}
