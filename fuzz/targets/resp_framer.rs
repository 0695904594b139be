//! The fault proxy's RESP scanner: the same frames however the stream is cut, and the same ends as the client's own parser
//! finds.
//!
//! The first two bytes choose the side and the size of the pieces.
#![no_main]

use leasehold_drill::proxy::{FrameSide, Framer};
use libfuzzer_sys::fuzz_target;

/// The ends of all frames, and whether the stream turned out not to be RESP.
fn ends(side: FrameSide, stream: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<usize>, bool) {
    let (mut framer, mut ends, mut at) = (Framer::new(side), Vec::new(), 0);
    while at < stream.len() {
        let until = stream.len().min(at + piece().max(1));
        let Ok(frame) = framer.advance(&stream[at..until]) else {
            return (ends, true);
        };
        assert!(frame.used <= until - at, "more was used than given");
        assert!(frame.complete || frame.used == until - at, "stopped in the middle of a frame");
        assert!(frame.used > 0, "no progress");
        assert!(framer.head().len() <= 64);
        at += frame.used;
        if frame.complete {
            let from = ends.last().copied().unwrap_or(0);
            let head = &stream[from..at.min(from + 64)];
            assert_eq!(framer.head(), head, "the head is not the frame's beginning");
            ends.push(at);
            framer.next();
            assert!(framer.between_frames());
        }
    }
    (ends, false)
}

fuzz_target!(|bytes: &[u8]| {
    let [side, size, stream @ ..] = bytes else { return };
    let side = if side % 2 == 0 { FrameSide::Replies } else { FrameSide::Commands };
    let whole = ends(side, stream, || usize::MAX - stream.len());
    assert_eq!(ends(side, stream, || 1), whole, "a byte at a time");
    let mut sizes = stream.iter().cycle();
    let uneven = ends(side, stream, || usize::from(size ^ sizes.next().copied().unwrap_or(1)) % 9);
    assert_eq!(uneven, whole, "in uneven pieces");
    if side == FrameSide::Replies {
        let mut from = 0;
        for end in whole.0 {
            agrees(&stream[from..end]);
            from = end;
        }
    }
});

/// A frame is a whole value to the client: with its last byte, and not without. A line that ends with LF alone is left out: no
/// server sends one, the scanner takes it for an end and the client does not.
fn agrees(frame: &[u8]) {
    let alone = |at: usize| frame[at] == b'\n' && (at == 0 || frame[at - 1] != b'\r');
    if (0..frame.len()).any(alone) {
        return;
    }
    match redis::parse_redis_value(frame) {
        Ok(_) => {
            let short = &frame[..frame.len() - 1];
            assert!(redis::parse_redis_value(short).is_err(), "the client needs less than {frame:?}");
        }
        // The client also looks at what is in a line, and refuses some.
        Err(error) => assert!(!error.is_io_error(), "the client needs more than {frame:?}"),
    }
}
