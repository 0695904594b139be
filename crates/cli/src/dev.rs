//! `leasehold dev`: the daemon with a replica on the embedded store, to try Leasehold.

use std::io::Write;

use anyhow::bail;
use clap::Args;
use leasehold_core::shell::quote;
use leasehold_plane::Settings as PlaneSettings;
use leasehold_server::Config;

use crate::config::Settings;
use crate::plane::PlaneStoreArg;
use crate::serve::{DEFAULT_LISTEN_ADDRESS, DaemonSetup, PlaneSetup};

/// Arguments of `leasehold dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
It runs the commands of jobs as you, so only your own user can use it: a token is made at each start, which your
commands find by themselves; `leasehold dashboard` prints a link for a browser.

Examples:
  leasehold dev
  leasehold dev --listen 127.0.0.1:8000
  leasehold --store http://127.0.0.1:7420 list    # in another terminal")]
pub(crate) struct DevArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_LISTEN_ADDRESS, env = "LEASEHOLD_LISTEN")]
    listen: std::net::SocketAddr,
    /// Pass this environment variable to the commands of jobs too, besides PATH, HOME and the like; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    #[command(flatten)]
    plane_store: PlaneStoreArg,
}

/// Runs the daemon and prints what to try next.
pub(crate) fn main(settings: &Settings, args: &DevArgs) -> anyhow::Result<bool> {
    let url = settings.store_url()?;
    let store = url.to_string();
    let plane = PlaneSetup {
        store: args.plane_store.plane_url(&url)?,
        // One person tries everything here: submitting and approving too.
        settings: PlaneSettings { allow_self_approval: true, ..PlaneSettings::default() },
        replica: true,
        pass_env: args.pass_env.clone(),
    };
    if !args.listen.ip().is_loopback() {
        bail!(
            "`dev` runs commands as you and has no identities, so it listens on this machine only, not on {}\n\
             for other machines: `leasehold serve --listen {} --tokens FILE --tls-cert FILE --tls-key FILE`",
            args.listen.ip(),
            args.listen
        );
    }
    let mut config = Config::new(args.listen);
    config.state_dir = Some(Settings::daemon_folder()?);
    let setup = DaemonSetup { url, policies: settings.followed_policies()?, plane: Some(plane), config };
    setup.run(|ready| {
        let (url, json) = (ready.url, "-H 'content-type: application/json'");
        // `[::1]` would be a pattern of file names.
        let (address, locks, jobs) = (
            quote(&url),
            quote(&format!("{url}/v1/locks/demo/acquire")),
            quote(&format!("{url}/v1/jobs/commands")),
        );
        let dashboard = dashboard_text(ready.dashboard, &address, crate::output::is_terminal());
        // From a file: every user of the machine can read the arguments of curl.
        let token = ready.owner_token.map(|files| quote(&format!("@{}", files.header().display())));
        let token = token.map_or_else(String::new, |file| format!("-H {file} "));
        let text = format!(
            "Leasehold is at {url}, on {store}. Ctrl-C ends it.\n\
             The dashboard, for your own user{dashboard}\n\n\
             Three things to try in another terminal:\n  \
             leasehold --store {address} run demo -- sh -c 'echo fence $LEASEHOLD_FENCE; sleep 30'\n  \
             curl -si {locks} {token}{json} -d '{{\"holder\":\"me\"}}'\n  \
             curl -s {jobs} {token}{json} -d '{{\"work\":{{\"exec\":[\"date\"]}}}}'\n"
        );
        // The daemon serves even if standard output is closed.
        let _ = crate::output::script_stdout().write_all(text.as_bytes());
    })
}

/// How the dashboard is opened. A link opens it for whoever reads it first, so it must not stay in a file or a log.
fn dashboard_text(link: Option<String>, address: &str, on_terminal: bool) -> String {
    match link.filter(|_| on_terminal) {
        Some(link) => format!("; this link works once: {link}"),
        None => format!(": run `leasehold --store {address} dashboard`"),
    }
}
