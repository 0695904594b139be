use leasehold_core::Holder;

#[test]
fn default_is_valid_by_its_own_rule() {
    let me = Holder::of_this_process();
    assert_eq!(Holder::new(me.as_str()).unwrap(), me);
    assert!(me.as_str().ends_with(&format!(":{}", std::process::id())));
}

#[test]
fn refuses_what_would_split_a_token() {
    for bad in ["", "a|b", "a b", "a{", &"x".repeat(129)] {
        assert!(Holder::new(bad).is_err(), "{bad:?}");
    }
}
