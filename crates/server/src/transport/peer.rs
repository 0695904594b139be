//! The remote end of a connection: its certificate and its time limit.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::state::shares::{Share, Shares};
use crate::transport::client_certificate::ClientCertificate;
use crate::transport::unidentified::UnidentifiedConnection;

/// The host of an address, as far as it can be told: one host commonly has a whole IPv6 /64.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 => v4,
    }
}

/// What is known of the remote end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// Where the connection comes from.
    pub(crate) address: Option<IpAddr>,
    /// The certificate that the client has presented, if any.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// The connection's place among those without an identity; `None` if callers are not told apart.
    pub(crate) unidentified: Option<Arc<UnidentifiedConnection>>,
    /// The connection's part of its identity's share; `None` in it if that was used up.
    pub(crate) identity_share: Arc<OnceLock<Option<Share>>>,
    /// Set on a reserved connection: the request must be complete within this time.
    pub(crate) reserved_timeout: Option<Duration>,
}

impl Peer {
    /// The peer has presented a valid identity.
    pub(crate) fn set_identified(&self) {
        if let Some(place) = &self.unidentified {
            place.set_identified();
        }
    }

    /// Counts an ordinary connection to the identity of its first request. False if the identity has as
    /// many as it may have; a reserved connection ends soon and is not counted.
    pub(crate) fn is_in_share(&self, who: &str, all: &Arc<Shares>) -> bool {
        self.reserved_timeout.is_some() || self.identity_share.get_or_init(|| all.take(who)).is_some()
    }
}
