//! Providers as described by their files.

use super::endpoint::Endpoint;
use super::model::{self, Model};
use super::protocol::Api;
use super::quirks::Quirks;
use crate::clock::Timestamp;
use crate::directive::CallStart;

/// Days after which the contents of a provider file are considered stale.
const FRESH_DAYS: i64 = 90;

#[derive(Debug, Clone)]
pub struct Provider {
    /// Stem of the file's name.
    pub name: String,
    pub api: Api,
    pub endpoint: Endpoint,
    pub quirks: Quirks,
    /// Point of an answer at which its calls may start.
    pub start: CallStart,
    /// Largest number of calls of one message that run at once.
    pub max_parallel: u32,
    /// Date on which the contents of the file were checked.
    pub as_of: Option<Timestamp>,
    /// True if unlisted models may be used.
    pub open: bool,
    pub(super) models: Vec<Model>,
    /// Defaults for models by patterns of their ids.
    pub(super) profiles: Vec<model::Profile>,
}

impl Provider {
    /// Returns the models, in the order of the file.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// Returns the model of that id or alias. An open provider also has unlisted models, described by its profiles
    /// only.
    pub fn model(&self, name: &str) -> Option<Model> {
        let listed = self.listed(name).cloned();
        listed.or_else(|| {
            self.open
                .then(|| Model::unlisted(name, &self.profiles, self.api))
                .flatten()
        })
    }

    /// Returns the listed model of that id or alias.
    pub fn listed(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.is_called(name))
    }

    /// Returns true if the file was checked more than 90 days ago.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        const DAY: i64 = 86_400;
        self.as_of
            .is_some_and(|as_of| now.seconds().saturating_sub(as_of.seconds()) > FRESH_DAYS * DAY)
    }
}
