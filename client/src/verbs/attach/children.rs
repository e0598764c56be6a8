//! Child runs of a followed run. A task follows each one; it is shown indented below the node that started it.
//!
//! **Failure.** A child run that cannot be read is not shown. Children beyond [`MOST_AT_ONCE`] at the same time are not
//! followed; the events of the run itself report their ends.

use std::collections::HashMap;
use std::time::Duration;

use rye_client::Client;
use rye_client::events::Follow;
use rye_client::view::{Child, View, ViewUpdate};
use rye_core::model::RunKind;
use rye_proto::{convert, v1};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::render::Style;
use crate::render::lines::{Line, Lines};

/// Most child runs that are followed at the same time.
const MOST_AT_ONCE: usize = 16;
/// Capacity of the queue of events that are not shown yet.
const QUEUE: usize = 64;
/// Longest wait of an ended step for the queued events of its child runs.
const PATIENCE: Duration = Duration::from_secs(1);

/// Message of the task that follows a child run.
enum ChildMessage {
    Run(Box<v1::Run>),
    Event(Box<v1::Event>),
    Over(String),
}

struct FollowedChild {
    depth: usize,
    label: String,
    shown: Option<(View, Lines)>,
}

/// Child runs of one run.
pub(super) struct Children {
    client: Client,
    style: Style,
    sender: mpsc::Sender<ChildMessage>,
    messages: mpsc::Receiver<ChildMessage>,
    followed: HashMap<String, FollowedChild>,
    tasks: JoinSet<()>,
}

impl Children {
    pub(super) fn new(client: Client, style: Style) -> Self {
        let (sender, heard) = mpsc::channel(QUEUE);
        Self {
            client,
            style,
            sender,
            messages: heard,
            followed: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Follows a child run that is `depth` levels down.
    pub(super) fn follow(&mut self, child: &Child, depth: usize) {
        let id = child.run_id.to_string();
        if self.followed.len() >= MOST_AT_ONCE || self.followed.contains_key(&id) {
            return;
        }
        let followed = FollowedChild {
            depth,
            label: child.label.clone(),
            shown: None,
        };
        self.followed.insert(id.clone(), followed);
        let (client, sender) = (self.client.clone(), self.sender.clone());
        self.tasks.spawn(async move {
            // A child run that cannot be followed is not shown. The receiver is gone once the user has detached.
            drop(send_events(&client, &id, &sender).await);
            drop(sender.send(ChildMessage::Over(id)).await);
        });
    }

    /// Returns the next line of a child run. Cancel safe.
    pub(super) async fn next(&mut self) -> Line {
        loop {
            let Some(heard) = self.messages.recv().await else {
                return std::future::pending().await;
            };
            if let Some(line) = self.take(heard) {
                return line;
            }
        }
    }

    /// Returns the remaining lines of child runs when their step has ended.
    pub(super) async fn rest(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        let rest = async {
            while !self.followed.is_empty() {
                let Some(heard) = self.messages.recv().await else {
                    break;
                };
                lines.extend(self.take(heard));
            }
        };
        // A line that is late is shown below later ones.
        drop(tokio::time::timeout(PATIENCE, rest).await);
        lines
    }

    fn take(&mut self, heard: ChildMessage) -> Option<Line> {
        match heard {
            ChildMessage::Over(id) => {
                self.followed.remove(&id);
                None
            }
            ChildMessage::Run(run) => {
                let followed = self.followed.get_mut(&run.run_id)?;
                let kind = run.core_kind().ok()?;
                let (depth, label) = (followed.depth, &followed.label);
                let lines = Lines::of_child(kind, self.style, depth, label);
                let view = View::new(run.item_id(), run.nodes);
                let has_steps = !matches!(kind, RunKind::Tool | RunKind::Process);
                followed.shown = Some((view, lines)).filter(|_| has_steps);
                None
            }
            ChildMessage::Event(event) => self.event(&event),
        }
    }

    fn event(&mut self, event: &v1::Event) -> Option<Line> {
        let followed = self.followed.get_mut(&event.run_id)?;
        let depth = followed.depth;
        let (view, lines) = followed.shown.as_mut()?;
        let at = event.timestamp.as_ref().map(convert::timestamp);
        let news = view.take(&event.fact()?, at)?;
        match &news {
            ViewUpdate::Child(child) => {
                self.follow(child, depth + 1);
                None
            }
            // The text of its model is not shown.
            ViewUpdate::CurrentChanged
            | ViewUpdate::More(_)
            | ViewUpdate::Rest(_)
            | ViewUpdate::ModelMessage(_) => None,
            ViewUpdate::Step(_)
            | ViewUpdate::Retry { .. }
            | ViewUpdate::Warning { .. }
            | ViewUpdate::Retracted { .. }
            | ViewUpdate::UserMessage { .. }
            | ViewUpdate::Call { .. }
            | ViewUpdate::TurnWaiting { .. }
            | ViewUpdate::TurnFailed { .. } => lines.line(view, &news, at.unwrap_or_default()),
        }
    }
}

/// Sends the events of the run `id` until it has ended. A detached run is not followed.
async fn send_events(
    client: &Client,
    id: &str,
    sender: &mpsc::Sender<ChildMessage>,
) -> Result<(), rye_client::Error> {
    let run = client.get(id).await?;
    if run.detached {
        return Ok(());
    }
    let mut events = client.events(id, "", Follow::UntilEnd);
    if sender.send(ChildMessage::Run(Box::new(run))).await.is_err() {
        return Ok(());
    }
    while let Some(event) = events.next().await? {
        if sender
            .send(ChildMessage::Event(Box::new(event)))
            .await
            .is_err()
        {
            break;
        }
    }
    Ok(())
}
