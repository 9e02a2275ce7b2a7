//! Splits the text of `console` blocks into commands and outputs, and command lines into words.

use fancy_regex::Regex;

/// Command of a `console` block, with the lines that it prints.
pub(super) struct Step {
    /// Number of the first line in the page.
    pub(super) line: usize,
    /// Command line. `None` if the block begins with the output of a command that still runs.
    pub(super) command: Option<String>,
    pub(super) output: Vec<String>,
}

/// Splits the text of a block whose first line is line `first` of the page.
///
/// A command begins with `$ `. It extends over the lines of a `\` at the end of a line, of an open
/// quote, and of a here-document.
pub(super) fn steps(text: &str, first: usize) -> Result<Vec<Step>, String> {
    let heredoc = Regex::new(r#"<<-?\s*['"]?(\w+)['"]?"#).expect("a pattern");
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = (first..).zip(text.lines());
    while let Some((line, text)) = lines.next() {
        let Some(command) = text.strip_prefix("$ ") else {
            if steps.is_empty() {
                steps.push(Step {
                    line,
                    command: None,
                    output: Vec::new(),
                });
            }
            steps
                .last_mut()
                .expect("pushed above")
                .output
                .push(text.to_owned());
            continue;
        };
        let mut command = command.to_owned();
        let end = heredoc
            .captures(command.as_str())
            .expect("a search that ends");
        if let Some(end) = end.map(|found| found[1].to_owned()) {
            for (_, text) in lines.by_ref() {
                command.push('\n');
                command.push_str(text);
                if text == end {
                    break;
                }
            }
        } else {
            while command.ends_with('\\') || simple_commands(&command).is_none() {
                let (_, text) = lines
                    .next()
                    .ok_or(format!("{line}: an open end: {command}"))?;
                command.push('\n');
                command.push_str(text);
            }
        }
        steps.push(Step {
            line,
            command: Some(command),
            output: Vec::new(),
        });
    }
    Ok(steps)
}

/// Returns the words of each simple command of a command line, without redirections and variable
/// assignments. Returns `None` if a quote is open.
///
/// The bodies of here-documents and of command substitutions are not looked at.
pub(super) fn simple_commands(text: &str) -> Option<Vec<Vec<String>>> {
    let (text, _) = text.split_once("<<").unwrap_or((text, ""));
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut is_redirect = false;
    let mut chars = text.chars().peekable();
    loop {
        let next = chars.next();
        let ends_command = matches!(next, Some('|' | '&' | ';' | '\n' | '(' | ')') | None);
        if ends_command || matches!(next, Some(' ' | '\t' | '<' | '>')) {
            let number = word
                .as_ref()
                .is_some_and(|w| w.chars().all(|c| c.is_ascii_digit()));
            let is_descriptor = number && matches!(next, Some('<' | '>'));
            if let Some(word) = word.take()
                && !is_descriptor
                && !std::mem::take(&mut is_redirect)
            {
                commands.last_mut()?.push(word);
            }
        }
        match next {
            None => break,
            Some(' ' | '\t') => {}
            Some('<' | '>') => {
                while chars
                    .next_if(|c| matches!(c, '<' | '>' | '&' | ' '))
                    .is_some()
                {}
                is_redirect = true;
            }
            Some('#') if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            _ if ends_command => commands.push(Vec::new()),
            Some('\\') => match chars.next()? {
                '\n' => {}
                escaped => word.get_or_insert_default().push(escaped),
            },
            Some('\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            Some('"') => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => word.push(chars.next()?),
                        quoted => word.push(quoted),
                    }
                }
            }
            Some('$') if chars.next_if_eq(&'(').is_some() => {
                let word = word.get_or_insert_default();
                word.push_str("$(");
                let mut depth = 1;
                while depth > 0 {
                    let inner = chars.next()?;
                    depth += i32::from(inner == '(') - i32::from(inner == ')');
                    word.push(inner);
                }
            }
            Some(other) => word.get_or_insert_default().push(other),
        }
    }
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    for command in &mut commands {
        let assignments = command
            .iter()
            .take_while(|word| is_assignment(word))
            .count();
        command.drain(..assignments);
    }
    commands.retain(|command| !command.is_empty());
    Some(commands)
}

/// Removes `sudo` from the words of a command. Returns whether the command runs as another user
/// than root.
pub(super) fn strip_sudo(words: &mut Vec<String>) -> bool {
    if words.first().is_none_or(|word| word != "sudo") {
        return false;
    }
    let as_user = words.get(1).is_some_and(|word| word == "-u");
    words.drain(..if as_user { 3.min(words.len()) } else { 1 });
    as_user
}

#[test]
fn commands_are_split_like_in_a_shell() {
    let words = |text: &str| {
        simple_commands(text).map(|commands| {
            commands
                .iter()
                .map(|words| words.join("|"))
                .collect::<Vec<_>>()
                .join(" ; ")
        })
    };
    for (text, expected) in [
        ("A=1 B='x y' caproot list", "caproot|list"),
        (
            "cd ~ && caproot check skills 2>&1 | grep x",
            "cd|~ ; caproot|check|skills ; grep|x",
        ),
        ("a --deny > out.sarif b", "a|--deny|b"),
        (
            "a \"$(cat 'b c')\" $(d e) \\\n  'f g'",
            "a|$(cat 'b c')|$(d e)|f g",
        ),
        ("a <<'END'\nnot | words\nEND", "a"),
        ("a root=b # c; d", "a|root=b"),
    ] {
        assert_eq!(words(text).as_deref(), Some(expected), "{text}");
    }
    assert_eq!(words("a 'b"), None);
    assert_eq!(words("a $(b"), None);
}

#[test]
fn blocks_are_split_into_commands_and_outputs() {
    let text = "first\n$ a \\\n    b\nc\n\n$ d <<E\n$ x\nE\n$ e 'f\n  g'\nh\n";
    let shown: Vec<_> = steps(text, 7)
        .expect("no open end")
        .into_iter()
        .map(|step| {
            (
                step.line,
                step.command.unwrap_or_default(),
                step.output.join("/"),
            )
        })
        .collect();
    let expected = [
        (7, "", "first"),
        (8, "a \\\n    b", "c/"),
        (12, "d <<E\n$ x\nE", ""),
        (15, "e 'f\n  g'", "h"),
    ];
    let expected = expected.map(|(line, command, output)| (line, command.into(), output.into()));
    assert_eq!(shown, expected);
    assert!(steps("$ a 'b\n", 1).is_err());
}
