//! The terminal, lent to the command while it runs.
//!
//! The command's process group becomes the foreground group: it can read and gets the keyboard's signals.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// A terminal whose foreground group is leasehold's.
#[derive(Debug)]
pub(crate) struct Terminal {
    own_group: Pid,
}

impl Terminal {
    /// Standard input, if it is a terminal and leasehold is in its foreground.
    pub(crate) fn if_foreground() -> Option<Self> {
        let ours = getpgrp();
        let foreground = stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == ours);
        foreground.then_some(Self { own_group: ours })
    }

    pub(crate) fn lend(&self, group: rustix::process::Pid) {
        set_foreground_group(Pid::from_raw(group.as_raw_nonzero().get()));
    }

    pub(crate) fn take_back(&self) {
        set_foreground_group(self.own_group);
    }
}

fn set_foreground_group(group: Pid) {
    // The kernel stops a background process for this call with TTOU unless the signal is blocked.
    // Blocked only here, because children inherit the mask.
    let mut block = SigSet::empty();
    block.add(Signal::SIGTTOU);
    let Ok(before) = block.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
        return;
    };
    // Fails if the terminal has gone away; then there is nothing to lend.
    let _ = tcsetpgrp(stdin(), group);
    let _ = before.thread_set_mask();
}
