//! Sets of numbers as sorted lists: built once, then only joined and scanned.

use std::cmp::Ordering;
use std::iter::from_fn;

/// Sorts `numbers` and removes duplicates.
pub(super) fn set(numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Adds `number` to `set`. Usually it is the greatest, and then the cost is small.
pub(super) fn add(set: &mut Vec<u32>, number: u32) {
    if let Err(place) = set.binary_search(&number) {
        set.insert(place, number);
    }
}

/// Removes `number` from `set`.
pub(super) fn take(set: &mut Vec<u32>, number: u32) {
    if let Ok(place) = set.binary_search(&number) {
        set.remove(place);
    }
}

/// Returns the intersection.
pub(super) fn both(one: &[u32], other: &[u32]) -> Vec<u32> {
    common_positions(one, other)
        .filter_map(|(place, _)| one.get(place).copied())
        .collect()
}

/// Returns the union.
pub(super) fn either(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(one.len() + other.len());
    let mut other = other.iter().copied().peekable();
    for number in one {
        all.extend(from_fn(|| other.next_if(|beside| beside < number)));
        other.next_if_eq(number);
        all.push(*number);
    }
    all.extend(other);
    all
}

/// Returns the numbers that are only in `one`.
pub(super) fn without(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut left = one.to_vec();
    let mut other = other.iter().peekable();
    left.retain(|number| {
        while other.next_if(|beside| *beside < number).is_some() {}
        other.peek() != Some(&number)
    });
    left
}

/// Returns the positions of the common numbers in each of two sets.
pub(super) fn common_positions(one: &[u32], other: &[u32]) -> impl Iterator<Item = (usize, usize)> {
    let (mut here, mut there) = (0, 0);
    from_fn(move || {
        loop {
            match one.get(here)?.cmp(other.get(there)?) {
                Ordering::Less => here += 1,
                Ordering::Greater => there += 1,
                Ordering::Equal => {
                    (here, there) = (here + 1, there + 1);
                    return Some((here - 1, there - 1));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_in_order_are_joined_like_sets(
            one in prop::collection::vec(0_u32..40, 0..30),
            other in prop::collection::vec(0_u32..40, 0..30),
            number in 0_u32..40,
        ) {
            let sets: [BTreeSet<u32>; 2] = [&one, &other].map(|list| list.iter().copied().collect());
            let [one, other] = [set(one), set(other)];
            let list = |set: &BTreeSet<u32>| set.iter().copied().collect::<Vec<_>>();
            prop_assert_eq!(&one, &list(&sets[0]));
            prop_assert_eq!(both(&one, &other), list(&(&sets[0] & &sets[1])));
            prop_assert_eq!(either(&one, &other), list(&(&sets[0] | &sets[1])));
            prop_assert_eq!(without(&one, &other), list(&(&sets[0] - &sets[1])));
            let [mut more, mut less] = [one.clone(), one];
            add(&mut more, number);
            take(&mut less, number);
            prop_assert_eq!(more, list(&(&sets[0] | &BTreeSet::from([number]))));
            prop_assert_eq!(less, list(&(&sets[0] - &BTreeSet::from([number]))));
        }
    }
}
