use leasehold_core::store::redact;

#[test]
fn secrets_are_not_repeated() {
    for (url, shown) in [
        ("redis://u:hunter2@h:1/2?prefix=a:", "redis://u:***@h:1/2?prefix=a:"),
        ("redis://:hun@ter2@h", "redis://:***@h"),
        ("redis://h?password=hunter2&x=1", "redis://h?password=***&x=1"),
        ("redis://h?password_file=/run/x", "redis://h?password_file=/run/x"),
        ("redis://app@h", "redis://app@h"),
        ("sqlite:/a@b", "sqlite:/a@b"),
        ("redis://u:hun?ter2@h", "redis://***"),
        ("h?password=hunter2&x://u:x@h", "***"),
        ("u:hunter2@h?next=redis://3", "***"),
        ("redis://u:12/hunter2@h", "redis://***"),
        ("redis://u:#hunter2@h", "redis://***"),
        ("redis://h:1?password=a&x=u:hunter2@h", "redis://***"),
        ("redis:u:hunter2@h", "***"),
        ("redis:/u:hunter2@h", "***"),
        ("u:hunter2@h", "***"),
        ("sqlite:/a:b@c", "sqlite:/a:b@c"),
    ] {
        assert_eq!(redact(url), shown);
    }
}
