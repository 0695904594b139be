//! Hash slots of Redis Cluster, and one short tag for each of them.
//!
//! A lock, its queue, its tombstones and its fence counter must live in one slot, or no script may
//! touch them together (hazard R2). Queue and tombstones carry the lock's key as their tag. The
//! counter belongs to the slot, not to the lock, so that the number of counters is bounded. Its
//! name is a tag that hashes to the slot.

use std::sync::LazyLock;

/// Number of slots, fixed by Redis Cluster.
pub(crate) const SLOT_COUNT: u16 = 16_384;

/// The slot of a key without braces.
pub(crate) fn slot_of_key(key: &str) -> u16 {
    crc16(key.as_bytes()) % SLOT_COUNT
}

/// The smallest decimal number that hashes to this slot. Part of the key
/// layout: it must never change.
pub(crate) fn tag_of_slot(slot: u16) -> u32 {
    SLOT_TAGS.get(usize::from(slot % SLOT_COUNT)).copied().unwrap_or_default()
}

static SLOT_TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOT_COUNT)];
    let mut left = tags.len();
    let mut number = 0_u32;
    while left > 0 {
        let place = usize::from(self::slot_of_key(&number.to_string()));
        if let Some(empty @ None) = tags.get_mut(place) {
            *empty = Some(number);
            left -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
});

/// CRC-16/XMODEM, one byte at a time.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = usize::from((crc >> 8) ^ u16::from(*byte));
        (crc << 8) ^ CRC16_TABLE.get(index).copied().unwrap_or_default()
    })
}

static CRC16_TABLE: LazyLock<[u16; 256]> = LazyLock::new(|| {
    std::array::from_fn(|index| {
        let start = u16::try_from(index).unwrap_or_default() << 8;
        (0..8).fold(start, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_redis_cluster() {
        // The check value of CRC-16/XMODEM, and slots as `CLUSTER KEYSLOT` returns them.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of_key("foo"), 12_182);
        assert_eq!(slot_of_key("somekey"), 11_058);
    }

    #[test]
    fn every_slot_has_its_own_tag() {
        for want in 0..SLOT_COUNT {
            assert_eq!(slot_of_key(&tag_of_slot(want).to_string()), want);
        }
    }
}
