//! What a caller may see of jobs and runs, and lists of it.

use std::io;

use leasehold::Name;
use leasehold_plane::store::{DocumentPage, DocumentPosition, DocumentScope};
use leasehold_plane::workflow::Run;
use leasehold_plane::{Job, PlaneError, Work};
use serde::Serialize;

use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Scope};

/// How many documents a list reads at once: one may have a payload and a result of 256 KiB each.
const LIST_PAGE_SIZE: usize = 16;
/// How many pages a list reads at most. The store leaves out what the caller's grants do not name, so only
/// readers of many topics reach it.
const MAX_LIST_PAGES: usize = 250;
/// How many bytes the entries of a list have at most as JSON, apart from a first one that is larger.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Whether the caller may read this job: by its id, or as a reader or worker of its topic. `submit` on a
/// topic does not show its jobs: tenants share topics, and must not read each other's payloads.
pub(super) fn reads_job(who: &Principal, job: &Job) -> bool {
    covers(who, Right::Read, "job", &job.id)
        || has_topic_workers(job)
            && Name::new(&format!("topic:{}", job.spec.topic)).is_ok_and(|topic| {
                who.grants().iter().any(|grant| shows_topic(grant.right) && grant.scope.covers(&topic))
            })
}

/// Whether the job's topic selects who does its work. Commands and gates of all tenants share a topic that
/// nobody chose, so the topic gives no right on them.
fn has_topic_workers(job: &Job) -> bool {
    matches!(job.spec.work, Work::Pull | Work::Handler)
}

/// Whether the caller may read this run.
pub(super) fn reads_run(who: &Principal, run: &Run) -> bool {
    covers(who, Right::Read, "run", &run.id)
}

/// Whether the caller may claim this job and report its result.
pub(super) fn works_on_job(who: &Principal, job: &Job) -> bool {
    covers(who, Right::Work, "job", &job.id)
        || has_topic_workers(job) && covers(who, Right::Work, "topic", &job.spec.topic)
}

/// Whether the caller has a right on `kind:id`.
pub(super) fn covers(who: &Principal, right: Right, kind: &str, id: &str) -> bool {
    Name::new(&format!("{kind}:{id}")).is_ok_and(|name| who.covers(right, &name))
}

/// The rights that let a caller see the jobs of a topic.
fn shows_topic(right: Right) -> bool {
    matches!(right, Right::Read | Right::Work | Right::Admin)
}

/// The beginnings of names within a namespace, or `None` if a scope covers all of it.
fn beginnings<'a>(scopes: impl Iterator<Item = &'a Scope>, namespace: &str) -> Option<Vec<String>> {
    let found: Vec<_> = scopes.filter_map(|scope| scope.prefix_within(namespace)).collect();
    (!found.iter().any(String::is_empty)).then_some(found)
}

/// The jobs that the caller's grants can show, for the store; `None` if these are not limited.
pub(super) fn visible_jobs(who: &Principal) -> Option<DocumentScope> {
    let topics = who.grants().iter().filter(|grant| shows_topic(grant.right)).map(|grant| &grant.scope);
    let ids = beginnings(who.scopes(Right::Read), "job")?;
    Some(DocumentScope { ids, index_keys: beginnings(topics, "topic")? })
}

/// The runs that the caller's grants can show.
pub(super) fn visible_runs(who: &Principal) -> Option<DocumentScope> {
    let ids = beginnings(who.scopes(Right::Read), "run")?;
    Some(DocumentScope { ids, index_keys: Vec::new() })
}

/// The jobs of a topic that the caller may work on.
pub(super) fn workable_jobs(who: &Principal, topic: &str) -> Option<DocumentScope> {
    if covers(who, Right::Work, "topic", topic) {
        return None;
    }
    let ids = beginnings(who.scopes(Right::Work), "job")?;
    Some(DocumentScope { ids, index_keys: Vec::new() })
}

/// Lists what the caller may read, up to `limit` and [`MAX_LIST_BYTES`], and whether there may be more.
pub(super) async fn list_readable<T, V, F>(
    limit: usize,
    reads: impl Fn(&T) -> bool,
    fetch: impl Fn(Option<DocumentPosition>, usize) -> F,
) -> Result<(Vec<V>, bool), Refusal>
where
    V: From<T> + Serialize,
    F: Future<Output = Result<DocumentPage<T>, PlaneError>>,
{
    let (mut readable, mut bytes, mut after) = (Vec::new(), 0, None);
    for _ in 0..MAX_LIST_PAGES {
        let page = fetch(after, LIST_PAGE_SIZE.min(limit)).await?;
        for document in page.documents.into_iter().filter(&reads) {
            let entry = V::from(document);
            bytes += json_length(&entry);
            if readable.len() == limit || (bytes > MAX_LIST_BYTES && !readable.is_empty()) {
                return Ok((readable, true));
            }
            readable.push(entry);
        }
        let Some(next) = page.next else {
            return Ok((readable, false));
        };
        if readable.len() == limit {
            return Ok((readable, true));
        }
        after = Some(next);
    }
    Ok((readable, true))
}

/// The length of a document as JSON.
fn json_length(document: &impl Serialize) -> usize {
    struct ByteCount(usize);

    impl io::Write for ByteCount {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = ByteCount(0);
    // Cannot fail: the daemon's own documents are JSON, and the writer takes everything.
    let _ = serde_json::to_writer(&mut count, document);
    count.0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn position(number: usize) -> DocumentPosition {
        DocumentPosition { due: None, id: number.to_string() }
    }

    /// Lists documents of `bytes` each, of which there are `count`. Returns how many are in the list, whether
    /// there may be more, and how many were read from the store.
    async fn list(limit: usize, bytes: usize, count: usize) -> (usize, bool, usize) {
        let read = Cell::new(0);
        let fetch = |after: Option<DocumentPosition>, size: usize| {
            assert!(size <= 16, "{size} at once");
            let begin = after.map_or(0, |after| after.id.parse().unwrap());
            let end = count.min(begin + size);
            read.set(read.get() + end - begin);
            let page = DocumentPage {
                documents: vec!["x".repeat(bytes); end - begin],
                next: (end < count).then(|| position(end)),
            };
            async move { Ok(page) }
        };
        let (listed, truncated): (Vec<String>, bool) = list_readable(limit, |_| true, fetch).await.unwrap();
        (listed.len(), truncated, read.get())
    }

    /// Finding 13 of the security review: a page of the store could be a hundred of the largest documents.
    #[tokio::test]
    async fn finding_13_a_list_reads_little_more_than_it_returns() {
        assert_eq!(list(1000, 100, 40).await, (40, false, 40));
        assert_eq!(list(40, 100, 40).await, (40, false, 40));
        assert!(list(39, 100, 40).await.1);
        let (listed, truncated, read) = list(1000, 512 * 1024, 1000).await;
        assert_eq!((listed, truncated, read), (7, true, 16));
        // One that is larger than the whole bound is still shown.
        assert_eq!(list(1000, 2 * MAX_LIST_BYTES, 2).await, (1, true, 2));
    }
}
