//! The headers of a fenced request: what is admitted is exactly what was sent, and anything else is refused with its name.
//!
//! The input is lines: values of `Leasehold-Name` and `Leasehold-Fence` in turn.
#![no_main]

use http::{HeaderMap, HeaderValue, Request};
use leasehold_core::{Fence, Name};
use leasehold_fence::http::{Admission, FENCE, NAME, read, stamp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut headers = HeaderMap::new();
    let mut lines = bytes.split(|byte| *byte == b'\n');
    while let Some(name) = lines.next() {
        for (header, value) in [(NAME, Some(name)), (FENCE, lines.next())] {
            if let Some(Ok(value)) = value.map(HeaderValue::from_bytes) {
                headers.append(header, value);
            }
        }
    }
    let (names, fences) = (headers.get_all(NAME).iter().count(), headers.get_all(FENCE).iter().count());
    match read(&headers) {
        Ok(None) => assert_eq!((names, fences), (0, 0), "headers were overlooked"),
        Ok(Some(admitted)) => {
            assert_eq!((names, fences), (1, 1), "one of several was chosen");
            let mut request = Request::new(());
            stamp(&mut request, &admitted.name, admitted.fence);
            // One spelling of a fence; a name may also be encoded more than it must.
            assert_eq!(request.headers()[FENCE], headers[FENCE]);
            assert!(request.headers()[NAME].len() <= headers[NAME].len());
            assert_eq!(read(request.headers()), Ok(Some(admitted)));
        }
        Err(refused) => assert!(["Leasehold-Name", "Leasehold-Fence"].contains(&refused.header)),
    }
    // Every name arrives.
    if let Some(name) = std::str::from_utf8(bytes).ok().and_then(|text| Name::new(text).ok()) {
        let mut request = Request::new(());
        stamp(&mut request, &name, Fence::MAX);
        assert_eq!(read(request.headers()), Ok(Some(Admission::new(name, Fence::MAX))));
    }
});
