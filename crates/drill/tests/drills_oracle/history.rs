//! Records are written and read back; damage and gaps are reported.

use std::io::Write;
use std::sync::{Arc, Mutex};

use leasehold_core::Fence;
use leasehold_core::clock::BootClock;
use leasehold_drill::history::{HistoryEntry, HistoryRecord, HistorySink, MAX_LINE_BYTES, read};

#[test]
fn a_written_record_is_read_back() {
    let record = HistoryRecord {
        at: 7,
        who: "w1".into(),
        what: HistoryEntry::Claimed { attempt: 3, until: 9, proven_until: Some(8), fence: Fence::new(5) },
    };
    let line = serde_json::to_string(&record).unwrap();
    assert_eq!(
        line,
        r#"{"at":7,"who":"w1","what":"claimed","attempt":3,"until":9,"proven_until":8,"fence":"5"}"#
    );
    let history = read(format!("{line}\n\n{line}\n").as_bytes()).unwrap();
    assert_eq!(history.records, [record.clone(), record]);
    assert_eq!(history.missing(), None);
}

#[test]
fn a_torn_line_is_damage_and_the_rest_is_read() {
    let text = "{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n{\"at\":2,\"wh";
    let history = read(text.as_bytes()).unwrap();
    assert_eq!(history.records.len(), 1);
    assert_eq!(history.damage[0].line, 2);
    assert!(history.missing().is_some());
}

#[test]
fn an_endless_line_costs_no_memory_and_the_next_one_is_read() {
    let mut text = vec![b'x'; 10 * MAX_LINE_BYTES];
    text.extend_from_slice(b"\n{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n");
    let history = read(&text[..]).unwrap();
    assert_eq!(history.records.len(), 1, "{:?}", history.damage);
    assert_eq!(history.damage.len(), 1);
}

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn records_beyond_the_limit_are_counted_and_the_gap_is_recorded() {
    let paper = SharedBuffer::default();
    let sink = HistorySink::new(paper.clone(), 2, BootClock::shared());
    let writer = sink.writer("w1");
    for _ in 0..5 {
        writer.record(HistoryEntry::Quiet);
    }
    sink.close();
    writer.record(HistoryEntry::Quiet);
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let history = read(text.as_bytes()).unwrap();
    assert_eq!(history.records.len(), 3, "two lines and the gap: {text}");
    assert_eq!(history.records[2].what, HistoryEntry::Gap { lines: 3 });
}
