//! Parameters of an action on a graph.
//!
//! Control parameters (`async validate node inject_state capabilities depth max_steps resume graph_run_id
//! resume_run_id`) control the run of the graph, and never reach its inputs. All others are inputs. A `null` value
//! counts as absent.

use rye_core::definition;
use rye_core::id::RunId;
use rye_core::machine::{Params, wrong};
use rye_core::model::{Failure, Object, Run};
use serde_json::Value;

use super::error::Error;
use super::handle::Supervisor;
use super::request::{Start, StartAt};
use crate::chain::Terminal;
use crate::port::CONTROL;

/// Control parameters and inputs.
#[derive(Debug, Default)]
pub(super) struct GraphParams {
    /// All parameters that are not control parameters.
    pub(super) inputs: Object,
    /// True if the caller does not wait for the run.
    pub(super) detached: bool,
    /// True if the graph is only validated.
    pub(super) validate: bool,
    /// The only node to run.
    pub(super) node: Option<String>,
    /// Values that override the initial state.
    pub(super) inject_state: Object,
    /// Patterns that restrict the permissions of the run.
    pub(super) capabilities: Option<Vec<String>>,
    /// Maximum depth of child runs below it.
    pub(super) depth: Option<u32>,
    pub(super) max_steps: Option<u32>,
    /// The run to resume, or the source of the state for `node`.
    pub(super) resume: Option<RunId>,
}

impl GraphParams {
    /// Separates the parameters. A failure has the code `invalid_params` and names the parameter.
    pub(super) fn read(params: Object) -> Result<Self, Failure> {
        let mut params = Params::new(params, "a graph");
        let asked = Self {
            detached: params.flag("async")?,
            validate: params.flag("validate")?,
            node: params.text("node", "the name of a node")?,
            inject_state: params.map("inject_state")?.unwrap_or_default(),
            capabilities: params.patterns("capabilities")?,
            depth: params.number("depth")?,
            max_steps: params.number("max_steps")?,
            resume: resumed(&mut params)?,
            inputs: Object::new(),
        };
        if asked.node.is_none() && asked.resume.is_some() && !asked.inject_state.is_empty() {
            return Err(wrong(
                "a run that is resumed keeps its state: `inject_state` goes with a fresh run or with `node`",
            ));
        }
        Ok(Self {
            inputs: params.into_rest(),
            ..asked
        })
    }
}

fn run(params: &mut Params, key: &str) -> Result<Option<RunId>, Failure> {
    let given = params.text(key, "the id of a run")?;
    let run = given.map(RunId::new).transpose();
    run.map_err(|error| wrong(format!("`{key}`: {error}")))
}

/// Reads both spellings: `resume: true` with `graph_run_id`, and `resume_run_id`.
fn resumed(params: &mut Params) -> Result<Option<RunId>, Failure> {
    let resume = params.flag("resume")?;
    let named = run(params, "graph_run_id")?;
    let direct = run(params, "resume_run_id")?;
    match (resume, named, direct) {
        (_, Some(named), Some(direct)) if named != direct => {
            Err(wrong("`graph_run_id` and `resume_run_id` name two runs"))
        }
        (_, _, Some(run)) | (true, Some(run), None) => Ok(Some(run)),
        (true, None, None) => Err(wrong(
            "`resume: true` goes with `graph_run_id`, the run to resume",
        )),
        (false, Some(_), None) => Err(wrong(
            "`graph_run_id` goes with `resume: true`; a fresh run gets its id from the daemon",
        )),
        (false, None, None) => Ok(None),
    }
}

impl GraphParams {
    /// Start position of a run of one node, or of a new run.
    pub(super) fn start_at(node: Option<String>, inject_state: Object) -> StartAt {
        match node {
            Some(node) => StartAt::Node {
                node,
                inject_state,
                from: None,
                verdicts: Vec::new(),
            },
            None if inject_state.is_empty() => StartAt::Start,
            None => StartAt::Injected(inject_state),
        }
    }

    /// True if the parameters name an existing run.
    pub(super) fn resumes(params: &Object) -> bool {
        ["resume", "graph_run_id", "resume_run_id"]
            .iter()
            .filter_map(|key| params.get(*key))
            .any(|given| !given.is_null() && *given != Value::Bool(false))
    }
}

impl Supervisor {
    /// Refuses inputs of a graph that have the name of a control parameter and are not declared. A caller that sends
    /// `capabilities` as an input would assume that the run has fewer permissions.
    pub(super) async fn refuse_control_inputs(&self, request: &Start) -> Result<(), Error> {
        let given: Vec<_> = CONTROL
            .into_iter()
            .filter(|(word, _)| {
                request.inputs.contains_key(*word) || request.text_inputs.contains_key(*word)
            })
            .collect();
        if given.is_empty() {
            return Ok(());
        }
        // The admission reports problems of the item itself.
        let Ok(chain) = self.resolve(&request.item, &request.directory).await else {
            return Ok(());
        };
        let declared = |word: &str| {
            let property = chain
                .schema()
                .and_then(|schema| schema.get("properties")?.get(word));
            property.is_some()
        };
        match given.into_iter().find(|(word, _)| !declared(word)) {
            Some((word, instead)) if chain.terminal == Terminal::Graph => Err(Error::Params {
                message: format!(
                    "`{word}` is no input of `{}`: write `{instead}`, or declare the input in `config_schema`",
                    request.item
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// True if `request` has inputs that differ from those of `run`.
pub(super) fn brings_other_inputs(request: &Start, run: &Run) -> bool {
    let own = &run.spec.inputs;
    let schema = || {
        let (graph, _) = definition::parse(&run.spec.graph()?.text).ok()?;
        graph.inputs.schema().cloned()
    };
    let typed = request
        .inputs
        .iter()
        .any(|(key, value)| own.get(key) != Some(value));
    typed
        || !request.text_inputs.is_empty() && {
            let schema = schema();
            request.text_inputs.iter().any(|(key, text)| {
                own.get(key) != Some(&definition::coerce(schema.as_ref(), key, text))
            })
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(params: &Value) -> Result<GraphParams, Failure> {
        GraphParams::read(params.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn control_parameters_are_removed_from_inputs() {
        let asked = read(&json!({
            "async": true, "validate": false, "node": "n", "inject_state": {"a": 1}, "capabilities": [],
            "depth": 0, "max_steps": 7, "resume": null, "resume_run_id": "g-1-aaaaaaaaaa", "who": "Ada",
        }))
        .unwrap();
        assert_eq!(json!(asked.inputs), json!({"who": "Ada"}));
        assert!(asked.detached && !asked.validate);
        assert_eq!(asked.node.as_deref(), Some("n"));
        assert_eq!(json!(asked.inject_state), json!({"a": 1}));
        assert_eq!(asked.capabilities, Some(Vec::new()));
        assert_eq!((asked.depth, asked.max_steps), (Some(0), Some(7)));
        assert_eq!(asked.resume.unwrap().as_str(), "g-1-aaaaaaaaaa");
    }

    #[test]
    fn resume_accepts_both_spellings_and_refuses_halves() {
        let run = "g-1-aaaaaaaaaa";
        for params in [
            json!({"resume": true, "graph_run_id": run}),
            json!({"resume_run_id": run}),
            json!({"resume": true, "resume_run_id": run, "graph_run_id": run}),
        ] {
            assert_eq!(read(&params).unwrap().resume.unwrap().as_str(), run);
        }
        for params in [
            json!({"resume": true}),
            json!({"graph_run_id": run}),
            json!({"resume_run_id": run, "graph_run_id": "g-2-aaaaaaaaaa"}),
            json!({"resume_run_id": "../x"}),
        ] {
            assert_eq!(
                read(&params).unwrap_err().code,
                "invalid_params",
                "{params}"
            );
        }
    }

    #[test]
    fn control_parameter_of_wrong_type_is_named() {
        for (params, key) in [
            (json!({"async": "yes"}), "`async`"),
            (json!({"depth": -1}), "`depth`"),
            (json!({"capabilities": "rye.*"}), "`capabilities`"),
            (json!({"node": 3}), "`node`"),
            (json!({"inject_state": []}), "`inject_state`"),
            (
                json!({"resume_run_id": "g-1-aaaaaaaaaa", "inject_state": {"a": 1}}),
                "`inject_state`",
            ),
        ] {
            let message = read(&params).unwrap_err().message;
            assert!(message.contains(key), "{message}");
        }
    }
}
