//! Requirements of a directive on the caller that starts it: the risks of its permissions, and the tools offered to its
//! model.
//!
//! **Owns** the check of risks and the conversion of permissions to offered tools. Starting a thread and checking a
//! file share both, so a start refuses exactly what a check reports. **Never** decides under which layers a thread
//! begins.

mod tools;

use rye_core::capability::{Layer, Named, Primary};
use rye_core::directive::Effective;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::policy::{CAPABILITY_RISK, Policy, Risk, Risks};
use rye_core::provider::ResolvedModel;
use rye_core::thread::{ItemTools, OfferedTool, offer};
use rye_item::{Library, library};
use serde_json::Value;

pub use self::tools::OmittedTools;
use crate::chain::{self, Chain, Terminal};
use crate::native;

/// Reason why no thread of a directive begins.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its permissions take risks that are not acknowledged.
    #[error(
        "`{item}` may do everything by `{patterns}`; name what it needs, or write \
         <acknowledge risk=\"unrestricted\">why</acknowledge> beside its permissions"
    )]
    Risk {
        item: ItemRef,
        /// The risky patterns.
        patterns: String,
    },
    /// The table of risks is refused.
    #[error("`{table}` cannot be used")]
    Table {
        table: ItemRef,
        #[source]
        source: Box<library::Error>,
    },
    /// The table of risks is malformed.
    #[error("{problem}")]
    Risks {
        /// Problem, with the name of the table.
        problem: String,
    },
    /// The outputs of the directive cannot be described to a model.
    #[error("{problem}")]
    Outputs {
        /// The output and the problem.
        problem: String,
    },
    /// The model of the directive does not call tools.
    #[error("`{model}` calls no tools, and the directive needs `{tool}`; ask for another one")]
    NoTools {
        model: String,
        /// One of the tools it would be offered.
        tool: String,
    },
}

impl Error {
    /// Failure code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Risk { .. } => "unacknowledged_risk",
            Self::Table { .. } | Self::Risks { .. } => "risks",
            Self::Outputs { .. } => "bad_outputs",
            Self::NoTools { .. } => "model_unusable",
        }
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Risk { .. } => ErrorKind::Denied,
            Self::Table { source, .. } => source.kind(),
            Self::Risks { .. } | Self::Outputs { .. } => ErrorKind::Invalid,
            Self::NoTools { .. } => ErrorKind::Precondition,
        }
    }
}

/// Table of risks of the system and the user. A project does not define risks.
pub fn risks(library: &Library) -> Result<Risks, Error> {
    let table = ItemRef {
        kind: ItemKind::Config,
        id: ItemId::new(format!("agent/{CAPABILITY_RISK}")).expect("it is a plain word"),
    };
    let config = library.own_config(&table).map_err(|source| Error::Table {
        table,
        source: Box::new(source),
    })?;
    let risks = Risks::read(&Value::Object(config), &mut Vec::new());
    risks.map_err(|problem| Error::Risks { problem })
}

/// Returns the risk of `permission` in the table `risks`. A tool that replaces a native one does what its author wrote, so
/// it has at least the risk of such tools.
pub fn risk(library: &Library, risks: &Risks, permission: &str) -> Risk {
    let risk = risks.of(permission);
    match Named::of(permission, Primary::Execute) {
        Some(Named::Item(item)) if replaces_native(library, &item) => risk.max(Risk::Write),
        Some(Named::Item(_) | Named::Below(..)) | None => risk,
    }
}

fn replaces_native(library: &Library, item: &ItemRef) -> bool {
    let is_other = |chain: Chain| !matches!(chain.terminal, Terminal::Native(_));
    item.kind == ItemKind::Tool
        && native::find(&item.id).is_some()
        && chain::resolve(library, item, None).is_ok_and(is_other)
}

/// Refuses a directive with unacknowledged risks. Risks that only need a warning are combined in one warning.
pub fn check_risks(
    library: &Library,
    item: &ItemRef,
    effective: &Effective,
) -> Result<Option<String>, Error> {
    let directive = &effective.directive;
    let gate = risks(library)?.judge(&effective.permissions().patterns, &directive.acknowledged);
    if !gate.refused.is_empty() {
        return Err(Error::Risk {
            item: item.clone(),
            patterns: gate.refused.join("`, `"),
        });
    }
    let told = format!(
        "`{item}` takes a risk by `{}`; if that is meant, write <acknowledge risk=\"elevated\">why</acknowledge> \
         beside its permissions",
        gate.warnings.join("`, `")
    );
    Ok((!gate.warnings.is_empty()).then_some(told))
}

/// Tools that `model` is offered under `layers`, and the permissions without a tool name of their own. No more tools
/// are examined once `is_late` returns true.
pub fn tools(
    library: &Library,
    directive: &Effective,
    layers: &[Layer],
    policy: &Policy,
    model: &ResolvedModel,
    is_late: &dyn Fn() -> bool,
) -> Result<(Vec<OfferedTool>, OmittedTools), Error> {
    let mut left_out = OmittedTools::default();
    let permissions = directive.permissions().patterns;
    let items = ItemTools {
        tools: tools::find(library, &permissions, layers, &mut left_out, is_late),
        most_tokens: policy.preload().most_tokens(model.window),
        token_size: model.token_size,
    };
    let offer = offer(directive, layers, &items).map_err(|problem| Error::Outputs { problem })?;
    for (item, why) in &offer.left_out {
        left_out.add(item.id.as_str(), why);
    }
    if let (false, Some(first)) = (model.tools, offer.tools.first()) {
        return Err(Error::NoTools {
            model: format!("{}/{}", model.provider, model.id),
            tool: first.tool.name.clone(),
        });
    }
    Ok((offer.tools, left_out))
}
