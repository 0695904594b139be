//! `leasehold drill hostile-clients`: the flags, and the printed report.

use std::io::Write;

use anyhow::bail;
use clap::Args;
use leasehold_drill::fleet::WorkerProgram;
use leasehold_drill::hostile::HostileDrillOptions;

use super::{finish_verdict, unless_interrupted};
use crate::message::print_message;

/// `leasehold drill hostile-clients`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold drill hostile-clients                 16,000 idle connections, 2,000 unfinished bodies, and floods
  leasehold drill hostile-clients --scale 0.1     a tenth of them")]
pub(crate) struct HostileClientsArgs {
    /// The part of the full number of requests and connections, from 0.001 to 1
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=1.0).contains(scale));
    scale.ok_or_else(|| "must be a number from 0.001 to 1".to_owned())
}

/// Runs the drill. Returns false if a promise was broken.
pub(super) fn main(args: &HostileClientsArgs) -> anyhow::Result<bool> {
    // `block_on` starts the daemon on this thread. The kernel would kill it with the thread that started it.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (options, program) = (HostileDrillOptions::new(args.scale), WorkerProgram::current()?);
    let drill = leasehold_drill::hostile::run(&options, &program, &print_message);
    let Some(judged) = runtime.block_on(unless_interrupted(drill))? else {
        bail!("interrupted: the daemon of the drill is gone");
    };
    let judged = judged?;
    let printed = crate::output::stdout().write_all(judged.report.as_bytes());
    finish_verdict(judged.kept, printed.map_err(Into::into))
}
