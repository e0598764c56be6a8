//! Outcomes of cases: a line for people, JSON for programs, and `JUnit` XML for build servers. Pure.

use std::path::PathBuf;
use std::time::Duration;

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};
use rye_proto::convert;
use serde_json::{Value, json};

use super::compare::Problem;
use crate::render::{self, Style};

/// Outcome of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Path of the test file in the project.
    pub(super) file: PathBuf,
    pub(super) tool: String,
    pub(super) case: String,
    /// Empty if the case passed.
    pub(super) problems: Vec<Problem>,
    pub(super) elapsed: Duration,
    /// Id of the run; empty if there was none.
    pub(super) run_id: String,
    /// Directory of the case, if it was kept.
    pub(super) directory: Option<PathBuf>,
}

impl Report {
    const fn has_passed(&self) -> bool {
        self.problems.is_empty()
    }

    fn milliseconds(&self) -> u64 {
        convert::milliseconds(self.elapsed)
    }

    /// Renders the line of the case, with its problems below.
    pub(crate) fn text(&self, style: Style) -> String {
        let mark = if self.has_passed() {
            style.green("✓")
        } else {
            style.red("✗")
        };
        let elapsed = render::elapsed(self.milliseconds());
        let mut lines = vec![format!("{mark} {}: {} {elapsed}", self.tool, self.case)];
        let mut add = |line: &str| lines.push(format!("    {line}"));
        for problem in &self.problems {
            problem.message.lines().for_each(&mut add);
            for line in problem.diff.iter().flat_map(|diff| diff.lines()) {
                match line.chars().next() {
                    Some('-') => add(&style.red(line)),
                    Some('+') => add(&style.green(line)),
                    Some(_) | None => add(line),
                }
            }
        }
        if let Some(directory) = &self.directory {
            add(&format!("it ran in {}", directory.display()));
        }
        lines.join("\n")
    }

    fn to_json(&self) -> Value {
        json!({
            "file": self.file,
            "tool": self.tool,
            "name": self.case,
            "status": if self.has_passed() { "passed" } else { "failed" },
            "elapsed_ms": self.milliseconds(),
            "run_id": Some(&self.run_id).filter(|run| !run.is_empty()),
            "problems": self.problems,
            "directory": self.directory,
        })
    }

    fn junit(&self) -> TestCase {
        let mut status = TestCaseStatus::success();
        if let Some(first) = self.problems.first() {
            let all = self.problems.iter().map(|problem| match &problem.diff {
                Some(diff) => format!("{}\n{diff}", problem.message),
                None => problem.message.clone(),
            });
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status
                .set_message(first.message.as_str())
                .set_description(all.collect::<Vec<_>>().join("\n"));
        }
        let mut case = TestCase::new(self.case.as_str(), status);
        case.set_classname(self.tool.as_str())
            .set_time(self.elapsed);
        case
    }
}

/// Returns the numbers of passed and failed cases.
pub(crate) fn count(reports: &[Report]) -> (usize, usize) {
    let passed = reports.iter().filter(|report| report.has_passed()).count();
    (passed, reports.len() - passed)
}

/// Returns all reports as one JSON document.
pub(crate) fn document(reports: &[Report]) -> Value {
    let (passed, failed) = count(reports);
    let cases: Vec<Value> = reports.iter().map(Report::to_json).collect();
    json!({"passed": passed, "failed": failed, "cases": cases})
}

/// Renders all reports as `JUnit` XML, with one suite per file.
pub(crate) fn junit(reports: &[Report], elapsed: Duration) -> Result<String, SerializeError> {
    let mut whole = quick_junit::Report::new("ryectl test");
    whole.set_time(elapsed);
    for of_file in reports.chunk_by(|one, next| one.file == next.file) {
        let Some(first) = of_file.first() else {
            continue;
        };
        let mut suite = TestSuite::new(first.file.display().to_string());
        suite.set_time(of_file.iter().map(|report| report.elapsed).sum());
        suite.add_test_cases(of_file.iter().map(Report::junit));
        whole.add_test_suite(suite);
    }
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(case: &str, problems: Vec<Problem>) -> Report {
        Report {
            file: ".ai/tools/a/b.test.yaml".into(),
            tool: "a/b".to_owned(),
            case: case.to_owned(),
            problems,
            elapsed: Duration::from_millis(40),
            run_id: String::new(),
            directory: None,
        }
    }

    #[test]
    fn case_report_is_line_followed_by_problems() {
        assert_eq!(
            report("adds", vec![]).text(Style::Plain),
            "✓ a/b: adds 40ms"
        );
        let problem = Problem {
            message: "the result is another one".to_owned(),
            diff: Some("- 1\n+ 2".to_owned()),
        };
        assert_eq!(
            report("adds", vec![problem]).text(Style::Plain),
            "✗ a/b: adds 40ms\n    the result is another one\n    - 1\n    + 2"
        );
    }

    #[test]
    fn junit_report_is_valid_xml_for_any_tool_output() {
        let said = "]]> \u{1b}[31m<é> & \u{0}";
        let problem = Problem {
            message: said.to_owned(),
            diff: Some("- 1".to_owned()),
        };
        let reports = [report("one", vec![]), report("<two>", vec![problem])];
        let xml = junit(&reports, Duration::from_secs(1)).unwrap();
        let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
        let suite = &read.test_suites[0];
        assert_eq!((suite.tests, suite.failures, read.tests), (2, 1, 2));
        assert_eq!(suite.test_cases[1].name.as_str(), "<two>");
        assert!(
            xml.contains("classname=\"a/b\"") && !xml.contains('\u{0}'),
            "{xml}"
        );
    }
}
