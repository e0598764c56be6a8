//! Resolution of a directive file to the effective directive of a thread.
//!
//! **Owns** the resolution of the directives that a verified directive extends. Each is verified like the first and is
//! looked up from the space of the one that names it, so that a directive cannot be changed from a higher space.
//! **Never** decides whether a thread may start. **Failure.** All findings of a file are reported, with the file and
//! the position.

use rye_core::definition::Finding;
use rye_core::directive::{self, Directive, Effective, Lineage, LineageError};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::ItemRef;
use rye_item::{Item, Library, Space, library};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An extended directive is refused or missing; its own error names it and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// The directive, or one that it extends, does not parse.
    #[error("the directive does not validate:\n{findings}")]
    Invalid {
        /// The findings, one per line.
        findings: String,
    },
    /// The directive cannot extend the one it names.
    #[error(transparent)]
    Lineage(#[from] LineageError),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Item(source) => source.kind(),
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Lineage(source) => source.kind(),
        }
    }
}

/// Parses a verified directive and appends its findings to `warnings`.
pub fn read(item: &Item, warnings: &mut Vec<String>) -> Result<Directive, Error> {
    let path = item.path.display();
    let placed = |findings: &[Finding]| -> Vec<String> {
        let placed = findings.iter().map(|finding| format!("{path}:{finding}"));
        placed.collect()
    };
    match directive::parse(&item.text, item.id()) {
        Ok((directive, findings)) => {
            warnings.extend(placed(&findings));
            Ok(directive)
        }
        Err(findings) => Err(Error::Invalid {
            findings: placed(&findings).join("\n"),
        }),
    }
}

/// Combines the directive `leaf`, which is `item` in `space`, with those it extends.
pub fn with_parents(
    library: &Library,
    item: &ItemRef,
    mut space: Space,
    leaf: Directive,
    warnings: &mut Vec<String>,
) -> Result<Effective, Error> {
    let mut lineage = Lineage::new(item.clone(), space, leaf)?;
    while let Some(wanted) = lineage.missing() {
        let parent = library.resolve(wanted, space);
        let parent = parent.map_err(|source| Error::Item(Box::new(source)))?;
        space = parent.space;
        lineage.add(space, read(&parent, warnings)?)?;
    }
    Ok(lineage.effective())
}

/// Knowledge items that the directive includes, in their order.
pub fn knowledge(effective: &Effective) -> impl Iterator<Item = ItemRef> + '_ {
    let context = &effective.directive.context;
    let lists = [&context.system, &context.before, &context.after];
    lists.into_iter().flat_map(|list| context.kept(list))
}
