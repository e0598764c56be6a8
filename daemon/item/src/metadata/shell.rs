//! Metadata block of a shell script: YAML between two lines `# ---` of the comment at its top.

/// The block without its comment signs, and the number of lines above it; `None` if there is none.
pub(super) fn block(text: &str) -> Option<(usize, String)> {
    let comment = |line: &'_ str| line.starts_with('#');
    let mut lines = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| comment(line));
    let (opening, _) = lines.find(|(_, line)| is_rule(line))?;
    let mut block = String::new();
    for (_, line) in lines {
        if is_rule(line) {
            return Some((opening + 1, block));
        }
        let line = line.strip_prefix('#').unwrap_or(line);
        block.push_str(line.strip_prefix(' ').unwrap_or(line));
        block.push('\n');
    }
    None
}

fn is_rule(line: &str) -> bool {
    line.trim_end() == "# ---"
}
