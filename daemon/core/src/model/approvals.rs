//! The questions of a run to people, and their answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::approval::{Approval, ApprovalAnswer, ApprovalKind, OnExpiry};
use super::attempt::Slot;
use super::event::{Event, GraphEvent, RunEvent, ThreadEvent};
use super::suspension::SuspendReason;
use crate::clock::Timestamp;
use crate::id::{Epoch, Name};

/// A question of a run, with its answer once there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    pub approval: Approval,
    /// The life of the daemon in which it was put.
    pub epoch: Epoch,
    /// The answer, and the time at which it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<(ApprovalAnswer, Timestamp)>,
    /// True if it expired without an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

impl Requested {
    pub const fn is_open(&self) -> bool {
        self.answer.is_none() && !self.expired
    }

    fn is_of_call(&self, step: u32, slot: Slot) -> bool {
        self.approval.step == Some(step) && self.approval.slot == Some(slot)
    }

    /// True if it is the question of a graph hook, and no one has approved it.
    fn bars(&self) -> bool {
        let approved = self.answer.as_ref().is_some_and(|(said, _)| said.approved);
        let of_hook = self.approval.step.is_none();
        // A limit applies to a run that continues this one as well, and its hooks ask again.
        of_hook && self.approval.kind == ApprovalKind::Node && !approved
    }
}

/// The questions of a run that are open, or answered and not yet handled; for an ended run, the questions that bar its
/// continuation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Approvals(Arc<Vec<Requested>>);

impl Approvals {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if there are questions, and none is open.
    pub fn is_answered(&self) -> bool {
        !self.is_empty() && self.open().next().is_none()
    }

    /// Returns the open questions, the oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Approval> {
        self.requested().map(|asked| &asked.approval)
    }

    /// Returns the open questions with the daemon life of each.
    pub fn requested(&self) -> impl Iterator<Item = &Requested> {
        self.0.iter().filter(|asked| asked.is_open())
    }

    /// Returns the question for whose answer `step` waits.
    pub fn of_step(&self, step: u32) -> Option<&Requested> {
        let mut asked = self.0.iter();
        asked.find(|asked| asked.approval.step == Some(step) && asked.approval.slot.is_none())
    }

    /// Returns the question for whose answer a call of `step` waits, or has waited.
    pub fn of_call(&self, step: u32, slot: Slot) -> Option<&Requested> {
        let mut asked = self.0.iter();
        asked.find(|asked| asked.is_of_call(step, slot))
    }

    /// True if a call of `step` waits for an answer.
    pub fn awaits(&self, step: u32, slot: Slot) -> bool {
        self.of_call(step, slot).is_some_and(Requested::is_open)
    }

    /// True if a call of `step` waits for an answer, whichever it is.
    pub fn await_in(&self, step: u32) -> bool {
        let mut open = self.open();
        open.any(|approval| approval.step == Some(step) && approval.slot.is_some())
    }

    /// Returns the question of a call of `step` whose time is over, if the run ends by that.
    pub fn unanswered_in(&self, step: u32) -> Option<&Requested> {
        let mut asked = self.0.iter();
        asked.find(|asked| {
            let approval = &asked.approval;
            let is_final = asked.expired && approval.on_expiry == OnExpiry::Fail;
            is_final && approval.step == Some(step) && approval.slot.is_some()
        })
    }

    /// True if `event` suspends the run for an answer that came meanwhile: no one would end that suspension.
    pub(super) fn has_answer_for(&self, event: &Event) -> bool {
        matches!(event, Event::Run(RunEvent::RunSuspended(why)) if why.reason == SuspendReason::Approval)
            && (self.is_answered() || self.lets_go_on())
    }

    /// True if a call may go on: its question was answered, or its time is over.
    fn lets_go_on(&self) -> bool {
        let mut asked = self.0.iter();
        asked.any(|asked| asked.approval.slot.is_some() && !asked.is_open())
    }

    /// Returns the last question of a hook that was answered, with its answer.
    pub fn of_hook(&self) -> Option<(&Approval, &ApprovalAnswer)> {
        let of_hooks = |asked: &&Requested| asked.approval.step.is_none();
        let mut answers = self.0.iter().rev().filter(of_hooks);
        answers.find_map(|asked| Some((&asked.approval, &asked.answer.as_ref()?.0)))
    }

    /// Returns the reason for which an ended run must not be continued: a question of a hook bars it, and no one
    /// approved.
    pub fn barrier(&self) -> Option<String> {
        let asked = self.0.iter().find(|asked| asked.bars())?;
        let said = match &asked.answer {
            Some((answer, _)) => answer.denial().message,
            None => "never answered".to_owned(),
        };
        let question = &asked.approval.message;
        Some(format!("what a hook of it asked was {said} (`{question}`)"))
    }

    /// Records a question. Returns `false` if one of that name was recorded before.
    pub(super) fn ask(&mut self, epoch: Epoch, approval: &Approval) -> bool {
        let known = self.0.iter().any(|asked| asked.approval.id == approval.id);
        if !known {
            Arc::make_mut(&mut self.0).push(Requested {
                approval: approval.clone(),
                epoch,
                answer: None,
                expired: false,
            });
        }
        !known
    }

    /// Closes an open question with its answer, or as expired. Returns `false` if it is not open.
    pub(super) fn close(
        &mut self,
        id: &Name,
        answer: Option<(&ApprovalAnswer, Timestamp)>,
    ) -> bool {
        if !self.open().any(|approval| approval.id == *id) {
            return false;
        }
        let mut asked = Arc::make_mut(&mut self.0).iter_mut();
        if let Some(asked) = asked.find(|asked| asked.approval.id == *id && asked.is_open()) {
            asked.answer = answer.map(|(answer, at)| (answer.clone(), at));
            asked.expired = answer.is_none();
        }
        true
    }

    /// Drops the question of that name. Returns `false` if there is none.
    pub(super) fn drop_one(&mut self, id: &Name) -> bool {
        let known = self.0.iter().any(|asked| asked.approval.id == *id);
        if known {
            Arc::make_mut(&mut self.0).retain(|asked| asked.approval.id != *id);
        }
        known
    }

    /// Drops the questions that `event` settles: the step that waited has continued, or never will.
    pub(super) fn clear_after(&mut self, event: &Event, ended: bool) {
        if self.0.is_empty() {
            return;
        }
        let ends_walk = match event {
            // The failure is final: no node follows.
            Event::Graph(GraphEvent::StepCompleted(step)) => {
                step.error.is_some() && !step.suppressed && step.next_node.is_none()
            }
            Event::Graph(GraphEvent::GraphEnding(_)) => true,
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => ended,
        };
        if ends_walk {
            Arc::make_mut(&mut self.0).retain(Requested::bars);
            return;
        }
        if let Some(is_over) = call_that_ends(event) {
            Arc::make_mut(&mut self.0).retain(|asked| !is_over.covers(asked));
        }
        let over = match event {
            Event::Graph(GraphEvent::StepWaiting(_)) => return,
            Event::Graph(GraphEvent::StepFailed(failed)) => Some(failed.step),
            Event::Graph(GraphEvent::StepCompleted(completed)) => Some(completed.step),
            Event::Graph(_) | Event::Run(RunEvent::StepStarted(_)) => None,
            Event::Run(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => return,
        };
        let waits = |asked: &Requested| {
            let is_of_call = asked.approval.slot.is_some();
            is_of_call || asked.answer.is_none() && (over.is_none() || asked.approval.step != over)
        };
        Arc::make_mut(&mut self.0).retain(waits);
    }
}

/// The calls that an event ends for good.
struct EndedCalls {
    step: u32,
    /// One call; all calls of the step without one.
    slot: Option<Slot>,
}

impl EndedCalls {
    fn covers(&self, asked: &Requested) -> bool {
        let slot = self.slot.or(asked.approval.slot);
        slot.is_some_and(|slot| asked.is_of_call(self.step, slot))
    }
}

/// Returns the calls that `event` ends for good; a failed one may be tried again.
const fn call_that_ends(event: &Event) -> Option<EndedCalls> {
    let (step, slot) = match event {
        Event::Graph(GraphEvent::StepCompleted(step)) => (step.step, None),
        Event::Graph(GraphEvent::ItemCompleted(item)) => (item.step, Some(Slot::Part(item.item))),
        Event::Thread(ThreadEvent::StepFinish(turn)) => (turn.turn, None),
        Event::Thread(ThreadEvent::ToolCallResult(result)) => {
            (result.turn, Some(Slot::Part(result.position)))
        }
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            return None;
        }
    };
    Some(EndedCalls { step, slot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asks(schema: Option<Value>) -> Approval {
        Approval {
            id: "a1".into(),
            kind: ApprovalKind::Node,
            message: "Go on?".into(),
            schema: schema.map(Arc::new),
            node: None,
            step: Some(1),
            created_at: Timestamp::default(),
            expires_at: None,
            on_expiry: OnExpiry::default(),
            slot: None,
            digest: None,
        }
    }

    #[test]
    fn an_answer_has_to_fit_its_schema() {
        let typed = asks(Some(json!({"type": "object", "required": ["version"]})));
        assert!(typed.check(Some(&json!({"version": 1}))).is_ok());
        let wrong = typed.check(Some(&json!({}))).unwrap_err();
        assert!(wrong.contains("version"), "{wrong}");
        assert!(typed.check(None).unwrap_err().contains("missing"));
        assert!(asks(None).check(None).is_ok());
        assert!(asks(None).check(Some(&json!("anything"))).is_ok());
    }

    #[test]
    fn a_question_is_answered_once() {
        let mut approvals = Approvals::default();
        let at = Timestamp::default();
        let asked = asks(None);
        let answer = ApprovalAnswer {
            id: "a1".into(),
            approved: true,
            answer: None,
            comment: None,
            by: "uid:0".into(),
        };
        let answered = Some((&answer, at));
        assert!(!approvals.close(&answer.id, answered));
        assert!(approvals.ask(Epoch(1), &asked));
        assert!(!approvals.ask(Epoch(1), &asked));
        assert_eq!(approvals.open().count(), 1);
        assert!(approvals.close(&answer.id, answered));
        assert!(!approvals.close(&answer.id, answered));
        assert!(!approvals.close(&"a1".into(), None));
        assert_eq!(approvals.open().count(), 0);
        assert!(approvals.of_step(1).unwrap().answer.is_some());
    }

    #[test]
    fn unanswered_question_is_closed_at_timeout() {
        let mut approvals = Approvals::default();
        assert!(!approvals.close(&"a1".into(), None));
        assert!(approvals.ask(Epoch(1), &asks(None)));
        assert!(approvals.close(&"a1".into(), None));
        assert!(!approvals.close(&"a1".into(), None));
        assert!(approvals.is_answered());
        assert!(approvals.of_step(1).unwrap().expired);
    }
}
