//! The lines, and the chain that they are.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use leasehold::Fence;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Act;
use super::whole::{Disk, Whole};

/// What the first line follows.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line, in the order its hash is made of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    seq: u64,
    at: String,
    actor: String,
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forced: Option<bool>,
    prev: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

impl Line {
    fn seal(&mut self) -> String {
        self.hash = None;
        let text = serde_json::to_string(self).unwrap_or_default();
        let hash: String = Sha256::digest(text.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.hash = Some(hash.clone());
        hash
    }
}

/// The file, and where its chain ends.
pub(super) struct Chain<D> {
    last: Verified,
    file: Whole<D>,
}

impl<D: Disk> Chain<D> {
    pub(super) fn new(last: Verified, file: Whole<D>) -> Self {
        Self { last, file }
    }

    /// The next line is in the file, and on the disk if that is wanted; or nothing of it is.
    pub(super) fn add(&mut self, act: Act, at: String, synced: bool) -> io::Result<()> {
        let mut line = Line {
            seq: self.last.lines + 1,
            at,
            actor: act.actor,
            action: act.action.to_owned(),
            name: act.name,
            fence: act.fence,
            detail: act.detail,
            forced: act.forced,
            prev: self.last.hash.clone(),
            hash: None,
        };
        let hash = line.seal();
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        self.file.write(&text, synced)?;
        self.last = Verified {
            lines: line.seq,
            hash,
        };
        Ok(())
    }
}

/// Takes a last line without an end out, and answers how long it was. A whole line is one write with its end: what has none is
/// what a machine that lost its power left of one, and nobody was told that it is on the disk.
pub(super) fn mend(path: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let whole = file.metadata()?.len();
    let mut reader = BufReader::new(&file);
    let (mut ended, mut piece) = (0, Vec::new());
    loop {
        piece.clear();
        let read = reader.read_until(b'\n', &mut piece)?;
        if read == 0 || piece.last() != Some(&b'\n') {
            break;
        }
        ended += u64::try_from(read).unwrap_or(u64::MAX);
    }
    if ended < whole {
        file.set_len(ended)?;
        file.sync_data()?;
    }
    Ok(whole.saturating_sub(ended))
}

/// The end of a chain that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many lines.
    pub lines: u64,
    /// The hash of the last.
    pub hash: String,
}

/// Checks an audit log from its first line to its last.
///
/// # Errors
/// The first line at which the chain is broken, or why the file cannot be read.
pub fn verify(path: &Path) -> Result<Verified, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut last = Verified {
        lines: 0,
        hash: GENESIS.to_owned(),
    };
    for (at, text) in BufReader::new(file).lines().enumerate() {
        let broken = |why: &str| format!("line {}: {why}", at + 1);
        let text = text.map_err(|error| broken(&error.to_string()))?;
        let mut line: Line =
            serde_json::from_str(&text).map_err(|_| broken("is not a line of an audit log"))?;
        let claimed = line.hash.clone().unwrap_or_default();
        if line.seq != last.lines + 1 || line.prev != last.hash {
            return Err(broken(
                "does not follow the line before it: a line was taken out, put in or moved",
            ));
        }
        if line.seal() != claimed {
            return Err(broken("was changed after it was written"));
        }
        last = Verified {
            lines: line.seq,
            hash: claimed,
        };
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::auth::Principal;

    /// A disk with orders to fail.
    struct Failing {
        file: File,
        orders: Arc<Mutex<VecDeque<Order>>>,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Order {
        /// Full after so many bytes.
        Full(usize),
        Unsynced,
        Uncut,
    }

    impl Failing {
        fn meets(&mut self, fails: impl Fn(Order) -> bool) -> Option<Order> {
            self.orders.lock().unwrap().pop_front_if(|order| fails(*order))
        }
    }

    impl Disk for Failing {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            match self.meets(|order| matches!(order, Order::Full(_))) {
                Some(Order::Full(room)) => {
                    self.file.append(&bytes[..room])?;
                    Err(io::ErrorKind::StorageFull.into())
                }
                _ => self.file.append(bytes),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            let fails = self.meets(|order| order == Order::Unsynced);
            fails.map_or(Ok(()), |_| Err(io::ErrorKind::Other.into()))
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            let fails = self.meets(|order| order == Order::Uncut);
            fails.map_or_else(|| self.file.cut(length), |_| Err(io::ErrorKind::Other.into()))
        }
    }

    /// Whatever the disk does to a line: what is told to be there is, what is not is not, and the daemon starts again.
    #[test]
    fn a_disk_that_fails_leaves_the_chain_whole() {
        let who = Principal::new("ci", []);
        for orders in [
            vec![Order::Full(40)],
            vec![Order::Full(0), Order::Full(7)],
            vec![Order::Unsynced],
            vec![Order::Unsynced, Order::Uncut, Order::Uncut, Order::Full(12)],
            vec![Order::Full(40), Order::Uncut, Order::Uncut, Order::Uncut],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit.jsonl");
            let file = File::options().append(true).create_new(true).open(&path).unwrap();
            let disk = Failing {
                file,
                orders: Arc::default(),
            };
            let ordered = Arc::clone(&disk.orders);
            let mut chain = Chain::new(verify(&path).unwrap(), Whole::new(disk, 0));
            let mut kept = 0;
            for number in 0..8 {
                if number == 2 {
                    ordered.lock().unwrap().extend(&orders);
                }
                let act = Act::new("break", &who).detail(&format!("reason {number}"));
                kept += u64::from(chain.add(act, String::new(), true).is_ok());
            }
            assert!(ordered.lock().unwrap().is_empty(), "{orders:?}");
            assert!((3..8).contains(&kept), "{orders:?}: {kept}");
            let found = verify(&path).map(|end| end.lines);
            assert_eq!(found, Ok(kept), "{orders:?}");
        }
    }
}
