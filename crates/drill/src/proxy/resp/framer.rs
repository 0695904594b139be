//! Finds the ends of RESP frames in a stream that comes in arbitrary pieces.
//!
//! It only counts: what a hostile length announces is never allocated, nesting needs no stack (each aggregate adds its
//! elements to one counter), and all memory is the first few bytes of the frame.

/// How much of a frame's beginning is kept, to tell commands apart.
const HEAD: usize = 64;
/// The longest bulk string: Redis's own `proto-max-bulk-len`.
const MAX_BULK: u64 = 512 << 20;
/// The most elements in all aggregates of a frame.
const MAX_ELEMENTS: u64 = 1 << 32;
/// The longest line: Redis's own limit for inline commands.
const MAX_LINE: usize = 64 << 10;

/// Which way the stream flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From client to server: arrays of bulk strings, or inline commands.
    Commands,
    /// From server to client: any type of RESP2 and RESP3.
    Replies,
}

/// How far the current frame reaches into the given bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// So many of the given bytes belong to it.
    pub used: usize,
    /// It ends with the last of them.
    pub complete: bool,
}

/// The stream is not RESP, or announces more than a server would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not RESP: {0}")]
pub struct Malformed(&'static str);

#[derive(Debug, Clone, Copy)]
enum State {
    /// The next byte is a type.
    Type,
    /// Up to the line's end; its length so far.
    Line(usize),
    /// A length line of this type; sign, digits and value so far.
    Length {
        of: u8,
        negative: bool,
        digits: u8,
        value: u64,
    },
    /// A length line's final LF.
    LengthEnd { of: u8, negative: bool, value: u64 },
    /// So many bytes of a bulk string are missing, CR and LF included.
    Bulk(u64),
}

/// The incremental scanner.
#[derive(Debug)]
pub struct Framer {
    side: Side,
    state: State,
    /// Elements that the frame still lacks, the one under way included.
    need: u64,
    head: Vec<u8>,
}

impl Framer {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            state: State::Type,
            need: 1,
            head: Vec::with_capacity(HEAD),
        }
    }

    /// Whether nothing of the next frame has been seen yet.
    #[must_use]
    pub fn between_frames(&self) -> bool {
        self.need == 1 && matches!(self.state, State::Type) && self.head.is_empty()
    }

    /// The first bytes of the frame, at most 64. Emptied by [`next`](Self::next).
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Goes on to the next frame, after a complete one.
    pub fn next(&mut self) {
        self.state = State::Type;
        self.need = 1;
        self.head.clear();
    }

    /// Scans until the frame or the input ends. After a complete frame, call [`next`](Self::next).
    ///
    /// # Errors
    /// The stream is not RESP; nothing more can be told about it.
    pub fn advance(&mut self, input: &[u8]) -> Result<Frame, Malformed> {
        let mut used = 0;
        while self.need > 0 {
            let Some(rest) = input.get(used..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let taken = self.step(rest)?;
            let room = HEAD - self.head.len().min(HEAD);
            self.head.extend(rest.iter().take(taken.min(room)));
            used += taken;
        }
        Ok(Frame {
            used,
            complete: self.need == 0,
        })
    }

    /// Takes at least one byte of `rest`, which is not empty, and says how many.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let byte = rest.first().copied().ok_or(Malformed("no byte"))?;
        match self.state {
            State::Type => self.begin(byte).map(|()| 1),
            State::Line(length) => match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => self.element(0).map(|()| at + 1),
                None if length + rest.len() > MAX_LINE => Err(Malformed("a line does not end")),
                None => {
                    self.state = State::Line(length + rest.len());
                    Ok(rest.len())
                }
            },
            State::Length {
                of,
                negative,
                digits,
                value,
            } => {
                self.state = match byte {
                    b'-' if digits == 0 && !negative => State::Length {
                        of,
                        negative: true,
                        digits,
                        value,
                    },
                    b'0'..=b'9' if digits < 12 => State::Length {
                        of,
                        negative,
                        digits: digits + 1,
                        value: value * 10 + u64::from(byte - b'0'),
                    },
                    b'\r' if digits > 0 => State::LengthEnd { of, negative, value },
                    _ => return Err(Malformed("a length is not a number")),
                };
                Ok(1)
            }
            State::LengthEnd { of, negative, value } => {
                if byte != b'\n' {
                    return Err(Malformed("a line ends without LF"));
                }
                self.measured(of, negative, value).map(|()| 1)
            }
            State::Bulk(left) => {
                let text = left.saturating_sub(2);
                if text > 0 {
                    let taken = usize::try_from(text).unwrap_or(usize::MAX).min(rest.len());
                    self.state = State::Bulk(left - taken as u64);
                    return Ok(taken);
                }
                if byte != if left == 2 { b'\r' } else { b'\n' } {
                    return Err(Malformed("a bulk string is longer than announced"));
                }
                self.state = State::Bulk(left - 1);
                if left == 1 {
                    self.element(0).map(|()| 1)
                } else {
                    Ok(1)
                }
            }
        }
    }

    /// A value begins with its type.
    fn begin(&mut self, byte: u8) -> Result<(), Malformed> {
        let first = self.head.is_empty();
        let length = State::Length {
            of: byte,
            negative: false,
            digits: 0,
            value: 0,
        };
        self.state = match (self.side, byte) {
            (Side::Commands, b'*') if first => length,
            (Side::Commands, b'$') if !first => length,
            // An inline command; an empty one is nothing but its line's end.
            (Side::Commands, b'\n') if first => return self.element(0),
            (Side::Commands, _) if first => State::Line(1),
            (Side::Replies, b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(') => State::Line(1),
            (Side::Replies, b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|') => length,
            _ => return Err(Malformed("a value of unknown type")),
        };
        Ok(())
    }

    /// A length is known.
    fn measured(&mut self, of: u8, negative: bool, value: u64) -> Result<(), Malformed> {
        if negative {
            // -1 is RESP2's null; Redis takes `*-1` for an empty command.
            let null = matches!(of, b'*' | b'$') && value == 1;
            return if null {
                self.element(0)
            } else {
                Err(Malformed("a negative length"))
            };
        }
        match of {
            b'$' | b'!' | b'=' if value > MAX_BULK => Err(Malformed("a string longer than 512 MiB")),
            b'$' | b'!' | b'=' => {
                self.state = State::Bulk(value + 2);
                Ok(())
            }
            b'%' => self.element(value.saturating_mul(2)),
            // An attribute comes before the value it belongs to, and does not count as one.
            b'|' => self.element(value.saturating_mul(2).saturating_add(1)),
            _ => self.element(value),
        }
    }

    /// A value has ended, or is an aggregate whose elements follow.
    fn element(&mut self, brings: u64) -> Result<(), Malformed> {
        self.state = State::Type;
        self.need = (self.need - 1).saturating_add(brings);
        if self.need > MAX_ELEMENTS {
            return Err(Malformed("more elements than any reply has"));
        }
        Ok(())
    }
}

/// The strings that lie whole in the beginning of a frame: a command's name and first arguments, a push's kind.
pub(super) fn strings(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let array = matches!(head.first(), Some(b'*' | b'>'));
    // Array: its size, then lengths and texts in turn. Inline: the words of the one line.
    let (skip, step) = if array { (2, 2) } else { (0, 1) };
    head.split_inclusive(|byte| *byte == b'\n')
        .skip(skip)
        .step_by(step)
        .filter(|line| line.ends_with(b"\n"))
        .flat_map(move |line| line.split(move |byte| !array && byte.is_ascii_whitespace()))
        .map(<[u8]>::trim_ascii_end)
        .filter(|text| !text.is_empty())
}
