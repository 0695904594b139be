//! The checker goes red for each promise that a history breaks, and stays green for what looks alike and is allowed.

mod big;
mod broken;
mod excuses;
mod retaken;
mod script;
mod sound;
mod worth;
