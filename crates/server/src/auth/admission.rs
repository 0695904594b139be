//! What a request was admitted by, so that a request that lasts can be checked again.
//!
//! Streams and waiting requests outlive the check at their start. They look their credential up again
//! every second, and end when it is revoked, has expired, or no longer covers what they do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{ClockExt, Moment};
use leasehold_wire::ErrorCode;
use sha2::{Digest, Sha256};

use super::{Principal, Right, Rule, Target};
use crate::problem::Refusal;
use crate::state::app::App;
use crate::transport::client_certificate::ClientCertificate;

// With the interval at which the tokens file is read, a revoked token ends its streams within 5 s.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What identifies a caller, without its secret.
#[derive(Clone)]
pub(crate) enum Credential {
    /// An API token: its id and the hash of its secret.
    Token { id: String, sha256: [u8; 32] },
    /// A client certificate that the handshake has verified.
    Certificate(Arc<ClientCertificate>),
}

impl Credential {
    /// Parses an API token; `None` if the text is not one.
    pub(crate) fn from_token(token: &str) -> Option<Self> {
        let (id, secret) = token.strip_prefix("lk_")?.rsplit_once('_')?;
        let sha256 = Sha256::digest(secret.as_bytes()).into();
        Some(Self::Token { id: id.to_owned(), sha256 })
    }
}

/// The credential of a request, and the right that admitted it.
pub(super) struct Admission {
    credential: Credential,
    /// The right, its target, and the rule's other namespace ([`Rule::or_by`]).
    right: Option<(Right, Target, Option<&'static str>)>,
}

impl Admission {
    pub(super) fn new(credential: Credential) -> Self {
        Self { credential, right: None }
    }

    pub(super) fn with_right(&self, rule: &Rule, target: Target) -> Self {
        let right = rule.right.map(|right| (right, target, rule.or_by));
        Self { credential: self.credential.clone(), right }
    }
}

impl App {
    /// Whether identities can be revoked while the daemon runs: only those of a file.
    fn can_revoke(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| !tokens.are_fixed())
    }

    /// The caller with its present grants; `None` if it may not do this any more.
    pub(crate) fn still_admitted(&self, who: &Principal) -> Option<Principal> {
        let (Some(tokens), Some(admission)) = (&self.tokens, who.admission()) else {
            return Some(who.clone());
        };
        let now = tokens.identify(&admission.credential)?;
        let admitted = |(right, target, or_by): &_| now.may_or_by(*right, target, *or_by);
        let allowed = admission.right.as_ref().is_none_or(admitted);
        allowed.then(|| now.admitted_as(who))
    }

    /// Completes when a waiting request must end: the daemon stops, or the caller has lost the right.
    pub(crate) async fn interrupted(&self, who: &Principal) -> Refusal {
        let revoked = async {
            while self.still_admitted(who).is_some() {
                self.clock.sleep(ACCESS_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Refusal::stopping(),
            () = revoked, if self.can_revoke() => revoked_refusal(),
        }
    }

    /// When a stream has to check its caller again.
    pub(crate) fn next_access_check(&self) -> Moment {
        if self.can_revoke() { self.clock.now() + ACCESS_CHECK_INTERVAL } else { Moment::FAR }
    }
}

/// The response to a request whose credential or right was taken away while it waited.
pub(crate) fn revoked_refusal() -> Refusal {
    Refusal::new(
        ErrorCode::Unauthorized,
        "the API token or certificate was revoked, has expired, or lost the right while the request waited",
    )
}
