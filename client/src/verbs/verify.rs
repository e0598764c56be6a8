//! `verify`.

use std::path::Path;

use rye_client::exit::Exit;
use rye_core::error::with_sources;
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_item::Library;
use rye_item::library::{Report, Verdict};
use rye_item::sign;
use serde_json::json;

use super::local::{Local, SystemItems};
use crate::cli::Targets;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::render::Style;
use crate::session::Session;

pub(super) fn verify(targets: &Targets, session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let library = local.library();
    let output = &mut session.output;
    let mut exit = Exit::Done;
    let mut found = Vec::new();
    for target in &targets.targets {
        let named = local.target(target, SystemItems::Count);
        match named.and_then(|target| reports(&library, &target)) {
            Ok(reports) => found.extend(reports.into_iter().map(|mut report| {
                if let (Some(signer), Some(owner)) = (&report.fingerprint, &mut report.owner) {
                    *owner = local.owner(signer, owner).to_owned();
                }
                report
            })),
            Err(failure) => exit = output.part(exit, Err(failure)),
        }
    }
    print(&found, output)?;
    if exit == Exit::Done && found.iter().any(|report| report.refusal.is_some()) {
        exit = Exit::Failed;
    }
    Ok(exit)
}

/// Verifies the items that `target` names.
fn reports(library: &Library, target: &str) -> Result<Vec<Report>, Failure> {
    let named = target
        .split_once(':')
        .and_then(|(kind, name)| Some((kind.parse::<ItemKind>().ok()?, name)));
    match named {
        Some((_, pattern)) if pattern.contains(['*', '?', '[', '{']) => {
            sign::targets(library.spaces(), target)?
                .iter()
                .map(|place| Ok(library.verify_path(&place.path())?))
                .collect()
        }
        Some((kind, name)) => {
            let id = ItemId::new(name)?;
            Ok(vec![library.verify(&ItemRef { kind, id })?])
        }
        None => Ok(vec![library.verify_path(Path::new(target))?]),
    }
}

fn print(reports: &[Report], output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        let reports: Vec<_> = reports
            .iter()
            .map(|report| {
                json!({
                    "path": report.path,
                    "id": report.item.to_string(),
                    "verdict": report.verdict.as_str(),
                    "fingerprint": report.fingerprint,
                    "owner": report.owner,
                })
            })
            .collect();
        return output.json(&reports);
    }
    for report in reports {
        output.line(&line(report, output.style()))?;
        if let Some(refusal) = &report.refusal {
            output.note(&format!("  {}", with_sources(refusal)));
        }
    }
    Ok(())
}

fn line(report: &Report, style: Style) -> String {
    let verdict = report.verdict.as_str();
    let verdict = match (&report.refusal, report.verdict) {
        (Some(_), _) => style.red(verdict),
        (None, Verdict::Partial) => style.yellow(verdict),
        (None, _) => style.green(verdict),
    };
    let signer = match (&report.fingerprint, &report.owner) {
        (Some(fingerprint), Some(owner)) => format!(" by {owner} ({fingerprint})"),
        (Some(fingerprint), None) => format!(" by {fingerprint}"),
        (None, _) => String::new(),
    };
    format!(
        "{verdict}  {}  {}{signer}",
        report.item,
        report.path.display()
    )
}
