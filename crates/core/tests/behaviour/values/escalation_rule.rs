use std::time::Duration;

use leasehold_core::policy::{Action, Rule, Signal};

#[test]
fn parses_the_example_rule_and_prints_it_back() {
    let text = "fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed";
    let rule: Rule = text.parse().unwrap();
    assert_eq!(rule.signal, Signal::Fallback);
    assert!((rule.above - 0.1).abs() < 1e-12);
    assert_eq!(rule.window, Duration::from_secs(300));
    assert_eq!(rule.rising, Some(Signal::Duplicates));
    assert_eq!(rule.action, Action::FailClosed);
    assert_eq!(rule.to_string(), text);
    for signal in Signal::ALL {
        let text = format!("{} rate > 6/m for 1m30s -> fence", signal.as_str());
        let rule: Rule = text.parse().unwrap();
        assert!((rule.above - 0.1).abs() < 1e-12);
        assert_eq!(rule.to_string(), text);
    }
}

#[test]
fn says_what_is_wrong() {
    for (text, why) in [
        ("fallback rate > 0.1/s for 5m", "no action"),
        ("fallback rate > 0.1/s for 5m -> panic", "-> panic"),
        ("fallbak rate > 0.1/s for 5m -> fence", "did you mean `fallback`?"),
        ("fallback > 0.1/s for 5m -> fence", "SIGNAL rate"),
        ("fallback rate < 0.1/s for 5m -> fence", "only `rate > NUMBER/s`"),
        ("fallback rate > 0.1 for 5m -> fence", "rate `0.1`"),
        ("fallback rate > 0/s for 5m -> fence", "above 0"),
        ("fallback rate > NaN/s for 5m -> fence", "above 0"),
        ("fallback rate > 0.1/s -> fence", "for how long"),
        ("fallback rate > 0.1/s for 5 -> fence", "no unit"),
        ("fallback rate > 0.1/s for 25h -> fence", "from 1s to 24h"),
        ("fallback rate > 1/s for 5m and duplicates falling -> fence", "only `and SIGNAL rising`"),
        ("fallback rate > 1/s for 5m and duplicates rising and abandoned rising -> fence", "more than one"),
    ] {
        let message = text.parse::<Rule>().unwrap_err();
        assert!(message.contains(why), "{text}: {message}");
    }
}
