use leasehold_core::Name;

#[test]
fn takes_what_operators_type() {
    for good in ["a", "job:42", "res:tenant-1:gpu/0", "überweisung", "a|b", &"x".repeat(512)] {
        assert_eq!(Name::new(good).unwrap().as_str(), good);
    }
}

#[test]
fn refuses_with_the_reason() {
    for (bad, why) in [
        ("", "empty"),
        ("a b", "' '"),
        ("a\nb", "'\\n'"),
        ("a{b", "'{'"),
        ("a}b", "'}'"),
        ("a\u{200b}b", "200b"),
        ("a\u{7f}", "7f"),
    ] {
        let message = Name::new(bad).unwrap_err().to_string();
        assert!(message.starts_with("name ") && message.contains(why), "{bad:?}: {message}");
    }
    assert!(Name::new(&"x".repeat(513)).unwrap_err().to_string().contains("513 bytes"));
}

#[test]
fn namespace_is_the_first_segment() {
    assert_eq!(Name::new("job:42").unwrap().namespace(), "job");
    assert_eq!(Name::new("demo").unwrap().namespace(), "default");
    assert_eq!(Name::new(":x").unwrap().namespace(), "default");
}
