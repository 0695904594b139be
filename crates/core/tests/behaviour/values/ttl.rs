use std::time::Duration;

use leasehold_core::Ttl;

#[test]
fn bounds() {
    for (millis, fits) in [
        (0, false),
        (99, false),
        (100, true),
        (86_400_000, true),
        (86_400_001, false),
        // Truncated to 32 bits, these values would be in range.
        ((1 << 32) + 1_000, false),
        ((1 << 40) + 1_000, false),
        (u64::MAX, false),
    ] {
        assert_eq!(Ttl::new(Duration::from_millis(millis)).is_ok(), fits, "{millis}");
    }
    assert!(Ttl::new(Duration::MAX).is_err());
}
