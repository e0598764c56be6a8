//! What events add to the progress of a run.

use super::{
    Event, FailedAttempt, HookRound, InFlight, ItemResult, Items, LastStep, Progress, Slot,
    SuppressedError,
};
use crate::model::Effect;

impl Progress {
    /// Takes in one event that the run's phase allows.
    pub(super) fn take_in(&mut self, event: &Event) {
        match event {
            Event::StepStarted { step, items, .. } => self.begin_step(*step, *items),
            Event::StepFailed {
                error,
                result,
                classification,
                repeatable,
                ..
            } => {
                self.hooks = None;
                self.failed = Some(FailedAttempt {
                    error: error.clone(),
                    result: result.clone(),
                    classification: classification.clone(),
                    repeatable: *repeatable,
                });
            }
            Event::RetryScheduled { node, retries, .. } => {
                self.hooks = None;
                self.failed = None;
                self.retries.insert(node.clone(), *retries);
                self.show_retries();
            }
            Event::ItemStarted { .. } | Event::ItemCompleted { .. } => self.take_in_item(event),
            Event::HooksBegun { .. } | Event::HookStarted { .. } | Event::HookCompleted { .. } => {
                self.take_in_hook(event);
            }
            Event::ProcessStarted { slot, process, .. } => {
                if let Some(work) = self.attempt(*slot) {
                    work.process = Some(process.clone());
                }
            }
            Event::UncertainAnswered { slot, verdict, .. } => {
                if let Some(work) = self.attempt(*slot) {
                    work.verdict = Some(*verdict);
                }
            }
            Event::LimitExtended { max_steps, .. } => {
                self.hooks = None;
                self.max_steps = Some(*max_steps);
            }
            Event::StepCompleted { .. } => self.take_in_step(event),
            Event::RunSuspended(why) => {
                // The round that asked for it has had its will; any other goes on later.
                if self.hooks.as_ref().is_some_and(|round| round.asked(why)) {
                    self.hooks = None;
                }
            }
            Event::ToolCompleted { result, .. } => self.result = Some(result.clone()),
            Event::GraphEnding { .. }
            | Event::GraphCompleted { .. }
            | Event::GraphError { .. }
            | Event::GraphCancelled { .. }
            | Event::RunKilled { .. } => self.lay_down(),
            Event::RunCreated(_)
            | Event::RunStarted { .. }
            | Event::GraphStarted { .. }
            | Event::ForeachCompleted { .. }
            | Event::Emitted { .. }
            | Event::CancelRequested { .. }
            | Event::RunResumed { .. }
            | Event::ToolCancelled { .. } => {}
        }
    }

    /// The attempt in flight of an item or a hook; that of the node's own action is part of the phase.
    fn attempt(&mut self, slot: Slot) -> Option<&mut InFlight> {
        match slot {
            Slot::Action => None,
            Slot::Item(item) => self.items.as_mut()?.running.get_mut(&item),
            Slot::Hook(_) => self.hooks.as_mut()?.running.as_mut(),
        }
    }

    /// What was in hand is not gone on with; what became of items is kept for the run that may go on.
    fn lay_down(&mut self) {
        self.unfinished = self.items.take().or(self.unfinished.take());
        self.failed = None;
        self.hooks = None;
    }

    fn begin_step(&mut self, step: u32, items: Option<u32>) {
        self.hooks = None;
        self.failed = None;
        match (items, &mut self.items) {
            (Some(count), Some(items)) if items.count() == count => {
                items.reopen();
                // Items that are tried again are no longer errors the graph went on after.
                self.suppressed.retain(|error| error.step != step);
            }
            (Some(count), slot) => *slot = Some(Items::new(count)),
            (None, slot) => *slot = None,
        }
    }

    fn take_in_item(&mut self, event: &Event) {
        let Some(items) = &mut self.items else { return };
        if let Event::ItemStarted {
            item,
            attempt,
            effect,
            key,
            child,
            ..
        } = event
        {
            items.next = items.next.max(item + 1);
            let work = InFlight::new(*attempt, *effect).announced(key, child.as_ref());
            items.running.insert(*item, work);
        }
        if let Event::ItemCompleted {
            item,
            node,
            step,
            result,
            collected,
            error,
            never_began,
            suppressed,
            ..
        } = event
        {
            items.next = items.next.max(item + 1);
            let done = ItemResult {
                value: collected.as_ref().unwrap_or(result).clone(),
                error: error.clone(),
                never_began: *never_began,
                attempt: 0,
            };
            items.end(*item, done);
            if let (true, Some(error)) = (*suppressed, error) {
                self.suppressed.push(SuppressedError {
                    step: *step,
                    node: node.clone(),
                    error: format!("item {item}: {}", error.message),
                });
            }
        }
    }

    fn take_in_hook(&mut self, event: &Event) {
        if let Event::HooksBegun {
            event,
            hooks,
            context,
            now,
        } = event
        {
            self.hooks = Some(HookRound {
                event: event.clone(),
                waiting: hooks.iter().copied().collect(),
                context: context.clone(),
                now: *now,
                answer: None,
                by: None,
                running: None,
            });
        }
        let Some(round) = &mut self.hooks else { return };
        if let Event::HookStarted {
            attempt,
            key,
            child,
            ..
        } = event
        {
            let work = InFlight::new(*attempt, Effect::Idempotent);
            round.running = Some(work.announced(key, child.as_ref()));
        }
        if let Event::HookCompleted { control, hook, .. } = event {
            round.waiting.pop_front();
            round.running = None;
            if let (None, Some(control)) = (&round.answer, control) {
                round.answer = Some(control.clone());
                round.by = Some(hook.clone());
            }
        }
    }

    fn take_in_step(&mut self, event: &Event) {
        let Event::StepCompleted {
            step,
            node,
            next_node,
            assigned,
            error,
            suppressed,
            output,
            ..
        } = event
        else {
            return;
        };
        self.lay_down();
        self.steps = *step;
        // A visit that ended the run is taken again by the run that goes on from it, under the same key.
        let ended_the_run = error.is_some() && !suppressed && next_node.is_none();
        if !ended_the_run {
            self.unfinished = None;
            *self.visits.entry(node.clone()).or_default() += 1;
        }
        for (key, value) in assigned {
            self.set(key, value.clone());
        }
        if let (true, Some(error)) = (*suppressed, error) {
            self.suppressed.push(SuppressedError {
                step: *step,
                node: node.clone(),
                error: error.message.clone(),
            });
        }
        // The count of retries begins anew where an edge leads.
        if let Some(next) = next_node
            && self.retries.remove(next).is_some()
        {
            self.show_retries();
        }
        if let Some(output) = output {
            self.output = Some(output.clone());
        }
        self.last_step = Some(LastStep {
            node: node.clone(),
            next_node: next_node.clone(),
            error: error.clone(),
        });
    }
}
