//! Durations: what is read prints so that it reads back, in all three printed forms.
#![no_main]

use std::time::Duration;

use leasehold_core::policy::duration::{decimal, exact, human, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(read) = parse(text) else { return };
    assert!(text.trim().parse::<f64>().is_err(), "a number without a unit was taken: {text:?}");
    assert_eq!(parse(&exact(read)), Ok(read), "exact");
    assert_eq!(parse(&decimal(read)), Ok(read), "decimal");
    // Rounded to half its grain. Beyond 584 years nothing is rounded and nothing can be.
    let rounded = parse(&human(read)).expect("human reads back");
    let grain = if read >= Duration::from_secs(1) { 1_000_000 } else { 1_000 };
    assert!(rounded.abs_diff(read) <= Duration::from_nanos(grain / 2), "{read:?} became {rounded:?}");
});
