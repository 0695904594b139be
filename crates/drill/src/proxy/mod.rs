//! A TCP proxy that breaks connections on purpose: the network's faults, on demand and repeatable by seed.
//!
//! It stands between a client and a server on the loopback interface and passes bytes on until it is told to be
//! *toxic*. The faults have toxiproxy's names and meanings, and three that it does not have: `cut_after_forward`
//! (the request was applied, the reply is lost), `repeat` (one command arrives twice, the client sees one reply) and
//! a `timeout` of 0 that holds data until it is removed, as a healed network delivers late what was under way.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use leasehold_drill::proxy::{Config, Kind, Proxy, Toxic};
//! # async fn demo() -> Result<(), leasehold_drill::proxy::Error> {
//! let proxy = Proxy::start(Config::resp("127.0.0.1:6379".parse().unwrap()).seed(7)).await?;
//! println!("connect to {}", proxy.address());
//! proxy.add(Toxic::new(Kind::Latency { latency: Duration::from_millis(200), jitter: Duration::ZERO }))?;
//! proxy.add("cut_after_forward command=SET times=1".parse()?)?;
//! proxy.heal().await?;
//! proxy.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | `config` | where to listen, where to go, what to speak, which clock and randomness |
//! | `toxic`, `words` | the faults as data, and as text |
//! | `catalog` | the toxics that are in force now; connections watch it |
//! | `active`, `lane` | one direction of one connection as a pure machine: what may be sent, when |
//! | `link` | moves the bytes and timers that a lane asks for |
//! | `resp` | where commands and replies begin and end, and which reply belongs to which command |
//! | `gateway` | the listening socket, up and down; one task per connection |
//! | `handle` | the proxy as its users see it |
//! | `record` | counters and the history of faults |
//! | `control` | the same orders over a text socket |
//!
//! **Promises**: order is kept, buffers are bounded, faults take effect on connections that are open already, and after
//! [`Proxy::stop`] no task or socket is left. **Not promised**: that two runs cut a stream into the same chunks. What is
//! drawn per connection or per command repeats with the seed; what is drawn per chunk (jitter) does so only as far as
//! the chunks do.

mod active;
mod catalog;
mod config;
mod control;
mod error;
mod gateway;
mod handle;
mod lane;
mod link;
mod record;
mod resp;
mod toxic;
mod words;

pub use config::{Config, Protocol};
pub use error::Error;
pub use handle::{Handle, Proxy, Report, serve};
pub use record::{Fault, Stats};
pub use resp::{Frame, Framer, Malformed, Side};
pub use toxic::{Cut, Kind, Repeat, Stream, Toxic};
