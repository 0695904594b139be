//! One-time codes that open the dashboard: a link carries a code, and the page exchanges it once for
//! the API token. The token itself never stands in an address, a history or a terminal.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold_core::rng::{Random, RandomExt};
use leasehold_wire::Secret;
use subtle::ConstantTimeEq;

/// How long a code can be exchanged.
pub(crate) const DASHBOARD_CODE_LIFETIME: Duration = Duration::from_secs(600);
// Beyond this the oldest code ends: a caller cannot make the daemon's memory grow.
const MAX_PENDING_CODES: usize = 64;
// The same for one caller, whose codes must not displace those of others.
const MAX_PENDING_CODES_OF_ONE: usize = 4;

/// The codes that were not exchanged yet.
#[derive(Default)]
pub(crate) struct DashboardCodes(Mutex<VecDeque<PendingCode>>);

struct PendingCode {
    /// The id of the principal that the token identifies.
    owner: String,
    code: String,
    token: Secret,
    expires_at: Moment,
}

impl DashboardCodes {
    /// Makes a code that stands for this token of `owner`. Beyond its limit, the owner's oldest code ends.
    pub(crate) fn make(&self, owner: &str, token: &str, random: &dyn Random, now: Moment) -> String {
        let code = format!("{:032x}", random.wide());
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|code| now < code.expires_at);
        let mut own = pending.iter().enumerate().filter(|(_, code)| code.owner == owner).map(|(at, _)| at);
        let oldest = own.next();
        if let Some(oldest) = oldest.filter(|_| own.count() + 1 >= MAX_PENDING_CODES_OF_ONE) {
            pending.remove(oldest);
        } else if pending.len() >= MAX_PENDING_CODES {
            pending.pop_front();
        }
        pending.push_back(PendingCode {
            owner: owner.to_owned(),
            code: code.clone(),
            token: Secret::new(token),
            expires_at: now + DASHBOARD_CODE_LIFETIME,
        });
        code
    }

    /// Exchanges a code for its token. A code works once.
    pub(crate) fn exchange(&self, code: &str, now: Moment) -> Option<Secret> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|code| now < code.expires_at);
        let at = pending.iter().position(|known| bool::from(known.code.as_bytes().ct_eq(code.as_bytes())))?;
        pending.remove(at).map(|known| known.token)
    }
}

impl fmt::Debug for DashboardCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DashboardCodes((hidden))")
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::rng::OsRandom;

    use super::*;

    #[test]
    fn finding_08_a_code_works_once_and_expires() {
        let (codes, now) = (DashboardCodes::default(), Moment::from_nanos(1));
        let code = codes.make("a", "lk_a_1", &OsRandom, now);
        assert!(codes.exchange("", now).is_none() && codes.exchange(&code[1..], now).is_none());
        assert_eq!(codes.exchange(&code, now).unwrap().expose(), "lk_a_1");
        assert!(codes.exchange(&code, now).is_none(), "used");
        let late = codes.make("a", "lk_a_1", &OsRandom, now);
        assert!(codes.exchange(&late, now + DASHBOARD_CODE_LIFETIME).is_none(), "expired");
    }

    #[test]
    fn finding_08_codes_of_one_caller_displace_no_others() {
        let (codes, now) = (DashboardCodes::default(), Moment::from_nanos(1));
        let make = |owner: &str| codes.make(owner, &format!("lk_{owner}_1"), &OsRandom, now);
        let calm = make("calm");
        let mut flood: Vec<_> = (0..200).map(|_| make("flood")).collect();
        let valid = flood.split_off(flood.len() - MAX_PENDING_CODES_OF_ONE);
        assert!(flood.iter().all(|code| codes.exchange(code, now).is_none()), "pushed out");
        assert!(valid.iter().all(|code| codes.exchange(code, now).is_some()));
        assert_eq!(codes.exchange(&calm, now).unwrap().expose(), "lk_calm_1");
        // All callers together have a limit too.
        let all: Vec<_> = (0..=MAX_PENDING_CODES).map(|number| make(&format!("c{number}"))).collect();
        assert!(codes.exchange(&all[0], now).is_none() && codes.exchange(&all[1], now).is_some());
    }
}
