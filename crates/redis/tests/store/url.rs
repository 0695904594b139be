//! URLs that are refused, and what the refusal says.

use leasehold_redis::RedisOptions;

fn parse_error_text(url: &str) -> String {
    RedisOptions::parse(url).unwrap_err().to_string()
}

#[test]
fn a_password_in_the_url_is_refused_and_not_repeated() {
    for url in [
        "redis://u:hunter2@h",
        "redis://:hunter2@h/",
        "redis://h?password=hunter2",
        "redis://u:@hunter2#x@h",
        "redis://u:@hunter2?prefix=@h:",
    ] {
        let message = parse_error_text(url);
        assert!(message.contains("password_file") && !message.contains("hunter2"), "{message}");
    }
    assert!(!parse_error_text("redis://u:12/hunter2@h").contains("hunter2"));
}

#[test]
fn refuses_with_advice() {
    for (url, advice) in [
        ("redis://h?wait_replica=1", "wait_replicas="),
        ("redis://h?passwordfile=x", "password_file="),
        ("http://h", "redis://"),
        ("redis://h/x", "/0"),
        ("redis://h?ca_file=/x", "rediss://"),
        ("redis://h?wait_replicas=-1", "number"),
        ("redis://h?map=job:", "map=names:=keys:"),
        ("redis://h?prefix=lh1:", "reserved"),
        ("nonsense", "not a URL"),
    ] {
        let message = parse_error_text(url);
        assert!(message.contains(advice), "{url}: {message}");
    }
}
