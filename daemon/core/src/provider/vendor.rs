//! Providers as their files describe them.

use super::endpoint::Endpoint;
use super::model::{self, Model};
use super::protocol::Api;
use super::quirks::Quirks;
use crate::clock::Timestamp;
use crate::directive::CallStart;

/// Days after which what a file says about a vendor should be looked at again.
const FRESH_DAYS: i64 = 90;

/// A provider.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name, which is the stem of its file.
    pub name: String,
    /// How it is talked to.
    pub api: Api,
    /// What a call needs of it.
    pub endpoint: Endpoint,
    /// What it does unlike others of its api.
    pub quirks: Quirks,
    /// When a call that a stream brings starts.
    pub start: CallStart,
    /// Most calls of one message at once.
    pub max_parallel: u32,
    /// When what the file says was looked up.
    pub as_of: Option<Timestamp>,
    /// Whether models that are not listed are taken as well.
    pub open: bool,
    pub(super) models: Vec<Model>,
    /// What is known of a model that is not listed.
    pub(super) profiles: Vec<model::Profile>,
}

impl Provider {
    /// Its models, in the order of the file.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The model of that id or alias. An open provider has any; of one that is not listed only its profiles tell.
    pub fn model(&self, name: &str) -> Option<Model> {
        let listed = self.listed(name).cloned();
        listed.or_else(|| {
            self.open
                .then(|| Model::unlisted(name, &self.profiles, self.api))
                .flatten()
        })
    }

    /// The model that is listed under that id or alias.
    pub fn listed(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.is_called(name))
    }

    /// Whether what the file says is so old that somebody should look at it again.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        const DAY: i64 = 86_400;
        self.as_of
            .is_some_and(|as_of| now.seconds().saturating_sub(as_of.seconds()) > FRESH_DAYS * DAY)
    }
}
