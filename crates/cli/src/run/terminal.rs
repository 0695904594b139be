//! The terminal, lent to the command while it runs: its group is the one that reads and gets the keyboard's signals.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// A terminal that is ours to lend.
#[derive(Debug)]
pub(crate) struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// Standard input, if it is a terminal and we are in its foreground.
    pub(crate) fn ours() -> Option<Self> {
        let ours = getpgrp();
        let foreground = stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == ours);
        foreground.then_some(Self { ours })
    }

    /// Lends it.
    pub(crate) fn lend(&self, group: rustix::process::Pid) {
        put_forward(Pid::from_raw(group.as_raw_nonzero().get()));
    }

    /// Takes it back.
    pub(crate) fn take_back(&self) {
        put_forward(self.ours);
    }
}

fn put_forward(group: Pid) {
    // Whoever is in the background is stopped for this by TTOU, unless it is blocked. Only for this call: a mask is
    // inherited by what we start.
    let mut block = SigSet::empty();
    block.add(Signal::SIGTTOU);
    let Ok(before) = block.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
        return;
    };
    // A terminal that has gone away cannot be lent, and nobody reads from it.
    let _ = tcsetpgrp(stdin(), group);
    let _ = before.thread_set_mask();
}
