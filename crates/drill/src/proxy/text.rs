//! The text form of toxics: `latency latency=100 jitter=20 stream=upstream toxicity=0.5 name=slow`.
//!
//! Attributes have toxiproxy's names and units: milliseconds, except for the slicer's delay, which
//! is in microseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::Error;
use super::toxic::{CutOptions, RepeatOptions, StreamDirection, Toxic, ToxicKind};

/// Attributes that were parsed and not used yet. Whatever is left at the end is unknown, which is
/// an error.
struct Attributes<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Attributes<'a> {
    fn read(words: impl Iterator<Item = &'a str>) -> Result<Self, Error> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| Error::invalid(word, "attributes are written key=value"))?;
            if all.iter().any(|(known, _)| *known == key) {
                return Err(Error::invalid(key, "is written twice"));
            }
            all.push((key, value));
        }
        Ok(Self(all))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(at).1)
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key)
            .map(|value| {
                let why = format!("`{value}` is not a whole number");
                value.parse().map_err(|_| Error::invalid(key, why))
            })
            .transpose()
    }

    fn required_number(&mut self, key: &str) -> Result<u64, Error> {
        self.number(key)?.ok_or_else(|| Error::invalid(key, "is missing; write it as key=number"))
    }

    fn millis(&mut self, key: &str) -> Result<Duration, Error> {
        Ok(Duration::from_millis(self.number(key)?.unwrap_or(0)))
    }

    fn flag(&mut self, key: &str) -> Result<bool, Error> {
        match self.take(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(key, "true or false")),
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.take(key).map(str::to_owned)
    }

    fn reject_unused(self) -> Result<(), Error> {
        match self.0.first() {
            Some((key, _)) => Err(Error::invalid(key, "is not an attribute of this toxic")),
            None => Ok(()),
        }
    }
}

impl FromStr for Toxic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace();
        let word = words.next().unwrap_or_default();
        let mut given = Attributes::read(words)?;
        let kind = match word {
            "latency" => ToxicKind::Latency {
                latency: Duration::from_millis(given.required_number("latency")?),
                jitter: given.millis("jitter")?,
            },
            "bandwidth" => ToxicKind::Bandwidth { rate: given.required_number("rate")? },
            "slow_close" => {
                ToxicKind::SlowClose { delay: Duration::from_millis(given.required_number("delay")?) }
            }
            "timeout" => ToxicKind::Timeout { timeout: given.millis("timeout")? },
            "reset_peer" => ToxicKind::ResetPeer { timeout: given.millis("timeout")? },
            "limit_data" => ToxicKind::LimitData { bytes: given.required_number("bytes")? },
            "slicer" => ToxicKind::Slicer {
                average_size: given.required_number("average_size")?,
                size_variation: given.number("size_variation")?.unwrap_or(0),
                delay: Duration::from_micros(given.number("delay")?.unwrap_or(0)),
            },
            "cut_after_forward" => ToxicKind::CutAfterForward(CutOptions {
                command: given.text("command"),
                bytes: given.number("bytes")?,
                times: given.number("times")?,
                reset: given.flag("reset")?,
            }),
            "repeat" => ToxicKind::Repeat(RepeatOptions {
                command: given.text("command"),
                times: given.number("times")?,
            }),
            other => {
                let why = "is not a toxic: latency, bandwidth, slow_close, timeout, reset_peer, limit_data, slicer, \
                           cut_after_forward or repeat";
                return Err(Error::invalid(other, why));
            }
        };
        let mut toxic = Self::new(kind);
        match given.take("stream") {
            None => {}
            Some("upstream") => toxic = toxic.with_direction(StreamDirection::Upstream),
            Some("downstream") => toxic = toxic.with_direction(StreamDirection::Downstream),
            Some(_) => return Err(Error::invalid("stream", "upstream or downstream")),
        }
        if let Some(value) = given.take("toxicity") {
            let parsed = value.parse();
            toxic =
                toxic.with_toxicity(parsed.map_err(|_| Error::invalid("toxicity", "a number from 0 to 1"))?);
        }
        if let Some(name) = given.take("name") {
            toxic = toxic.with_name(name);
        }
        given.reject_unused()?;
        Ok(toxic)
    }
}

impl fmt::Display for Toxic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        write!(f, " stream={} toxicity={} name={}", self.stream.as_str(), self.toxicity, self.name)
    }
}

impl fmt::Display for ToxicKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        let option = |f: &mut fmt::Formatter<'_>, key: &str, value: Option<&dyn fmt::Display>| match value {
            Some(value) => write!(f, " {key}={value}"),
            None => Ok(()),
        };
        match self {
            // Prints every attribute that `from_str` reads, so that text and value convert both
            // ways.
            Self::Latency { latency, jitter } => {
                write!(f, " latency={} jitter={}", latency.as_millis(), jitter.as_millis())
            }
            Self::Bandwidth { rate } => write!(f, " rate={rate}"),
            Self::SlowClose { delay } => write!(f, " delay={}", delay.as_millis()),
            Self::Timeout { timeout } | Self::ResetPeer { timeout } => {
                write!(f, " timeout={}", timeout.as_millis())
            }
            Self::LimitData { bytes } => write!(f, " bytes={bytes}"),
            Self::Slicer { average_size, size_variation, delay } => write!(
                f,
                " average_size={average_size} size_variation={size_variation} delay={}",
                delay.as_micros()
            ),
            Self::CutAfterForward(cut) => {
                option(f, "command", cut.command.as_ref().map(|v| v as _))?;
                option(f, "bytes", cut.bytes.as_ref().map(|v| v as _))?;
                option(f, "times", cut.times.as_ref().map(|v| v as _))?;
                option(f, "reset", cut.reset.then_some(&true as _))
            }
            Self::Repeat(repeat) => {
                option(f, "command", repeat.command.as_ref().map(|v| v as _))?;
                option(f, "times", repeat.times.as_ref().map(|v| v as _))
            }
        }
    }
}
