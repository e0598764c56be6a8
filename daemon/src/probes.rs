//! Probes of an attempt of a managed process: whether it is ready, and whether it stays healthy.
//!
//! **Never** takes the port of another process for that of the attempt. A process that is not ready in time is recorded
//! as such, and probed further. A frozen process is not probed, and its time does not count.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rye_core::model::{
    EndCause, Failure, HealthCheck, HttpProbe, PortRef, Probe, Readiness, Unready, UnreadyCode,
};
use rye_core::process::{LinePattern, PORT_FOREIGN};
use rye_host::task;
use rye_process::{Members, PortOwner};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::chain::ProbePlan;
use crate::http::{Patience, Request, Url};
use crate::live_processes::{FreezeSwitch, LiveAttempt};
use crate::process_log::LineObserver;
use crate::provider::Providers;

/// Time after its start at which a process without another sign is ready.
const ALIVE: Duration = Duration::from_millis(200);
/// Pause between two probes of a process that is not ready.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of a probe of a process that is not ready.
const PROBE_TIME: Duration = Duration::from_secs(2);
/// Bytes of the answer to a probe that are read.
const MOST_ANSWER: usize = 64 << 10;
/// Number of lines whose match takes too many steps after which a pattern is given up.
const MOST_UNDECIDED: usize = 3;

/// The reason for which an attempt is stopped that was not requested to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Another process has the port that was chosen for it.
    PortForeign(Unready),
    /// So many probes in a row failed, the last one for this reason.
    Unhealthy(u32, Unready),
}

impl Verdict {
    pub const fn cause(&self) -> EndCause {
        match self {
            Self::PortForeign(_) => EndCause::PortForeign,
            Self::Unhealthy(..) => EndCause::Unhealthy,
        }
    }

    /// Failure of the attempt of the process `name`.
    pub fn failure(&self, name: &str) -> Failure {
        let (code, text) = match self {
            Self::PortForeign(why) => (PORT_FOREIGN, format!("`{name}` was stopped: {why}")),
            Self::Unhealthy(count, why) => (
                "unhealthy",
                format!("`{name}` was stopped: {count} probes of its health failed; {why}"),
            ),
        };
        Failure::permanent(code, text).decided()
    }
}

/// Progress of an attempt that its probes report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Ready,
    /// It is not ready in time, and is probed further.
    Unready(Unready),
    /// A text for the people of the run.
    Warning(String),
}

/// Receives reports. It must neither wait nor block.
pub type Reporter<'a> = &'a (dyn Fn(Report) + Sync);

/// Signs in the output of an attempt.
#[derive(Debug, Default)]
pub struct Signs {
    has_matched: AtomicBool,
    is_given_up: AtomicBool,
    changed: Notify,
}

/// Returns the signs of an attempt, and the observer of its lines that detects them.
pub fn signs(ready: &Readiness, report: Reporter<'_>) -> (Arc<Signs>, Option<LineObserver>) {
    let signs = Arc::new(Signs::default());
    let Readiness::Pattern(text) = ready else {
        return (signs, None);
    };
    let pattern = match LinePattern::parse(text) {
        Ok(pattern) => pattern,
        Err(problem) => {
            report(Report::Warning(format!("`ready_pattern` {problem}")));
            return (signs, None);
        }
    };
    let (noted, mut undecided) = (Arc::clone(&signs), 0);
    let observer: LineObserver = Box::new(move |line| {
        if noted.has_matched.load(Ordering::Relaxed) || undecided >= MOST_UNDECIDED {
            return;
        }
        match pattern.matches(line) {
            Some(true) => noted.has_matched.store(true, Ordering::Relaxed),
            Some(false) => return,
            None => {
                undecided += 1;
                if undecided < MOST_UNDECIDED {
                    return;
                }
                noted.is_given_up.store(true, Ordering::Relaxed);
            }
        }
        noted.changed.notify_one();
    });
    (signs, Some(observer))
}

/// The probes of an attempt in flight.
#[expect(missing_debug_implementations, reason = "a function cannot be shown")]
pub struct Probes<'a> {
    pub plan: &'a ProbePlan,
    pub signs: &'a Signs,
    pub members: Members,
    pub live: &'a LiveAttempt,
    /// Source of the client for requests.
    pub providers: &'a Providers,
    pub report: Reporter<'a>,
}

impl Probes<'_> {
    /// Reports the attempt when it is ready, and tests its health from then on. Resolves if it must be stopped.
    pub async fn watch(&self) -> Verdict {
        if let Err(verdict) = self.until_ready().await {
            return verdict;
        }
        (self.report)(Report::Ready);
        match &self.plan.healthy {
            Some(check) => self.until_unhealthy(check).await,
            None => std::future::pending().await,
        }
    }

    async fn until_ready(&self) -> Result<(), Verdict> {
        let why = watch::Sender::new(self.first_reason());
        let ready = self.ready(&why);
        tokio::pin!(ready);
        tokio::select! {
            ready = &mut ready => return ready,
            () = self.switch().active(self.plan.ready_timeout) => {}
        }
        (self.report)(Report::Unready(why.borrow().clone()));
        ready.await
    }

    /// The reason for which it is not ready as long as no probe tells more.
    fn first_reason(&self) -> Unready {
        let closed = |port: &PortRef| Unready {
            port: port.number(&self.plan.ports),
            ..Unready::new(UnreadyCode::PortClosed)
        };
        match &self.plan.ready {
            Readiness::Alive => Unready::new(UnreadyCode::Starting),
            Readiness::Pattern(_) => Unready::new(UnreadyCode::NoLine),
            Readiness::Port(port) => closed(port),
            Readiness::Http(http) => closed(&http.port),
        }
    }

    /// Resolves when the attempt is ready. `why` is the result of the last probe.
    async fn ready(&self, why: &watch::Sender<Unready>) -> Result<(), Verdict> {
        match &self.plan.ready {
            Readiness::Alive => self.switch().active(ALIVE).await,
            Readiness::Pattern(pattern) => self.matched(pattern).await,
            Readiness::Port(port) => {
                while let Err(reason) = self.switch().thawed(|| self.port(port)).await {
                    self.keep(port, reason, why)?;
                    sleep(PROBE_PAUSE).await;
                }
            }
            Readiness::Http(http) => {
                let probe = || self.answers(http, PROBE_TIME);
                while let Err(reason) = self.switch().thawed(probe).await {
                    self.keep(&http.port, reason, why)?;
                    sleep(PROBE_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Keeps the reason of a failed probe, unless it ends the attempt.
    fn keep(
        &self,
        port: &PortRef,
        reason: Unready,
        why: &watch::Sender<Unready>,
    ) -> Result<(), Verdict> {
        let is_movable = matches!(port, PortRef::Named(name) if self.plan.movable.contains(name));
        if reason.code == UnreadyCode::PortForeign && is_movable {
            return Err(Verdict::PortForeign(reason));
        }
        why.send_replace(reason);
        Ok(())
    }

    async fn matched(&self, pattern: &str) {
        while !self.signs.has_matched.load(Ordering::Relaxed) {
            self.signs.changed.notified().await;
            if self.signs.is_given_up.load(Ordering::Relaxed) {
                let text = format!(
                    "`ready_pattern`: matching {pattern:?} takes too many steps, so the process does not count as ready; \
                     simplify it"
                );
                (self.report)(Report::Warning(text));
                let never: Infallible = std::future::pending().await;
                match never {}
            }
        }
    }

    async fn until_unhealthy(&self, check: &HealthCheck) -> Verdict {
        let mut failed = 0;
        loop {
            let every = Duration::from_millis(check.every_ms);
            self.switch().active(every).await;
            let probed = self.switch().thawed(|| self.health(check)).await;
            self.live.note_health(probed.is_ok());
            match probed {
                Ok(()) => failed = 0,
                Err(why) => {
                    failed += 1;
                    if failed >= check.failures {
                        return Verdict::Unhealthy(failed, why);
                    }
                }
            }
        }
    }

    async fn health(&self, check: &HealthCheck) -> Result<(), Unready> {
        let most = Duration::from_millis(check.timeout_ms);
        match &check.probe {
            Probe::Port(port) => self.port(port).await.map(|_number| ()),
            Probe::Http(http) => self.answers(http, most).await,
        }
    }

    fn switch(&self) -> &FreezeSwitch {
        self.live.switch()
    }

    /// Returns the number of `port` if only the attempt listens there.
    async fn port(&self, port: &PortRef) -> Result<u16, Unready> {
        let number = port.number(&self.plan.ports);
        let number = number.ok_or_else(|| Unready::new(UnreadyCode::PortClosed))?;
        let members = self.members.clone();
        let look = move || members.owner_of(number);
        match task::blocking("look for the owner of a port", look).await {
            PortOwner::Attempt => Ok(number),
            PortOwner::Nobody => Err(Unready::at(UnreadyCode::PortClosed, number)),
            PortOwner::Stranger(process) => {
                let (pid, comm) = process.unzip();
                Err(Unready {
                    pid,
                    comm,
                    ..Unready::at(UnreadyCode::PortForeign, number)
                })
            }
        }
    }

    /// Fails unless the attempt answers the request of `http` with one of its status codes.
    async fn answers(&self, http: &HttpProbe, most: Duration) -> Result<(), Unready> {
        let port = self.port(&http.port).await?;
        let mut result = Ok(());
        for host in ["127.0.0.1", "[::1]"] {
            let url = format!("http://{host}:{port}{}", http.path);
            let answer = timeout(most, self.answer_of(&url));
            let failed = |error: String| Unready {
                error: Some(error),
                ..Unready::at(UnreadyCode::HttpFailed, port)
            };
            result = match answer.await {
                Ok(Ok(status)) if http.status.contains(&status) => return Ok(()),
                Ok(Ok(status)) => Err(Unready {
                    status: Some(status),
                    ..Unready::at(UnreadyCode::HttpStatus, port)
                }),
                Ok(Err(error)) => Err(failed(error)),
                Err(_elapsed) => Err(failed(format!("none in {} s", most.as_secs_f64()))),
            };
            // Only a server that does not listen there is tried at the other address.
            if !matches!(&result, Err(why) if why.code == UnreadyCode::HttpFailed) {
                break;
            }
        }
        result
    }

    async fn answer_of(&self, url: &str) -> Result<u16, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let patience = Patience {
            connect: PROBE_TIME,
            headers: Duration::from_hours(1),
        };
        let request = Request::new("GET", url, Bytes::new(), patience)
            .and_then(|request| request.header("connection", "close"))
            .map_err(|error| error.to_string())?
            .to_any_network();
        let client = self.providers.client().await;
        let client = client.map_err(|error| error.to_string())?;
        let answer = client.send(request).await;
        let mut answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        answer.beginning(MOST_ANSWER, Duration::from_hours(1)).await;
        Ok(status)
    }
}
