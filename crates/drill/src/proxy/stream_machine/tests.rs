//! Tests of the stream machine's delays, to the nanosecond: time is a plain number here.

use super::*;
use crate::proxy::toxic::Toxic;

const MS: Duration = Duration::from_millis(1);

fn moment_at_ms(millis: u64) -> Moment {
    Moment::from_nanos(3_600_000_000_000) + MS * u32::try_from(millis).unwrap()
}

fn installed(serial: u64, text: &str) -> Arc<InstalledToxic> {
    Arc::new(InstalledToxic::new(serial, text.parse().unwrap()))
}

fn machine_with(toxics: &[&str]) -> StreamMachine {
    seeded_machine(7, toxics)
}

fn seeded_machine(seed: u64, toxics: &[&str]) -> StreamMachine {
    let mut lane = StreamMachine::new(StreamDirection::Downstream, seed, 1000);
    let entries: Vec<_> = (1..).zip(toxics).map(|(serial, text)| installed(serial, text)).collect();
    lane.set_toxics(&entries, moment_at_ms(0));
    lane
}

/// Runs the machine from `now` on, as fast as it allows. Returns what it sends and when, and its
/// last action.
fn drain(lane: &mut StreamMachine, mut now: Moment) -> (Vec<(u64, Vec<u8>)>, NextAction) {
    let mut sent = Vec::new();
    loop {
        match lane.next(now) {
            NextAction::Send(len) => {
                let piece = lane.piece(len).to_vec();
                assert!(!piece.is_empty(), "a piece has bytes");
                lane.record_sent(len, now);
                sent.push((now.since(moment_at_ms(0)).as_millis().try_into().unwrap(), piece));
            }
            NextAction::Wait(Some(due)) => {
                assert!(due > now, "a wait ends in the future");
                now = due;
            }
            other => return (sent, other),
        }
    }
}

#[test]
fn without_toxics_all_goes_at_once_and_the_end_after_it() {
    let mut lane = machine_with(&[]);
    lane.push(b"one".to_vec(), moment_at_ms(1));
    lane.push(b"two".to_vec(), moment_at_ms(2));
    lane.source_ended(moment_at_ms(3));
    let (sent, last) = drain(&mut lane, moment_at_ms(3));
    assert_eq!(sent, [(3, b"one".to_vec()), (3, b"two".to_vec())]);
    assert_eq!(last, NextAction::Finish);
    assert!(!lane.wants_read());
}

#[test]
fn latency_counts_from_arrival_so_it_does_not_add_up() {
    let mut lane = machine_with(&["latency latency=100"]);
    lane.push(b"a".to_vec(), moment_at_ms(0));
    lane.push(b"b".to_vec(), moment_at_ms(30));
    assert_eq!(lane.next(moment_at_ms(99)), NextAction::Wait(Some(moment_at_ms(100))));
    let (sent, _) = drain(&mut lane, moment_at_ms(99));
    assert_eq!(sent, [(100, b"a".to_vec()), (130, b"b".to_vec())]);
    assert_eq!(lane.take_effects().count(), 1, "noted once, however often it works");
}

#[test]
fn two_latencies_add() {
    let mut lane = machine_with(&["latency latency=100", "latency latency=50 name=more"]);
    lane.push(b"a".to_vec(), moment_at_ms(0));
    assert_eq!(drain(&mut lane, moment_at_ms(0)).0, [(150, b"a".to_vec())]);
}

#[test]
fn jitter_stays_within_its_bounds_moves_and_keeps_order() {
    let mut lane = machine_with(&["latency latency=100 jitter=40"]);
    let mut delays = Vec::new();
    for n in 0..200 {
        lane.push(vec![n], moment_at_ms(u64::from(n) * 1000));
        let (sent, _) = drain(&mut lane, moment_at_ms(u64::from(n) * 1000));
        delays.push(sent[0].0 - u64::from(n) * 1000);
    }
    assert!(delays.iter().all(|delay| (60..=140).contains(delay)), "{delays:?}");
    assert!(delays.iter().any(|delay| *delay < 80) && delays.iter().any(|delay| *delay > 120));
    for n in 0..50 {
        lane.push(vec![n], moment_at_ms(300_000));
    }
    let order: Vec<u8> =
        drain(&mut lane, moment_at_ms(300_000)).0.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(order, (0..50).collect::<Vec<u8>>());
}

#[test]
fn removing_a_delay_ends_it_for_what_is_already_waiting() {
    let mut lane = machine_with(&["latency latency=3600000"]);
    lane.push(b"a".to_vec(), moment_at_ms(0));
    assert_eq!(lane.next(moment_at_ms(10)), NextAction::Wait(Some(moment_at_ms(3_600_000))));
    lane.set_toxics(&[], moment_at_ms(20));
    assert_eq!(lane.next(moment_at_ms(20)), NextAction::Send(1));
}

#[test]
fn bandwidth_spaces_bytes_over_time() {
    let mut lane = machine_with(&["bandwidth rate=1"]);
    lane.push(vec![0; 350], moment_at_ms(0));
    let (sent, _) = drain(&mut lane, moment_at_ms(0));
    let plan: Vec<_> = sent.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
    assert_eq!(plan, [(100, 100), (200, 100), (300, 100), (350, 50)]);
}

#[test]
fn the_slicer_varies_its_pieces_and_spaces_them() {
    let mut lane = machine_with(&["slicer average_size=10 size_variation=5 delay=20000"]);
    lane.push((0..200).collect(), moment_at_ms(0));
    let (sent, _) = drain(&mut lane, moment_at_ms(0));
    let last = sent.len() - 1;
    assert!(sent[..last].iter().all(|(_, bytes)| (5..=15).contains(&bytes.len())));
    assert!(sent.iter().any(|(_, bytes)| bytes.len() != sent[0].1.len()));
    assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 == 20));
    let whole: Vec<u8> = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(whole, (0..200).collect::<Vec<u8>>());
}

#[test]
fn limit_data_sends_exactly_its_bytes_then_closes() {
    let mut lane = machine_with(&["limit_data bytes=4"]);
    lane.push(b"abcdef".to_vec(), moment_at_ms(0));
    assert_eq!(
        drain(&mut lane, moment_at_ms(0)),
        (vec![(0, b"abcd".to_vec())], NextAction::End(ForcedClose::Close))
    );
    assert_eq!(lane.take_effects().count(), 1);
}

#[test]
fn a_limit_counts_from_when_it_took_effect() {
    let mut lane = machine_with(&[]);
    lane.push(b"before".to_vec(), moment_at_ms(0));
    drain(&mut lane, moment_at_ms(0));
    lane.set_toxics(&[installed(1, "limit_data bytes=2")], moment_at_ms(1));
    lane.push(b"abc".to_vec(), moment_at_ms(2));
    assert_eq!(
        drain(&mut lane, moment_at_ms(2)),
        (vec![(2, b"ab".to_vec())], NextAction::End(ForcedClose::Close))
    );
}

#[test]
fn timeout_holds_all_then_closes_and_zero_never_does() {
    let mut lane = machine_with(&["timeout timeout=50"]);
    lane.push(b"x".to_vec(), moment_at_ms(0));
    assert!(!lane.wants_read());
    assert_eq!(lane.next(moment_at_ms(49)), NextAction::Wait(Some(moment_at_ms(50))));
    assert_eq!(lane.next(moment_at_ms(50)), NextAction::End(ForcedClose::Close));
    let mut hole = self::machine_with(&["timeout timeout=0"]);
    hole.push(b"x".to_vec(), moment_at_ms(0));
    assert_eq!(hole.next(moment_at_ms(86_400_000)), NextAction::Wait(None));
    hole.set_toxics(&[], moment_at_ms(86_400_000));
    assert!(hole.wants_read());
    assert_eq!(drain(&mut hole, moment_at_ms(86_400_000)).0.len(), 1, "held, not dropped");
}

#[test]
fn reset_peer_waits_for_its_moment_while_data_flows() {
    let mut lane = machine_with(&["reset_peer timeout=50"]);
    lane.push(b"x".to_vec(), moment_at_ms(0));
    assert_eq!(lane.next(moment_at_ms(0)), NextAction::Send(1));
    lane.record_sent(1, moment_at_ms(0));
    assert_eq!(lane.next(moment_at_ms(0)), NextAction::Wait(Some(moment_at_ms(50))));
    assert_eq!(lane.next(moment_at_ms(50)), NextAction::End(ForcedClose::Reset));
}

#[test]
fn slow_close_delays_the_end_and_not_the_data() {
    let mut lane = machine_with(&["slow_close delay=70"]);
    lane.push(b"x".to_vec(), moment_at_ms(0));
    lane.source_ended(moment_at_ms(10));
    assert_eq!(lane.next(moment_at_ms(10)), NextAction::Send(1));
    lane.record_sent(1, moment_at_ms(10));
    assert_eq!(lane.next(moment_at_ms(79)), NextAction::Wait(Some(moment_at_ms(80))));
    assert_eq!(lane.next(moment_at_ms(80)), NextAction::Finish);
}

#[test]
fn a_full_buffer_stops_reading_until_some_is_sent() {
    let mut lane = machine_with(&["latency latency=1000"]);
    lane.push(vec![0; 999], moment_at_ms(0));
    assert!(lane.wants_read());
    lane.push(vec![0; 1], moment_at_ms(0));
    assert!(!lane.wants_read());
    drain(&mut lane, moment_at_ms(0));
    assert!(lane.wants_read());
}

#[test]
fn a_toxic_of_the_other_direction_does_nothing_here() {
    let mut lane = machine_with(&["latency latency=1000 stream=upstream"]);
    lane.push(b"x".to_vec(), moment_at_ms(0));
    assert_eq!(lane.next(moment_at_ms(0)), NextAction::Send(1));
}

#[test]
fn toxicity_is_a_share_of_connections_and_repeats_with_the_seed() {
    let hits = |salt: u64| -> Vec<bool> {
        let hit = |seed| {
            let mut lane = seeded_machine(derive_seed(salt, seed), &["latency latency=1000 toxicity=0.3"]);
            lane.push(b"x".to_vec(), moment_at_ms(0));
            lane.next(moment_at_ms(0)) != NextAction::Send(1)
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
    let first = installed(1, "latency latency=1000 toxicity=0.5");
    for seed in 0..64 {
        let mut lane = StreamMachine::new(StreamDirection::Downstream, seed, 1000);
        lane.set_toxics(&[Arc::clone(&first)], moment_at_ms(0));
        let before = lane.active[0].applies;
        lane.set_toxics(
            &[installed(2, "bandwidth rate=1 toxicity=0.5"), Arc::clone(&first)],
            moment_at_ms(1),
        );
        assert_eq!(lane.active[1].applies, before);
        assert_eq!(lane.active[1].since, moment_at_ms(0));
    }
}

#[test]
fn commands_are_judged_by_name_number_and_chance() {
    let mut lane = StreamMachine::new(StreamDirection::Upstream, 7, 1000);
    let toxics = ["repeat command=incr times=2", "cut_after_forward command=SET toxicity=0"];
    let entries: Vec<_> = (1..).zip(toxics).map(|(serial, text)| installed(serial, text)).collect();
    lane.set_toxics(&entries, moment_at_ms(0));
    assert!(!lane.faults_for_command(b"GET", true).repeat);
    assert!(!lane.faults_for_command(b"INCR", false).repeat, "too long to be kept, and not counted");
    assert!(lane.faults_for_command(b"INCR", true).repeat);
    assert!(lane.faults_for_command(b"INCR", true).repeat);
    assert!(!lane.faults_for_command(b"INCR", true).repeat, "spent");
    assert!(lane.faults_for_command(b"SET", true).cut.is_none());
    assert_eq!(lane.take_effects().count(), 2);
    let any: Toxic = "cut_after_forward".parse().unwrap();
    lane.set_toxics(&[Arc::new(InstalledToxic::new(3, any))], moment_at_ms(1));
    assert!(lane.faults_for_command(b"PING", true).cut.is_some());
}
