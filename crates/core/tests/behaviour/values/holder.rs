use leasehold_core::Holder;

#[test]
fn default_is_valid_by_its_own_rule() {
    let me = Holder::of_this_process();
    assert_eq!(Holder::new(me.as_str()).unwrap(), me);
    assert!(me.as_str().ends_with(&format!(":{}", std::process::id())));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let first_label: String = host.chars().take_while(char::is_ascii_alphanumeric).collect();
    assert!(me.as_str().starts_with(&first_label), "{me} on {host}");
}

#[test]
fn refuses_what_would_split_a_token() {
    for bad in ["", "a|b", "a b", "a{", &"x".repeat(129)] {
        assert!(Holder::new(bad).is_err(), "{bad:?}");
    }
}
