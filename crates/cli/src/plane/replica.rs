//! `leasehold plane replica`: one replica of the control plane as a process.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use leasehold::Holder;
use leasehold_plane::events::{PlaneEvent, PlaneObserver};
use leasehold_plane::work::Executors;
use leasehold_plane::{Replica, Settings as PlaneSettings, StateTimeouts};
use leasehold_server::MetricsListener;
use serde_json::json;

use super::{PlaneStoreArg, command_executor};
use crate::config::Settings;
use crate::message::print_message;

/// `leasehold plane replica`.
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with TERM or INT: takes no new work, lets what is under way finish for --drain, gives its locks back.

Examples:
  leasehold plane replica                                   on the default store, beside other replicas on this host
  leasehold plane replica --metrics-listen 127.0.0.1:7421   and Prometheus reads http://127.0.0.1:7421/metrics
  leasehold --store redis://10.0.0.5 plane replica --id a   one of several hosts")]
pub(crate) struct ReplicaArgs {
    #[command(flatten)]
    plane: PlaneStoreArg,
    /// Its name, before its process id; the host's name if not given
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// How often the repair loops tick; a crashed replica's jobs are taken over within the class's TTL and one poll
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = crate::span::parse)]
    poll: Duration,
    /// How many jobs it works on at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slots: u16,
    /// How long running jobs may take to finish once the replica is asked to stop
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::span::parse)]
    drain: Duration,
    /// When a message whose reader died is delivered again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::span::parse)]
    visible: Duration,
    /// Resubmit a PENDING job after this time; shorter than every time-out
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::span::parse)]
    replay_age: Duration,
    /// Look at a run that has not moved for this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::span::parse)]
    run_age: Duration,
    /// A job may be SCHEDULED for this long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = crate::span::parse)]
    scheduled_timeout: Duration,
    /// A job may be DISPATCHED for this long
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = crate::span::parse)]
    dispatched_timeout: Duration,
    /// A job may be RUNNING for this long, unless it says otherwise
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = crate::span::parse)]
    running_timeout: Duration,
    /// How long ended jobs and runs are kept
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = crate::span::parse)]
    keep: Duration,
    /// Pass this environment variable to the commands too, besides PATH, HOME, LANG, LC_*, TZ, TMPDIR, USER,
    /// LOGNAME and SHELL; may be repeated
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Serve the replica's numbers for Prometheus at /metrics, and /healthz, on this address of this machine
    /// (port 0: any), to every account of the machine
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
    /// Write a JSON line to standard output for each note: takeovers, duplicates, redeliveries
    #[arg(long)]
    notes: bool,
}

impl ReplicaArgs {
    pub(crate) fn settings(&self) -> PlaneSettings {
        PlaneSettings {
            poll: self.poll,
            // Messages must not wait longer than a tick of the repair loops.
            message_poll: PlaneSettings::default().message_poll.min(self.poll),
            slots: self.slots.into(),
            visibility_timeout: self.visible,
            replay_age: self.replay_age,
            run_age: self.run_age,
            timeouts: StateTimeouts {
                scheduled: self.scheduled_timeout,
                dispatched: self.dispatched_timeout,
                running: self.running_timeout,
            },
            retention: self.keep,
            ..PlaneSettings::default()
        }
    }
}

/// Runs until the first signal, then drains.
pub(crate) fn main(settings: &Settings, args: &ReplicaArgs) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let holder = match &args.id {
            Some(id) => Some(Holder::new(&format!("{id}:{}", std::process::id())).context("--id")?),
            None => None,
        };
        let observers: Vec<Arc<dyn PlaneObserver>> = if args.notes { vec![Arc::new(PlaneEventPrinter)] } else { Vec::new() };
        let opened = args.plane.open_with_metrics(settings, args.settings(), holder, observers);
        let (plane, numbers) = opened.await?;
        let scraped = match args.metrics_listen {
            Some(address) => Some(MetricsListener::bind(address, numbers, plane.clone()).await.context("--metrics-listen")?),
            None => None,
        };
        let works = Executors::default().exec(Some(command_executor(&args.pass_env)));
        print_message(&format!("replica {} is running", plane.locks().holder()));
        if let Some(scrape) = scraped {
            print_message(&format!("metrics: http://{}/metrics", scrape.address()));
            // Metrics are served until exit, so that draining can be observed too.
            tokio::spawn(scrape.run(std::future::pending()));
        }
        let replica = Replica::start(plane, works);
        tokio::select! {
            done = tokio::signal::ctrl_c() => done?,
            _ = term.recv() => {}
        }
        print_message("stopping: no new work is accepted");
        let stopped = tokio::select! {
            stopped = replica.stop(args.drain) => stopped,
            _ = term.recv() => anyhow::bail!("stopped by a second signal: other replicas take over the work in progress"),
            _ = tokio::signal::ctrl_c() => anyhow::bail!("stopped by a second signal: other replicas take over the work in progress"),
        };
        if !stopped.drained {
            print_message("some work did not end in time: other replicas take it over");
        }
        Ok(true)
    })
}

/// Prints events as JSON lines, for scripts and drills.
#[derive(Debug)]
struct PlaneEventPrinter;

impl PlaneObserver for PlaneEventPrinter {
    fn on_plane_event(&self, event: &PlaneEvent) {
        let (metric, label) = event.metric();
        let line = json!({"metric": metric, "label": label, "note": format!("{event:?}")});
        // A closed pipe must not stop the replica.
        let _ = writeln!(crate::output::stdout(), "{line}");
    }
}
