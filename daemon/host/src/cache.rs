//! Caches of bounded size, by `quick_cache`.
//!
//! A full cache evicts values that are seldom requested. **Never** makes a value under its lock: concurrent callers
//! with one key wait for the first of them and share its value. **Failure.** A value that cannot be made is not kept,
//! and the next caller makes it again.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter};

pub use quick_cache::Weighter;

/// Cache of shared values; values in use stay alive after their eviction.
pub type Cache<K, V, W = UnitWeighter> = quick_cache::sync::Cache<K, Arc<V>, W>;

/// Returns an empty cache of at most `most` values.
pub fn of_count<K: Eq + Hash, V>(most: usize) -> Cache<K, V> {
    let weight = u64::try_from(most).expect("a count fits 64 bits");
    of_weight(most, weight, UnitWeighter)
}

/// Returns an empty cache of values whose sum of weights is at most `most`. About `expected` values are expected.
pub fn of_weight<K, V, W>(expected: usize, most: u64, weighter: W) -> Cache<K, V, W>
where
    K: Eq + Hash,
    W: Weighter<K, Arc<V>> + Clone,
{
    // With several shards, a value heavier than the share of one would never be kept.
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(expected)
        .weight_capacity(most)
        .build();
    let options = options.expect("all options without a default are set");
    let (hash, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
    Cache::with_options(options, weighter, hash, lifecycle)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[derive(Clone)]
    struct Length;

    impl Weighter<u32, Arc<String>> for Length {
        fn weight(&self, _key: &u32, value: &Arc<String>) -> u64 {
            value.len().try_into().unwrap()
        }
    }

    #[test]
    fn a_value_is_made_once_and_a_failed_one_is_tried_again() {
        let cache: Cache<String, u32> = of_count(10);
        let make = |value| cache.get_or_insert_with("a", || value);
        assert_eq!(make(Err("broken")), Err("broken"));
        let first = make(Ok(Arc::new(1))).unwrap();
        assert!(Arc::ptr_eq(&first, &make(Err("made twice")).unwrap()));
    }

    #[test]
    fn count_is_bounded_also_if_it_is_small() {
        let cache: Cache<u32, u32> = of_count(3);
        for key in 0..100 {
            cache.insert(key, Arc::new(key));
            assert!(cache.len() <= 3);
        }
        assert!(cache.len() >= 2);
    }

    #[test]
    fn a_value_may_take_a_quarter_of_the_bound_and_none_may_exceed_it() {
        let cache: Cache<u32, String, Length> = of_weight(100, 1000, Length);
        let insert = |key, length| cache.insert(key, Arc::new("x".repeat(length)));
        for key in 0..3 {
            insert(key, 250);
        }
        assert!((0..3).all(|key| cache.get(&key).is_some()));
        insert(3, 1001);
        assert!(cache.get(&3).is_none());
        for key in 4..20 {
            insert(key, 250);
            assert!(cache.weight() <= 1000);
        }
    }

    #[test]
    fn cache_computes_values_concurrently() {
        let cache: Cache<u32, u32> = of_count(10);
        let make = |key, value| cache.get_or_insert_with(&key, || Ok::<_, Infallible>(value));
        let outer = cache.get_or_insert_with(&1, || {
            let Ok(inner) = make(2, Arc::new(2));
            Ok::<_, Infallible>(Arc::new(*inner + 1))
        });
        assert_eq!(*outer.unwrap(), 3);
    }
}
