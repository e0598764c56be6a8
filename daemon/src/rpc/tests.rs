//! Every method of the contract is called by a user who may not see the run that it names.

use std::collections::BTreeSet;
use std::future::Future;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use rye_core::capability::Layer;
use rye_proto::v1::budgets_server::Budgets as _;
use rye_proto::v1::items_server::Items as _;
use rye_proto::v1::processes_server::Processes as _;
use rye_proto::v1::runs_server::Runs as _;
use rye_proto::v1::{self, ItemRef};
use tonic::{Code, Request, Response, Status};

use super::budgets::BudgetsService;
use super::items::ItemsService;
use super::processes::ProcessesService;
use super::runs::RunsService;
use super::streams::Streams;
use crate::access::Access;
use crate::node::tests::hanging_project::project;
use crate::node::tests::rig::Rig;

/// Methods that neither name nor list runs.
const OF_NO_RUN: [&str; 20] = [
    "Items.Progress",
    "Processes.Start",
    "Processes.List",
    "Runs.Validate",
    "Items.Fetch",
    "Items.Lock",
    "Items.Models",
    "Items.Preview",
    "Items.Risks",
    "Items.Sign",
    "Objects.Get",
    "Objects.ListCache",
    "Objects.DropCache",
    "Node.Info",
    "Node.Drain",
    "Node.Rebuild",
    "Items.Describe",
    "Items.List",
    "Items.Verify",
    "Node.Keys",
];

/// `message`, sent by another user than that of the run.
fn by_another<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Layer {
        source: "uid:2".to_owned(),
        patterns: vec!["rye.*".to_owned()],
    });
    request
}

/// Names of the methods called so far.
#[derive(Default)]
struct CheckedMethods(BTreeSet<String>);

impl CheckedMethods {
    /// Asserts that the method answers that there is no such run.
    async fn refused<T>(
        &mut self,
        method: &str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) {
        let status = answer.await.err();
        let status = status.unwrap_or_else(|| panic!("{method} shows the run of somebody else"));
        let told = (status.code(), status.message().contains("there is no run"));
        assert_eq!(told, (Code::NotFound, true), "{method}: {status}");
        self.0.insert(method.to_owned());
    }

    async fn of_budgets(&mut self, access: &Access, run_id: &str) {
        let budgets = BudgetsService::new(access.clone());
        let run_id = run_id.to_owned();
        let get = v1::GetBudgetRequest {
            run_id: run_id.clone(),
        };
        let tree = v1::BudgetTreeRequest {
            run_id: run_id.clone(),
        };
        let raise = v1::RaiseBudgetRequest {
            run_id,
            spend: "2".to_owned(),
            through: true,
        };
        self.refused("Budgets.Get", budgets.get(by_another(get)))
            .await;
        self.refused("Budgets.Tree", budgets.tree(by_another(tree)))
            .await;
        self.refused("Budgets.Raise", budgets.raise(by_another(raise)))
            .await;
    }

    async fn of_processes(&mut self, access: &Access, handle: &str) {
        let processes = ProcessesService::new(access.clone(), Streams::new(100));
        macro_rules! refused {
            ($name:literal, $method:ident : $message:ident) => {
                let mut message = v1::$message::default();
                handle.clone_into(&mut message.handle);
                let answer = processes.$method(by_another(message));
                self.refused($name, answer).await;
            };
        }
        refused!("Processes.Stop", stop: StopProcessRequest);
        refused!("Processes.Restart", restart: RestartProcessRequest);
        refused!("Processes.Freeze", freeze: FreezeProcessRequest);
        refused!("Processes.Thaw", thaw: ThawProcessRequest);
        refused!("Processes.Status", status: ProcessStatusRequest);
        refused!("Processes.Wait", wait: WaitProcessRequest);
        refused!("Processes.Logs", logs: ProcessLogsRequest);
    }

    /// Asserts that every method of the contract was called, except those of no run and `others`.
    fn cover_all_but(mut self, others: &[&str]) {
        let others = OF_NO_RUN.iter().chain(others);
        self.0.extend(others.map(|&name| name.to_owned()));
        assert_eq!(self.0, contract());
    }
}

fn short() -> ItemRef {
    ItemRef {
        id: "t/short".to_owned(),
        ..ItemRef::default()
    }
}

impl CheckedMethods {
    /// Executes an item in a way that would continue the run.
    async fn of_resumptions(&mut self, items: &ItemsService, project: &str, run: &str) {
        for node in ["", r#""node": "a", "#] {
            let execute = v1::ExecuteRequest {
                item: Some(short()),
                project: project.to_owned(),
                params_json: format!(r#"{{{node}"resume_run_id": "{run}"}}"#),
                ..v1::ExecuteRequest::default()
            };
            let executed = items.execute(by_another(execute));
            self.refused("Items.Execute", executed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::needless_update,
    reason = "some messages hold the id and nothing else"
)]
#[expect(clippy::too_many_lines, reason = "a list, one entry for each method")]
async fn methods_neither_show_nor_change_runs_invisible_to_caller() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = project(&rig, "own");
    let run = daemon.run(&project, "t/short").await;
    daemon.settled(&run).await;
    let run_id = run.to_string();
    let (item, project) = (Some(short()), project.display().to_string());
    let access = Access::new(daemon.supervisor.clone());
    let runs = RunsService::new(access.clone(), daemon.exports(), Streams::new(100), "key");
    let items = ItemsService::new(access.clone());
    let mut asked = CheckedMethods::default();
    macro_rules! refused {
        ($name:literal, $service:ident . $method:ident : $message:ident) => {
            let message = v1::$message {
                run_id: run_id.clone(),
                ..v1::$message::default()
            };
            asked
                .refused($name, $service.$method(by_another(message)))
                .await;
        };
    }
    refused!("Runs.Cancel", runs.cancel: CancelRequest);
    refused!("Runs.Kill", runs.kill: KillRequest);
    refused!("Runs.Suspend", runs.suspend: SuspendRequest);
    refused!("Runs.Resume", runs.resume: ResumeRequest);
    refused!("Runs.Say", runs.say: SayRequest);
    refused!("Runs.Get", runs.get: GetRequest);
    refused!("Runs.Children", runs.children: ChildrenRequest);
    refused!("Runs.Steps", runs.steps: StepsRequest);
    refused!("Runs.State", runs.state: StateRequest);
    refused!("Runs.Stream", runs.stream: StreamRequest);
    refused!("Runs.Transcript", runs.transcript: TranscriptRequest);
    refused!("Runs.Logs", runs.logs: LogsRequest);
    refused!("Runs.Approvals", runs.approvals: ApprovalsRequest);
    refused!("Runs.Answer", runs.answer: AnswerRequest);
    let remove = v1::RemoveRequest {
        run_ids: vec![run_id.clone()],
        purge: true,
    };
    let removed = runs.remove(by_another(remove));
    asked.refused("Runs.Remove", removed).await;
    asked.of_budgets(&access, &run_id).await;
    asked.of_processes(&access, &run_id).await;
    let wait = v1::WaitRequest {
        run_ids: vec![run_id.clone()],
        ..v1::WaitRequest::default()
    };
    let waited = runs.wait(by_another(wait));
    asked.refused("Runs.Wait", waited).await;
    let start = v1::StartRequest {
        item: item.clone(),
        project: project.clone(),
        resume_run_id: run_id.clone(),
        ..v1::StartRequest::default()
    };
    let started = runs.start(by_another(start));
    asked.refused("Runs.Start", started).await;
    let step = v1::StepRequest {
        item: item.clone(),
        project: project.clone(),
        node: "a".to_owned(),
        resume_from: run_id.clone(),
        ..v1::StepRequest::default()
    };
    let stepped = runs.step(by_another(step));
    asked.refused("Runs.Step", stepped).await;
    let show = v1::ShowRequest {
        item: item.clone(),
        project: project.clone(),
        run_id: run_id.clone(),
        ..v1::ShowRequest::default()
    };
    asked
        .refused("Runs.Show", runs.show(by_another(show)))
        .await;
    let tree = v1::StreamRequest {
        run_id: run_id.clone(),
        tree: true,
        ..v1::StreamRequest::default()
    };
    asked
        .refused("Runs.Stream", runs.stream(by_another(tree)))
        .await;
    asked.of_resumptions(&items, &project, &run_id).await;
    let listed = runs.list(by_another(v1::ListRequest::default()));
    assert_eq!(listed.await.unwrap().into_inner().runs, []);
    let pruned = runs.prune(by_another(v1::PruneRequest::default()));
    assert_eq!(pruned.await.unwrap().into_inner().run_ids, [""; 0]);
    assert!(daemon.journal.run(&run).await.unwrap().is_some());
    asked.cover_all_but(&["Runs.List", "Runs.Prune"]);
    daemon.stop().await;
}

/// `message`, sent by the user who owns the runs of `daemon`.
fn by_the_user<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Layer {
        source: "a test".to_owned(),
        patterns: vec!["rye.*".to_owned()],
    });
    request
}

/// Reads `stream` until the end of `many` runs was shown; returns their ids.
async fn ended_in(
    stream: &mut (impl Stream<Item = Result<v1::StreamResponse, Status>> + Unpin),
    many: usize,
) -> BTreeSet<String> {
    let mut ended = BTreeSet::new();
    while ended.len() < many {
        let told = stream.next().await.expect("the stream goes on").unwrap();
        let event = told
            .event
            .filter(|event| event.event_type == "graph_completed");
        ended.extend(event.map(|event| event.run_id));
    }
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_streams_contain_visible_runs_only() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let (own, other) = (project(&rig, "own"), project(&rig, "other"));
    let access = Access::new(daemon.supervisor.clone());
    let runs = RunsService::new(access, daemon.exports(), Streams::new(100), "key");
    let all = v1::StreamRequest {
        all: true,
        follow: true,
        ..v1::StreamRequest::default()
    };
    let of_project = v1::StreamRequest {
        project: other.display().to_string(),
        follow: true,
        ..v1::StreamRequest::default()
    };
    let mut seen = runs
        .stream(by_the_user(all.clone()))
        .await
        .unwrap()
        .into_inner();
    let mut of_other = runs
        .stream(by_the_user(of_project))
        .await
        .unwrap()
        .into_inner();
    let mut unseen = runs.stream(by_another(all)).await.unwrap().into_inner();
    let first = daemon.run(&own, "t/short").await;
    daemon.settled(&first).await;
    let second = daemon.run(&other, "t/short").await;
    daemon.settled(&second).await;
    let names = |runs: &[&rye_core::id::RunId]| -> BTreeSet<String> {
        runs.iter().map(ToString::to_string).collect()
    };
    assert_eq!(ended_in(&mut seen, 2).await, names(&[&first, &second]));
    assert_eq!(ended_in(&mut of_other, 1).await, names(&[&second]));
    // A caller who sees no run gets the cursor of the start, and nothing else.
    let begin = unseen.next().await.unwrap().unwrap();
    assert!(
        begin.event.is_none() && !begin.cursor.is_empty(),
        "{begin:?}"
    );
    assert!(unseen.next().now_or_never().is_none());
    let since = v1::StreamRequest {
        all: true,
        cursor: begin.cursor,
        ..v1::StreamRequest::default()
    };
    let mut read = runs
        .stream(by_another(since.clone()))
        .await
        .unwrap()
        .into_inner();
    while let Some(told) = read.next().await {
        assert_eq!(told.unwrap().event, None);
    }
    let mut read = runs.stream(by_the_user(since)).await.unwrap().into_inner();
    assert_eq!(ended_in(&mut read, 2).await, names(&[&first, &second]));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table, one row for each request")]
async fn stream_has_one_subject_and_cursor_of_its_kind() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = project(&rig, "own");
    let run = daemon.run(&project, "t/short").await;
    daemon.settled(&run).await;
    let access = Access::new(daemon.supervisor.clone());
    let runs = RunsService::new(access, daemon.exports(), Streams::new(100), "key");
    let none = v1::StreamRequest::default();
    let of_run = v1::StreamRequest {
        run_id: run.to_string(),
        ..none.clone()
    };
    let all = v1::StreamRequest {
        all: true,
        follow: true,
        ..none.clone()
    };
    let tree = v1::StreamRequest {
        tree: true,
        ..of_run.clone()
    };
    let cursor = super::encode::cursor(&run, rye_core::id::Seq(1));
    for (request, field) in [
        (none.clone(), "run_id"),
        (
            v1::StreamRequest {
                all: true,
                ..of_run.clone()
            },
            "run_id",
        ),
        (
            v1::StreamRequest {
                project: "/p".to_owned(),
                ..of_run.clone()
            },
            "run_id",
        ),
        (
            v1::StreamRequest {
                tree: true,
                ..all.clone()
            },
            "tree",
        ),
        (
            v1::StreamRequest {
                deltas: true,
                ..all.clone()
            },
            "deltas",
        ),
        (
            v1::StreamRequest {
                deltas: true,
                follow: true,
                ..tree.clone()
            },
            "deltas",
        ),
        (
            v1::StreamRequest {
                deltas: true,
                ..of_run.clone()
            },
            "deltas",
        ),
        (
            v1::StreamRequest {
                delta_kinds: vec![v1::DeltaKind::Output.into()],
                ..of_run.clone()
            },
            "delta_kinds",
        ),
        (
            v1::StreamRequest {
                deltas: true,
                follow: true,
                delta_kinds: vec![99],
                ..of_run.clone()
            },
            "delta_kinds",
        ),
        (
            v1::StreamRequest {
                follow: false,
                ..all.clone()
            },
            "follow",
        ),
        (
            v1::StreamRequest {
                cursor: cursor.clone(),
                ..all.clone()
            },
            "cursor",
        ),
        (
            v1::StreamRequest {
                cursor,
                ..tree.clone()
            },
            "cursor",
        ),
        (
            v1::StreamRequest {
                cursor: format!("{}1.0", super::encode::spots_of("another")),
                ..all
            },
            "cursor",
        ),
    ] {
        let shown = format!("{request:?}");
        let refused = runs.stream(by_the_user(request)).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{shown} is accepted"));
        assert_eq!(refused.code(), Code::InvalidArgument, "{shown}");
        let named = format!("`{field}`: ");
        assert!(refused.message().starts_with(&named), "{shown}: {refused}");
    }
    let mut told = runs.stream(by_the_user(tree)).await.unwrap().into_inner();
    assert_eq!(ended_in(&mut told, 1).await.len(), 1);
    daemon.stop().await;
}

/// Every method of the contract.
fn contract() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(rye_proto::FILE_DESCRIPTOR_SET).unwrap();
    let services = files.file.into_iter().flat_map(|file| file.service);
    let methods = services.flat_map(|service| {
        let methods = service.method.clone().into_iter();
        methods.map(move |method| format!("{}.{}", service.name(), method.name()))
    });
    methods.collect()
}
