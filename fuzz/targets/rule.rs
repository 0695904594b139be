//! Escalation rules: within their bounds, and what is printed is the same rule.
#![no_main]

use std::time::Duration;

use leasehold_core::policy::Rule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(rule) = text.parse::<Rule>() else { return };
    assert!(rule.above > 0.0 && rule.above <= 1e6, "{rule:?}");
    let day = Duration::from_secs(24 * 60 * 60);
    assert!((Duration::from_secs(1)..=day).contains(&rule.window), "{rule:?}");
    let printed = rule.to_string();
    // Overrides separate rules by `;`, and files quote them.
    assert!(!printed.contains([';', '"', '\\']) && !printed.chars().any(char::is_control));
    assert_eq!(printed.parse::<Rule>().as_ref(), Ok(&rule), "{printed}");
});
