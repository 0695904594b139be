//! The RESP framer finds frames however the stream is split, and hostile input uses no memory.

use leasehold_drill::proxy::{FrameSide, Framer};
use proptest::prelude::*;

/// Generates any RESP2 or RESP3 value, encoded.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let text = "[^\\r\\n]{0,12}";
    let line = (prop_oneof![Just('+'), Just('-'), Just(','), Just('(')], text)
        .prop_map(|(t, s)| format!("{t}{s}\r\n").into_bytes());
    let number = any::<i64>().prop_map(|n| format!(":{n}\r\n").into_bytes());
    let fixed = prop_oneof![
        Just("_\r\n"),
        Just("#t\r\n"),
        Just("$-1\r\n"),
        Just("*-1\r\n"),
        Just("*0\r\n"),
        Just("%0\r\n")
    ]
    .prop_map(|s| s.as_bytes().to_vec());
    let bulk = (prop_oneof![Just('$'), Just('!'), Just('=')], proptest::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(t, bytes)| [format!("{t}{}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat());
    let leaf = prop_oneof![line, number, fixed, bulk].boxed();
    leaf.prop_recursive(4, 32, 6, |inner| {
        let many = proptest::collection::vec(inner.clone(), 0..6);
        let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            (prop_oneof![Just('*'), Just('~'), Just('>')], many).prop_map(|(t, all)| [
                format!("{t}{}\r\n", all.len()).into_bytes(),
                all.concat()
            ]
            .concat()),
            (pairs, inner, any::<bool>()).prop_map(|(pairs, value, attribute)| {
                let body: Vec<u8> =
                    pairs.iter().flat_map(|(k, v)| [k.as_slice(), v.as_slice()].concat()).collect();
                let sign = if attribute { '|' } else { '%' };
                // An attribute is followed by the value it belongs to. Both form one frame.
                let value = if attribute { value } else { Vec::new() };
                [format!("{sign}{}\r\n", pairs.len()).into_bytes(), body, value].concat()
            }),
        ]
    })
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let array =
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..6).prop_map(|args| {
            let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
            for arg in args {
                bytes.extend([format!("${}\r\n", arg.len()).as_bytes(), &arg, b"\r\n"].concat());
            }
            bytes
        });
    let inline = "[A-Za-z ]{0,20}\r?\n".prop_map(String::into_bytes);
    prop_oneof![3 => array, 1 => inline]
}

/// Feeds the stream in pieces of these sizes, in turn. Returns the offsets where frames end.
fn frame_ends(side: FrameSide, stream: &[u8], sizes: &[usize]) -> Vec<usize> {
    let (mut framer, mut at, mut ends) = (Framer::new(side), 0, Vec::new());
    let mut sizes = sizes.iter().cycle();
    while at < stream.len() {
        let until = (at + sizes.next().unwrap()).min(stream.len());
        while at < until {
            let frame = framer.advance(&stream[at..until]).unwrap();
            assert!(frame.used > 0, "no progress");
            at += frame.used;
            if frame.complete {
                ends.push(at);
                framer.next();
                assert!(framer.between_frames());
            }
        }
    }
    ends
}

fn expected(frames: &[Vec<u8>]) -> Vec<usize> {
    let mut at = 0;
    frames
        .iter()
        .map(|frame| {
            at += frame.len();
            at
        })
        .collect()
}

proptest! {
    #[test]
    fn reply_ends_are_found_for_any_split(
        frames in proptest::collection::vec(reply(), 1..8),
        sizes in proptest::collection::vec(1usize..40, 1..20),
    ) {
        prop_assert_eq!(frame_ends(FrameSide::Replies, &frames.concat(), &sizes), expected(&frames));
    }

    #[test]
    fn command_ends_are_found_for_any_split(
        frames in proptest::collection::vec(command(), 1..8),
        sizes in proptest::collection::vec(1usize..40, 1..20),
    ) {
        prop_assert_eq!(frame_ends(FrameSide::Commands, &frames.concat(), &sizes), expected(&frames));
    }

    #[test]
    fn any_bytes_give_the_same_result_for_any_split(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(b"*$>|%-0123456789\r\n".to_vec())], 0..200),
        commands in any::<bool>(),
    ) {
        let side = if commands { FrameSide::Commands } else { FrameSide::Replies };
        let judge = |step: usize| {
            let (mut framer, mut at, mut ends) = (Framer::new(side), 0, Vec::new());
            while at < bytes.len() {
                let until = (at + step).min(bytes.len());
                let Ok(frame) = framer.advance(&bytes[at..until]) else { return (ends, true) };
                assert!(framer.head().len() <= 64);
                at += frame.used;
                if frame.complete {
                    ends.push(at);
                    framer.next();
                }
            }
            (ends, false)
        };
        prop_assert_eq!(judge(1), judge(bytes.len().max(1)));
    }
}

#[test]
fn hostile_lengths_are_refused_or_wait_for_input() {
    for refused in [
        "$536870913\r\n",
        "$99999999999999999999\r\n",
        "*9999999999\r\n",
        "$-2\r\n",
        "$--1\r\n",
        "$\r\n",
        "$1x\r\n",
        "%-1\r\n",
        "$2\r\nabc",
        "$?\r\n",
        "?",
    ] {
        assert!(Framer::new(FrameSide::Replies).advance(refused.as_bytes()).is_err(), "{refused:?}");
    }
    let waited = Framer::new(FrameSide::Replies).advance(b"*4000000000\r\n$536870912\r\n").unwrap();
    assert!(!waited.complete);
    // Nested aggregates add up in one counter: depth costs nothing and the sum is bounded.
    let mut deep = Framer::new(FrameSide::Replies);
    assert!(!deep.advance("*1\r\n".repeat(100_000).as_bytes()).unwrap().complete);
    assert!(deep.advance("*4000000000\r\n".repeat(2).as_bytes()).is_err());
    let endless = vec![b'x'; 100_000];
    assert!(Framer::new(FrameSide::Commands).advance(&endless).is_err());
    let mut slow = Framer::new(FrameSide::Commands);
    assert!(endless.chunks(10).any(|chunk| slow.advance(chunk).is_err()));
}
