//! The text form of toxics converts both ways, and errors name the invalid attribute.

use std::time::Duration;

use leasehold_drill::proxy::{CutOptions, Error, RepeatOptions, StreamDirection, Toxic, ToxicKind};
use proptest::prelude::*;

use super::fixture::{echo_proxy, redis_proxy};

fn kinds() -> impl Strategy<Value = ToxicKind> {
    let millis = || (0u64..1_000_000).prop_map(Duration::from_millis);
    let command = || proptest::option::of("[A-Z]{1,10}");
    let times = || proptest::option::of(any::<u64>());
    prop_oneof![
        (millis(), millis()).prop_map(|(latency, jitter)| ToxicKind::Latency { latency, jitter }),
        (1u64..).prop_map(|rate| ToxicKind::Bandwidth { rate }),
        millis().prop_map(|delay| ToxicKind::SlowClose { delay }),
        millis().prop_map(|timeout| ToxicKind::Timeout { timeout }),
        millis().prop_map(|timeout| ToxicKind::ResetPeer { timeout }),
        any::<u64>().prop_map(|bytes| ToxicKind::LimitData { bytes }),
        (any::<u64>(), any::<u64>(), millis()).prop_map(|(average_size, size_variation, delay)| {
            ToxicKind::Slicer { average_size, size_variation, delay }
        }),
        (command(), times(), times(), any::<bool>()).prop_map(|(command, bytes, times, reset)| {
            ToxicKind::CutAfterForward(CutOptions { command, bytes, times, reset })
        }),
        (command(), times()).prop_map(|(command, times)| ToxicKind::Repeat(RepeatOptions { command, times })),
    ]
}

proptest! {
    #[test]
    fn toxics_convert_to_text_and_back(kind in kinds(), up in any::<bool>(), toxicity in 0.0f64..=1.0, name in "[a-z]{1,8}") {
        let stream = if up { StreamDirection::Upstream } else { StreamDirection::Downstream };
        let toxic = Toxic::new(kind).with_direction(stream).with_toxicity(toxicity).with_name(name);
        prop_assert_eq!(toxic.to_string().parse::<Toxic>().unwrap(), toxic);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = text.parse::<Toxic>();
    }
}

#[test]
fn defaults_are_toxiproxys() {
    let toxic: Toxic = "latency latency=5".parse().unwrap();
    assert_eq!((toxic.name(), toxic.stream()), ("latency_downstream", StreamDirection::Downstream));
    let toxic: Toxic = "latency latency=5 stream=upstream".parse().unwrap();
    assert_eq!(toxic.name(), "latency_upstream");
    let toxic: Toxic = "repeat".parse().unwrap();
    assert_eq!(toxic.name(), "repeat_upstream");
}

#[test]
fn parse_errors_name_the_attribute() {
    for (text, field) in [
        ("latncy latency=5", "latncy"),
        ("", ""),
        ("latency", "latency"),
        ("latency latency=5s", "latency"),
        ("latency latency=5 jittr=1", "jittr"),
        ("latency latency=5 latency=6", "latency"),
        ("latency 5", "5"),
        ("latency latency=5 stream=sideways", "stream"),
        ("latency latency=5 toxicity=often", "toxicity"),
        ("cut_after_forward reset=maybe", "reset"),
    ] {
        match text.parse::<Toxic>() {
            Err(Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{text:?}"),
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let (_redis, proxy) = redis_proxy(1).await;
    for (text, field) in [
        ("bandwidth rate=0", "rate"),
        ("slicer average_size=0", "average_size"),
        ("slicer average_size=5 size_variation=5", "size_variation"),
        ("latency latency=1 toxicity=1.5", "toxicity"),
        ("latency latency=1 toxicity=NaN", "toxicity"),
        ("repeat stream=downstream", "stream"),
        ("cut_after_forward command=SET bytes=5", "bytes"),
        ("repeat command=", "command"),
        ("latency latency=1 name=a/b", "name"),
    ] {
        match proxy.add(text.parse().unwrap()) {
            Err(Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{text:?}"),
            other => panic!("{text:?} gave {other:?}"),
        }
    }
    proxy.add("repeat".parse().unwrap()).unwrap();
    assert!(matches!(proxy.add("repeat".parse().unwrap()), Err(Error::DuplicateToxic { .. })));
    assert!(matches!(proxy.remove("nobody"), Err(Error::UnknownToxic { .. })));
    let (_echo, raw) = echo_proxy().await;
    assert!(matches!(raw.add("repeat".parse().unwrap()), Err(Error::Invalid { .. })));
    assert!(matches!(raw.add("cut_after_forward".parse().unwrap()), Err(Error::Invalid { .. })));
}
