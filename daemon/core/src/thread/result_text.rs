//! Text of a result for a model: each part once, as a person reads it in a terminal, without the envelope that graphs
//! read.
//!
//! **Rule.** A form reads the shape that it knows. For a result of any other shape there is no text, and none of its
//! members is lost: the caller then sends it as JSON.

use std::fmt::Write as _;

use serde_json::Value;

use crate::conversation::Digest;
use crate::machine::TextForm;
use crate::model::{Failure, Object};

/// Bytes that are reserved for the note in place of a cut.
const NOTE_BYTES: usize = 220;
/// Least bytes of a text that are left, however small the limit.
const FEWEST_BYTES: usize = 200;
/// Members of the result of `rye/bash`, and of any other process.
const SHELL: [&str; 6] = [
    "success",
    "output",
    "stdout",
    "stderr",
    "exit_code",
    "truncated",
];
const PROCESS: [&str; 3] = ["stdout", "stderr", "return_code"];
/// Members that either result has in addition if its output was cut.
const CUT: [&str; 3] = ["truncated", "stdout_bytes", "stderr_bytes"];

/// A text in parts, each of which is shortened by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResultParts(Vec<ResultPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ResultPart {
    /// Always sent.
    heading: String,
    body: String,
}

impl ResultParts {
    /// Makes the text of a result, and of its failure; `None` if the result does not have the shape of `form`.
    pub(super) fn of(form: TextForm, result: &Value, failure: Option<&Failure>) -> Option<Self> {
        if let (None, Value::String(text)) = (failure, result) {
            return Some(Self::plain(text.clone()));
        }
        let object = result.as_object()?;
        match (form, failure) {
            (TextForm::Shell, _) => process(object, &SHELL, "exit_code", failure),
            (TextForm::Process, _) => process(object, &PROCESS, "return_code", failure),
            (TextForm::Blocks, _) => blocks(object, failure).map(Self::plain),
            (TextForm::Data, _) | (_, Some(_)) => None,
            (TextForm::Lines, None) => numbered(object).map(Self::plain),
            (TextForm::Output, None) => output(object).map(Self::plain),
            (TextForm::Items, None) => items(object),
        }
    }

    fn plain(body: String) -> Self {
        Self(vec![ResultPart {
            heading: String::new(),
            body,
        }])
    }

    /// Returns the whole text.
    pub(super) fn whole(&self) -> String {
        let parts = self.0.iter();
        parts
            .flat_map(|part| [&*part.heading, &part.body])
            .collect()
    }

    /// Returns head and tail of each part, in `most` bytes, with instructions to read the rest of the whole text, which
    /// is the artifact `name`.
    pub(super) fn shortened(&self, most: usize, name: &Digest) -> String {
        let bodies = self.0.iter().filter(|part| !part.body.is_empty()).count();
        let headings: usize = self.0.iter().map(|part| part.heading.len()).sum();
        let room = most.saturating_sub(headings + bodies * NOTE_BYTES);
        let mut lengths: Vec<usize> = self.0.iter().map(|part| part.body.len()).collect();
        lengths.sort_unstable();
        let share = fair_share(&lengths, room.max(FEWEST_BYTES));
        let mut text = String::new();
        let mut characters = 0;
        for part in &self.0 {
            text.push_str(&part.heading);
            characters += part.heading.chars().count();
            if part.body.len() <= share {
                text.push_str(&part.body);
            } else {
                push_ends(&mut text, &part.body, share, characters, name);
            }
            characters += part.body.chars().count();
        }
        text
    }
}

/// Returns the highest length of each of several texts, given their lengths in rising order, so that all of them fit in
/// `room`.
fn fair_share(lengths: &[usize], room: usize) -> usize {
    let mut left = room;
    for (at, length) in lengths.iter().enumerate() {
        let share = left / (lengths.len() - at);
        if *length > share {
            return share;
        }
        left -= length;
    }
    usize::MAX
}

/// Adds the head and the tail of `body`, which begins at character `start` of the whole text.
fn push_ends(text: &mut String, body: &str, most: usize, start: usize, name: &Digest) {
    let (head, tail) = ends(body, most / 2);
    let left_out = &body[head..tail];
    text.push_str(&body[..head]);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let (bytes, lines) = (left_out.len(), left_out.matches('\n').count());
    let offset = start + body[..head].chars().count();
    let note = format!(
        "[{bytes} bytes ({lines} lines) are left out here; read them with read_artifact: {{\"artifact\": \"{name}\", \"offset\": {offset}}}]\n"
    );
    text.push_str(&note);
    text.push_str(&body[tail..]);
}

/// Returns the end of the head of `body` and the start of its tail, each of up to `most` bytes: at a line end if one is
/// near, and never inside a character.
fn ends(body: &str, most: usize) -> (usize, usize) {
    let end = body.floor_char_boundary(most);
    let line = body[..end].rfind('\n').map(|at| at + 1);
    let head = line.filter(|line| *line > end / 2).unwrap_or(end);
    let start = body
        .ceil_char_boundary(body.len().saturating_sub(most))
        .max(head);
    let line = body[start..].find('\n').map(|at| start + at + 1);
    let is_near = |line: &usize| line - start < (body.len() - start) / 2;
    (head, line.filter(is_near).unwrap_or(start))
}

/// Renders exit code and both streams of a process.
fn process(
    result: &Object,
    keys: &[&str],
    exit_code: &str,
    failure: Option<&Failure>,
) -> Option<ResultParts> {
    let is_known = |key: &&str| keys.contains(key) || CUT.contains(key);
    if !result.keys().all(|key| is_known(&key.as_str())) {
        return None;
    }
    let code = result.get(exit_code)?.as_i64()?;
    let heading = match failure {
        // The streams contain the cause.
        Some(failure) if failure.code == "tool_failed" && code > 0 => format!("exit code {code}\n"),
        Some(failure) => format!("{}: {}\n", failure.code, failure.message),
        None => format!("exit code {code}\n"),
    };
    let mut parts = vec![ResultPart {
        heading,
        body: String::new(),
    }];
    for name in ["stdout", "stderr"] {
        let body = result.get(name)?.as_str()?;
        if body.is_empty() {
            continue;
        }
        let is_apart = parts
            .last()
            .is_none_or(|part| part.body.is_empty() || part.body.ends_with('\n'));
        let line_end = if is_apart { "" } else { "\n" };
        let all = result.get(&format!("{name}_bytes")).and_then(Value::as_u64);
        let cut = all.map_or_else(String::new, |all| {
            format!(
                " (the first {} of {all} bytes; the others were not kept)",
                body.len()
            )
        });
        parts.push(ResultPart {
            heading: format!("{line_end}--- {name}{cut}\n"),
            body: body.to_owned(),
        });
    }
    Some(ResultParts(parts))
}

/// Renders lines of a file with their numbers, as `cat -n` prints them.
fn numbered(result: &Object) -> Option<String> {
    let output = result.get("output")?.as_str()?;
    let count = result.get("line_count")?.as_u64()?;
    let count = usize::try_from(count).ok()?;
    let is_cut = result.get("truncated")?.as_bool()?;
    let (output, note) = match output.strip_suffix('\n')?.rsplit_once('\n') {
        Some((output, note)) if is_cut => (output, note),
        _ => (output.strip_suffix('\n')?, ""),
    };
    if count == 0 {
        return Some(format!("{output}\n{note}"));
    }
    // Counted from the end: the path in the first line may contain line ends itself.
    let mut lines: Vec<&str> = output.rsplit('\n').take(count).collect();
    lines.reverse();
    let mut text = String::with_capacity(output.len());
    for line in lines {
        let (name, line) = line.split_once("│ ")?;
        let (number, _id) = name.split_once(':')?;
        writeln!(text, "{number:>6}\t{line}").expect("writing to a String cannot fail");
    }
    text.push_str(note);
    if is_cut {
        text.push('\n');
    }
    Some(text)
}

/// Renders `output`, or that of each of several `results`.
fn output(result: &Object) -> Option<String> {
    let text = |of: &Object| of.get("output")?.as_str().map(str::to_owned);
    if let Some(output) = text(result) {
        return Some(output);
    }
    let results = result.get("results")?.as_array()?;
    let outputs: Option<Vec<String>> = results.iter().map(|one| text(one.as_object()?)).collect();
    Some(outputs?.join("\n"))
}

/// Renders an item that was fetched, or search hits.
fn items(result: &Object) -> Option<ResultParts> {
    if result.contains_key("content") {
        item(result)
    } else {
        hits(result).map(ResultParts::plain)
    }
}

/// Renders the text of an item, below its id and its path.
fn item(result: &Object) -> Option<ResultParts> {
    if result.contains_key("parsed") {
        return None;
    }
    let word = |key: &str| result.get(key).and_then(Value::as_str);
    let (kind, id) = (word("item_type")?, word("item_id")?);
    let (source, path) = (word("source")?, word("path")?);
    let copied = word("destination_path");
    let copied = copied.map_or_else(String::new, |path| format!(", copied to {path}"));
    Some(ResultParts(vec![ResultPart {
        heading: format!("{kind}:{id} ({source} space, {path}{copied})\n"),
        body: word("content")?.to_owned(),
    }]))
}

/// Renders two lines for each hit, and the range of the hits among all.
fn hits(result: &Object) -> Option<String> {
    let number = |key: &str| result.get(key).and_then(Value::as_u64);
    let (total, offset) = (number("total")?, number("offset")?);
    let results = result.get("results")?.as_array()?;
    if results.is_empty() {
        return Some(format!("[none of {total} results]\n"));
    }
    let hits: Option<Vec<String>> = results
        .iter()
        .map(|found| hit(found.as_object()?))
        .collect();
    let end = offset.saturating_add(u64::try_from(results.len()).ok()?);
    let first = offset.saturating_add(1);
    let more = if end < total {
        format!(": read on with offset {end}")
    } else {
        String::new()
    };
    let hits = hits?.concat();
    Some(format!(
        "{hits}[results {first} to {end} of {total}{more}]\n"
    ))
}

fn hit(found: &Object) -> Option<String> {
    let word = |key: &str| found.get(key).and_then(Value::as_str);
    let (kind, id, source) = (word("type")?, word("id")?, word("source")?);
    let is_verified = found.get("verified") == Some(&Value::Bool(true));
    let refused = if is_verified {
        ""
    } else {
        " its signature is refused"
    };
    let about: Vec<&str> = ["title", "description"]
        .into_iter()
        .filter_map(word)
        .collect();
    let preview = word("preview").unwrap_or_default();
    Some(format!(
        "{kind}:{id} ({source} space){refused} {}\n    {preview}\n",
        about.join(" ")
    ))
}

/// Renders the texts of blocks, and the JSON of other blocks. Structured content that a text repeats is left out.
fn blocks(result: &Object, failure: Option<&Failure>) -> Option<String> {
    if failure.is_some_and(|failure| failure.code != "tool_failed") {
        return None;
    }
    let content = result.get("content")?.as_array()?;
    let text_of = |block: &Value| {
        let is_text = block.get("type").is_some_and(|word| word == "text");
        let text = block.get("text")?.as_str().filter(|_| is_text)?;
        Some(text.to_owned())
    };
    let mut texts: Vec<String> = content
        .iter()
        .map(|block| text_of(block).unwrap_or_else(|| block.to_string()))
        .collect();
    if let Some(structured) = result.get("structuredContent") {
        let says = |text: &String| {
            serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured)
        };
        if !texts.iter().any(says) {
            texts.push(structured.to_string());
        }
    }
    Some(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(form: TextForm, result: &Value) -> Option<String> {
        ResultParts::of(form, result, None).map(|parts| parts.whole())
    }

    /// A result of `rye/bash`.
    fn shell(stdout: &str, stderr: &str, exit_code: i32) -> Value {
        json!({
            "success": exit_code == 0,
            "output": format!("{stdout}\n[stderr]\n{stderr}"),
            "stdout": stdout,
            "stderr": stderr,
            "exit_code": exit_code,
            "truncated": false,
        })
    }

    #[test]
    fn a_process_is_its_exit_code_and_each_stream_once() {
        for (stdout, stderr, expected) in [
            ("", "", "exit code 0\n"),
            ("a\n", "", "exit code 0\n--- stdout\na\n"),
            ("", "b", "exit code 0\n--- stderr\nb"),
            ("a", "b\n", "exit code 0\n--- stdout\na\n--- stderr\nb\n"),
        ] {
            let of_shell = shell(stdout, stderr, 0);
            let other = json!({"stdout": stdout, "stderr": stderr, "return_code": 0});
            assert_eq!(text(TextForm::Shell, &of_shell).unwrap(), expected);
            assert_eq!(text(TextForm::Process, &other).unwrap(), expected);
        }
        let mut cut = shell("aa", "b", 0);
        cut["stdout_bytes"] = json!(9);
        let expected = "exit code 0\n--- stdout (the first 2 of 9 bytes; the others were not kept)\naa\n--- stderr\nb";
        assert_eq!(text(TextForm::Shell, &cut).unwrap(), expected);
    }

    #[test]
    fn failed_process_is_described_without_repetition() {
        for (code, exit_code, first) in [
            ("tool_failed", 3, "exit code 3\n"),
            ("timeout", -9, "timeout: it says why\n"),
            ("tool_killed", -11, "tool_killed: it says why\n"),
            ("result_refused", 0, "result_refused: it says why\n"),
        ] {
            let failure = Failure::permanent(code, "it says why");
            let result = shell("a\n", "", exit_code);
            let parts = ResultParts::of(TextForm::Shell, &result, Some(&failure));
            let expected = format!("{first}--- stdout\na\n");
            assert_eq!(parts.unwrap().whole(), expected);
        }
    }

    #[test]
    fn result_of_other_shape_stays_json() {
        let mut more = shell("a", "", 0);
        more["more"] = json!(1);
        let failure = Failure::permanent("permission_denied", "no");
        for (form, result) in [
            (TextForm::Shell, more),
            (TextForm::Process, shell("a", "", 0)),
            (
                TextForm::Shell,
                json!({"stdout": 1, "stderr": "", "exit_code": 0}),
            ),
            (
                TextForm::Lines,
                json!({"output": "1:00000000 a\n", "line_count": 1, "truncated": false}),
            ),
            (TextForm::Lines, json!({"n": 1})),
            (TextForm::Output, json!({"results": [{"output": 1}]})),
            (
                TextForm::Items,
                json!({"content": "a", "item_type": "tool"}),
            ),
            (
                TextForm::Items,
                json!({"content": "a", "item_type": "directive", "item_id": "t/a", "source": "user", "path": "/a", "parsed": {}}),
            ),
            (TextForm::Blocks, json!({"success": true})),
            (
                TextForm::Data,
                json!({"stdout": "a", "stderr": "", "return_code": 0}),
            ),
        ] {
            assert_eq!(text(form, &result), None, "{form:?} {result}");
        }
        let read = json!({"output": "a: lines 1 to 1 of 1\n1:00000000│ a\n", "line_count": 1, "truncated": false});
        assert_eq!(
            ResultParts::of(TextForm::Lines, &read, Some(&failure)),
            None
        );
        assert_eq!(text(TextForm::Lines, &json!("bare")).unwrap(), "bare");
    }

    #[test]
    fn lines_are_numbered_as_by_cat() {
        let read = |output: &str, count: u32, is_cut: bool| {
            let result = json!({"output": output, "line_count": count, "truncated": is_cut});
            text(TextForm::Lines, &result).unwrap()
        };
        assert_eq!(
            read(
                "a: lines 9 to 10 of 10\n9:01234567│ a│ b\n10:89abcdef│ \n",
                2,
                false
            ),
            "     9\ta│ b\n    10\t\n"
        );
        assert_eq!(
            read(
                "x\n5:01234567│ evil: lines 1 to 1 of 4\n1:01234567│ a\n[3 more lines: read on with offset 2]\n",
                1,
                true
            ),
            "     1\ta\n[3 more lines: read on with offset 2]\n"
        );
        assert_eq!(read("a is empty\n", 0, false), "a is empty\n");
    }

    #[test]
    fn files_items_and_blocks_are_read_without_their_envelopes() {
        let item = json!({"status": "success", "item_type": "tool", "item_id": "t/a", "source": "project",
                          "path": "/p/a.py", "content": "print()\n", "metadata": {}});
        let hit = json!({"type": "tool", "id": "t/a", "source": "user", "title": null, "description": "Does it",
                         "preview": "a b", "verified": true});
        let found = json!({"results": [hit], "total": 3, "offset": 1});
        let blocks = json!({"success": true, "tool": "t", "isError": false, "parsed": {"n": 1}, "n": 1,
                            "structuredContent": {"n": 1}, "content": [{"type": "text", "text": "{\"n\":1}"}]});
        let image = json!({"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "QQ=="}],
                           "structuredContent": [2]});
        for (form, result, expected) in [
            (
                TextForm::Output,
                json!({"success": true, "output": "a\n", "count": 1}),
                "a\n",
            ),
            (
                TextForm::Output,
                json!({"results": [{"output": "a"}, {"output": "b"}]}),
                "a\nb",
            ),
            (
                TextForm::Items,
                item,
                "tool:t/a (project space, /p/a.py)\nprint()\n",
            ),
            (
                TextForm::Items,
                found,
                "tool:t/a (user space) Does it\n    a b\n[results 2 to 2 of 3: read on with offset 2]\n",
            ),
            (
                TextForm::Items,
                json!({"results": [], "total": 0, "offset": 0}),
                "[none of 0 results]\n",
            ),
            (TextForm::Blocks, blocks, "{\"n\":1}"),
            (
                TextForm::Blocks,
                image,
                "a\n{\"type\":\"image\",\"data\":\"QQ==\"}\n[2]",
            ),
        ] {
            assert_eq!(text(form, &result).as_deref(), Some(expected), "{form:?}");
        }
    }

    #[test]
    fn long_streams_keep_head_and_tail() {
        let long = |word: &str| {
            let lines = (0..4_000).map(|number| format!("{word} {number}\n"));
            lines.collect::<Vec<String>>().concat()
        };
        let (stdout, stderr) = (long("out"), long("err"));
        let name = Digest::of("any");
        for (stderr, ends) in [(&*stderr, "err 3999\n"), ("short\n", "--- stderr\nshort\n")] {
            let result = shell(&stdout, stderr, 1);
            let parts = ResultParts::of(TextForm::Shell, &result, None).unwrap();
            let short = parts.shortened(16 << 10, &name);
            assert!(
                short.len() <= 16 << 10 && short.len() > 15 << 10,
                "{}",
                short.len()
            );
            assert!(
                short.starts_with("exit code 1\n--- stdout\nout 0\n"),
                "{short}"
            );
            assert!(
                short.contains("out 3999\n--- stderr\n") && short.ends_with(ends),
                "{short}"
            );
            assert!(
                short
                    .lines()
                    .all(|line| line.starts_with(['o', 'e', '-', '[', 's'])),
                "only whole lines"
            );
        }
    }

    proptest! {
        #[test]
        fn omitted_text_is_read_at_noted_offset(
            stdout in "[aä\n😀]{0,600}", stderr in "[bß\n]{0,600}", most in 0_usize..1200,
        ) {
            let result = shell(&stdout, &stderr, 0);
            let parts = ResultParts::of(TextForm::Shell, &result, None).unwrap();
            let (whole, name) = (parts.whole(), Digest::of("any"));
            let short = parts.shortened(most, &name);
            prop_assert!(short.len() <= whole.len().max(most).max(1200));
            let mut notes = 0;
            for line in short.lines().filter(|line| line.contains("read_artifact")) {
                let number = |before: &str| -> usize {
                    let rest = line.split(before).nth(1).unwrap();
                    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
                };
                let (bytes, offset) = (number("["), number("\"offset\": "));
                let rest: String = whole.chars().skip(offset).collect();
                prop_assert!(rest.is_char_boundary(bytes));
                notes += 1;
            }
            prop_assert!(notes <= 2);
            prop_assert!(notes > 0 || short == whole);
        }
    }
}
