//! Toxics as text: what is written is what is meant, and what cannot be meant is refused by name.

use std::time::Duration;

use leasehold_drill::proxy::{Cut, Error, Kind, Repeat, Stream, Toxic};
use proptest::prelude::*;

use super::stage::{echo_proxy, redis_proxy};

fn kinds() -> impl Strategy<Value = Kind> {
    let millis = || (0u64..1_000_000).prop_map(Duration::from_millis);
    let command = || proptest::option::of("[A-Z]{1,10}");
    let times = || proptest::option::of(any::<u64>());
    prop_oneof![
        (millis(), millis()).prop_map(|(latency, jitter)| Kind::Latency { latency, jitter }),
        (1u64..).prop_map(|rate| Kind::Bandwidth { rate }),
        millis().prop_map(|delay| Kind::SlowClose { delay }),
        millis().prop_map(|timeout| Kind::Timeout { timeout }),
        millis().prop_map(|timeout| Kind::ResetPeer { timeout }),
        any::<u64>().prop_map(|bytes| Kind::LimitData { bytes }),
        (any::<u64>(), any::<u64>(), millis()).prop_map(|(average_size, size_variation, delay)| {
            Kind::Slicer {
                average_size,
                size_variation,
                delay,
            }
        }),
        (command(), times(), times(), any::<bool>()).prop_map(|(command, bytes, times, reset)| {
            Kind::CutAfterForward(Cut {
                command,
                bytes,
                times,
                reset,
            })
        }),
        (command(), times()).prop_map(|(command, times)| Kind::Repeat(Repeat { command, times })),
    ]
}

proptest! {
    #[test]
    fn text_and_back(kind in kinds(), up in any::<bool>(), toxicity in 0.0f64..=1.0, name in "[a-z]{1,8}") {
        let stream = if up { Stream::Upstream } else { Stream::Downstream };
        let toxic = Toxic::new(kind).on(stream).toxicity(toxicity).named(name);
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
    assert_eq!(
        (toxic.name(), toxic.stream()),
        ("latency_downstream", Stream::Downstream)
    );
    let toxic: Toxic = "latency latency=5 stream=upstream".parse().unwrap();
    assert_eq!(toxic.name(), "latency_upstream");
    let toxic: Toxic = "repeat".parse().unwrap();
    assert_eq!(toxic.name(), "repeat_upstream");
}

#[test]
fn what_is_not_understood_is_named() {
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
async fn what_cannot_be_meant_is_refused() {
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
    assert!(matches!(
        proxy.add("repeat".parse().unwrap()),
        Err(Error::Taken { .. })
    ));
    assert!(matches!(proxy.remove("nobody"), Err(Error::Unknown { .. })));
    let (_echo, raw) = echo_proxy().await;
    assert!(matches!(
        raw.add("repeat".parse().unwrap()),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        raw.add("cut_after_forward".parse().unwrap()),
        Err(Error::Invalid { .. })
    ));
}
