//! One session: the tools of its server, and calls of them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::{Peer, RoleClient};
use rye_core::error::beginning;
use rye_core::expr::{did_you_mean, nearest};
use rye_core::id::ItemId;
use rye_core::model::Object;
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::{self, ToolAnswer, Unusable};
use super::inbox::Inbox;
use super::message::{self, CallResult};
use super::remote;
use super::sessions::Host;
use super::{Ending, Failure, LONGEST_CALL, Offered, Plan, ServerAnswer, ServerOperation, Trouble};
use crate::stop::Stop;

/// Maximum number of tools of a server.
const MOST_TOOLS: usize = 1000;
/// Time limit for the notification that a call is cancelled.
const CANCELLING: Duration = Duration::from_secs(2);
/// Time limit for the exit of a server that gave no answer.
const END: Duration = Duration::from_secs(5);
/// Bytes kept of the end of a server's stderr.
const TAIL: usize = 4096;
/// Maximum number of quoted stderr lines.
const TAIL_LINES: usize = 3;
/// Maximum length in characters of a quoted line, and of a report of progress.
const MAX_QUOTED_CHARS: usize = 200;

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) server: ItemId,
    pub(super) service: RunningService<RoleClient, Host>,
    pub(super) inbox: Inbox,
    pub(super) tools: Vec<Offered>,
    /// Number of calls in flight.
    pub(super) used: watch::Sender<usize>,
    pub(super) end: End,
}

/// Information about the end of a server.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) tail: Arc<Tail>,
    /// Exit of its process as text; empty for a server without a process.
    pub(super) exit: watch::Receiver<Option<String>>,
}

/// End of a process's stderr.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<VecDeque<u8>>);

impl Tail {
    fn bytes(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn receive(&self, piece: &[u8]) {
        let mut bytes = self.bytes();
        bytes.extend(&piece[piece.len().saturating_sub(TAIL)..]);
        let excess = bytes.len().saturating_sub(TAIL);
        drop(bytes.drain(..excess));
    }

    fn last_lines(&self) -> Option<String> {
        let bytes: Vec<u8> = self.bytes().iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        let last: Vec<_> = last
            .iter()
            .map(|line| beginning(line, MAX_QUOTED_CHARS))
            .collect();
        (!last.is_empty()).then(|| last.join(" | "))
    }
}

impl End {
    /// Reason why there is no answer: the fault of the session, the exit of the server, and its last output.
    pub(super) async fn last_lines(&self, inbox: &Inbox) -> String {
        let mut exit = self.exit.clone();
        let ended = timeout(END, exit.wait_for(Option::is_some)).await;
        let ended = ended.ok().and_then(Result::ok);
        let ended = ended.and_then(|ended| ended.clone());
        let fault = inbox.fault();
        let mut told = fault.unwrap_or_else(|| "its session is over".to_owned());
        if let Some(ended) = ended.filter(|ended| !ended.is_empty()) {
            told = format!("{told}; {ended}");
        }
        match self.tail.last_lines() {
            Some(tail) => format!("{told}; it wrote last: {tail}"),
            None => told,
        }
    }
}

/// Lists all tools of a server, page by page. The first of several tools with one name counts. A repeated cursor ends
/// the list.
pub(super) async fn tools(peer: &Peer<RoleClient>, inbox: &Inbox) -> Result<Vec<Offered>, String> {
    let mut tools: Vec<Offered> = Vec::new();
    let (mut names, mut cursors) = (HashSet::new(), HashSet::new());
    let mut page = None;
    loop {
        let listed = peer.list_tools(page).await;
        let listed = listed.map_err(|error| format!("it does not list its tools: {error}"))?;
        for tool in listed.tools {
            if names.insert(tool.name.clone()) {
                tools.push(Offered {
                    name: tool.name.into_owned(),
                    description: tool.description.unwrap_or_default().into_owned(),
                    input_schema: Value::Object((*tool.input_schema).clone()),
                });
            }
        }
        if tools.len() > MOST_TOOLS || cursors.len() > MOST_TOOLS {
            return Err(format!(
                "it has more than {MOST_TOOLS} tools, or pages of tools"
            ));
        }
        let Some(cursor) = listed.next_cursor else {
            return Ok(tools);
        };
        if !cursors.insert(cursor.clone()) {
            inbox.remark("its list of tools does not end: it repeats a cursor".to_owned());
            return Ok(tools);
        }
        page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
}

/// A call in flight, counted until it is dropped.
struct InUse<'s>(&'s watch::Sender<usize>);

impl<'s> InUse<'s> {
    fn of(used: &'s watch::Sender<usize>) -> Self {
        used.send_modify(|calls| *calls += 1);
        Self(used)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

impl Session {
    /// Executes `plan`. Progress is passed to `report`.
    pub(super) async fn execute(
        &self,
        plan: &Plan,
        stop: &Stop,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<ServerAnswer, Trouble> {
        let _in_use = InUse::of(&self.used);
        let ServerOperation::Call {
            tool,
            pinned,
            params,
        } = &plan.operation
        else {
            return Ok(ServerAnswer::Tools(self.tools.clone()));
        };
        self.check(tool, pinned.as_deref())
            .map_err(Trouble::unsent)?;
        let answer = self.call(plan, tool, params, stop, report).await?;
        let mut remarks = answer.remarks;
        remarks.extend(self.inbox.odd());
        Ok(ServerAnswer::Called {
            result: answer.result,
            remarks,
            is_unpinned: pinned.is_none(),
        })
    }

    /// Refuses a tool that does not exist, or differs from the signed one.
    fn check(&self, tool: &str, pinned: Option<&str>) -> Result<(), Failure> {
        let server = self.server.clone();
        let Some(offered) = self.tools.iter().find(|offered| offered.name == tool) else {
            let names = self.tools.iter().map(|offered| offered.name.as_str());
            let near = nearest(tool, names);
            return Err(Failure::UnknownTool {
                server,
                tool: tool.to_owned(),
                known: did_you_mean(near),
            });
        };
        match pinned {
            Some(pinned) if pinned != offered.hash() => Err(Failure::Changed {
                server,
                tool: tool.to_owned(),
                pinned: pinned.to_owned(),
                found: offered.hash(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    async fn call(
        &self,
        plan: &Plan,
        tool: &str,
        params: &Object,
        stop: &Stop,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<ToolAnswer, Trouble> {
        let began = Instant::now();
        let last = began + plan.max_duration.unwrap_or(LONGEST_CALL);
        let mut progress = self.inbox.progress();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(params.clone());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sending = self
            .service
            .peer()
            .send_request_with_option(request, PeerRequestOptions::no_options());
        let Ok(mut handle) = sending.await else {
            let problem = self.end.last_lines(&self.inbox).await;
            return Err(Trouble::unsent(self.lost(problem)));
        };
        let mut silent_at = began + plan.server.timeout;
        loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => return match answer {
                    Ok(answer) => self.answered(answer).await,
                    Err(_gone) => Err(self.broken().await),
                },
                () = self.inbox.broken() => return Err(self.broken().await),
                () = stop.due() => {
                    self.cancel(handle, "the run is to stop").await;
                    return Err(Trouble::sent(Ending::Stopped));
                }
                () = sleep_until(silent_at.min(last)) => {
                    self.cancel(handle, "it took too long").await;
                    return Err(if plan.max_duration.is_some() && last <= silent_at {
                        Trouble::sent(Ending::Late)
                    } else {
                        let waited = began.elapsed();
                        let server = self.server.clone();
                        let odd = self.inbox.odd().map_or_else(String::new, |odd| format!("; {odd}"));
                        Trouble::sent(Failure::Silent { server, waited, odd })
                    });
                }
                told = progress.recv() => match told {
                    Ok(told) if is_same(&told.progress_token, &handle.progress_token) => {
                        silent_at = Instant::now() + plan.server.timeout;
                        report(&progress_line(&told));
                    }
                    Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => {}
                },
            }
        }
    }

    fn lost(&self, problem: String) -> Failure {
        Failure::Lost {
            server: self.server.clone(),
            problem,
        }
    }

    /// Error of a session that ended before the answer.
    async fn broken(&self) -> Trouble {
        let problem = self.end.last_lines(&self.inbox).await;
        Trouble::sent(self.lost(problem))
    }

    /// Notifies the server of a cancelled call. Ends the session if the server does not read that in time.
    async fn cancel(&self, handle: RequestHandle<RoleClient>, reason: &str) {
        let told = timeout(CANCELLING, handle.cancel(Some(reason.to_owned()))).await;
        if !matches!(told, Ok(Ok(()))) {
            self.inbox.break_off("it does not read what it is sent");
        }
    }

    async fn answered(
        &self,
        answer: Result<ServerResult, ServiceError>,
    ) -> Result<ToolAnswer, Trouble> {
        let refused = |message: String| {
            Trouble::sent(Failure::Refused {
                server: self.server.clone(),
                message: beginning(&message, MAX_QUOTED_CHARS * 5).into_owned(),
            })
        };
        let unclear = |problem: String| {
            Trouble::sent(Failure::Unclear {
                server: self.server.clone(),
                problem: beginning(&problem, MAX_QUOTED_CHARS * 5).into_owned(),
            })
        };
        match answer {
            Ok(result) => match message::passed(result) {
                CallResult::Whole(result) => {
                    answer::read(result).map_err(|unusable| match unusable {
                        Unusable::Refused(message) => refused(message),
                        Unusable::Unclear(problem) => unclear(problem),
                    })
                }
                CallResult::Unusable(problem) => Err(unclear(problem)),
            },
            Err(ServiceError::McpError(error)) => Err(refused(match error.data {
                None => error.message.into_owned(),
                Some(data) => format!("{} ({data})", error.message),
            })),
            Err(ServiceError::TransportSend(error)) => {
                let is_unsent = error
                    .error
                    .downcast_ref::<remote::Error>()
                    .is_some_and(remote::Error::was_not_sent);
                // The fault of the session is the cause of the failed send, and more specific.
                let problem = match self.inbox.fault() {
                    Some(_) => self.end.last_lines(&self.inbox).await,
                    None => error.error.to_string(),
                };
                Err(Trouble {
                    is_unsent,
                    ..Trouble::sent(self.lost(problem))
                })
            }
            Err(_) => Err(self.broken().await),
        }
    }
}

/// True if a report names the call with `token`, as a number or as a string.
fn is_same(told: &ProgressToken, token: &ProgressToken) -> bool {
    told.0.to_string() == token.0.to_string()
}

/// Formats a report of progress as a line.
fn progress_line(told: &ProgressNotificationParam) -> String {
    let of = told.total.map(|total| format!(" of {total}"));
    let message = told.message.as_deref().unwrap_or_default();
    let message = message.replace(char::is_control, " ");
    let message = beginning(message.trim(), MAX_QUOTED_CHARS);
    let colon = if message.is_empty() { "" } else { ": " };
    let of = of.unwrap_or_default();
    format!("progress {}{of}{colon}{message}", told.progress)
}
