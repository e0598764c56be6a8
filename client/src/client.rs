//! Calls of `rye.v1`.
//!
//! **Owns** one connection to one daemon, made lazily and again after it broke. **Never** starts a daemon;
//! [`endpoint`](crate::endpoint) does. **Failure.** A call is made once. [`Client::wait`] and the event stream only
//! read, so they continue when the daemon is back.

mod outage;

use std::future::Future;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use rye_proto::v1::budgets_client::BudgetsClient;
use rye_proto::v1::items_client::ItemsClient;
use rye_proto::v1::node_client::NodeClient;
use rye_proto::v1::objects_client::ObjectsClient;
use rye_proto::v1::processes_client::ProcessesClient;
use rye_proto::v1::runs_client::RunsClient;
use rye_proto::{convert, v1};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response};

pub(crate) use self::outage::Outage;
pub use self::outage::{OutageNotifier, Revival, Reviver};
use crate::error::{Error, NotStarted};
use crate::token::Token;

/// Longest request in bytes. The daemon refuses longer ones.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Longest accepted answer in bytes: a value of 64 MiB, such as the result of a tool, as JSON with room for escapes.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// Longest wait of a reading call for the daemon to come back, and of a call that waits only for the daemon for its
/// answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Connection to one daemon. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    channel: Channel,
    /// Longest wait of a call that waits only for the daemon.
    patience: Duration,
    outage_notifier: OutageNotifier,
    reviver: Reviver,
    /// Set if this process is the program of an attempt.
    token: Option<Token>,
}

/// Adds the token of a program to a call.
#[derive(Debug, Clone)]
struct WithToken(Option<Token>);

impl Interceptor for WithToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, tonic::Status> {
        if let Some(token) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", token.bearer());
        }
        Ok(request)
    }
}

impl Client {
    /// Connects to the daemon that listens on `socket`. Returns [`Error::NotRunning`] if nothing listens.
    pub async fn connect(socket: impl Into<PathBuf>) -> Result<Self, Error> {
        let socket = socket.into();
        // This connection only tests the socket: the channel connects at its first call.
        drop(open(&socket).await?);
        Ok(Self::of(socket))
    }

    /// Makes a client of the daemon on `socket`. It connects at its first call.
    pub(crate) fn of(socket: PathBuf) -> Self {
        let path = socket.clone();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name is never resolved; HTTP/2 requires an authority.
        let channel = Endpoint::from_static("http://ryed").connect_with_connector_lazy(connector);
        Self {
            socket,
            channel,
            patience: PATIENCE,
            outage_notifier: OutageNotifier::default(),
            reviver: Reviver::default(),
            token: None,
        }
    }

    /// Sets the token of the program that this process is.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// True if this process calls as the program of an attempt.
    pub const fn is_program(&self) -> bool {
        self.token.is_some()
    }

    /// Sets the reviver. A call that continues over an outage uses it to start a daemon that died and stays away.
    #[must_use]
    pub fn reviving(self, reviver: Reviver) -> Self {
        Self { reviver, ..self }
    }

    /// Sets the callback that is called when [`Self::wait`] or [`Self::events`] continues over an outage.
    #[must_use]
    pub fn with_outage_notifier(self, teller: OutageNotifier) -> Self {
        Self {
            outage_notifier: teller,
            ..self
        }
    }

    /// Starts the record of outages of one call.
    pub(crate) fn outage(&self) -> Outage {
        Outage::new(self.outage_notifier.clone(), self.reviver.clone())
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the pid of the process that listens on the socket, or `None` if this process cannot see it.
    pub(crate) async fn pid(&self) -> Option<i32> {
        listener_of(&open(&self.socket).await.ok()?)
    }

    /// Waits until all runs have ended or are suspended, or until `timeout` (`None`: no limit). It continues over a
    /// restart of the daemon.
    pub async fn wait(
        &self,
        run_ids: &[String],
        timeout: Option<Duration>,
    ) -> Result<v1::WaitResponse, Error> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut outage = self.outage();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let request = v1::WaitRequest {
                run_ids: run_ids.to_vec(),
                // 0 would wait without limit.
                timeout_ms: left.map_or(0, |left| convert::milliseconds(left).max(1)),
            };
            let asked = Instant::now();
            let mut runs = self.runs();
            let call = runs.wait(request);
            let answer = match left {
                Some(left) => self.answer_within(left + self.patience, call).await,
                None => self.answer(call.await),
            };
            match answer {
                Err(error) if error.is_outage() => {
                    outage.note_success_until(asked);
                    outage.pause(error).await?;
                }
                Err(error) => return Err(error),
                Ok(mut answer) => {
                    for run in &mut answer.runs {
                        *run = self.whole(Some(std::mem::take(run))).await?;
                    }
                    return Ok(answer);
                }
            }
        }
    }

    /// Requests the end of a run. The request is durable when this returns.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<v1::Run, Error> {
        let request = v1::CancelRequest {
            run_id: run_id.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self.prompt(self.runs().cancel(request)).await?;
        self.whole(answer.run).await
    }

    /// Ends a run by force. It has ended when this returns. `grace` is the time between TERM and KILL.
    pub async fn kill(
        &self,
        run_id: &str,
        grace: Option<Duration>,
        tree: bool,
    ) -> Result<(v1::Run, v1::KillReceipt), Error> {
        let request = v1::KillRequest {
            run_id: run_id.to_owned(),
            grace_ms: grace.map(convert::milliseconds),
            tree,
        };
        let answer = self.answer(self.runs().kill(request).await)?;
        Ok((
            self.whole(answer.run).await?,
            answer.receipt.unwrap_or_default(),
        ))
    }

    /// Suspends a run before its next attempt. It is suspended or has ended when this returns.
    pub async fn suspend(&self, run_id: &str) -> Result<v1::Run, Error> {
        let request = v1::SuspendRequest {
            run_id: run_id.to_owned(),
        };
        let answer = self.answer(self.runs().suspend(request).await)?;
        self.whole(answer.run).await
    }

    /// Resumes a suspended run, or starts a run that continues where an ended one failed. Returns the run that
    /// continues, and the cursor after which its new events follow.
    pub async fn resume(&self, request: v1::ResumeRequest) -> Result<(v1::Run, String), Error> {
        check_length(&request)?;
        let answer = self.prompt(self.runs().resume(request)).await?;
        Ok((self.whole(answer.run).await?, answer.cursor))
    }

    /// Sends a message to a thread. Returns the run once the message is durable.
    pub async fn say(&self, run_id: &str, message: &str) -> Result<v1::Run, Error> {
        let request = v1::SayRequest {
            run_id: run_id.to_owned(),
            message: message.to_owned(),
        };
        check_length(&request)?;
        let answer = self.prompt(self.runs().say(request)).await?;
        self.whole(answer.run).await
    }

    /// Returns a drawing of a graph as text.
    pub async fn show(&self, request: v1::ShowRequest) -> Result<String, Error> {
        Ok(self.prompt(self.runs().show(request)).await?.text)
    }

    /// Returns all descendants of a run without their state: each after its parent, siblings oldest first.
    pub async fn below(&self, run_id: &str) -> Result<Vec<v1::Run>, Error> {
        let request = v1::ChildrenRequest {
            run_id: run_id.to_owned(),
            whole_tree: true,
        };
        Ok(self.prompt(self.runs().children(request)).await?.runs)
    }

    /// Returns the runs that `run_id` continues, the run itself, and the runs that continue it, oldest first.
    pub async fn chain(&self, run_id: &str) -> Result<Vec<v1::Run>, Error> {
        let mut chain = std::collections::VecDeque::from([self.get(run_id).await?]);
        while let Some(earlier) = chain.front().map(|run| run.continuation_of.clone())
            && !earlier.is_empty()
        {
            chain.push_front(self.get(&earlier).await?);
        }
        while let Some(later) = chain.back().map(|run| run.continued_by.clone())
            && !later.is_empty()
        {
            chain.push_back(self.get(&later).await?);
        }
        Ok(chain.into())
    }

    /// Returns one object of a project by its hash, as JSON text.
    pub async fn object(&self, project: &str, hash: &str) -> Result<String, Error> {
        let request = v1::GetObjectRequest {
            project: project.to_owned(),
            hash: hash.to_owned(),
        };
        Ok(self.prompt(self.objects().get(request)).await?.object_json)
    }

    /// Returns the entries of a project's cache of node results.
    pub async fn cache(&self, project: &str) -> Result<Vec<v1::CacheEntry>, Error> {
        let request = v1::ListCacheRequest {
            project: project.to_owned(),
        };
        Ok(self
            .prompt(self.objects().list_cache(request))
            .await?
            .entries)
    }

    /// Drops entries of the cache. Returns their number.
    pub async fn drop_cache(&self, request: v1::DropCacheRequest) -> Result<u32, Error> {
        Ok(self
            .prompt(self.objects().drop_cache(request))
            .await?
            .dropped)
    }

    /// Returns the account of a run, the accounts above it, and the spending of the whole node.
    pub async fn budget(&self, run_id: &str) -> Result<v1::GetBudgetResponse, Error> {
        let request = v1::GetBudgetRequest {
            run_id: run_id.to_owned(),
        };
        self.prompt(self.budgets().get(request)).await
    }

    /// Returns the account of a run and all accounts below it, each after the one that it draws on.
    pub async fn budget_tree(&self, run_id: &str) -> Result<Vec<v1::BudgetNode>, Error> {
        let request = v1::BudgetTreeRequest {
            run_id: run_id.to_owned(),
        };
        Ok(self.prompt(self.budgets().tree(request)).await?.accounts)
    }

    /// Raises the budget of a run. Returns the raised accounts, topmost first.
    pub async fn raise_budget(
        &self,
        request: v1::RaiseBudgetRequest,
    ) -> Result<Vec<v1::Budget>, Error> {
        Ok(self.prompt(self.budgets().raise(request)).await?.raised)
    }

    pub async fn get(&self, run_id: &str) -> Result<v1::Run, Error> {
        let request = v1::GetRequest {
            run_id: run_id.to_owned(),
        };
        let answer = self.prompt(self.runs().get(request)).await?;
        self.whole(answer.run).await
    }

    pub async fn steps(&self, run_id: &str) -> Result<Vec<v1::Step>, Error> {
        let request = v1::StepsRequest {
            run_id: run_id.to_owned(),
        };
        Ok(self.prompt(self.runs().steps(request)).await?.steps)
    }

    /// Returns the current or final state of a graph run, as JSON.
    pub async fn state(&self, run_id: &str) -> Result<String, Error> {
        self.text(run_id, false).await
    }

    /// Returns the JSON of the state of a run, or of its output.
    async fn text(&self, run_id: &str, output: bool) -> Result<String, Error> {
        let request = v1::StateRequest {
            run_id: run_id.to_owned(),
            output,
        };
        let mut pieces = self.prompt(self.runs().state(request)).await?;
        let mut text = Vec::new();
        loop {
            let piece = async { pieces.message().await.map(Response::new) };
            let Some(piece) = self.prompt(piece).await? else {
                break;
            };
            text.extend(piece.json);
        }
        String::from_utf8(text).map_err(|_error| Error::Malformed {
            what: "a text that is not UTF-8".to_owned(),
        })
    }

    /// `run` with the texts that an answer omitted.
    pub(crate) async fn whole(&self, run: Option<v1::Run>) -> Result<v1::Run, Error> {
        let mut run = present("run", run)?;
        if run.state_omitted {
            run.state_json = self.text(&run.run_id, false).await?;
        }
        if run.output_omitted {
            run.output_json = self.text(&run.run_id, true).await?;
        }
        Ok(run)
    }

    /// Returns the keys whose signatures count in a project.
    pub async fn keys(&self, project: &str) -> Result<v1::KeysResponse, Error> {
        let request = v1::KeysRequest {
            project: project.to_owned(),
        };
        self.answer(self.node().keys(request).await)
    }

    /// Returns the models that threads of a project may use.
    pub async fn models(&self, project: &str) -> Result<v1::ModelsResponse, Error> {
        let request = v1::ModelsRequest {
            project: project.to_owned(),
        };
        self.answer(self.items().models(request).await)
    }

    /// Returns the risks of permissions of threads, by the rules of the system and the user.
    pub async fn risks(
        &self,
        project: &str,
        permissions: Vec<String>,
    ) -> Result<v1::RisksResponse, Error> {
        let request = v1::RisksRequest {
            project: project.to_owned(),
            permissions,
        };
        check_length(&request)?;
        self.answer(self.items().risks(request).await)
    }

    /// Returns the identity and the effective settings of the daemon.
    pub async fn info(&self) -> Result<v1::InfoResponse, Error> {
        self.prompt(self.node().info(v1::InfoRequest {})).await
    }

    /// Requests the daemon to refuse new work, to end or suspend what runs, and to exit.
    pub async fn drain(&self) -> Result<(), Error> {
        let v1::DrainResponse {} = self.prompt(self.node().drain(v1::DrainRequest {})).await?;
        Ok(())
    }

    pub(crate) fn runs(&self) -> RunsClient<Channel> {
        RunsClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn items(&self) -> ItemsClient<InterceptedService<Channel, WithToken>> {
        ItemsClient::with_interceptor(self.channel.clone(), WithToken(self.token.clone()))
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn objects(&self) -> ObjectsClient<Channel> {
        ObjectsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    fn budgets(&self) -> BudgetsClient<Channel> {
        BudgetsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn processes(&self) -> ProcessesClient<Channel> {
        ProcessesClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    /// Returns the answer to a call that waits only for the daemon.
    pub(crate) async fn prompt<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        self.answer_within(self.patience, call).await
    }

    /// Returns the answer, or [`Error::NoAnswer`] after `limit`.
    async fn answer_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(limit, call).await {
            Ok(result) => self.answer(result),
            Err(_elapsed) => Err(Error::NoAnswer {
                socket: self.socket.clone(),
                pid: self.pid().await,
                seconds: limit.as_secs(),
                is_recovering: false,
            }),
        }
    }

    pub(crate) fn answer<T>(&self, result: Result<Response<T>, tonic::Status>) -> Result<T, Error> {
        match result {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(Error::from_status(&self.socket, &status)),
        }
    }

    /// Converts a status of one of this client's streams.
    pub(crate) fn error(&self, status: &tonic::Status) -> Error {
        Error::from_status(&self.socket, status)
    }
}

/// Calls that pass request and answer unchanged. A `prompt` call waits only for the daemon and fails after
/// [`PATIENCE`]. A `patient` call takes as long as its work.
macro_rules! calls {
    ($($(#[$doc:meta])+ $name:ident = $way:ident $service:ident.$call:ident($request:ident) -> $answer:ident;)+) => {
        impl Client {
            $($(#[$doc])+
            pub async fn $name(&self, request: v1::$request) -> Result<v1::$answer, Error> {
                check_length(&request)?;
                calls!(@$way self, self.$service().$call(request))
            })+
        }
    };
    (@prompt $client:ident, $call:expr) => { $client.prompt($call).await };
    (@patient $client:ident, $call:expr) => { $client.answer($call.await) };
}

calls! {
    /// Starts a run. The run is durable when this returns.
    start = prompt runs.start(StartRequest) -> StartResponse;
    /// Checks a graph without running it.
    validate = prompt runs.validate(ValidateRequest) -> ValidateResponse;
    /// Returns one page of run records.
    list = prompt runs.list(ListRequest) -> ListResponse;
    /// Removes ended runs. The removal is durable when this returns.
    remove = patient runs.remove(RemoveRequest) -> RemoveResponse;
    /// Removes one part of the trees of ended runs that `request` selects. The answer has a token for the rest.
    prune = patient runs.prune(PruneRequest) -> PruneResponse;
    /// Runs one node of a graph. Its run has ended or is suspended when this returns.
    step = patient runs.step(StepRequest) -> StepResponse;
    /// Runs one item and returns its envelope.
    execute = patient items.execute(ExecuteRequest) -> ExecuteResponse;
    /// Returns an item by its id, or items by a query.
    fetch = patient items.fetch(FetchRequest) -> FetchResponse;
    /// Records the progress of the program that this process is.
    progress = prompt items.progress(ProgressRequest) -> ProgressResponse;
    /// Signs items with the daemon's key.
    sign = patient items.sign(SignRequest) -> SignResponse;
    /// Returns the lock that a tool would have, and whether its present lock is valid. Writes nothing.
    lock = patient items.lock(LockRequest) -> LockResponse;
    /// Returns one page of the items that are visible in a project.
    list_items = patient items.list(ListItemsRequest) -> ListItemsResponse;
    /// Returns all that is known of an item, whether or not it may be used.
    describe = patient items.describe(DescribeRequest) -> DescribeResponse;
    /// Returns the signers of items, and whether the items were changed since.
    verify = patient items.verify(VerifyRequest) -> VerifyResponse;
    /// Returns the beginning of a thread without starting it.
    preview = patient items.preview(PreviewRequest) -> PreviewResponse;
}

/// Opens a connection to `socket`. Returns [`Error::NotRunning`] if nothing listens.
pub(crate) async fn open(socket: &Path) -> Result<UnixStream, Error> {
    let cannot = |source| Error::Connect {
        socket: socket.to_owned(),
        source,
    };
    match UnixStream::connect(socket).await {
        Ok(stream) => Ok(stream),
        Err(_) if is_no_socket(socket) => Err(cannot(io::Error::other("it is not a socket"))),
        Err(source) if nothing_listens(&source) => Err(Error::NotRunning {
            socket: socket.to_owned(),
            why: NotStarted::NotRequested,
        }),
        Err(source) => Err(cannot(source)),
    }
}

/// Returns the pid of the listening process. The kernel answers 0 for a process of another pid namespace.
pub(crate) fn listener_of(stream: &UnixStream) -> Option<i32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    (pid > 0).then_some(pid)
}

/// True if connecting failed because no daemon is there. A daemon that dies resets the connections in its queue.
pub(crate) fn nothing_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

/// Refuses a request over which the transport would close the connection.
fn check_length(request: &impl Message) -> Result<(), Error> {
    let (bytes, most) = (request.encoded_len(), MAX_MESSAGE_BYTES);
    if bytes > most {
        return Err(Error::TooLong { bytes, most });
    }
    Ok(())
}

/// True if the path has a file of another kind, on which no daemon will ever listen.
fn is_no_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

fn present<T>(name: &str, field: Option<T>) -> Result<T, Error> {
    field.ok_or_else(|| Error::Malformed {
        what: format!("no `{name}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn call_to_silent_daemon_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        // It accepts connections and never answers.
        let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let mut client = Client::connect(&socket).await.unwrap();
        client.patience = Duration::from_millis(50);
        let error = client.info().await.unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
        assert!(error.to_string().contains(socket.to_str().unwrap()));
        let named = format!("(pid {})", std::process::id());
        assert!(error.to_string().contains(&named), "{error}");
        assert!(!error.is_outage(), "it is not asked again");
    }

    #[tokio::test]
    async fn connect_to_regular_file_fails_immediately() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        std::fs::write(&file, "").unwrap();
        let error = Client::connect(&file).await.unwrap_err();
        let text = rye_core::error::with_sources(&error);
        assert!(text.contains("it is not a socket"), "{text}");
    }
}
