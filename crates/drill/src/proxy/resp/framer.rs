//! Finds the ends of RESP frames in a stream that arrives in arbitrary pieces.
//!
//! It only counts. An announced length is never allocated, and nesting needs no stack: each
//! aggregate adds its elements to one counter. The only memory is the first few bytes of the frame.

// Enough for a command's name and its first argument, which is all that toxics and `CLIENT REPLY`
// need.
const MAX_HEAD_BYTES: usize = 64;
// Redis's default `proto-max-bulk-len`.
const MAX_BULK_BYTES: u64 = 512 << 20;
const MAX_FRAME_ELEMENTS: u64 = 1 << 32;
// Redis's own limit for inline commands.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Which side of a connection sent the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameSide {
    /// From client to server: arrays of bulk strings, or inline commands.
    Commands,
    /// From server to client: any type of RESP2 and RESP3.
    Replies,
}

/// How far the current frame extends into the given bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameScan {
    /// Number of the given bytes that belong to the frame.
    pub used: usize,
    /// Whether the frame ends with the last of them.
    pub complete: bool,
}

/// The stream is not RESP, or announces more than a server would accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not RESP: {0}")]
pub struct MalformedFrame(&'static str);

#[derive(Debug, Clone, Copy)]
enum FramerState {
    /// Expects a type byte.
    Type,
    /// Inside a line, with its length so far.
    Line(usize),
    /// Inside a length line, with the value's type, and the sign, digits and value so far.
    Length { of: u8, negative: bool, digits: u8, value: u64 },
    /// Expects the final LF of a length line.
    LengthEnd { of: u8, negative: bool, value: u64 },
    /// Inside a bulk string, with the number of missing bytes, CR and LF included.
    Bulk(u64),
}

/// Incremental scanner for one side of a connection.
#[derive(Debug)]
pub struct Framer {
    side: FrameSide,
    state: FramerState,
    /// Elements that the frame still lacks, including the current one.
    elements_missing: u64,
    head: Vec<u8>,
}

impl Framer {
    /// Creates a scanner at the beginning of a stream.
    #[must_use]
    pub fn new(side: FrameSide) -> Self {
        Self { side, state: FramerState::Type, elements_missing: 1, head: Vec::with_capacity(MAX_HEAD_BYTES) }
    }

    /// Whether no byte of the next frame has been scanned yet.
    #[must_use]
    pub fn between_frames(&self) -> bool {
        self.elements_missing == 1 && matches!(self.state, FramerState::Type) && self.head.is_empty()
    }

    /// The first bytes of the frame, at most 64. Emptied by [`next`](Self::next).
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Moves on to the next frame. Call it after a complete one.
    pub fn next(&mut self) {
        self.state = FramerState::Type;
        self.elements_missing = 1;
        self.head.clear();
    }

    /// Scans until the frame or the input ends. After a complete frame, call [`next`](Self::next).
    ///
    /// # Errors
    /// The stream is not RESP. It cannot be parsed from here on.
    pub fn advance(&mut self, input: &[u8]) -> Result<FrameScan, MalformedFrame> {
        let mut used = 0;
        while self.elements_missing > 0 {
            let Some(rest) = input.get(used..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let taken = self.step(rest)?;
            let room = MAX_HEAD_BYTES - self.head.len().min(MAX_HEAD_BYTES);
            self.head.extend(rest.iter().take(taken.min(room)));
            used += taken;
        }
        Ok(FrameScan { used, complete: self.elements_missing == 0 })
    }

    /// Consumes at least one byte of `rest`, which is not empty, and returns how many.
    fn step(&mut self, rest: &[u8]) -> Result<usize, MalformedFrame> {
        let byte = rest.first().copied().ok_or(MalformedFrame("no byte"))?;
        match self.state {
            FramerState::Type => self.begin_value(byte).map(|()| 1),
            FramerState::Line(length) => match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => self.finish_element(0).map(|()| at + 1),
                None if length + rest.len() > MAX_LINE_BYTES => Err(MalformedFrame("a line does not end")),
                None => {
                    self.state = FramerState::Line(length + rest.len());
                    Ok(rest.len())
                }
            },
            FramerState::Length { of, negative, digits, value } => {
                self.state = match byte {
                    b'-' if digits == 0 && !negative => {
                        FramerState::Length { of, negative: true, digits, value }
                    }
                    b'0'..=b'9' if digits < 12 => FramerState::Length {
                        of,
                        negative,
                        digits: digits + 1,
                        value: value * 10 + u64::from(byte - b'0'),
                    },
                    b'\r' if digits > 0 => FramerState::LengthEnd { of, negative, value },
                    _ => return Err(MalformedFrame("a length is not a number")),
                };
                Ok(1)
            }
            FramerState::LengthEnd { of, negative, value } => {
                if byte != b'\n' {
                    return Err(MalformedFrame("a line ends without LF"));
                }
                self.begin_sized_value(of, negative, value).map(|()| 1)
            }
            FramerState::Bulk(left) => {
                let text = left.saturating_sub(2);
                if text > 0 {
                    let taken = usize::try_from(text).unwrap_or(usize::MAX).min(rest.len());
                    self.state = FramerState::Bulk(left - taken as u64);
                    return Ok(taken);
                }
                if byte != if left == 2 { b'\r' } else { b'\n' } {
                    return Err(MalformedFrame("a bulk string is longer than announced"));
                }
                self.state = FramerState::Bulk(left - 1);
                if left == 1 { self.finish_element(0).map(|()| 1) } else { Ok(1) }
            }
        }
    }

    /// Handles the type byte of a value.
    fn begin_value(&mut self, byte: u8) -> Result<(), MalformedFrame> {
        let first = self.head.is_empty();
        let length = FramerState::Length { of: byte, negative: false, digits: 0, value: 0 };
        self.state = match (self.side, byte) {
            (FrameSide::Commands, b'*') if first => length,
            (FrameSide::Commands, b'$') if !first => length,
            // An inline command; an empty one consists of its line end only.
            (FrameSide::Commands, b'\n') if first => return self.finish_element(0),
            (FrameSide::Commands, _) if first => FramerState::Line(1),
            (FrameSide::Replies, b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(') => FramerState::Line(1),
            (FrameSide::Replies, b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|') => length,
            _ => return Err(MalformedFrame("a value of unknown type")),
        };
        Ok(())
    }

    /// Handles a complete length line.
    fn begin_sized_value(&mut self, of: u8, negative: bool, value: u64) -> Result<(), MalformedFrame> {
        if negative {
            // -1 is RESP2's null; Redis treats `*-1` as an empty command.
            let null = matches!(of, b'*' | b'$') && value == 1;
            return if null { self.finish_element(0) } else { Err(MalformedFrame("a negative length")) };
        }
        match of {
            b'$' | b'!' | b'=' if value > MAX_BULK_BYTES => {
                Err(MalformedFrame("a string longer than 512 MiB"))
            }
            b'$' | b'!' | b'=' => {
                self.state = FramerState::Bulk(value + 2);
                Ok(())
            }
            b'%' => self.finish_element(value.saturating_mul(2)),
            // An attribute precedes the value it belongs to, and does not count as a value.
            b'|' => self.finish_element(value.saturating_mul(2).saturating_add(1)),
            _ => self.finish_element(value),
        }
    }

    /// Ends a value. An aggregate adds the elements that follow it.
    fn finish_element(&mut self, brings: u64) -> Result<(), MalformedFrame> {
        self.state = FramerState::Type;
        self.elements_missing = (self.elements_missing - 1).saturating_add(brings);
        if self.elements_missing > MAX_FRAME_ELEMENTS {
            return Err(MalformedFrame("more elements than any reply has"));
        }
        Ok(())
    }
}

/// The complete strings in the first bytes of a frame: a command's name and first arguments, or a
/// push's kind.
pub(super) fn head_strings(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let array = matches!(head.first(), Some(b'*' | b'>'));
    // An array has its size, then lengths and texts in turn. An inline command has its words in one
    // line.
    let (skip, step) = if array { (2, 2) } else { (0, 1) };
    head.split_inclusive(|byte| *byte == b'\n')
        .skip(skip)
        .step_by(step)
        .filter(|line| line.ends_with(b"\n"))
        .flat_map(move |line| line.split(move |byte| !array && byte.is_ascii_whitespace()))
        .map(<[u8]>::trim_ascii_end)
        .filter(|text| !text.is_empty())
}
