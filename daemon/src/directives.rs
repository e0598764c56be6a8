//! From a directive file to all that a thread goes by.
//!
//! **Owns** the way from a verified directive to those that it extends: each is verified like the first, and looked for from the space of
//! the one that names it, so that nobody changes a directive from a higher space. **Never** decides whether a thread may begin.
//! **Failure.** All findings of a file are told, with the file and the place in it.

use rye_core::definition::Finding;
use rye_core::directive::{self, Directive, Effective, Lineage, LineageError};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::ItemRef;
use rye_item::{Item, Library, Space, library};

/// Why a directive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One that it extends is refused or not there; its own error names it and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// It, or one that it extends, cannot be read.
    #[error("the directive does not validate:\n{findings}")]
    Invalid {
        /// The findings, one a line.
        findings: String,
    },
    /// It cannot extend what it names.
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

/// Reads a verified directive; what its author should know is added to `warnings`.
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

/// The directive `leaf`, which is `item` in `space`, over those it extends.
pub fn lay_over(
    library: &Library,
    item: &ItemRef,
    mut space: Space,
    leaf: Directive,
    warnings: &mut Vec<String>,
) -> Result<Effective, Error> {
    let mut lineage = Lineage::new(item.clone(), space, leaf)?;
    while let Some(wanted) = lineage.wanted() {
        let parent = library.resolve(wanted, space);
        let parent = parent.map_err(|source| Error::Item(Box::new(source)))?;
        space = parent.space;
        lineage.add(space, read(&parent, warnings)?)?;
    }
    Ok(lineage.effective())
}

/// The knowledge that goes along with a directive, each in its place.
pub fn knowledge(effective: &Effective) -> impl Iterator<Item = ItemRef> + '_ {
    let context = &effective.directive.context;
    let lists = [&context.system, &context.before, &context.after];
    lists.into_iter().flat_map(|list| context.kept(list))
}
