//! The arguments of `leasehold advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::args::Redacted;

/// Arguments of `leasehold advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads how long locks were held (and, where it is recorded, how long the store took and processes stalled) and does the sums:
  ttl = p99 of held time + jitter + guard        work at its p99 ends within one lease
  the shorter ttl that renewal permits           one renewal may time out and its retry still be confirmed
  renew every ttl/3; takeover = ttl + lock_delay + 1s at most

Exit codes: 0 advice given and the takeover target (if any) can be met, 1 it cannot, 2 error or too little data.

Examples:
  leasehold advise scheduler --from held.txt --slo 30s
  leasehold advise scheduler --from http://127.0.0.1:7420
  curl -s -H @metrics.header https://locks.example/metrics | leasehold advise scheduler --from -
  leasehold advise scheduler --p99 18s --jitter 4s --guard 2s
  leasehold advise scheduler --from held.txt --what-if ttl=12s
  leasehold advise scheduler --from held.txt --write | patch -p1")]
pub(crate) struct AdviseArgs {
    /// The class to advise on
    #[arg(default_value = "scheduler")]
    pub(crate) class: String,
    /// Recorded data: a running daemon at http://HOST:PORT, or a file of durations, of its history, or of
    /// text from /metrics; - for standard input
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) from: Option<Redacted<PathBuf>>,
    /// What is in it, if it cannot be told from its first line
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: Option<DataKind>,
    /// The 99th percentile of held time, if it is known better than from records
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) p99: Option<Duration>,
    /// The budget for network, store tail and pauses, instead of the recorded one
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) jitter: Option<Duration>,
    /// What is added on top; a tenth of the p99 if not given
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) guard: Option<Duration>,
    /// How long work is given to stop before its lease ends, if not what the class says; if that is 0s too,
    /// what `run` takes: the smaller of 5s and a sixth of the TTL
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) stop_grace: Option<Duration>,
    /// The takeover target: from a holder's crash to the next owner, at most
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) slo: Option<Duration>,
    /// How many locks are held at once, for the renewal traffic
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) holds: u64,
    /// What another TTL would do, e.g. ttl=12s; may be repeated
    #[arg(long, value_name = "ttl=DURATION", value_parser = what_if)]
    pub(crate) what_if: Vec<Duration>,
    /// Print the change of the policy file as a diff, and nothing else
    #[arg(long)]
    pub(crate) write: bool,
    /// Draw the held times with the TTLs here, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write a page with the advice and the picture here
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = AdviceFormat::Text)]
    pub(crate) output: AdviceFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataKind {
    /// One duration a line
    Durations,
    /// Prometheus text, as /metrics serves it
    Metrics,
    /// Holds as JSON, as /v1/history serves them
    History,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdviceFormat {
    /// Sums and a picture for people
    Text,
    /// One JSON document
    Json,
}

fn what_if(text: &str) -> Result<Duration, String> {
    match text.split_once('=') {
        Some(("ttl", value)) => crate::span::parse(value).map_err(|why| format!("ttl {why}")),
        _ => Err("only a TTL can be tried; write ttl=12s".into()),
    }
}
