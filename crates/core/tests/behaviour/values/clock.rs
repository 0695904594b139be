use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, Moment};

#[test]
fn moments_never_wrap() {
    assert_eq!(Moment::FAR + Duration::from_secs(1), Moment::FAR);
    assert_eq!(Moment::ZERO - Duration::from_secs(1), Moment::ZERO);
    assert_eq!(Moment::ZERO.since(Moment::FAR), Duration::ZERO);
    assert_eq!(format!("{:?} {:?}", Moment::from_nanos(1_500_000_000), Moment::FAR), "1.5s far");
}

#[test]
fn trap_23_the_boot_clock_counts_from_the_boot_and_not_from_1970() {
    // The kernel reports the same clock here, in seconds, in every time namespace.
    let uptime = || {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (before, now, after) = (uptime(), BootClock.now().since(Moment::ZERO), uptime());
    // `/proc/uptime` truncates to hundredths.
    assert!(
        (before..=after + 0.02).contains(&now.as_secs_f64()),
        "{now:?} is not between {before} and {after}"
    );
}

#[test]
fn boot_clock_does_not_go_back() {
    let first = BootClock.now();
    assert!(BootClock.now() >= first);
}
