//! The tokens under which a hold takes its name anew: derived like its first one, and the file says which of them it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold::Fence;
use leasehold::leasehold_core::{Heirs, Token};

use super::saved::Row;
use crate::app::App;

/// Those of one hold.
#[derive(Debug)]
pub(super) struct HoldHeirs {
    /// It keeps the hold, and must not be kept by it.
    app: Weak<App>,
    /// As it is in the file, or would be.
    row: Row,
    /// What was asked with last: the attempt, and the token that is made from it.
    made: Mutex<(String, Token)>,
}

impl HoldHeirs {
    /// Of a hold that asks, or was granted, with this token first.
    pub(super) fn new(app: &Arc<App>, row: Row, token: Token) -> Arc<Self> {
        Arc::new(Self {
            app: Arc::downgrade(app),
            made: Mutex::new((row.attempt.clone(), token)),
            row,
        })
    }

    fn made(&self) -> MutexGuard<'_, (String, Token)> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heirs for HoldHeirs {
    fn next(&self) -> Option<Token> {
        let app = self.app.upgrade()?;
        let attempt = super::attempt(&app);
        let token = super::token(&app, &self.row, &attempt).ok()?;
        *self.made() = (attempt, token.clone());
        Some(token)
    }

    fn taken(&self, token: &Token, fence: Fence) {
        let (attempt, made) = self.made().clone();
        if let Some(app) = self.app.upgrade().filter(|_| made == *token) {
            app.holds.retaken(Row {
                attempt,
                fence,
                ..self.row.clone()
            });
        }
    }
}
