//! The service `Processes`: managed processes of the caller.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use rye_core::model::{Object, Run};
use rye_core::process::{
    HealthRequest, HttpRequest, LinePattern, Period, PortValue, ProcessRequest, ProcessView,
    ReadyRequest,
};
use rye_proto::v1;
use rye_proto::v1::processes_server::Processes;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::status::{invalid, with_reason};
use super::streams::Streams;
use super::{decode, encode};
use crate::access::{Access, Actionable, Visible};
use crate::process_log::{LineWait, LogCursor, LogPage, LogRange, OutputLine, ProcessLog};
use crate::supervisor::Error;

/// Lines in the answer of a start.
const START_LINES: usize = 20;
/// Lines of one message.
const LINES: usize = 500;
/// Most lines that a search gives.
const MOST_HITS: usize = 1000;
/// Time limit of a search of what is kept.
const SEARCH_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct ProcessesService {
    access: Access,
    streams: Streams,
}

type Answer<T> = Result<Response<T>, Status>;
type LogStream = Pin<Box<dyn Stream<Item = Result<v1::ProcessLogsResponse, Status>> + Send>>;

impl ProcessesService {
    pub(super) const fn new(access: Access, streams: Streams) -> Self {
        Self { access, streams }
    }

    fn view(&self, run: &Run) -> Option<v1::Process> {
        let view = ProcessView::of(run, self.access.now());
        view.map(|view| encode::process(&view, None))
    }

    /// Reads the figures of its attempt in flight, too.
    async fn view_with_figures(&self, run: &Run) -> Option<v1::Process> {
        let view = ProcessView::of(run, self.access.now())?;
        let figures = self.access.process_figures(run).await;
        Some(encode::process(&view, figures.as_ref()))
    }

    /// The process that `handle` names, if the caller of `request` may see it.
    async fn visible<T>(
        &self,
        request: Request<T>,
        handle: impl FnOnce(&T) -> &str,
    ) -> Result<(Visible, T), Status> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(handle(&request))?;
        let run = self.access.visible(&caller, &id).await?;
        run.require_process()?;
        Ok((run, request))
    }

    /// The process `handle`, which the caller may stop, and the name of the caller.
    async fn actionable<T>(
        &self,
        request: Request<T>,
        handle: impl FnOnce(&T) -> &str,
    ) -> Result<(Actionable, String), Status> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(handle(&request))?;
        let run = self.access.actionable(&caller, &id).await?;
        run.require_process()?;
        let by = decode::cause(&caller, "")?;
        Ok((run, by))
    }
}

fn unread(error: &io::Error) -> Status {
    let text = format!("the output of the process cannot be read: {error}");
    with_reason(Status::unavailable(text), "unavailable")
}

fn cursor(text: &str) -> Result<Option<LogCursor>, Status> {
    let read = |text: String| {
        LogCursor::parse(&text).ok_or_else(|| invalid("since", "it is no cursor of this process"))
    };
    decode::given(text).map(read).transpose()
}

fn pattern(field: &str, text: &str) -> Result<LinePattern, Status> {
    LinePattern::parse(text).map_err(|why| invalid(field, format!("it {why}")))
}

fn line(line: &OutputLine) -> v1::ProcessLine {
    v1::ProcessLine {
        at: Some(encode::timestamp(line.at)),
        stream: line.stream.as_str().to_owned(),
        text: line.text.clone(),
        attempt: line.attempt,
        cursor: line.cursor().to_string(),
    }
}

fn seconds(ms: Option<u64>) -> Option<f64> {
    ms.map(|ms| Duration::from_millis(ms).as_secs_f64())
}

fn probe_request(probe: v1::ProcessProbe) -> (Option<PortValue>, Option<HttpRequest>) {
    let port = decode::given(&probe.port).map(PortValue::Word);
    let http = probe.http.map(|http| HttpRequest {
        path: decode::given(&http.path),
        port: PortValue::Word(http.port),
        status: (!http.status.is_empty()).then(|| {
            // One that no answer has is refused by the check.
            let status = http.status.into_iter();
            status
                .map(|code| u16::try_from(code).unwrap_or(0))
                .collect()
        }),
    });
    (port, http)
}

fn health_request(health: v1::ProcessHealth) -> HealthRequest {
    let (port, http) = probe_request(health.probe.unwrap_or_default());
    HealthRequest {
        port,
        http,
        every: seconds(health.every_ms).map(Period::Seconds),
        timeout: seconds(health.timeout_ms).map(Period::Seconds),
        failures: health.failures,
    }
}

/// The limits of a request, in the form of tools.
fn resources(limits: &v1::ProcessResources) -> Value {
    json!({
        "memory": decode::given(&limits.memory),
        "pids": limits.pids,
        "cpu": limits.cpu,
    })
}

fn start_request(request: v1::StartProcessRequest) -> ProcessRequest {
    let env = request.env.into_iter();
    let env = env.map(|(name, value)| (name, Value::from(value)));
    ProcessRequest {
        command: request.command,
        args: (!request.shell || !request.args.is_empty()).then_some(request.args),
        cwd: decode::given(&request.cwd),
        env: env.collect::<Object>(),
        name: decode::given(&request.name),
        ready_pattern: decode::given(&request.ready_pattern),
        ready_port: request
            .ready_port
            .map(|port| PortValue::Number(port.into())),
        ready: request.ready.map(|probe| {
            let (port, http) = probe_request(probe);
            ReadyRequest {
                port,
                http,
                ..ReadyRequest::default()
            }
        }),
        ports: Some(
            request
                .ports
                .into_iter()
                .map(|(name, port)| (name, PortValue::Word(port)))
                .collect(),
        ),
        healthy: request.healthy.map(health_request),
        ready_timeout: seconds(request.ready_timeout_ms),
        restart: decode::given(&request.restart),
        max_restarts: request.max_restarts,
        grace: seconds(request.grace_ms),
        isolation: decode::given(&request.isolation),
        resources: request.resources.as_ref().map(resources),
        survive: Some(request.survive),
        // A person has no model that lines could be a message to.
        watch: None,
    }
}

#[tonic::async_trait]
impl Processes for ProcessesService {
    async fn start(
        &self,
        request: Request<v1::StartProcessRequest>,
    ) -> Answer<v1::StartProcessResponse> {
        let (caller, request) = decode::open(request)?;
        let directory = request.project.clone().into();
        let process = start_request(request).checked();
        let process = process.map_err(|problem| invalid("StartProcessRequest", problem))?;
        let started = self.access.start_process(caller, directory, process);
        let (run, exists) = started.await?;
        let run = run.process_started().await?;
        let log = run.process_log();
        let page = log.read(LogRange::Last(START_LINES)).await;
        let page = page.map_err(|error| unread(&error))?;
        Ok(Response::new(v1::StartProcessResponse {
            process: self.view(&run),
            exists,
            tail: page.lines.iter().map(line).collect(),
        }))
    }

    async fn stop(
        &self,
        request: Request<v1::StopProcessRequest>,
    ) -> Answer<v1::StopProcessResponse> {
        let (run, by) = self.actionable(request, |request| &request.handle).await?;
        let mut stopped = run.reload().await?;
        if !stopped.status().is_terminal() {
            match run.cancel(&by).await {
                // It has ended meanwhile.
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            run.ended().await?;
            stopped = run.reload().await?;
        }
        let process = self.view(&stopped);
        Ok(Response::new(v1::StopProcessResponse { process }))
    }

    async fn restart(
        &self,
        request: Request<v1::RestartProcessRequest>,
    ) -> Answer<v1::RestartProcessResponse> {
        let (run, by) = self.actionable(request, |request| &request.handle).await?;
        let restarted = run.restart_process(&by).await?;
        let process = self.view(&restarted);
        Ok(Response::new(v1::RestartProcessResponse { process }))
    }

    async fn freeze(
        &self,
        request: Request<v1::FreezeProcessRequest>,
    ) -> Answer<v1::FreezeProcessResponse> {
        let (run, by) = self.actionable(request, |request| &request.handle).await?;
        let frozen = run.freeze_process(&by, true).await?;
        let process = self.view(&frozen);
        Ok(Response::new(v1::FreezeProcessResponse { process }))
    }

    async fn thaw(
        &self,
        request: Request<v1::ThawProcessRequest>,
    ) -> Answer<v1::ThawProcessResponse> {
        let (run, by) = self.actionable(request, |request| &request.handle).await?;
        let thawed = run.freeze_process(&by, false).await?;
        let process = self.view(&thawed);
        Ok(Response::new(v1::ThawProcessResponse { process }))
    }

    async fn status(
        &self,
        request: Request<v1::ProcessStatusRequest>,
    ) -> Answer<v1::ProcessStatusResponse> {
        let (run, _) = self.visible(request, |request| &request.handle).await?;
        let process = self.view_with_figures(&run).await;
        Ok(Response::new(v1::ProcessStatusResponse { process }))
    }

    async fn list(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Answer<v1::ListProcessesResponse> {
        let (caller, request) = decode::open(request)?;
        let project = decode::given(&request.project);
        let runs = self.access.processes(&caller, project, request.all).await?;
        let processes = runs.iter().map(|run| self.view_with_figures(run));
        let processes = futures_util::future::join_all(processes).await;
        let processes = processes.into_iter().flatten().collect();
        Ok(Response::new(v1::ListProcessesResponse { processes }))
    }

    async fn wait(
        &self,
        request: Request<v1::WaitProcessRequest>,
    ) -> Answer<v1::WaitProcessResponse> {
        let (run, request) = self.visible(request, |request| &request.handle).await?;
        let condition = v1::ProcessCondition::try_from(request.condition).unwrap_or_default();
        let mut found = None;
        let waited = async {
            match condition {
                v1::ProcessCondition::Unspecified => {
                    Err(invalid("condition", "it is ready, exit or line"))
                }
                v1::ProcessCondition::Ready => {
                    let run = run.process_ready(Duration::MAX).await?;
                    Ok(run
                        .process()
                        .is_some_and(|state| state.ready_since().is_some()))
                }
                v1::ProcessCondition::Exit => {
                    run.ended().await?;
                    Ok(true)
                }
                v1::ProcessCondition::Line => {
                    let pattern = pattern("pattern", &request.pattern)?;
                    let since = cursor(&request.since)?;
                    let log = run.process_log();
                    let waited = log.wait_for_line(&pattern, since, over(&run)).await;
                    if let LineWait::Line(line) = waited.map_err(|error| unread(&error))? {
                        found = Some(line);
                    }
                    Ok(found.is_some())
                }
            }
        };
        let timeout = Some(request.timeout_ms).filter(|timeout| *timeout > 0);
        let timeout = timeout.map_or(Duration::MAX, Duration::from_millis);
        let (fulfilled, timed_out) = match tokio::time::timeout(timeout, waited).await {
            Ok(fulfilled) => (fulfilled?, false),
            Err(_elapsed) => (false, true),
        };
        let process = self.view(&*run.reload().await?);
        Ok(Response::new(v1::WaitProcessResponse {
            process,
            fulfilled,
            timed_out,
            line: found.as_ref().map(line),
        }))
    }

    type LogsStream = LogStream;

    async fn logs(&self, request: Request<v1::ProcessLogsRequest>) -> Answer<LogStream> {
        let caller = request.extensions().get().cloned();
        let (run, request) = self.visible(request, |request| &request.handle).await?;
        let grep = decode::given(&request.grep);
        let grep = grep.map(|text| pattern("grep", &text)).transpose()?;
        let permit = caller
            .map(|caller| self.streams.take(&caller))
            .transpose()?;
        let tail = request
            .tail
            .map(|tail| usize::try_from(tail).unwrap_or(usize::MAX));
        let lines = Lines {
            log: run.process_log(),
            next: Some(match (cursor(&request.since)?, tail) {
                (Some(since), _) => LogRange::After(since, LINES),
                (None, Some(tail)) => LogRange::Last(tail),
                (None, None) => LogRange::After(LogCursor::default(), LINES),
            }),
            tail: tail.filter(|_| !request.since.is_empty()),
            search: grep.map(|pattern| Search {
                pattern,
                hits_left: MOST_HITS,
                until: Instant::now() + SEARCH_TIME,
            }),
            rest: request
                .follow
                .then(|| -> Rest { Box::pin(over_owned(run)) }),
        };
        let stream = lines.into_stream();
        Ok(Response::new(match permit {
            Some(permit) => Box::pin(permit.held_by(stream)),
            None => Box::pin(stream),
        }))
    }
}

/// Resolves when the run has ended.
async fn over(run: &Visible) {
    if let Err(error) = run.ended().await {
        tracing::debug!(%error, "the end of a process is not known");
    }
}

async fn over_owned(run: Visible) {
    over(&run).await;
}

type Rest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lines on their way to a caller.
struct Lines {
    log: Arc<ProcessLog>,
    /// The lines to read next; `None` at the end.
    next: Option<LogRange>,
    /// Lines that are left of a limit.
    tail: Option<usize>,
    search: Option<Search>,
    /// Resolves when following ends; `None` if the caller does not follow, or once it has resolved.
    rest: Option<Rest>,
}

struct Search {
    pattern: LinePattern,
    hits_left: usize,
    /// End of the search of what was printed before.
    until: Instant,
}

impl Lines {
    fn into_stream(self) -> impl Stream<Item = Result<v1::ProcessLogsResponse, Status>> + Send {
        stream::unfold(Some(self), |lines| async {
            let mut lines = lines?;
            match lines.take_next().await {
                Ok(page) => Some((Ok(page?), Some(lines))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn take_next(&mut self) -> Result<Option<v1::ProcessLogsResponse>, Status> {
        let mut changes = self.log.changes();
        while let Some(wanted) = self.next {
            changes.mark_unchanged();
            let page = self.log.read(wanted).await;
            let page = page.map_err(|error| unread(&error))?;
            let is_last = match wanted {
                LogRange::Last(_) => true,
                LogRange::After(_, most) => page.lines.len() < most,
            };
            self.next = Some(LogRange::After(page.next, LINES));
            let is_over = is_last && self.rest.is_none();
            let message = self.message(&page);
            let is_used_up = self.search.as_ref().is_some_and(|search| {
                let is_late = !is_last && Instant::now() >= search.until;
                search.hits_left == 0 || is_late
            }) || self.tail == Some(0);
            if is_over || is_used_up {
                self.next = None;
            }
            if !message.lines.is_empty() || message.gap_bytes > 0 {
                return Ok(Some(message));
            }
            if is_last && let Some(rest) = &mut self.rest {
                tokio::select! {
                    // The sender lives as long as the log.
                    _ = changes.changed() => {}
                    // All lines are there then; they are read once more.
                    () = rest => self.rest = None,
                }
            }
        }
        Ok(None)
    }

    fn message(&mut self, page: &LogPage) -> v1::ProcessLogsResponse {
        let mut lines = Vec::new();
        for found in &page.lines {
            if self.tail == Some(0) {
                break;
            }
            if let Some(search) = &mut self.search {
                if search.hits_left == 0 {
                    break;
                }
                if search.pattern.matches(&found.text) != Some(true) {
                    continue;
                }
                search.hits_left -= 1;
            }
            if let Some(left) = &mut self.tail {
                *left -= 1;
            }
            lines.push(line(found));
        }
        v1::ProcessLogsResponse {
            lines,
            gap_bytes: page.gap,
            cursor: page.next.to_string(),
        }
    }
}
