//! `rye/file-system/write`, and the diff of a written file.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::place::{Draft, Target, Workspace};
use super::{Error, cut, shown};

/// Maximum size of a shown diff, in bytes.
const MOST_DIFF: usize = 50 * 1024;
/// Maximum size of a compared content, in bytes.
const MOST_COMPARED: u64 = 1024 * 1024;
/// Time limit of the detailed comparison.
const COMPARING: std::time::Duration = std::time::Duration::from_millis(200);

#[derive(Debug, Deserialize)]
pub(super) struct WriteParams {
    path: Option<String>,
    content: Option<String>,
    files: Option<Vec<File>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    path: String,
    content: String,
}

/// A draft with its result entry.
struct Ready {
    draft: Draft,
    path: String,
    result: Value,
}

/// Writes one file or several.
pub(super) fn write(place: &Workspace, asked: WriteParams) -> Result<Value, Error> {
    match asked {
        WriteParams {
            path: Some(path),
            content: Some(content),
            files: None,
        } => {
            let target = place.target(&path)?;
            let ready = prepare(place, target, &content)?;
            ready.draft.put()?;
            Ok(ready.result)
        }
        WriteParams {
            path: None,
            content: None,
            files: Some(files),
        } => write_all(place, &files),
        WriteParams { .. } => {
            let text = "give `path` and `content`, or `files` as a list of both, and not the one with the other";
            Err(Error::Invalid(text.to_owned()))
        }
    }
}

/// All new contents are written to temporary files before the first rename.
fn write_all(place: &Workspace, files: &[File]) -> Result<Value, Error> {
    if files.is_empty() {
        return Err(Error::Invalid("`files` names no file".to_owned()));
    }
    let mut places = BTreeSet::new();
    let mut targets = Vec::new();
    for file in files {
        let target = place.target(&file.path)?;
        if !places.insert(target.path.clone()) {
            return Err(Error::Invalid(format!(
                "`files` names `{}` twice",
                shown(&target.path)
            )));
        }
        targets.push(target);
    }
    let ready = targets.into_iter().zip(files);
    let ready: Vec<Ready> = ready
        .map(|(target, file)| prepare(place, target, &file.content))
        .collect::<Result<_, _>>()?;
    let (mut results, mut errors) = (Vec::new(), Vec::new());
    for Ready {
        draft,
        path,
        result: told,
    } in ready
    {
        match draft.put() {
            Ok(()) => results.push(told),
            Err(error) => errors.push(json!({
                "file_path": path,
                "error": rye_core::error::with_sources(&error),
            })),
        }
    }
    let mut answer = json!({
        "success": errors.is_empty(),
        "files_written": results.len(),
        "files_total": files.len(),
        "results": results,
    });
    if !errors.is_empty() {
        let text = format!("{} of {} files were not written", errors.len(), files.len());
        answer["error"] = json!(text);
        answer["errors"] = json!(errors);
    }
    Ok(answer)
}

fn prepare(place: &Workspace, target: Target, content: &str) -> Result<Ready, Error> {
    let path = shown(&target.path);
    let created = target.existing.is_none();
    let output = match &target.existing {
        None => format!("created {path}, {} lines", content.lines().count()),
        Some(found) => match found.content(MOST_COMPARED)? {
            Some(before) => difference(&path, &before, content.as_bytes()),
            None => format!("{path}: all of it was replaced"),
        },
    };
    let told = json!({
        "success": true,
        "output": output,
        "file_path": path,
        "bytes_written": content.len(),
        "created": created,
    });
    Ok(Ready {
        draft: place.draft(target, content.as_bytes())?,
        path,
        result: told,
    })
}

/// Change of a file as a unified diff.
pub(super) fn difference(path: &str, before: &[u8], after: &[u8]) -> String {
    if before == after {
        return format!("{path} was this already");
    }
    let (old, new) = (
        String::from_utf8_lossy(before),
        String::from_utf8_lossy(after),
    );
    if after.len() > usize::try_from(MOST_COMPARED).unwrap_or(usize::MAX) {
        return format!("{path}: all of it was replaced");
    }
    let diff = TextDiff::configure()
        .timeout(COMPARING)
        .diff_lines(old.as_ref(), new.as_ref());
    let told = diff
        .unified_diff()
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    cut(told, MOST_DIFF)
}
