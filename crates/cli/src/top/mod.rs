//! `leasehold top`: locks, holders and what happens to them, live on a terminal.
//!
//! `model` is what is known and what keys do to it, `view` draws it, `poll` looks at the store on a thread of its own, so
//! that a store that does not answer never freezes the keyboard.

mod model;
mod poll;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::model::{Model, Wish};
use self::poll::Poller;
use crate::args::{Output, Place};
use crate::complete;
use crate::desk::Desk;
use crate::lease::print;
use crate::say::say;

/// How long a key may wait for its frame.
const FRAME: Duration = Duration::from_millis(100);

/// `leasehold top`.
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

/// Shows it until someone has seen enough.
pub(crate) fn main(place: &Place, args: &TopArgs) -> anyhow::Result<bool> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let desk = Desk::open(place)?;
        let listing = desk.list(&args.prefix, poll::LIMIT)?;
        print(&listing.leases, listing.truncated, Output::Wide)?;
        say("this is no terminal, so this was all; see `leasehold list --watch`");
        return Ok(true);
    }
    let url = place.store()?;
    // Before the screen is taken: what is wrong with the store should stay readable.
    let poller = Poller::start(place, args)?;
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut model = Model::new(url.to_string(), poller.is_told());
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &mut model, &poller, colour);
    ratatui::try_restore()?;
    shown.map(|()| true)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    poller: &Poller,
    colour: bool,
) -> anyhow::Result<()> {
    loop {
        while let Some(look) = poller.next() {
            model.take(look);
        }
        while let Some(told) = poller.heard() {
            model.hear(&told);
        }
        let now = BootClock.now();
        terminal.draw(|frame| view::draw(frame, model, now, colour))?;
        if event::poll(FRAME)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && model.key(key) == Wish::Quit
        {
            return Ok(());
        }
    }
}
