//! Admission of managed processes.

use std::sync::Arc;

use rye_core::capability::{Layer, Primary};
use rye_core::id::{ItemId, ItemRef, RunId};
use rye_core::model::{ProcessSpec, Recovery, Spec, Task};
use rye_core::process::AttemptPorts;

use super::{Admission, refused};
use crate::chain::{self, CallOrigin, InheritedVariables, ManagedError};
use crate::dispatch;
use crate::native;
use crate::projects::{ProjectRef, ProjectView};
use crate::supervisor::error::Error;
use crate::supervisor::handle::Supervisor;
use crate::supervisor::request::Start;

/// Returns the tool whose capability a managed process needs.
pub(crate) fn tool() -> ItemRef {
    ItemRef::tool(ItemId::new(native::MANAGED_SUBPROCESS).expect("a valid id"))
}

impl Supervisor {
    /// Checks the command and fixes everything about the run `id`. A process of a person has the permissions `layers`.
    pub(crate) async fn admit_process(
        &self,
        id: &RunId,
        request: Start,
        process: ProcessSpec,
        layers: Option<Vec<Layer>>,
    ) -> Result<Spec, Error> {
        let admission = Admission {
            services: Arc::clone(&self.shared.services),
            config: Arc::clone(&self.shared.config),
        };
        let budget = self.budget(id, &request).await?;
        let site = match &request.lineage {
            Some(lineage) => ProjectRef::from(&*lineage.spec),
            None => ProjectRef::from(&request.directory),
        };
        let (run, config) = (id.clone(), Arc::clone(&self.shared.config));
        let work = move |inside: &ProjectView<'_>| {
            let item = &request.item;
            let resolved = chain::resolve(inside.library, item, None)
                .map_err(|source| refused(item, source.suggesting(inside.library)))?;
            let what = (item, resolved.tool().content_hash.as_str());
            let process = Arc::new(process);
            let task = Task::Process(Arc::clone(&process));
            let mut spec = admission.spec(inside, task, what, budget, &request);
            spec.layers = layers.unwrap_or(spec.layers);
            spec.recovery = Recovery::Resume;
            // The call that starts the process is the one that may need an approval.
            spec.approvals.clear();
            if process.mcp.is_some() {
                // The call of a tool of the server was permitted.
                return Ok(spec);
            }
            dispatch::permit(&spec, Primary::Execute, item).map_err(|failure| Error::Denied {
                message: failure.message,
            })?;
            let origin = CallOrigin {
                run,
                spec: Arc::new(spec.clone()),
                attempt: 1,
                key: String::new(),
            };
            // The numbers of ports that are chosen later do not matter here.
            let numbers = process.ports.keys().map(|name| (name.clone(), 1));
            let ports = AttemptPorts {
                numbers: numbers.collect(),
                can_move: false,
            };
            let plan = chain::managed(
                &process,
                ports,
                &origin,
                &config,
                InheritedVariables::default(),
            );
            let plan = plan.map_err(|error| {
                let message = error.to_string();
                match error {
                    ManagedError::Params(_) => Error::Params { message },
                    ManagedError::Isolation(_) => Error::NoIsolation { message },
                }
            })?;
            admission.check_limits(plan.process.resources)?;
            Ok(spec)
        };
        self.projects().visit(site, "admit a process", work).await
    }
}
