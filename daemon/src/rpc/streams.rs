//! The limit on open streams. Each may hold a file of the archive open, and runs need descriptors too.
//!
//! One connection carries thousands of calls, so the limit on connections does not limit streams. A principal has at
//! most half of all streams, so that others get some. **Failure.** A stream over the limit is refused with
//! `RESOURCE_EXHAUSTED`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, StreamExt as _};
use rye_core::capability::Layer;
use rye_core::error::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::status::with_reason;

/// Clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    all: Arc<Semaphore>,
    /// Most streams per principal.
    each: usize,
    principals: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
}

/// Permit of one open stream.
#[derive(Debug)]
pub(super) struct StreamPermit {
    _of_all: OwnedSemaphorePermit,
    _of_principal: OwnedSemaphorePermit,
}

impl Streams {
    /// Allows a quarter of `descriptors`.
    pub(super) fn new(descriptors: usize) -> Self {
        let all = (descriptors / 4).clamp(2, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(all)),
            each: all / 2,
            principals: Arc::default(),
        }
    }

    /// Fails if `caller` or all callers together have too many streams open.
    pub(super) fn take(&self, caller: &Layer) -> Result<StreamPermit, Status> {
        let of_principal = {
            // Every use inserts or removes whole entries, so a panic elsewhere leaves the map valid.
            let mut known = self
                .principals
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // Principals without open streams are dropped; an entry is made again on demand.
            known.retain(|name, places| {
                **name == *caller.source || places.available_permits() < self.each
            });
            let own = known.entry(caller.source.as_str().into());
            let own = own.or_insert_with(|| Arc::new(Semaphore::new(self.each)));
            Arc::clone(own).try_acquire_owned()
        };
        let refused = |whose: String, most: usize| {
            let text = format!("{whose} {most} streams open, and there may be no more; end some");
            with_reason(
                Status::resource_exhausted(text),
                ErrorKind::Exhausted.word(),
            )
        };
        let of_principal =
            of_principal.map_err(|_full| refused(format!("`{}` has", caller.source), self.each))?;
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all =
            of_all.map_err(|_full| refused("all callers have".to_owned(), 2 * self.each))?;
        Ok(StreamPermit {
            _of_all: of_all,
            _of_principal: of_principal,
        })
    }
}

impl StreamPermit {
    /// Holds the permit for as long as `stream` exists.
    pub(super) fn held_by<S: Stream>(self, stream: S) -> impl Stream<Item = S::Item> {
        stream.map(move |item| {
            let _place = &self;
            item
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn caller(source: &str) -> Layer {
        Layer {
            source: source.to_owned(),
            patterns: Vec::new(),
        }
    }

    #[tokio::test]
    async fn stream_slots_are_limited_and_released() {
        let streams = Streams::new(24);
        let open = |who: &str| {
            let place = streams.take(&caller(who))?;
            Ok::<_, Status>(place.held_by(stream::pending::<()>()))
        };
        let mut of_one: Vec<_> = std::iter::from_fn(|| open("uid:1").ok()).collect();
        assert_eq!(of_one.len(), 3);
        let refused = open("uid:1").err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(
            refused.message().contains("`uid:1` has 3 streams"),
            "{refused}"
        );
        let _of_another: Vec<_> = std::iter::from_fn(|| open("uid:2").ok()).collect();
        let refused = open("uid:3").err().unwrap();
        assert!(
            refused.message().contains("all callers have 6 streams"),
            "{refused}"
        );
        of_one.pop();
        drop(open("uid:3").unwrap());
        drop(open("uid:1").unwrap());
        drop(of_one);
        let _of_third: Vec<_> = std::iter::from_fn(|| open("uid:3").ok()).collect();
        assert_eq!(
            streams.principals.lock().unwrap().len(),
            2,
            "one has none open"
        );
    }
}
