//! `leasehold drill proxy`.

use std::io::Write;

use anyhow::Context;
use leasehold_drill::proxy::{Config, Proxy, Toxic};

use super::args::ProxyArgs;
use super::{interrupted, runtime};
use crate::say::say;

/// Listens until interrupted.
pub(crate) fn main(args: &ProxyArgs) -> anyhow::Result<bool> {
    let mut config = if args.resp {
        Config::resp(args.upstream)
    } else {
        Config::raw(args.upstream)
    };
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
    runtime()?.block_on(async {
        let proxy = Proxy::start(config).await?;
        for toxic in toxics {
            proxy.add(toxic)?;
        }
        // On standard output, for scripts that chose no port.
        writeln!(std::io::stdout(), "{}", proxy.address())?;
        if let Some(control) = proxy.control_address() {
            say(&format!("orders are taken at {control}"));
        }
        interrupted().await.context("cannot listen for signals")?;
        let stats = proxy.stop().await.stats;
        say(&format!(
            "{} connections, {} bytes to the server, {} back, faults: {:?}",
            stats.connections, stats.bytes_upstream, stats.bytes_downstream, stats.faults
        ));
        Ok(true)
    })
}
