//! The promises, one per file, each judged on facts in true time.

mod i1;
mod i2;
mod i3;
mod i4;
mod i5;
mod i6;
mod i7;
mod i8;
mod i9;

use crate::judge::Invariant;

/// New instances of all invariants, for one history.
pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<i1::OneHolder>::default(),
        Box::<i2::FencesGrow>::default(),
        Box::<i3::TargetIsFenced>::default(),
        Box::<i4::OnlyTheOwner>::default(),
        Box::<i5::NoWorkPastTheLease>::default(),
        Box::<i6::NoOrphanLease>::default(),
        Box::<i7::UnknownStaysUnknown>::default(),
        Box::<i8::OnErrorPolicyApplied>::default(),
        Box::<i9::SingleNotification>::default(),
    ]
}
