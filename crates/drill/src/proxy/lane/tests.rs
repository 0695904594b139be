//! The lane's promises, to the nanosecond: time is a number here.

use super::*;
use crate::proxy::toxic::Toxic;

const MS: Duration = Duration::from_millis(1);

fn at(millis: u64) -> Moment {
    Moment::from_nanos(3_600_000_000_000) + MS * u32::try_from(millis).unwrap()
}

fn entry(serial: u64, text: &str) -> Arc<Entry> {
    Arc::new(Entry::new(serial, text.parse().unwrap()))
}

fn lane(toxics: &[&str]) -> Lane {
    seeded(7, toxics)
}

fn seeded(seed: u64, toxics: &[&str]) -> Lane {
    let mut lane = Lane::new(Stream::Downstream, seed, 1000);
    let entries: Vec<_> = (1..)
        .zip(toxics)
        .map(|(serial, text)| entry(serial, text))
        .collect();
    lane.apply(&entries, at(0));
    lane
}

/// Runs the lane from `now` on, as fast as it allows; what it sends, and when.
fn drain(lane: &mut Lane, mut now: Moment) -> (Vec<(u64, Vec<u8>)>, Next) {
    let mut sent = Vec::new();
    loop {
        match lane.next(now) {
            Next::Send(len) => {
                let piece = lane.piece(len).to_vec();
                assert!(!piece.is_empty(), "a piece has bytes");
                lane.sent(len, now);
                sent.push((now.since(at(0)).as_millis().try_into().unwrap(), piece));
            }
            Next::Wait(Some(due)) => {
                assert!(due > now, "a wait ends in the future");
                now = due;
            }
            other => return (sent, other),
        }
    }
}

#[test]
fn without_toxics_all_goes_at_once_and_the_end_after_it() {
    let mut lane = lane(&[]);
    lane.push(b"one".to_vec(), at(1));
    lane.push(b"two".to_vec(), at(2));
    lane.end(at(3));
    let (sent, last) = drain(&mut lane, at(3));
    assert_eq!(sent, [(3, b"one".to_vec()), (3, b"two".to_vec())]);
    assert_eq!(last, Next::Finish);
    assert!(!lane.wants_read());
}

#[test]
fn latency_counts_from_arrival_so_it_does_not_add_up() {
    let mut lane = lane(&["latency latency=100"]);
    lane.push(b"a".to_vec(), at(0));
    lane.push(b"b".to_vec(), at(30));
    assert_eq!(lane.next(at(99)), Next::Wait(Some(at(100))));
    let (sent, _) = drain(&mut lane, at(99));
    assert_eq!(sent, [(100, b"a".to_vec()), (130, b"b".to_vec())]);
    assert_eq!(lane.effects().count(), 1, "noted once, however often it works");
}

#[test]
fn two_latencies_add() {
    let mut lane = lane(&["latency latency=100", "latency latency=50 name=more"]);
    lane.push(b"a".to_vec(), at(0));
    assert_eq!(drain(&mut lane, at(0)).0, [(150, b"a".to_vec())]);
}

#[test]
fn jitter_stays_within_its_bounds_moves_and_keeps_order() {
    let mut lane = lane(&["latency latency=100 jitter=40"]);
    let mut delays = Vec::new();
    for n in 0..200 {
        lane.push(vec![n], at(u64::from(n) * 1000));
        let (sent, _) = drain(&mut lane, at(u64::from(n) * 1000));
        delays.push(sent[0].0 - u64::from(n) * 1000);
    }
    assert!(
        delays.iter().all(|delay| (60..=140).contains(delay)),
        "{delays:?}"
    );
    assert!(delays.iter().any(|delay| *delay < 80) && delays.iter().any(|delay| *delay > 120));
    for n in 0..50 {
        lane.push(vec![n], at(300_000));
    }
    let order: Vec<u8> = drain(&mut lane, at(300_000))
        .0
        .into_iter()
        .flat_map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(order, (0..50).collect::<Vec<u8>>());
}

#[test]
fn removing_a_delay_ends_it_for_what_is_already_waiting() {
    let mut lane = lane(&["latency latency=3600000"]);
    lane.push(b"a".to_vec(), at(0));
    assert_eq!(lane.next(at(10)), Next::Wait(Some(at(3_600_000))));
    lane.apply(&[], at(20));
    assert_eq!(lane.next(at(20)), Next::Send(1));
}

#[test]
fn bandwidth_spaces_bytes_over_time() {
    let mut lane = lane(&["bandwidth rate=1"]);
    lane.push(vec![0; 350], at(0));
    let (sent, _) = drain(&mut lane, at(0));
    let plan: Vec<_> = sent.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
    assert_eq!(plan, [(100, 100), (200, 100), (300, 100), (350, 50)]);
}

#[test]
fn the_slicer_varies_its_pieces_and_spaces_them() {
    let mut lane = lane(&["slicer average_size=10 size_variation=5 delay=20000"]);
    lane.push((0..200).collect(), at(0));
    let (sent, _) = drain(&mut lane, at(0));
    let last = sent.len() - 1;
    assert!(
        sent[..last]
            .iter()
            .all(|(_, bytes)| (5..=15).contains(&bytes.len()))
    );
    assert!(sent.iter().any(|(_, bytes)| bytes.len() != sent[0].1.len()));
    assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 == 20));
    let whole: Vec<u8> = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(whole, (0..200).collect::<Vec<u8>>());
}

#[test]
fn limit_data_sends_exactly_its_bytes_then_closes() {
    let mut lane = lane(&["limit_data bytes=4"]);
    lane.push(b"abcdef".to_vec(), at(0));
    assert_eq!(
        drain(&mut lane, at(0)),
        (vec![(0, b"abcd".to_vec())], Next::End(End::Close))
    );
    assert_eq!(lane.effects().count(), 1);
}

#[test]
fn a_limit_counts_from_when_it_took_effect() {
    let mut lane = lane(&[]);
    lane.push(b"before".to_vec(), at(0));
    drain(&mut lane, at(0));
    lane.apply(&[entry(1, "limit_data bytes=2")], at(1));
    lane.push(b"abc".to_vec(), at(2));
    assert_eq!(
        drain(&mut lane, at(2)),
        (vec![(2, b"ab".to_vec())], Next::End(End::Close))
    );
}

#[test]
fn timeout_holds_all_then_closes_and_zero_never_does() {
    let mut lane = lane(&["timeout timeout=50"]);
    lane.push(b"x".to_vec(), at(0));
    assert!(!lane.wants_read());
    assert_eq!(lane.next(at(49)), Next::Wait(Some(at(50))));
    assert_eq!(lane.next(at(50)), Next::End(End::Close));
    let mut hole = self::lane(&["timeout timeout=0"]);
    hole.push(b"x".to_vec(), at(0));
    assert_eq!(hole.next(at(86_400_000)), Next::Wait(None));
    hole.apply(&[], at(86_400_000));
    assert!(hole.wants_read());
    assert_eq!(drain(&mut hole, at(86_400_000)).0.len(), 1, "held, not dropped");
}

#[test]
fn reset_peer_waits_for_its_moment_while_data_flows() {
    let mut lane = lane(&["reset_peer timeout=50"]);
    lane.push(b"x".to_vec(), at(0));
    assert_eq!(lane.next(at(0)), Next::Send(1));
    lane.sent(1, at(0));
    assert_eq!(lane.next(at(0)), Next::Wait(Some(at(50))));
    assert_eq!(lane.next(at(50)), Next::End(End::Reset));
}

#[test]
fn slow_close_delays_the_end_and_not_the_data() {
    let mut lane = lane(&["slow_close delay=70"]);
    lane.push(b"x".to_vec(), at(0));
    lane.end(at(10));
    assert_eq!(lane.next(at(10)), Next::Send(1));
    lane.sent(1, at(10));
    assert_eq!(lane.next(at(79)), Next::Wait(Some(at(80))));
    assert_eq!(lane.next(at(80)), Next::Finish);
}

#[test]
fn a_full_buffer_stops_reading_until_some_is_sent() {
    let mut lane = lane(&["latency latency=1000"]);
    lane.push(vec![0; 999], at(0));
    assert!(lane.wants_read());
    lane.push(vec![0; 1], at(0));
    assert!(!lane.wants_read());
    drain(&mut lane, at(0));
    assert!(lane.wants_read());
}

#[test]
fn a_toxic_of_the_other_direction_does_nothing_here() {
    let mut lane = lane(&["latency latency=1000 stream=upstream"]);
    lane.push(b"x".to_vec(), at(0));
    assert_eq!(lane.next(at(0)), Next::Send(1));
}

#[test]
fn toxicity_is_a_share_of_connections_and_repeats_with_the_seed() {
    let hits = |salt: u64| -> Vec<bool> {
        let hit = |seed| {
            let mut lane = seeded(branch(salt, seed), &["latency latency=1000 toxicity=0.3"]);
            lane.push(b"x".to_vec(), at(0));
            lane.next(at(0)) != Next::Send(1)
        };
        (0..1000).map(hit).collect()
    };
    let first = hits(1);
    let share = first.iter().filter(|hit| **hit).count();
    assert!((200..400).contains(&share), "{share} of 1000");
    assert_eq!(first, hits(1));
    assert_ne!(first, hits(2));
}

#[test]
fn a_toxic_keeps_its_draw_when_others_come_and_go() {
    let first = entry(1, "latency latency=1000 toxicity=0.5");
    for seed in 0..64 {
        let mut lane = Lane::new(Stream::Downstream, seed, 1000);
        lane.apply(&[Arc::clone(&first)], at(0));
        let before = lane.active[0].hit;
        lane.apply(
            &[entry(2, "bandwidth rate=1 toxicity=0.5"), Arc::clone(&first)],
            at(1),
        );
        assert_eq!(lane.active[1].hit, before);
        assert_eq!(lane.active[1].since, at(0));
    }
}

#[test]
fn commands_are_judged_by_name_number_and_chance() {
    let mut lane = Lane::new(Stream::Upstream, 7, 1000);
    let toxics = [
        "repeat command=incr times=2",
        "cut_after_forward command=SET toxicity=0",
    ];
    let entries: Vec<_> = (1..)
        .zip(toxics)
        .map(|(serial, text)| entry(serial, text))
        .collect();
    lane.apply(&entries, at(0));
    assert!(!lane.judge(b"GET", true).repeat);
    assert!(
        !lane.judge(b"INCR", false).repeat,
        "too long to be kept, and not counted"
    );
    assert!(lane.judge(b"INCR", true).repeat);
    assert!(lane.judge(b"INCR", true).repeat);
    assert!(!lane.judge(b"INCR", true).repeat, "spent");
    assert!(lane.judge(b"SET", true).cut.is_none());
    assert_eq!(lane.effects().count(), 2);
    let any: Toxic = "cut_after_forward".parse().unwrap();
    lane.apply(&[Arc::new(Entry::new(3, any))], at(1));
    assert!(lane.judge(b"PING", true).cut.is_some());
}
