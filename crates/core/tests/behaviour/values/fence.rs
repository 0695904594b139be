use leasehold_core::Fence;

#[test]
fn bounds_are_those_of_a_double() {
    assert_eq!(Fence::new(0), None);
    assert_eq!(Fence::new((1 << 53) - 1), Some(Fence::MAX));
    assert_eq!(Fence::new(1 << 53), None);
    assert_eq!(Fence::new(u64::MAX), None);
}

#[test]
fn has_one_spelling() {
    assert_eq!("42".parse::<Fence>().unwrap().get(), 42);
    for bad in ["", "0", "-1", "+1", "007", "1.0", "1e3", "9007199254740992", "9223372036854775807"] {
        assert!(bad.parse::<Fence>().is_err(), "{bad}");
    }
}
