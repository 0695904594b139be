//! A fenced write: the database refuses a holder that has lost its lease without noticing.
//!
//! `cargo run -p leasehold-fence --features sqlite --example fenced_write`

use std::sync::Arc;

use leasehold_core::{Acquired, Fence, Locks, Name, clock::BootClock, memory::MemoryStore};
use leasehold_fence::{Verdict, sqlite};
use rusqlite::{Connection, TransactionBehavior};

fn write_state(db: &mut Connection, job: &Name, fence: Fence, state: &str) -> anyhow::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match sqlite::admit(&tx, job, fence)? {
        Verdict::Admitted(()) => {
            tx.execute("INSERT OR REPLACE INTO job VALUES (?1, ?2)", (job.as_str(), state))?;
            tx.commit()?;
            println!("wrote {state}");
        }
        Verdict::Stale(stale) => println!("refused {state}: {stale}"), // dropping `tx` rolls back
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
    let mut db = Connection::open_in_memory()?;
    db.execute_batch("CREATE TABLE job (id TEXT PRIMARY KEY, state TEXT) STRICT")?;
    sqlite::install(&db)?;

    let (job, mut fences) = (Name::new("job:42")?, Vec::new());
    for _ in 0..2 {
        if let Acquired::Held(hold) = locks.class("scheduler").acquire("job:42").await? {
            fences.push(hold.fence()?);
            hold.release().await;
        }
    }
    write_state(&mut db, &job, fences[1], "done")?;
    write_state(&mut db, &job, fences[0], "half done") // the first holder, late
}
