//! Histories: what was read writes as lines that read back the same, damage is told with its line, and a hostile history gets a
//! judgement like any other, the same one each time.
#![no_main]

use leasehold_drill::history::read;
use leasehold_drill::oracle::judge;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let history = read(bytes).expect("memory can be read");
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    assert!(history.records.len() + history.damage.len() <= lines);
    for pair in history.damage.windows(2) {
        assert!(pair[0].line < pair[1].line, "{pair:?}");
    }
    assert!(history.damage.iter().all(|damage| (1..=lines).contains(&damage.line) && !damage.why.is_empty()));
    assert!(history.damage.is_empty() || history.missing().is_some());

    let written: String = history
        .records
        .iter()
        .map(|record| serde_json::to_string(record).expect("a record is JSON") + "\n")
        .collect();
    let again = read(written.as_bytes()).expect("memory can be read");
    assert_eq!((&again.records, again.damage.as_slice()), (&history.records, &[][..]), "{written}");

    let judgement = judge(&history);
    assert_eq!(format!("{:?}", judge(&history)), format!("{judgement:?}"), "two judgements of one history");
    // A clean verdict on half a history would be worth nothing.
    assert!(history.damage.is_empty() || !judgement.clean(), "clean in spite of {:?}", history.damage);
});
