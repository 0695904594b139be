//! `leasehold drill proxy`: the fault proxy by itself.

use std::io::Write;

use anyhow::Context;
use leasehold_drill::proxy::{Proxy, ProxyConfig, Toxic};

use super::args::ProxyArgs;
use super::{build_runtime, wait_for_interrupt};
use crate::message::print_message;

/// Runs the proxy until INT or TERM.
pub(crate) fn main(args: &ProxyArgs) -> anyhow::Result<bool> {
    let mut config =
        if args.resp { ProxyConfig::resp(args.upstream) } else { ProxyConfig::raw(args.upstream) };
    if let Some(address) = args.listen {
        config = config.listen(address);
    }
    if let Some(address) = args.control {
        config = config.control(address);
    }
    if args.expose {
        config = config.expose();
    }
    if let Some(seed) = args.seed {
        config = config.seed(seed);
    }
    let toxics: Vec<Toxic> = args
        .toxics
        .iter()
        .map(|words| words.parse().with_context(|| format!("toxic {words:?}")))
        .collect::<anyhow::Result<_>>()?;
    build_runtime()?.block_on(async {
        let proxy = Proxy::start(config).await?;
        for toxic in toxics {
            proxy.add(toxic)?;
        }
        // On standard output, so that a script that chose no port can read it.
        writeln!(crate::output::stdout(), "{}", proxy.address())?;
        if let Some(control) = proxy.control_address() {
            print_message(&format!("orders are taken at {control}"));
        }
        wait_for_interrupt().await.context("cannot listen for signals")?;
        let stats = proxy.stop().await.stats;
        print_message(&format!(
            "{} connections, {} bytes to the server, {} back, faults: {:?}",
            stats.connections, stats.bytes_upstream, stats.bytes_downstream, stats.faults
        ));
        Ok(true)
    })
}
