//! The jobs that a claim looks at, and where the next claim goes on.
//!
//! A claim is bounded, and the first jobs of a topic may all be of no use to it. Half of its bound is for the
//! jobs that are due first. The other half goes on where an earlier claim has stopped, so that every job is
//! looked at eventually.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::Scheduler;
use crate::error::PlaneError;
use crate::state::JobState;
use crate::store::{Document, DocumentKind, DocumentPosition, DocumentQuery, DocumentScope};

/// How many jobs are read at once: payloads are large, and the first candidate is usually free.
const CLAIM_PAGE_SIZE: usize = 16;
/// How many searches are remembered. Only topics with more jobs than the bound have one.
const MAX_REMEMBERED_SEARCHES: usize = 1024;

/// The topic and the scope of a search.
type SearchKey = (String, Option<DocumentScope>);

/// Where searches have stopped.
#[derive(Debug, Default)]
pub(super) struct ClaimPositions(Mutex<HashMap<SearchKey, DocumentPosition>>);

impl ClaimPositions {
    fn get(&self, key: &SearchKey) -> Option<DocumentPosition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn set(&self, key: SearchKey, position: Option<DocumentPosition>) {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match position {
            None => {
                positions.remove(&key);
            }
            Some(position) => {
                if positions.len() >= MAX_REMEMBERED_SEARCHES {
                    positions.clear();
                }
                positions.insert(key, position);
            }
        }
    }
}

/// One claim's search for candidates.
#[derive(Debug)]
pub(super) struct CandidateSearch<'a> {
    scheduler: &'a Scheduler,
    key: SearchKey,
    query: DocumentQuery,
    /// How many candidates this half of the search has left.
    left: usize,
    /// The second half, which goes on where an earlier claim has stopped.
    going_on: bool,
    ended: bool,
}

impl Scheduler {
    /// Begins a search for jobs of a topic that a worker could claim.
    pub(super) fn candidates(&self, topic: &str, scope: Option<&DocumentScope>) -> CandidateSearch<'_> {
        CandidateSearch {
            scheduler: self,
            key: (topic.to_owned(), scope.cloned()),
            query: DocumentQuery {
                index_key: Some(topic.to_owned()),
                scope: scope.cloned(),
                ..DocumentQuery::new(DocumentKind::Job, [JobState::Dispatched.as_str()], 0)
            },
            left: self.writer.settings.claim_candidates.div_ceil(2),
            going_on: false,
            ended: false,
        }
    }
}

impl CandidateSearch<'_> {
    /// The next candidates; `None` after the last ones.
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<Document>>, PlaneError> {
        if self.left == 0 && !self.ended {
            self.turn();
        }
        if self.ended {
            return Ok(None);
        }
        let writer = &self.scheduler.writer;
        self.query.limit = CLAIM_PAGE_SIZE.min(self.left);
        // A store may return an empty page and a position: that search counts, too.
        self.left -= self.query.limit;
        let page = writer.call(writer.store.page(&self.query)).await?;
        self.query.after = page.next;
        if self.query.after.is_none() {
            self.ended = true;
            if self.going_on {
                self.remember(None);
            }
        }
        Ok(Some(page.documents))
    }

    /// Ends the search at a candidate that was claimed.
    pub(super) fn end_at(&self, candidate: &Document) {
        if self.going_on {
            self.remember(Some(DocumentPosition::of(candidate)));
        }
    }

    /// Goes on where an earlier claim has stopped, or ends.
    fn turn(&mut self) {
        if self.going_on {
            self.ended = true;
            return self.remember(self.query.after.clone());
        }
        self.going_on = true;
        self.left = self.scheduler.writer.settings.claim_candidates.div_ceil(2);
        if let Some(earlier) = self.scheduler.claim_positions.get(&self.key) {
            self.query.after = Some(earlier);
        }
    }

    fn remember(&self, position: Option<DocumentPosition>) {
        self.scheduler.claim_positions.set(self.key.clone(), position);
    }
}
