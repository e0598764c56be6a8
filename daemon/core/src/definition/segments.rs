//! Steps of a path.

/// The steps of a path: `a`, `0` and `b` of `a[0].b`.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '['])
        .map(|segment| segment.trim_end_matches(']'))
}
