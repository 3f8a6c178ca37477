//! What a consumer of the tour has seen.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minimq_client::Delivery;

use super::until;

/// A list that a consumer's handler writes and a step reads. Clones are one list.
#[derive(Debug)]
pub(super) struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Ord> Seen<T> {
    fn list(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, value: T) {
        self.list().push(value);
    }

    pub(super) fn len(&self) -> usize {
        self.list().len()
    }

    /// In the order of arrival.
    pub(super) fn all(&self) -> Vec<T> {
        self.list().clone()
    }

    pub(super) fn sorted(&self) -> Vec<T> {
        let mut all = self.all();
        all.sort();
        all
    }

    /// Waits for so many.
    pub(super) async fn wait(&self, count: usize) -> Result<(), String> {
        let waited = until("", async || (self.len() >= count).then_some(())).await;
        waited.map_err(|_| format!("only {} of {count} messages came", self.len()))
    }
}

/// The property by which the tour numbers its messages; −1 without one.
pub(super) fn sequence_id(message: &Delivery) -> i64 {
    message
        .property("SequenceId")
        .and_then(|text| text.parse().ok())
        .unwrap_or(-1)
}
