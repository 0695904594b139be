//! `leasehold top`: locks, holders and events, live on a terminal.
//!
//! `model` holds the state and handles keys; `view` draws it. `poll` reads the store on a thread of its own,
//! so that a store that does not answer never freezes the keyboard.

mod model;
mod poll;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::model::{KeyOutcome, Model};
use self::poll::Poller;
use crate::args::ListFormat;
use crate::complete;
use crate::config::Settings;
use crate::lease::print_leases;
use crate::message::print_message;
use crate::session::StoreSession;

// The longest time between two frames: bars count down, and a poll result must show soon.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `leasehold top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys:
  q      quit                     /      show only names or holders that contain what you type; Enter, Esc
  s      sort by the next column  r      the other way round
  p      pause, and go on         j, k   down and up (also the arrow keys)

Without a terminal it prints one list and ends; see `leasehold list --watch` and `leasehold watch` for pipes.

Examples:
  leasehold top
  leasehold --store redis://127.0.0.1 top job: --every 500ms")]
pub(crate) struct TopArgs {
    /// Only names that begin with this
    #[arg(default_value = "", add = ArgValueCompleter::new(complete::names))]
    pub(crate) prefix: String,
    /// How often the store is looked at
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = crate::span::parse)]
    pub(crate) every: Duration,
}

/// Runs until the user quits; prints one list if there is no terminal.
pub(crate) fn main(settings: &Settings, args: &TopArgs) -> anyhow::Result<bool> {
    if !crate::output::is_terminal() || !std::io::stdin().is_terminal() {
        let session = StoreSession::open(settings)?;
        let listing = session.list(&args.prefix, poll::MAX_LISTED_LOCKS)?;
        print_leases(&listing.leases, listing.truncated, ListFormat::Wide)?;
        print_message("this is no terminal, so this was all; see `leasehold list --watch`");
        return Ok(true);
    }
    let url = settings.store_url()?;
    // Before the alternate screen: an error of the store must stay readable after exit.
    let poller = Poller::start(settings, args)?;
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut model = Model::new(url.to_string(), poller.has_daemon_events());
    let mut terminal = ratatui::try_init()?;
    let shown = run_loop(&mut terminal, &mut model, &poller, colour);
    ratatui::try_restore()?;
    shown.map(|()| true)
}

fn run_loop(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    poller: &Poller,
    colour: bool,
) -> anyhow::Result<()> {
    loop {
        while let Some(look) = poller.next() {
            model.apply_poll(look);
        }
        while let Some(told) = poller.next_event() {
            model.add_daemon_event(&told);
        }
        let now = BootClock.now();
        terminal.draw(|frame| view::draw(frame, model, now, colour))?;
        if event::poll(FRAME_INTERVAL)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && model.handle_key(key) == KeyOutcome::Quit
        {
            return Ok(());
        }
    }
}
