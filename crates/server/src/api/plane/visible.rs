//! What a caller may see of jobs and runs, and lists of it.

use leasehold::Name;
use leasehold_plane::store::{DocumentPage, DocumentPosition, DocumentScope};
use leasehold_plane::workflow::Run;
use leasehold_plane::{Job, PlaneError, Work};

use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Scope};

/// How many documents a list reads at once: one may have a payload of 256 KiB.
const LIST_PAGE_SIZE: usize = 100;
/// How many pages a list reads at most. The store leaves out what the caller's grants do not name, so only
/// readers of many topics reach it.
const MAX_LIST_PAGES: usize = 40;

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

/// Lists what the caller may read, up to `limit`, and whether there may be more.
pub(super) async fn list_readable<T, F: Future<Output = Result<DocumentPage<T>, PlaneError>>>(
    limit: usize,
    reads: impl Fn(&T) -> bool,
    fetch: impl Fn(Option<DocumentPosition>, usize) -> F,
) -> Result<(Vec<T>, bool), Refusal> {
    let (mut readable, mut after) = (Vec::new(), None);
    for _ in 0..MAX_LIST_PAGES {
        let page = fetch(after, LIST_PAGE_SIZE.min(limit)).await?;
        let mut found = page.documents.into_iter().filter(&reads);
        readable.extend(found.by_ref().take(limit - readable.len()));
        let Some(next) = page.next else {
            return Ok((readable, found.next().is_some()));
        };
        if readable.len() == limit {
            return Ok((readable, true));
        }
        after = Some(next);
    }
    Ok((readable, true))
}
