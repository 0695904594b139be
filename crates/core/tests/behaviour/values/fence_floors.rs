use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, AcquireResponse, BusyLease, Grant};
use leasehold_core::{Fence, FenceFloors, Holder, Name, Token, Ttl};

#[test]
fn responses_raise_the_floor_of_their_name_and_never_lower_it() {
    let floors = FenceFloors::default();
    let token = Token::fresh(&Holder::new("me").unwrap(), "approval", &*SeededRandom::shared(7));
    let ttl = Ttl::new(std::time::Duration::from_secs(1)).unwrap();
    let name = Name::new("job:1").unwrap();
    let mut request = AcquireRequest::new(name.clone(), token, ttl);
    let busy = |fence| AcquireResponse::Busy(BusyLease::default().with_fence(Fence::new(fence)));
    floors.learn(&busy(0), &mut request);
    assert_eq!((request.floor, floors.highest()), (None, None));
    floors.learn(&busy(7), &mut request);
    assert_eq!((request.floor, floors.get(&name)), (Fence::new(7), Fence::new(7)));
    request.floor = Fence::new(20);
    floors.learn(&AcquireResponse::Granted(Grant::new(Fence::new(9).unwrap())), &mut request);
    assert_eq!((request.floor, floors.get(&name)), (Fence::new(20), Fence::new(9)));
    floors.record(&Name::new("job:2").unwrap(), Fence::new(30).unwrap());
    assert_eq!(floors.highest(), Fence::new(30));
}
