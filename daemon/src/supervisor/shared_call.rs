//! Calls of programs that several tries of an attempt share: by a key of the program, or by the order of its calls.
//!
//! **Owns** the decision whether a call of an earlier try counts, is continued, or is made again. The record is the run
//! of that call: its start key derives from the attempt, and its spec has the hash of item and parameters.
//!
//! ```text
//! the run of the call    live ─► attached    succeeded ─► its result    other item or parameters ─► KeyReused, Differs
//!   ended otherwise      a later call is recorded, a person denied it, or an at-most-once effect is unknown ─► its result
//!                        else ─► continued, or made again under the key of the next round
//! ```

use std::sync::Arc;

use rye_core::model::{Callback, DENIED, Run};
use rye_core::seal::sha256_hex;
use rye_journal::KeyOwner;

use super::error::Error;
use super::handle::{CALLBACK_KEY, Supervisor};
use crate::callbacks::Program;
use crate::children::Earlier;

/// The identity of a call among those of its attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum SharedKey<'a> {
    /// A key that the program names.
    Named(&'a str),
    /// Number of the call of a program that repeats its calls in order.
    Ordered(u32),
}

impl SharedKey<'_> {
    fn keys(self, program: &Program, round: u32) -> CallKeys {
        let text = match self {
            Self::Named(key) => format!("{}:key:{round}:{key}", program.key),
            Self::Ordered(ordinal) => format!("{}:replay:{round}:{ordinal}", program.key),
        };
        let key = sha256_hex(text);
        CallKeys {
            start_key: Some(format!("{CALLBACK_KEY}{key}")),
            key,
        }
    }
}

/// Keys of the run of a call.
#[derive(Debug)]
pub(super) struct CallKeys {
    /// Start key, if other tries share the run.
    pub start_key: Option<String>,
    /// Key from which those of the run derive.
    pub key: String,
}

/// Result of the search for an earlier call.
#[derive(Debug)]
pub(super) enum Shared {
    /// The run of that call answers.
    Attached(rye_core::id::RunId),
    /// The call is made.
    Made {
        key: CallKeys,
        /// The run of that call, which ended without success.
        continues: Option<Arc<Run>>,
    },
    /// The earlier call of that number is another one. The call is made only to see if it is refused.
    Differs { key: CallKeys, recorded: Arc<Run> },
}

impl Supervisor {
    /// Looks for the run of an earlier call with the same key.
    pub(super) async fn shared_call(
        &self,
        program: &Program,
        shared: Option<SharedKey<'_>>,
        parent: &Run,
        callback: &Callback,
    ) -> Result<Shared, Error> {
        let Some(shared) = shared else {
            let random = self.journal().random();
            let key = CallKeys {
                start_key: None,
                key: sha256_hex(format!("{}:call:{random:016x}", program.key)),
            };
            let continues = None;
            return Ok(Shared::Made { key, continues });
        };
        for round in 0_u32.. {
            let key = shared.keys(program, round);
            let Some(record) = self.call_of(parent, &key).await? else {
                let continues = None;
                return Ok(Shared::Made { key, continues });
            };
            let earlier = record.spec.callback.as_ref();
            if earlier.is_none_or(|earlier| earlier.call != callback.call) {
                return match shared {
                    SharedKey::Named(_) => Err(Error::KeyReused {
                        run: record.id.clone(),
                        what: "another item or other parameters".to_owned(),
                    }),
                    SharedKey::Ordered(_) => Ok(Shared::Differs {
                        key,
                        recorded: record,
                    }),
                };
            }
            let is_of_this_try = earlier.is_some_and(|earlier| earlier.attempt == callback.attempt);
            let last = self.newest(&record.id).await?;
            let counts = is_of_this_try
                || !last.status().is_terminal()
                || last.status().is_success()
                || last.failure().is_some_and(|failure| failure.code == DENIED)
                || self.is_followed(program, shared, parent).await?
                || self.runs().has_unknown(Arc::clone(&last)).await;
            if counts {
                return Ok(Shared::Attached(last.id.clone()));
            }
            match Earlier::of_ended(last) {
                Ok(Earlier::None) => {}
                Ok(Earlier::Continues(run)) => {
                    let continues = Some(run);
                    return Ok(Shared::Made { key, continues });
                }
                Ok(Earlier::Counts(run)) => return Ok(Shared::Attached(run)),
                // It can neither be continued nor made again.
                Err(_) => return Ok(Shared::Attached(record.id.clone())),
            }
        }
        unreachable!("each round has a key of its own")
    }

    /// Returns the run that was made under `key`.
    async fn call_of(&self, parent: &Run, key: &CallKeys) -> Result<Option<Arc<Run>>, Error> {
        let start_key = key.start_key.as_deref().unwrap_or_default();
        let principal = &parent.spec.principal;
        match self.journal().by_start_key(principal, start_key).await? {
            None => Ok(None),
            Some(KeyOwner::Removed(run, _)) => Err(Error::Removed { run }),
            Some(KeyOwner::Run(run)) => Ok(Some(self.run_of(&run).await?)),
        }
    }

    /// True if the program has made a later call in an earlier life, so it has received the result of this one.
    async fn is_followed(
        &self,
        program: &Program,
        shared: SharedKey<'_>,
        parent: &Run,
    ) -> Result<bool, Error> {
        let SharedKey::Ordered(ordinal) = shared else {
            return Ok(false);
        };
        let next = SharedKey::Ordered(ordinal + 1).keys(program, 0);
        Ok(self.call_of(parent, &next).await?.is_some())
    }
}
