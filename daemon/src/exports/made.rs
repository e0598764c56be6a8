//! State derived from the events of a run, besides its transcript.

use rye_core::clock::Timestamp;
use rye_core::digest::Written;
use rye_core::id::{RunId, Seq};
use rye_core::model::{Event, Run, RunKind, Spec};

pub(super) use super::graph_page::Outlines;
use super::graph_page::Page;
use super::objects::Objects;
use super::receipts::Receipts;
use super::thread_page::ThreadPage;

#[derive(Debug)]
pub(super) enum Made {
    Graph(Box<Graph>),
    Thread(Box<ThreadPage>),
}

#[derive(Debug)]
pub(super) struct Graph {
    receipts: Receipts,
    page: Page,
}

impl Made {
    /// Initial state; `None` for a run of a kind that has neither objects nor a page.
    pub(super) fn new(id: &RunId, spec: &Spec, outlines: &Outlines) -> Option<Self> {
        match spec.kind() {
            RunKind::Graph => Some(Self::Graph(Box::new(Graph {
                receipts: Receipts::default(),
                page: Page::new(id, spec, &outlines.of(spec)),
            }))),
            RunKind::Thread => Some(Self::Thread(Box::new(ThreadPage::new(id, spec)))),
            RunKind::Tool | RunKind::Process => None,
        }
    }

    /// Applies the next event. Adds its objects to `objects`.
    pub(super) fn take(&mut self, seq: Seq, at: Timestamp, event: &Event, objects: &mut Objects) {
        match self {
            Self::Graph(graph) => {
                let left = graph.receipts.take(at, event);
                graph.page.take(seq, at, event, left.as_ref());
                if let Some(left) = left {
                    objects.add(left.result);
                    objects.add(left.receipt);
                }
            }
            Self::Thread(page) => page.take(seq, at, event),
        }
    }

    /// The unsigned page, and the time of its last event.
    pub(super) fn page(&self) -> (String, Timestamp) {
        match self {
            Self::Graph(graph) => (
                graph.page.render(graph.receipts.len()),
                graph.page.updated_at(),
            ),
            Self::Thread(page) => (page.render(), page.updated_at()),
        }
    }

    /// State and snapshot objects of `run`, which is suspended or ended; `None` for a run without objects.
    pub(super) fn snapshots(&self, run: &Run) -> Option<(Written, Written)> {
        match self {
            Self::Graph(graph) => Some(graph.receipts.snapshots(run)),
            Self::Thread(_) => None,
        }
    }
}
