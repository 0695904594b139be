//! `leasehold dev`: the daemon with a replica on the embedded store, to try Leasehold.

use std::io::Write;

use clap::Args;
use leasehold_plane::Settings as PlaneSettings;
use leasehold_server::Config;

use crate::config::Settings;
use crate::plane::PlaneStoreArg;
use crate::serve::{DEFAULT_LISTEN_ADDRESS, DaemonSetup, PlaneSetup};

/// Arguments of `leasehold dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold dev
  leasehold dev --listen 127.0.0.1:8000
  leasehold --store http://127.0.0.1:7420 list    # in another terminal")]
pub(crate) struct DevArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_LISTEN_ADDRESS, env = "LEASEHOLD_LISTEN")]
    listen: std::net::SocketAddr,
    #[command(flatten)]
    plane_store: PlaneStoreArg,
}

/// Runs the daemon and prints what to try next.
pub(crate) fn main(settings: &Settings, args: &DevArgs) -> anyhow::Result<bool> {
    let url = settings.store_url()?;
    let store = url.to_string();
    let plane = PlaneSetup {
        store: args.plane_store.plane_url(&url)?,
        settings: PlaneSettings::default(),
        replica: true,
    };
    let mut config = Config::new(args.listen);
    config.state_dir = Some(Settings::daemon_folder()?);
    let setup = DaemonSetup { url, policies: settings.policy_file(), plane: Some(plane), config };
    setup.run(|address| {
        let json = "-H 'content-type: application/json'";
        let text = format!(
            "Leasehold is at {address}, on {store}. Ctrl-C ends it.\n\n\
             Three things to try in another terminal:\n  \
             leasehold --store {address} run demo -- sh -c 'echo fence $LEASEHOLD_FENCE; sleep 30'\n  \
             curl -si {address}/v1/locks/demo/acquire {json} -d '{{\"holder\":\"me\"}}'\n  \
             curl -s {address}/v1/jobs/commands {json} -d '{{\"work\":{{\"exec\":[\"date\"]}}}}'\n"
        );
        // The daemon serves even if standard output is closed.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    })
}
