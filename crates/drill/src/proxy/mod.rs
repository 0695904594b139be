//! A TCP proxy that injects network faults on demand, repeatable by seed.
//!
//! It runs between a client and a server on the loopback interface and forwards bytes. A *toxic* is
//! one fault that is in force. Toxics have toxiproxy's names and meanings, with three additions:
//! - `cut_after_forward`: the server executes the request, and the reply is lost.
//! - `repeat`: the server receives one command twice, and the client sees one reply.
//! - `timeout` of 0: data is held until the toxic is removed, as a healed network delivers late
//!   packets.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use leasehold_drill::proxy::{Proxy, ProxyConfig, Toxic, ToxicKind};
//! # async fn demo() -> Result<(), leasehold_drill::proxy::Error> {
//! let proxy = Proxy::start(ProxyConfig::resp("127.0.0.1:6379".parse().unwrap()).seed(7)).await?;
//! println!("connect to {}", proxy.address());
//! proxy.add(Toxic::new(ToxicKind::Latency { latency: Duration::from_millis(200), jitter: Duration::ZERO }))?;
//! proxy.add("cut_after_forward command=SET times=1".parse()?)?;
//! proxy.heal().await?;
//! proxy.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `config` | listen address, upstream, protocol, limits, clock and random source |
//! | `toxic`, `text` | the faults as data, and their text form |
//! | `registry` | the toxics in force; every connection watches it |
//! | `active_toxic`, `stream_machine` | one direction of one connection as a pure machine: what to send, and when |
//! | `pump` | does the reads, writes and sleeps that a stream machine asks for |
//! | `resp` | finds the ends of commands and replies, and which reply belongs to which command |
//! | `listener` | the listening socket, enabled and disabled; one task per connection |
//! | `handle` | the public API |
//! | `recorder` | counters and the history of faults |
//! | `control` | the same API over a text socket |
//!
//! **Promises**: byte order is kept, buffers are bounded, toxics also affect connections that are
//! already open, and no task or socket is left after [`Proxy::stop`]. **Not promised**: that two
//! runs split a stream into the same chunks. Draws per connection and per command repeat with the
//! seed. Draws per chunk (jitter) repeat only if the chunks do.

mod active_toxic;
mod config;
mod control;
mod error;
mod handle;
mod listener;
mod pump;
mod recorder;
mod registry;
mod resp;
mod stream_machine;
mod text;
mod toxic;

pub use config::{ProxyConfig, ProxyProtocol};
pub use error::Error;
pub use handle::{Proxy, ProxyHandle, ProxyReport, serve};
pub use recorder::{InjectedFault, ProxyStats};
pub use resp::{FrameScan, FrameSide, Framer, MalformedFrame};
pub use toxic::{CutOptions, RepeatOptions, StreamDirection, Toxic, ToxicKind};
