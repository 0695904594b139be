//! `leasehold dev`: everything on the embedded store in one command, to try things out.

use std::io::Write;

use clap::Args;
use leasehold_plane::Settings;
use leasehold_server::Config;

use crate::args::Place;
use crate::plane::PlaneStoreArg;
use crate::serve::{LISTEN, Setting, Within};

/// `leasehold dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold dev
  leasehold dev --listen 127.0.0.1:8000
  leasehold --store http://127.0.0.1:7420 list    # in another terminal")]
pub(crate) struct DevArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN, env = "LEASEHOLD_LISTEN")]
    listen: std::net::SocketAddr,
    #[command(flatten)]
    plane_store: PlaneStoreArg,
}

/// Serves, and says what to try next.
pub(crate) fn main(place: &Place, args: &DevArgs) -> anyhow::Result<bool> {
    let url = place.store()?;
    let store = url.to_string();
    let plane = Within {
        kept: args.plane_store.kept(&url)?,
        settings: Settings::default(),
        replica: true,
    };
    let mut config = Config::new(args.listen);
    config.state = Some(Place::daemon_folder()?);
    let setting = Setting {
        url,
        policies: place.policy_file()?,
        plane: Some(plane),
        config,
    };
    setting.run(|address| {
        let json = "-H 'content-type: application/json'";
        let text = format!(
            "Leasehold is at {address}, on {store}. Ctrl-C ends it.\n\n\
             Three things to try in another terminal:\n  \
             leasehold --store {address} run demo -- sh -c 'echo fence $LEASEHOLD_FENCE; sleep 30'\n  \
             curl -si {address}/v1/locks/demo/acquire {json} -d '{{\"holder\":\"me\"}}'\n  \
             curl -s {address}/v1/jobs/commands {json} -d '{{\"work\":{{\"exec\":[\"date\"]}}}}'\n"
        );
        // If nobody reads it, it is served all the same.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    })
}
