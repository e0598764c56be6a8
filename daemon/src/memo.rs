//! Values that are made from a text, and kept for the next caller with the same text.
//!
//! **Owns** a bounded map from a key, which identifies the whole text, to the value. **Never** makes a value under its
//! lock: two concurrent callers may both make it, and share the first one stored. **Failure.** A value that could not
//! be made is not kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Cached values by key. If a new value does not fit, the whole cache is emptied.
pub struct Memo<V> {
    most: usize,
    kept: Mutex<Kept<V>>,
}

struct Kept<V> {
    values: HashMap<String, Arc<V>>,
    weight: usize,
}

impl<V> Memo<V> {
    /// Nothing is kept yet, and later no more than weighs `most`.
    pub fn new(most: usize) -> Self {
        let kept = Kept {
            values: HashMap::new(),
            weight: 0,
        };
        Self {
            most,
            kept: Mutex::new(kept),
        }
    }

    /// The value of `key`, if it is kept.
    pub fn get(&self, key: &str) -> Option<Arc<V>> {
        self.kept().values.get(key).cloned()
    }

    /// The value of `key`, which `make` makes if it is not kept. `weight` is what it counts.
    pub fn get_or_make<E>(
        &self,
        key: &str,
        weight: usize,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        let mut kept = self.kept();
        if let Some(first) = kept.values.get(key) {
            return Ok(Arc::clone(first));
        }
        if kept.weight.saturating_add(weight) > self.most {
            kept.values.clear();
            kept.weight = 0;
        }
        if weight <= self.most {
            kept.weight += weight;
            kept.values.insert(key.to_owned(), Arc::clone(&value));
        }
        Ok(value)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept<V>> {
        // A panic elsewhere leaves the map whole: values are made outside.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> fmt::Debug for Memo<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo")
            .field("kept", &self.kept().values.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn make(memo: &Memo<String>, key: &str, weight: usize) -> Arc<String> {
        let made = memo.get_or_make(key, weight, || Ok::<_, Infallible>(key.to_owned()));
        made.unwrap()
    }

    #[test]
    fn cache_computes_value_once_and_retries_failures() {
        let memo = Memo::new(10);
        assert_eq!(memo.get_or_make("a", 1, || Err("broken")), Err("broken"));
        let first = make(&memo, "a", 1);
        let again = memo.get_or_make("a", 1, || Err("made twice")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn cache_size_is_bounded() {
        let memo = Memo::new(10);
        for key in ["a", "b", "c"] {
            make(&memo, key, 4);
        }
        assert!(memo.get("a").is_none() && memo.get("c").is_some());
        make(&memo, "huge", 11);
        assert!(memo.get("huge").is_none());
    }

    #[test]
    fn cache_computes_values_concurrently() {
        let memo = Memo::new(10);
        let outer = memo.get_or_make("outer", 1, || {
            Ok::<_, Infallible>(make(&memo, "inner", 1).to_uppercase())
        });
        assert_eq!(*outer.unwrap(), "INNER");
    }
}
