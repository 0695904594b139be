//! Histories in files.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold_drill::history::History;

/// Writes a history as `NAME.jsonl` into this folder.
pub(crate) fn keep(folder: &Path, name: &str, history: &History) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.jsonl"));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut out = std::io::BufWriter::new(std::fs::File::create(&path)?);
        for record in &history.records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
