//! Toxics as text: `latency latency=100 jitter=20 stream=upstream toxicity=0.5 name=slow`.
//!
//! The attributes have toxiproxy's names and units: milliseconds, except for the slicer's delay in microseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::Error;
use super::toxic::{Cut, Kind, Repeat, Stream, Toxic};

/// The attributes that were written and not used yet. What is left at the end was not known.
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

    fn needed(&mut self, key: &str) -> Result<u64, Error> {
        self.number(key)?
            .ok_or_else(|| Error::invalid(key, "is missing; write it as key=number"))
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

    fn done(self) -> Result<(), Error> {
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
            "latency" => Kind::Latency {
                latency: Duration::from_millis(given.needed("latency")?),
                jitter: given.millis("jitter")?,
            },
            "bandwidth" => Kind::Bandwidth {
                rate: given.needed("rate")?,
            },
            "slow_close" => Kind::SlowClose {
                delay: Duration::from_millis(given.needed("delay")?),
            },
            "timeout" => Kind::Timeout {
                timeout: given.millis("timeout")?,
            },
            "reset_peer" => Kind::ResetPeer {
                timeout: given.millis("timeout")?,
            },
            "limit_data" => Kind::LimitData {
                bytes: given.needed("bytes")?,
            },
            "slicer" => Kind::Slicer {
                average_size: given.needed("average_size")?,
                size_variation: given.number("size_variation")?.unwrap_or(0),
                delay: Duration::from_micros(given.number("delay")?.unwrap_or(0)),
            },
            "cut_after_forward" => Kind::CutAfterForward(Cut {
                command: given.text("command"),
                bytes: given.number("bytes")?,
                times: given.number("times")?,
                reset: given.flag("reset")?,
            }),
            "repeat" => Kind::Repeat(Repeat {
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
            Some("upstream") => toxic = toxic.on(Stream::Upstream),
            Some("downstream") => toxic = toxic.on(Stream::Downstream),
            Some(_) => return Err(Error::invalid("stream", "upstream or downstream")),
        }
        if let Some(value) = given.take("toxicity") {
            let parsed = value.parse();
            toxic = toxic.toxicity(parsed.map_err(|_| Error::invalid("toxicity", "a number from 0 to 1"))?);
        }
        if let Some(name) = given.take("name") {
            toxic = toxic.named(name);
        }
        given.done()?;
        Ok(toxic)
    }
}

impl fmt::Display for Toxic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        write!(
            f,
            " stream={} toxicity={} name={}",
            self.stream.word(),
            self.toxicity,
            self.name
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let option = |f: &mut fmt::Formatter<'_>, key: &str, value: Option<&dyn fmt::Display>| match value {
            Some(value) => write!(f, " {key}={value}"),
            None => Ok(()),
        };
        match self {
            Self::Latency { latency, jitter } => {
                write!(
                    f,
                    " latency={} jitter={}",
                    latency.as_millis(),
                    jitter.as_millis()
                )
            }
            Self::Bandwidth { rate } => write!(f, " rate={rate}"),
            Self::SlowClose { delay } => write!(f, " delay={}", delay.as_millis()),
            Self::Timeout { timeout } | Self::ResetPeer { timeout } => {
                write!(f, " timeout={}", timeout.as_millis())
            }
            Self::LimitData { bytes } => write!(f, " bytes={bytes}"),
            Self::Slicer {
                average_size,
                size_variation,
                delay,
            } => write!(
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
